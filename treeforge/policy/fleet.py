"""Server processes on this machine: started together, watched, started again within limits, and ended with us."""

from __future__ import annotations

import asyncio
import logging
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from treeforge.errors import ConfigError, PolicyUnavailableError
from treeforge.policy import keeper

_log = logging.getLogger(__name__)

_STEADY_SECONDS = 3600.0
_LONGEST_BACKOFF = 60.0
_CHECK_TIMEOUT = 10.0
_HOST = "127.0.0.1"


class Launch(msgspec.Struct, frozen=True, kw_only=True):
    """One server to start."""

    command: tuple[str, ...]
    port: int
    """It answers `GET /health` here, on this machine, once it is ready."""
    environment: dict[str, str]
    """The whole environment of the process."""
    log: Path
    """What it writes is appended here."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait for a server, in seconds, and how often to start it again."""

    start: float = 1800.0
    """From the start of the process until it is healthy."""
    check: float = 2.0
    """Between two looks at its health."""
    silent: int = 15
    """As many looks in a row without an answer (each waits 10 s at most), and it counts as lost."""
    stop: float = 15.0
    """From SIGTERM to SIGKILL."""
    backoff: float = 1.0
    """Before the first restart; doubled each time, 60 at most."""
    restarts: int = 5
    """Of one server; an hour of health makes them good again."""


