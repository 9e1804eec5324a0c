"""Ends processes when the process that started this script is gone, by whatever death. Standard library only.

    keeper.py SECONDS PID...         end these processes
    keeper.py SECONDS -- COMMAND...  run a command as a process group of its own, end that group, exit with its code

Gone is who holds the other end of our standard input: the system closes it even after `kill -9`, which no handler in
that process could see. Closing it is also how the processes are ended on purpose. SIGTERM first, and SIGKILL after
SECONDS: vLLM's engine is a child of its server, and would keep its GPU's memory if only the server were ended.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable

_POLL_SECONDS = 0.1
_CRASH_SECONDS = 1.0


def main(arguments: list[str]) -> int:
    """Run the script; the exit code is the command's, 128 + N where signal N ended it."""
    seconds = float(arguments[0])
    # A terminal's Ctrl-C and a batch system's SIGTERM reach all processes of a job; ours is told by its input.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    if arguments[1] == "--":
        return _run(arguments[2:], seconds)
    _guard([int(pid) for pid in arguments[1:]], seconds)
    return 0


def _run(command: list[str], seconds: float) -> int:
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, start_new_session=True)
    while child.poll() is None and not _closed(_POLL_SECONDS):
        pass
    if child.returncode is not None:  # what a crash leaves behind has nothing to finish
        seconds = min(seconds, _CRASH_SECONDS)
    _end(lambda number: os.killpg(child.pid, number), lambda: child.poll() is not None, seconds)
    code = child.wait()
    return code if code >= 0 else 128 - code


def _guard(pids: list[int], seconds: float) -> None:
    # A process id is used again one day; the start time tells a stranger.
    started = {pid: stamp for pid in pids if (stamp := _start_time(pid))}
    while not _closed(60.0):
        pass

    def send(number: int) -> None:
        left = [pid for pid, stamp in started.items() if _start_time(pid) == stamp]
        if not left:
            raise ProcessLookupError
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, number)

    _end(send, lambda: True, seconds)


def _end(send: Callable[[int], None], reaped: Callable[[], bool], seconds: float) -> None:
    """SIGTERM, and SIGKILL to what is left; `send` raises `ProcessLookupError` once nothing is."""
    try:
        send(signal.SIGTERM)
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            time.sleep(_POLL_SECONDS)
            reaped()
            send(0)
        send(signal.SIGKILL)
    except (ProcessLookupError, PermissionError):  # macOS answers the latter where only zombies are left
        return


def _closed(seconds: float) -> bool:
    """Standard input was closed, waiting for it that long at most."""
    readable, _, _ = select.select([0], [], [], seconds)
    return bool(readable) and os.read(0, 1) == b""


def _start_time(pid: int) -> str:
    """A text that tells a process from a later one with its id; '' where there is none (or only a zombie)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as stream:
            fields = stream.read().rpartition(")")[2].split()
        return "" if fields[0] == "Z" else fields[19]
    except OSError:
        pass
    if os.path.isdir("/proc/self"):
        return ""
    found = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return found.stdout.strip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
