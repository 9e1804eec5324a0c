"""`ReplicasPolicy`: one vLLM server a GPU on this machine, started and ended with the run."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import secrets
import sys
from pathlib import Path
from typing import Any

from treeforge.config import Machine, PolicyConfig, SamplingConfig, StepsConfig
from treeforge.errors import ConfigError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.base import PromptCache, Request, Sample
from treeforge.policy.checkpoint import Checkpoint, model_identity
from treeforge.policy.fleet import Fleet, Launch, Patience, free_ports, http_get, pinned, shares
from treeforge.policy.server import ServerPolicy
from treeforge.policy.vllm_options import ADAPTER, QUIET, cause_in_log, engine_options, engine_version, server_flags

_log = logging.getLogger(__name__)

_COUNTS_SECONDS = 2.0
_CACHE_METRIC = re.compile(rb"^vllm:prefix_cache_(queries|hits)_total\{[^}]*\} ([0-9.e+]+)$", re.MULTILINE)


class ReplicasPolicy:
    """`machine.replicas` servers of one model, each on `tensor_parallel_size` GPUs; a tree's requests go to one.

    The policy's identity is that of the same model in this process (`VllmPolicy`): a run may go on with either.
    """

    def __init__(
        self,
        config: PolicyConfig,
        steps: StepsConfig,
        sampling: SamplingConfig,
        machine: Machine,
        *,
        logs: Path | None = None,
        patience: Patience | None = None,
    ) -> None:
        if machine.servers or machine.servers_file:
            raise ConfigError("machine.replicas starts servers itself; leave machine.servers out, or set it to 0")
        self._config, self._steps, self._sampling, self._machine = config, steps, sampling, machine
        self._version, self._on_cpu = engine_version()
        self._options = engine_options(config, machine, on_cpu=self._on_cpu)
        self._logs = (logs or Path("logs")).absolute()
        self._patience = patience
        self._identity: dict[str, Any] = {}
        self._fleet: Fleet | None = None
        self._servers: ServerPolicy | None = None

    @property
    def identity(self) -> dict[str, Any]:
        """See `model_identity`; empty before `start`."""
        return self._identity

    @property
    def prompt_cache(self) -> PromptCache | None:
        """What the servers tell with their replies; see `ServerPolicy.prompt_cache`."""
        return None if self._servers is None else self._servers.prompt_cache

    async def start(self) -> None:
        """Start the servers and wait until all are ready; minutes for a large model.

        Raises `MissingExtraError`, `ConfigError` (unknown model or engine argument, a model that does not fit, a chat
        template that does not) or `PolicyUnavailableError`.
        """
        checkpoint = await asyncio.to_thread(Checkpoint, self._config.model, self._options)
        steps = checkpoint.as_completion(self._steps)
        # The key keeps other users of this machine out; it lives as long as the run.
        name, key = checkpoint.name, secrets.token_hex(16)
        count = self._machine.replicas
        launches = [self._launch(checkpoint, name, key, i, port) for i, port in enumerate(free_ports(count))]
        _log.info("starting %d vLLM servers; their logs are %s/vllm-*.log", count, self._logs)
        self._fleet = Fleet(launches, cause_in_log, self._patience)
        await self._fleet.start()
        self._servers = ServerPolicy(
            ADAPTER if self._config.adapter else name,
            steps,
            self._sampling,
            servers=tuple(self._fleet.urls),
            api_key=key,
            timeout=self._machine.request_timeout,
            concurrency=self._machine.concurrency,
        )
        await self._servers.start()
        self._identity = model_identity(checkpoint, self._config, self._version)

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """As `ServerPolicy.sample`; while no server is up, waits for one that is being started again.

        Raises `RequestFailedError`, or `PolicyUnavailableError` once all servers are given up.
        """
        fleet, servers = self._fleet, self._servers
        if fleet is None or servers is None:
            raise PolicyUnavailableError("the vllm policy is not started, or closed")
        await fleet.ready()
        try:
            return await servers.sample(request)
        except PolicyUnavailableError as error:
            # They all went down a moment ago; those that come back are waited for at the next attempt.
            raise RequestFailedError(str(error)) from error

    async def close(self) -> None:
        """Say how the servers did, and end them; may be called twice."""
        servers, self._servers = self._servers, None
        fleet, self._fleet = self._fleet, None
        if servers is not None:
            await servers.close()
        if fleet is None:
            return
        try:
            if servers is not None:
                async with asyncio.timeout(_COUNTS_SECONDS):
                    _log.info("vLLM: %s; %d restarts", await _cache_counts(fleet.ports), fleet.restarts)
        except TimeoutError:
            pass
        finally:
            await fleet.stop()

    def _launch(self, checkpoint: Checkpoint, name: str, key: str, replica: int, port: int) -> Launch:
        # The console script of some builds does not start; the module does.
        command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", checkpoint.source]
        command += ["--served-model-name", name, "--host", "127.0.0.1", "--port", str(port)]
        command += ["--disable-uvicorn-access-log", "--enable-prompt-tokens-details", *server_flags(self._options)]
        if self._config.adapter:
            command += ["--lora-modules", f"{ADAPTER}={Path(self._config.adapter).expanduser().absolute()}"]
        return Launch(
            command=tuple(command),
            port=port,
            environment=self._environment(checkpoint, key, replica),
            log=self._logs / f"vllm-{replica}.log",
        )

    def _environment(self, checkpoint: Checkpoint, key: str, replica: int) -> dict[str, str]:
        own = {**QUIET, "VLLM_API_KEY": key}
        if Path(checkpoint.source).is_dir():
            own |= {"HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1"}
        count = self._machine.replicas
        if self._on_cpu:
            if hasattr(os, "sched_getaffinity"):
                cores = shares([str(core) for core in sorted(os.sched_getaffinity(0))], count)[replica]
                own |= {"VLLM_CPU_OMP_THREADS_BIND": ",".join(cores) or "nobind"}
            return {**own, **os.environ, "VLLM_API_KEY": key}
        gpus = int(self._options.get("tensor_parallel_size", 1)) * int(self._options.get("pipeline_parallel_size", 1))
        gpus *= int(self._options.get("data_parallel_size", 1))
        return pinned({**own, **os.environ, "VLLM_API_KEY": key}, replica, count, gpus)


async def _cache_counts(ports: list[int]) -> PromptCache:
    """The prefix caches' numbers since the servers' last start, by their own metrics."""
    counts = PromptCache()
    for page in await asyncio.gather(*(http_get(port, "/metrics") for port in ports)):
        for name, value in _CACHE_METRIC.findall(page or b""):
            if name == b"queries":
                counts.prompt += int(float(value))
            else:
                counts.cached += int(float(value))
    return counts
