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
            changes["problems"] = (f"{len(there)} problems", f"{len(here)} others; to add some use `treeforge extend`")
    if changes:
        raise RecipeChangedError(folder.path, changes)


def check_identity(folder: RunFolder, identity: dict[str, Any]) -> None:
    """The journal's samples are this policy's own; another model under the same name is refused."""
    plain = msgspec.json.decode(msgspec.json.encode(identity))
    known = folder.manifest.get("policy")
    if known is None:
        folder.manifest["policy"] = plain
        folder.manifest["problems"] |= {"count": len(folder.problems), "digest": folder.problems_digest()}
    elif changes := differences(known, plain):
        raise RecipeChangedError(folder.path, {f"policy identity, {key}": pair for key, pair in changes.items()})
