"""Language models behind one Protocol: `Policy`. `open_policy` makes the one that a recipe names."""

from __future__ import annotations

import os
from pathlib import Path

from treeforge.config import Machine, Recipe
from treeforge.errors import ConfigError
from treeforge.policy.base import CachingPolicy, ImmediatePolicy, Policy, PromptCache
from treeforge.policy.continuing import Continuing
from treeforge.policy.scripted import SCRIPTED_STEPS, ScriptedPolicy, World

__all__ = [
    "SCRIPTED_STEPS",
    "CachingPolicy",
    "ImmediatePolicy",
    "Policy",
    "PromptCache",
    "ScriptedPolicy",
    "World",
    "open_policy",
]


def open_policy(recipe: Recipe, machine: Machine, logs: Path | None = None) -> Policy:
    """The policy that `recipe.policy` names; `await policy.start()` before use.

    `logs`: the folder for what engines and servers write that the policy starts. Raises `ConfigError` (unknown model,
    no server) or `MissingExtraError` (the pip line to run).
    """
    policy = _open(recipe, machine, logs)
    if recipe.sampling.continuations:
        return Continuing(policy, recipe.steps, recipe.sampling.continuations)
    return policy


def _open(recipe: Recipe, machine: Machine, logs: Path | None) -> Policy:
    config = recipe.policy
    if config.backend == "scripted":
        steps = recipe.steps
        if steps.delimiter != SCRIPTED_STEPS.delimiter or "The answer is" not in steps.answer_markers:
            raise ConfigError(
                f"the scripted policy writes its own step format: preset 'scripted', not '{steps.preset}'"
            )
        return ScriptedPolicy.from_options(dict(config.scripted))
    if config.backend == "local":
        from treeforge.policy.local import LocalPolicy

        return LocalPolicy(
            config.model, recipe.steps, recipe.sampling, slots=machine.concurrency, threads=machine.threads
        )
    if config.backend == "vllm":
        if machine.replicas:
            from treeforge.policy.replicas import ReplicasPolicy

            return ReplicasPolicy(config, recipe.steps, recipe.sampling, machine, logs=logs)
        from treeforge.policy.vllm import VllmPolicy

        return VllmPolicy(config, recipe.steps, recipe.sampling, machine, logs=logs)
    from treeforge.policy.server import ServerPolicy

    if not machine.servers and not machine.servers_file:
        raise ConfigError("policy.backend 'server' needs at least one server: --server http://127.0.0.1:8000/v1")
    return ServerPolicy(
        config.model,
        recipe.steps,
        recipe.sampling,
        servers=machine.servers,
        servers_file=Path(machine.servers_file) if machine.servers_file else None,
        api_key=os.environ.get(machine.api_key_env),
        timeout=machine.request_timeout,
        concurrency=machine.concurrency,
    )
