"""The manifest of a run: what is written into it, and what must still match when the run goes on."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import msgspec

from treeforge.config import Recipe, RunConfig, differences, to_dict
from treeforge.errors import RecipeChangedError
from treeforge.problem import Problem
from treeforge.store.run import RunFolder
from treeforge.store.tables import SCHEMA_VERSION
from treeforge.verdict import Judge

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


def check_recipe(folder: RunFolder, recipe: Recipe, problems: Iterable[Problem] | None) -> None:
    """Raise `RecipeChangedError` unless the run was started with this recipe, and these problems where given."""
    changes = differences(folder.manifest["recipe"], to_dict(recipe))
    if problems is not None:
        here = [(p.problem_id, p.question, p.gold_answer) for p in problems]
        there = [(p.problem_id, p.question, p.gold_answer) for p in folder.problems]
        if here != there:
            same = len(set(here) & set(there))
            changes["problems"] = (f"{len(there)} problems", f"{len(here)}, {same} of them the same")
    if changes:
        raise RecipeChangedError(folder.path, changes)


def check_identity(folder: RunFolder, identity: dict[str, Any], judge: Judge) -> None:
    """The journal's samples are this policy's own, and all verdicts one judge's; others are refused.

    A judge is known by its `identity` where it has one, else by the name of its class.
    """
    plain = msgspec.json.decode(msgspec.json.encode(identity))
    known = folder.manifest.get("policy")
    name = str(getattr(judge, "identity", f"{type(judge).__module__}.{type(judge).__qualname__}"))
    if known is None:
        folder.manifest["policy"], folder.manifest["judge"] = plain, name
        return
    changes = {f"policy identity, {key}": pair for key, pair in differences(known, plain).items()}
    if folder.manifest["judge"] != name:
        changes["judge"] = (folder.manifest["judge"], name)
    if changes:
        raise RecipeChangedError(folder.path, changes)


def never_started(folder: RunFolder) -> bool:
    """No policy has ever answered in this folder: it holds nothing that another recipe could spoil."""
    return folder.manifest.get("policy") is None