class Fleet:
    """Several servers of one kind; made inside an event loop.

    `cause(log, since)`: the words in a log, from a byte on, that say what went wrong.
    """

    def __init__(
        self, launches: Sequence[Launch], cause: Callable[[Path, int], str], patience: Patience | None = None
    ) -> None:
        self._patience = patience or Patience()
        self._servers = [_Server(number, launch, cause, self._patience) for number, launch in enumerate(launches)]
        self._tasks: list[asyncio.Task[None]] = []

    @property
    def urls(self) -> list[str]:
        """The servers' addresses; they stay the same over restarts."""
        return [f"http://{_HOST}:{port}" for port in self.ports]

    @property
    def ports(self) -> list[int]:
        """The servers' ports."""
        return [server.launch.port for server in self._servers]

    @property
    def restarts(self) -> int:
        """Restarts of all servers so far."""
        return sum(server.restarted for server in self._servers)

    async def start(self) -> None:
        """Start all servers and wait until all are healthy.

        Raises `ConfigError`, in the server's words, as soon as one ends or its time is over before it ever was: it
        would not fare better the next time. Nothing runs on then.
        """
        self._tasks = [asyncio.create_task(server.keep()) for server in self._servers]
        try:
            await asyncio.gather(*(server.first_ready for server in self._servers))
        except BaseException:
            await self.stop()
            raise

    async def ready(self) -> None:
        """Wait until at least one server is healthy. Raises `PolicyUnavailableError` once all are given up."""
        while not any(server.healthy for server in self._servers):
            if all(server.given_up for server in self._servers):
                reasons = "\n".join(f"  {server.name}: {server.given_up}" for server in self._servers)
                raise PolicyUnavailableError(f"all servers were given up:\n{reasons}")
            await asyncio.sleep(self._patience.check / 4)

    async def stop(self) -> None:
        """End all servers, together with what they started; may be called twice."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for server in self._servers:
            server.first_ready.cancel()


class _Server:
    def __init__(self, number: int, launch: Launch, cause: Callable[[Path, int], str], patience: Patience) -> None:
        self.name, self.launch, self.restarted = f"replica {number}", launch, 0
        self.healthy = False
        self.given_up = ""
        self.first_ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._cause, self._patience = cause, patience

    async def keep(self) -> None:
        """Run the server, again and again within limits, until cancelled."""
        failures = 0
        while True:
            started = time.monotonic()
            try:
                lost = await self._run()
            except OSError as error:  # no process, no log file
                lost = f"it cannot be started: {error}"
            if not self.first_ready.done():
                self.given_up = lost
                self.first_ready.set_exception(ConfigError(f"{self.name} does not start: {lost}"))
                return
            failures = 1 if time.monotonic() - started > _STEADY_SECONDS else failures + 1
            if failures > self._patience.restarts:
                self.given_up = f"{lost}; it was started again {failures - 1} times"
                _log.error("%s is given up: %s", self.name, self.given_up)
                return
            wait = min(self._patience.backoff * 2 ** (failures - 1), _LONGEST_BACKOFF)
            _log.warning("%s: %s. Restart %d of %d", self.name, lost, failures, self._patience.restarts)
            await asyncio.sleep(wait)
            self.restarted += 1

    async def _run(self) -> str:
        """Run the process once, until it ends, falls silent or does not get healthy in time; the reason in words."""
        patience, log = self._patience, self.launch.log
        log.parent.mkdir(parents=True, exist_ok=True)
        with log.open("ab") as stream:
            since = stream.tell()
            # Its input is our hold on it: the keeper ends the server when that is closed, by us or by our death.
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-I", str(Path(keeper.__file__)), str(patience.stop), "--", *self.launch.command),
                stdin=subprocess.PIPE,
                stdout=stream,
                stderr=stream,
                env=self.launch.environment,
                start_new_session=True,
            )
        ended = asyncio.ensure_future(process.wait())
        try:
            return await self._watch(ended, since)
        finally:
            self.healthy = False
            assert process.stdin is not None
            process.stdin.close()
            await asyncio.shield(ended)

    async def _watch(self, ended: asyncio.Future[int], since: int) -> str:
        patience, deadline, silent = self._patience, time.monotonic() + self._patience.start, 0
        while True:
            await asyncio.wait([ended], timeout=patience.check)
            if ended.done():
                words = self._cause(self.launch.log, since)
                return f"ended with exit code {ended.result()}" + (f": {words}" if words else "") + self._where()
            if await http_get(self.launch.port, "/health") is not None:
                silent, self.healthy = 0, True
                if not self.first_ready.done():
                    self.first_ready.set_result(None)
            elif self.healthy:
                silent += 1
                if silent >= patience.silent:
                    return f"it no longer answers{self._where()}"
            elif time.monotonic() > deadline:
                return f"not ready after {patience.start:g} s{self._where()}"

    def _where(self) -> str:
        return f" (see {self.launch.log})"


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nobody listens at now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for one in sockets:
            one.bind((_HOST, 0))
        return [one.getsockname()[1] for one in sockets]
    finally:
        for one in sockets:
            one.close()


def shares(items: Sequence[str], count: int) -> list[list[str]]:
    """Cut items (GPUs, cores) into `count` runs of equal length; what is left over goes to nobody."""
    each = len(items) // count
    return [list(items[i * each : (i + 1) * each]) for i in range(count)]


def pinned(environment: Mapping[str, str], replica: int, replicas: int, gpus: int) -> dict[str, str]:
    """The environment in which a replica sees its own `gpus` GPUs only, out of those that we see ourselves.

    Raises `ConfigError` where `CUDA_VISIBLE_DEVICES` names too few.
    """
    seen = environment.get("CUDA_VISIBLE_DEVICES")
    devices = [str(n) for n in range(replicas * gpus)] if seen is None else [d for d in seen.split(",") if d.strip()]
    if len(devices) < replicas * gpus:
        raise ConfigError(
            f"machine.replicas: {replicas} replicas of {gpus} GPU each need {replicas * gpus} GPUs; "
            f"CUDA_VISIBLE_DEVICES names {len(devices)}"
        )
    return {**environment, "CUDA_VISIBLE_DEVICES": ",".join(devices[replica * gpus : (replica + 1) * gpus])}


async def http_get(port: int, path: str) -> bytes | None:
    """The body of a page of a server on this machine, or None where it does not answer with 200."""
    try:
        async with asyncio.timeout(_CHECK_TIMEOUT):
            reader, writer = await asyncio.open_connection(_HOST, port)
            try:
                writer.write(f"GET {path} HTTP/1.0\r\nHost: {_HOST}:{port}\r\n\r\n".encode())
                reply = await reader.read()
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return None
    head, _, body = reply.partition(b"\r\n\r\n")
    return body if head.split()[1:2] == [b"200"] else None
