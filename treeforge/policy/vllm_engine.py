"""vLLM's engine in processes of its own: started with a log and an environment, and ended with this process."""

from __future__ import annotations

import contextlib
import dataclasses
import gc
import logging
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from treeforge.config import PolicyConfig
from treeforge.errors import ConfigError, MissingExtraError, PolicyUnavailableError
from treeforge.policy import keeper
from treeforge.policy.base import PromptCache
from treeforge.policy.vllm_options import ADAPTER, QUIET, cause_in_log, check_names

_STOP_SECONDS = 10.0


class Engine:
    """A loaded engine."""

    def __init__(
        self, config: PolicyConfig, source: str, options: Mapping[str, Any], *, on_cpu: bool, logs: Path | None
    ) -> None:
        """Load the model. Blocks, for minutes where the model is large.

        Raises `MissingExtraError` (no vLLM), `ConfigError` (refused argument or model, a model that does not fit) or
        `PolicyUnavailableError` (vLLM cannot be imported).
        """
        self.cache = PromptCache()
        """What its prefix cache did so far."""
        self.llm: Any
        """vLLM's `AsyncLLM`."""
        self.adapter: Any = None
        """What has to go with each request for the LoRA adapter."""
        self._logs = logs
        self._log: Path | None = None
        self._log_start = 0
        before = set(multiprocessing.active_children())
        with self._surroundings(on_cpu):
            self.llm = self._load(config, source, dict(options))
        self._quiet()
        # vLLM's own processes go on after `kill -9` of this one, and with them the GPU's memory is lost.
        pids = [str(child.pid) for child in set(multiprocessing.active_children()) - before]
        command = [sys.executable, "-I", str(Path(keeper.__file__)), str(_STOP_SECONDS), *pids]
        self._keeper = subprocess.Popen(command, stdin=subprocess.PIPE)

    def words(self, error: BaseException) -> str:
        """What went wrong, in the engine's own words where its log has them."""
        found = cause_in_log(self._log, self._log_start) if self._log is not None else ""
        return (found or one_line(error)) + ("" if self._logs is None else f" (more in {self._log})")

    def close(self) -> None:
        """End the engine's processes. Blocks for some seconds."""
        self.llm.shutdown(_STOP_SECONDS)
        self.llm = None
        gc.collect()  # its finalizer fails, aloud, where it only runs at the interpreter's end
        self._keeper.communicate()

    def _load(self, config: PolicyConfig, source: str, options: dict[str, Any]) -> Any:
        try:
            from vllm.engine.arg_utils import AsyncEngineArgs
            from vllm.lora.request import LoRARequest
            from vllm.usage.usage_lib import UsageContext
            from vllm.v1.engine.async_llm import AsyncLLM
        except ImportError as error:
            if error.name != "vllm":
                raise PolicyUnavailableError(f"vLLM is installed and cannot be imported: {error}") from error
            raise MissingExtraError("The vllm policy", "vllm") from None
        check_names(options, (field.name for field in dataclasses.fields(AsyncEngineArgs)))
        try:
            settings = AsyncEngineArgs(model=source, **options).create_engine_config(UsageContext.ENGINE_CONTEXT)
        except (ValueError, TypeError, AssertionError, OSError, NotImplementedError, ImportError) as error:
            raise ConfigError(f"policy.engine: vLLM refuses model or arguments: {_reason(error)}") from error
        if config.adapter:
            self.adapter = LoRARequest(ADAPTER, 1, str(Path(config.adapter).expanduser()))
        try:
            return AsyncLLM.from_vllm_config(settings, stat_loggers=[_counter(self.cache)], disable_log_stats=True)
        except Exception as error:  # whatever the engine's process fails with
            raise ConfigError(
                f"vLLM cannot load {config.model}: {self.words(error)}. If it does not fit in memory: "
                "machine.engine.tensor_parallel_size, policy.engine.max_model_len or policy.engine.quantization"
            ) from error

    def _quiet(self) -> None:
        """What vLLM says in this process goes to its log too, from here on only what is wrong."""
        logger = logging.getLogger("vllm")
        handler = logging.NullHandler() if self._logs is None else logging.FileHandler(str(self._log))
        logger.handlers, logger.propagate = [handler], False
        logger.setLevel(logging.WARNING)

    @contextlib.contextmanager
    def _surroundings(self, on_cpu: bool) -> Iterator[None]:
        """vLLM's processes inherit our environment and output as they are when they start; they write into a log."""
        with contextlib.ExitStack() as stack:
            if self._logs is None:
                folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="treeforge-")))
            else:
                folder = self._logs
                folder.mkdir(parents=True, exist_ok=True)
            self._log = folder / "vllm.log"
            stream = stack.enter_context(self._log.open("ab"))
            self._log_start = stream.tell()
            stack.enter_context(_environment(_variables(on_cpu)))
            stack.enter_context(_output_to(stream.fileno()))
            yield


def one_line(error: BaseException) -> str:
    """The first line of an error's message, or its class."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]


def _reason(error: BaseException) -> str:
    """The telling line of an error: pydantic's first line only counts the errors."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and "validation error" in lines[0]:
        return " ".join(lines[1:3])[:500]
    return (lines or [type(error).__name__])[0][:500]


def _counter(counts: PromptCache) -> Any:
    """vLLM wants a class of its own for every engine; this one adds up its prefix cache's numbers."""
    from vllm.v1.metrics.loggers import StatLoggerBase

    class Counter(StatLoggerBase):  # type: ignore[misc]
        def __init__(self, vllm_config: Any, engine_index: int = 0) -> None:
            pass

        def record(self, scheduler_stats: Any, *args: Any, **kwargs: Any) -> None:
            if scheduler_stats is not None:
                counts.prompt += scheduler_stats.prefix_cache_stats.queries
                counts.cached += scheduler_stats.prefix_cache_stats.hits

        def log_engine_initialized(self) -> None:
            pass

    return Counter


def _variables(on_cpu: bool) -> Mapping[str, str]:
    variables = {**QUIET, "VLLM_LOGGING_LEVEL": "INFO"}
    if on_cpu and hasattr(os, "sched_getaffinity"):
        # vLLM leaves one core free otherwise, which of two is half.
        variables["VLLM_CPU_OMP_THREADS_BIND"] = ",".join(map(str, sorted(os.sched_getaffinity(0))))
    return variables


@contextlib.contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables that are not set; take them out again."""
    ours = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            os.environ.pop(name, None)


@contextlib.contextmanager
def _output_to(descriptor: int) -> Iterator[None]:
    """Standard output and error of this process, and of those it starts, go to a file."""
    sys.stdout.flush()
    sys.stderr.flush()
    kept = [os.dup(1), os.dup(2)]
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    try:
        yield
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        for number, copy in enumerate(kept, start=1):
            os.dup2(copy, number)
            os.close(copy)
