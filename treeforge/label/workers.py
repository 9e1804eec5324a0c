"""Worker processes for symbolic work: warm, reused, limited in memory and time, killed and replaced when over.

Plain subprocesses that speak JSON lines, so that they work under asyncio, threads, forked hosts and notebooks, need no
signals, and unpickle nothing. Run as `python -m treeforge.label.workers` in the child.
"""

from __future__ import annotations

import atexit
import math
import os
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO

import msgspec

from treeforge.errors import TreeforgeError
from treeforge.label.syntax import Node

try:
    import resource
except ImportError:  # not on Windows: there the parent's clock is the only limit
    resource = None  # type: ignore[assignment]

MEMORY_BYTES = 2 << 30
"""Address space of a worker."""
JOBS_A_LIFE = 300
"""A worker is replaced after so many jobs."""
_WARM_UP = (
    ("\\sum_{n=0}^{\\infty} \\frac{1}{n!}", "e"),
    ("\\lim_{x\\to 0} \\frac{\\sin x}{x}", "1"),
    ("x^2<4", "|x|<2"),
)
START_SECONDS = 60.0
"""How long a worker may take to import sympy."""


_READY, _RETIRED, _GONE = b"ready\n", b"retired\n", b""
_PATIENCE = 5
"""Wall-clock seconds that the parent waits for a second of the child's processor time."""


class Job(msgspec.Struct, frozen=True):
    """Two syntax trees to compare."""

    a: Node
    b: Node


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Job).decode


class SymbolicWorker:
    """One worker process, started when it is first needed. Thread-safe: one job at a time."""

    def __init__(self, seconds: float = 2.0) -> None:
        """`seconds`: processor time of one job; the wall clock may show five times as much."""
        self.seconds = seconds
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._owner = os.getpid()
        self._jobs = 0

    def start(self) -> None:
        """Start the process and wait until sympy is loaded. Raises `TreeforgeError` where it does not start."""
        with self._exclusive():
            self._ensure()

    def same(self, a: Node, b: Node) -> bool | None:
        """Whether sympy finds the two the same; None where it does not say, or not within the time."""
        with self._exclusive():
            try:
                line = _encode(Job(a, b)) + b"\n"
                process = self._ensure()
            except (TreeforgeError, OSError, UnicodeEncodeError):  # lone surrogates have no JSON
                return None
            assert process.stdin is not None
            try:
                process.stdin.write(line)
                process.stdin.flush()
                answer = self._answers.get(timeout=_PATIENCE * self.seconds)
            except (queue.Empty, OSError):
                answer = _GONE
            self._jobs += 1
            if answer in (_GONE, _RETIRED) or self._jobs >= JOBS_A_LIFE:
                self._stop()
            return {b"true\n": True, b"false\n": False}.get(answer)

    def close(self) -> None:
        """End the process; the next job starts another one."""
        with self._exclusive():
            self._stop()

    def _exclusive(self) -> threading.Lock:
        """The lock; in a forked child a new one, and no process: the parent's thread and pipes are not ours."""
        if self._owner != os.getpid():
            self._owner, self._process, self._lock = os.getpid(), None, threading.Lock()
        return self._lock

    def _ensure(self) -> subprocess.Popen[bytes]:
        if self._process is not None and self._process.poll() is not None:
            self._stop()
        if self._process is None:
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "treeforge.label.workers", str(self.seconds)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=os.environ | {"PYTHONPATH": _search_path()},
            )
            self._jobs, self._answers = 0, queue.Queue()
            atexit.register(self.close)
            assert self._process.stdout is not None
            reader = threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True)
            reader.start()
            try:
                ready = self._answers.get(timeout=START_SECONDS)
            except queue.Empty:
                ready = _GONE
            if ready != _READY:
                self._stop()
                raise TreeforgeError("the symbolic worker did not start; is sympy installed for this Python?")
        return self._process

    def _stop(self) -> None:
        atexit.unregister(self.close)
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    try:
                        stream.close()
                    except OSError:
                        pass


def _search_path() -> str:
    """Where the child finds this package, also where it is not installed; never the working directory."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join(path for path in (here, os.environ.get("PYTHONPATH")) if path)


def _read(stream: IO[bytes], answers: queue.Queue[bytes]) -> None:
    """Lines of a worker to its queue, an empty one at the end."""
    try:
        for line in stream:
            answers.put(line)
    except (OSError, ValueError):
        pass
    answers.put(_GONE)


def serve(jobs: IO[bytes], answers: IO[bytes], seconds: float) -> None:
    """The child: one JSON line a job, one line an answer, until the parent closes the pipe.

    A job that takes more processor time than `seconds` (rounded up) ends the process.
    """
    _limit_memory()
    from treeforge.label.parse import parse
    from treeforge.label.symbolic import symbolic_same

    for a, b in _WARM_UP:  # sympy imports much of itself at first use
        symbolic_same(parse(a), parse(b))
    answers.write(_READY)
    answers.flush()
    for line in jobs:
        _limit_time(seconds)
        try:
            job = _decode(line)
            answer = _encode(symbolic_same(job.a, job.b)) + b"\n"
        except (MemoryError, RecursionError):
            answer = _RETIRED
        answers.write(answer)
        answers.flush()


def _limit_memory() -> None:
    if resource is not None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))


def _limit_time(seconds: float) -> None:
    """Let this process die of SIGXCPU after so much more processor time, however busy the machine is."""
    if resource is not None:
        _, most = resource.getrlimit(resource.RLIMIT_CPU)
        resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(time.process_time() + seconds), most))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer, float(sys.argv[1]))
