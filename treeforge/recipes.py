"""From what a user names (a TOML file, a policy, a model, a preset, overrides) to a resolved `RunConfig`.

A preset fills the step format, the sampling and, for `hrm-paper`, the search; the file overrides the preset, and
overrides (`search.wave=8`) override both. What is resolved here is what the manifest records.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treeforge.config import RunConfig
from treeforge.configuration import convert, load, parse_overrides, to_dict
from treeforge.errors import ConfigError

if TYPE_CHECKING:
    from treeforge.label import CheckPolicy

_HRM_SEARCH = {"strategy": "exhaustive", "children": 5, "levels": 5, "merge_duplicates": False}
_SCRIPTED = "scripted"
_VLLM = "vllm"
# An engine batches as many sequences as its memory holds (vLLM's own limit is 256 to 1024), a request has several.
_VLLM_CONCURRENCY = 256
_GIVEN_WAVE = 32


def preset_names() -> list[str]:
    """Names that `preset` may take."""
    from treeforge.policy.prompts import PRESETS

    return sorted([*PRESETS, _SCRIPTED])


def load_config(
    path: Path | None = None,
    overrides: Iterable[str] = (),
    *,
    backend: str | None = None,
    model: str | None = None,
    preset: str | None = None,
    given: bool = False,
) -> RunConfig:
    """Resolve a configuration. Raises `ConfigError` (key and allowed values) or `DataError` (file and position).

    A local model by its `hf://` name is named by its commit from here on, since a branch may move while a run is
    stopped; the errors of `treeforge.policy.hub.pinned`.

    Without a preset, the model's own is taken: that of the model registry, `scripted` for the scripted policy,
    `qwen-chat` otherwise.

    `given`: for `annotate`. Then the search settings of a preset give way to `step-rollouts` from given solutions, with
    large waves, since no request depends on an answer. `adaptive`, whose requests do, and which leaves steps unasked,
    has small ones, and labels by the estimator `smoothed` unless another one is named.
    """
    overrides = list(overrides)
    if backend is not None:
        overrides.append(f'policy.backend="{backend}"')
    if model is not None:
        overrides.append(f"policy.model={_quoted(model)}")
    named = _named(path, overrides)
    chosen_backend = named.get("policy.backend", "local")
    chosen_model = named.get("policy.model", "smollm2-135m")
    if preset is None:
        preset = named.get("steps.preset") or _model_preset(chosen_backend, chosen_model)
    base: dict[str, Any] = {} if preset == "custom" else {"recipe": _preset_recipe(preset)}
    if chosen_backend == _VLLM:
        base["machine"] = {"concurrency": _VLLM_CONCURRENCY}
    if given:
        search = {"strategy": "step-rollouts", "given": True, "wave": _GIVEN_WAVE}
        base["recipe"] = base.get("recipe", {}) | {"search": search}
        if load(path, overrides, base=base).recipe.search.strategy == "adaptive":
            del search["wave"]
            base["label"] = {"estimator": "smoothed"}
    return _pinned(load(path, overrides, base=base))


def named_check_policy(preset: str | None = None, overrides: Iterable[str] = ()) -> CheckPolicy:
    """A check policy: a preset (`default` if not given), with `KEY=VALUE` overrides; `ConfigError` names the choices.

    With overrides its name is `custom`.
    """
    from treeforge.label import CheckPolicy
    from treeforge.label.check_policy import check_policy

    policy = check_policy(preset or "default")
    if changes := parse_overrides(overrides):
        policy = convert({**to_dict(policy), "name": "custom", **changes}, CheckPolicy)
    return policy


def _pinned(config: RunConfig) -> RunConfig:
    from treeforge.policy.hub import hub_file, pinned

    policy = config.recipe.policy
    file = hub_file(policy.model) if policy.backend == "local" else None
    if file is None:
        return config
    policy = msgspec.structs.replace(policy, model=pinned(file).name)
    return msgspec.structs.replace(config, recipe=msgspec.structs.replace(config.recipe, policy=policy))


def _named(path: Path | None, overrides: list[str]) -> dict[str, str]:
    """The keys that decide the preset, as file and overrides give them; errors are left to `load`."""
    recipe: dict[str, Any] = {}
    if path is not None:
        try:
            recipe = tomllib.loads(path.read_text(encoding="utf-8")).get("recipe", {})
        except (OSError, ValueError):
            recipe = {}
    found: dict[str, str] = {}
    for key in ("policy.backend", "policy.model", "steps.preset"):
        section, _, name = key.partition(".")
        below = recipe.get(section, {}) if isinstance(recipe, dict) else {}
        if isinstance(below, dict) and isinstance(below.get(name), str):
            found[key] = below[name]
        for item in overrides:
            written, _, value = item.partition("=")
            if written.strip().removeprefix("recipe.") == key:
                found[key] = value.strip().strip("\"'")
    return found


def _model_preset(backend: str, model: str) -> str:
    if backend == _SCRIPTED:
        return _SCRIPTED
    from treeforge.policy.models import MODELS

    known = MODELS.get(model)
    return known.preset if known is not None else "qwen-chat"


def _preset_recipe(name: str) -> dict[str, Any]:
    if name == _SCRIPTED:
        from treeforge.policy.scripted import SCRIPTED_STEPS

        return {"steps": to_dict(SCRIPTED_STEPS)}
    from treeforge.policy.prompts import PRESETS

    if name not in PRESETS:
        raise ConfigError(f"preset '{name}' is not known; the presets are {', '.join(preset_names())}")
    preset = PRESETS[name]
    recipe: dict[str, Any] = {"steps": to_dict(preset.steps), "sampling": to_dict(preset.sampling)}
    if name == "hrm-paper":
        recipe["search"] = dict(_HRM_SEARCH)
    return recipe


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
