"""The manifest of a run: what is written into it, and what must still match when the run goes on."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from treeforge.config import Recipe, RunConfig
from treeforge.configuration import convert, differences, to_dict
from treeforge.errors import RecipeChangedError, RunError
from treeforge.problem import Problem
from treeforge.search.beam import Scorer
from treeforge.store.given import SECTION
from treeforge.store.parquet import SCHEMA_VERSION
from treeforge.store.run import RunFolder
from treeforge.verdict import Judge

ENGINE = "engine"
"""The key of a policy's identity that names what runs the model, with its version."""
_VERSIONED = ("treeforge", "numpy", "pyarrow", "sympy")


def new_manifest(config: RunConfig, source: str) -> dict[str, Any]:
    """The manifest of a run that starts now; `policy` (its identity) is filled in when the policy has started."""
    versions = {"python": platform.python_version()}
    for name in _VERSIONED:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "unknown"
    return {
        "schema": SCHEMA_VERSION,
        "versions": versions,
        **to_dict(config),
        "problems": {"source": source},
        "policy": None,
    }


def check_recipe(
    folder: RunFolder, recipe: Recipe, problems: Iterable[Problem] | None, given: dict[str, Any] | None = None
) -> None:
    """Raise `RecipeChangedError` unless the run was started with this recipe, and these problems where given.

    `given` is the section of the solutions that the run shall label. A key that the manifest lacks, because the run is
    older than the key, has its default.
    """
    changes = differences(to_dict(convert(folder.manifest["recipe"], Recipe)), to_dict(recipe))
    if problems is not None:
        here = [(p.problem_id, p.question, p.gold_answer) for p in problems]
        there = [(p.problem_id, p.question, p.gold_answer) for p in folder.problems]
        if here != there:
            same = len(set(here) & set(there))
            changes["problems"] = (f"{len(there)} problems", f"{len(here)}, {same} of them the same")
    known = folder.manifest.get(SECTION)
    if given and known and given["digest"] != known["digest"]:
        before, now = (f"{of['solutions']} of {of['steps']} steps" for of in (known, given))
        changes["given solutions"] = (before, f"{now}, not the same")
    if changes:
        resume = f"Go on as it is with `treeforge resume {folder.path}`, add problems with their solutions by --extend"
        raise RecipeChangedError(folder.path, changes, hint=resume if known and given else "")


def check_identity(
    folder: RunFolder,
    identity: dict[str, Any],
    judge: Judge,
    *,
    scorer: Scorer | None = None,
    accept_engine: bool = False,
) -> None:
    """The journal's samples are one policy's, all verdicts one judge's, all scores one scorer's; others are refused.

    Judge and scorer are known by their `identity` where they have one, else by name. `accept_engine` takes another
    engine or version of it (the same model); the manifest lists it under `engines`, and the run keeps its identity, so
    that its journal stays its own.
    """
    plain = msgspec.json.decode(msgspec.json.encode(identity))
    known = folder.manifest.get("policy")
    name, ranks = _name(judge), None if scorer is None else _name(scorer)
    if known is None:
        folder.manifest["policy"], folder.manifest["judge"] = plain, name
        if ranks is not None:
            folder.manifest["scorer"] = ranks
        return
    found = differences(known, plain)
    changes = {f"policy identity, {key}": pair for key, pair in found.items()}
    if folder.manifest["judge"] != name:
        changes["judge"] = (folder.manifest["judge"], name)
    if folder.manifest.get("scorer") != ranks:
        changes["scorer"] = (folder.manifest.get("scorer"), ranks)
    if found.keys() == {ENGINE} and len(changes) == 1:
        engine, accepted = plain.get(ENGINE), folder.manifest.get("engines", [])
        if engine in accepted:
            return
        if accept_engine:
            folder.manifest["engines"] = [*accepted, engine]
            return
        raise RecipeChangedError(folder.path, changes, hint="Go on with the other engine by --accept-engine")
    if changes:
        same = "Give the run's own scorer, by --reward and --aggregate (from Python: scorer=…)"
        hint = same if "scorer" in changes else ""
        raise RecipeChangedError(folder.path, changes, hint=hint)


def _name(part: Judge | Scorer) -> str:
    named = part if hasattr(part, "__qualname__") else type(part)
    return str(getattr(part, "identity", f"{named.__module__}.{named.__qualname__}"))


def check_growable(folder: RunFolder) -> None:
    """Raise `RunError` for a run that was imported: no policy sampled its trees, so none can go on with them."""
    if (folder.manifest.get("policy") or {}).get("backend") == "imported":
        raise RunError(f"{folder.path} was imported; its trees cannot be grown further or replayed")


def never_started(folder: RunFolder) -> bool:
    """No policy has ever answered in this folder: it holds nothing that another recipe could spoil."""
    return folder.manifest.get("policy") is None
