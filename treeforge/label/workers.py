"""Worker processes for symbolic work: warm, reused, limited in memory and time, killed and replaced when over.

Plain subprocesses that speak JSON lines, so that they work under asyncio, threads, forked hosts and notebooks, need no
signals, and unpickle nothing. Run as `python -m treeforge.label.workers` in the child.
"""

from __future__ import annotations

import atexit
import os
import queue
import subprocess
import sys
import threading
from typing import IO

import msgspec

from treeforge.errors import TreeforgeError
from treeforge.label.syntax import Node

MEMORY_BYTES = 2 << 30
"""Address space of a worker."""
CPU_SECONDS = 120
"""Processor time of a worker's whole life."""
JOBS_A_LIFE = 300
"""A worker is replaced after so many jobs."""
_WARM_UP = (
    ("\\sum_{n=0}^{\\infty} \\frac{1}{n!}", "e"),
    ("\\lim_{x\\to 0} \\frac{\\sin x}{x}", "1"),
    ("x^2<4", "|x|<2"),
)
START_SECONDS = 60.0
"""How long a worker may take to import sympy."""


class Job(msgspec.Struct, frozen=True):
    """Two syntax trees to compare."""

    a: Node
    b: Node


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Job).decode


class SymbolicWorker:
    """One worker process, started when it is first needed. Thread-safe: one job at a time."""

    def __init__(self, seconds: float = 4.0) -> None:
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
                answer = self._answers.get(timeout=self.seconds)
            except (queue.Empty, OSError):
                self._stop()
                return None
            self._jobs += 1
            if not answer or self._jobs >= JOBS_A_LIFE:
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
                [sys.executable, "-m", "treeforge.label.workers"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            self._jobs, self._answers = 0, queue.Queue()
            atexit.register(self.close)
            assert self._process.stdout is not None
            reader = threading.Thread(target=_read, args=(self._process.stdout, self._answers), daemon=True)
            reader.start()
            try:
                ready = self._answers.get(timeout=START_SECONDS)
            except queue.Empty:
                ready = b""
            if ready != b"ready\n":
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


def _read(stream: IO[bytes], answers: queue.Queue[bytes]) -> None:
    """Lines of a worker to its queue, an empty one at the end."""
    try:
        for line in stream:
            answers.put(line)
    except (OSError, ValueError):
        pass
    answers.put(b"")


def serve(jobs: IO[bytes], answers: IO[bytes]) -> None:
    """The child: one JSON line a job, one line an answer, until the parent closes the pipe."""
    _limit()
    import sympy  # noqa: F401  (loaded before the first job's clock starts)

    from treeforge.label.parse import parse
    from treeforge.label.symbolic import symbolic_same

    for a, b in _WARM_UP:  # sympy imports much of itself at first use
        symbolic_same(parse(a), parse(b))
    answers.write(b"ready\n")
    answers.flush()
    for line in jobs:
        try:
            job = _decode(line)
            result = symbolic_same(job.a, job.b)
        except (MemoryError, RecursionError, msgspec.DecodeError):
            result = None
        answers.write(_encode(result) + b"\n")
        answers.flush()


def _limit() -> None:
    try:
        import resource
    except ImportError:  # not on Windows: there the parent's clock is the only limit
        return
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))


if __name__ == "__main__":
    serve(sys.stdin.buffer, sys.stdout.buffer)
