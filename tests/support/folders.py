"""Run folders written by hand: given trees, without a policy or a search."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from support.runs import problems as sums
from support.runs import scripted_config

from treeforge.configuration import to_dict
from treeforge.problem import Problem
from treeforge.store.parquet import SCHEMA_VERSION
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, Rollout, Tree, TreeRecord
from treeforge.verdict import NO_VERDICT, Verdict


def write_run(
    path: Path,
    trees: Sequence[TreeRecord | Tree | None],
    *,
    problems: Sequence[Problem] | None = None,
    block: int = 2,
    **search: object,
) -> Path:
    """A run with one problem a tree; None stands for one that is still open. A `Tree` comes with its rollouts."""
    config = scripted_config(block=block, **search)
    manifest = {"schema": SCHEMA_VERSION, "versions": {}, **to_dict(config), "problems": {}, "policy": None}
    with RunFolder.create(path, manifest, list(problems or sums(len(trees)))) as run:
        for number, tree in enumerate(trees):
            if tree is not None:
                run.finish(number, ended(tree) if isinstance(tree, Tree) else tree)
    return path


def ended(tree: Tree, status: str = "done", reason: str = "16 simulations") -> TreeRecord:
    """The record of a tree whose own rollouts are what its counts say."""
    return TreeRecord("", tree, tuple(rollouts_of(tree)), status, reason)


def rollouts_of(tree: Tree) -> list[Rollout]:
    """Rollouts that add up to the tree's counts, the others being wrong."""
    found: list[Rollout] = []
    for node in range(tree.size):
        correct, undecided = int(tree.rollouts_correct[node]), int(tree.rollouts_undecided[node])
        truncated = int(tree.rollouts_truncated[node])
        wrong = int(tree.rollouts[node]) - correct - undecided - truncated
        for count, verdict, finish in (
            (correct, Verdict.CORRECT, Finish.ANSWERED),
            (wrong, Verdict.INCORRECT, Finish.ANSWERED),
            (undecided, Verdict.UNDECIDED, Finish.ANSWERED),
            (truncated, Verdict.NO_ANSWER, Finish.TRUNCATED),
        ):
            row = Rollout(node, ("and so\n", "the answer"), "7", int(verdict), int(finish), 9, -1.0)
            found += [row] * count
    return found


def engine_error(node: int, message: str = "HTTP 500") -> Rollout:
    """A completion that the engine failed to give."""
    return Rollout(node, (), message, NO_VERDICT, int(Finish.ERROR), 0, float("nan"))
