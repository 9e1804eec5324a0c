"""The best and the worst path of a tree: what a reader of its values would follow to a right or to a wrong end."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.tree import Rollout, Tree
from treeforge.value import Values
from treeforge.verdict import Verdict

_WRONG = (Verdict.INCORRECT, Verdict.NO_ANSWER, Verdict.UNPARSABLE)


class BestPath(msgspec.Struct, frozen=True):
    """A correct trajectory."""

    nodes: tuple[int, ...]
    """Rows from the root's child down; empty where a rollout of the root itself is all there is."""
    rollout: Rollout | None
    """The correct own rollout of the last node that ends it; None where the last node does."""


class WorstPath(msgspec.Struct, frozen=True):
    """A wrong trajectory; fields as in `BestPath`."""

    nodes: tuple[int, ...]
    rollout: Rollout | None


def best_path(tree: Tree, values: Values, rollouts: Sequence[Rollout]) -> BestPath | None:
    """From the root, always the child of the highest value below which some completion ended correct.

    Among equals, the one with more outcomes, then the first. Where no child leads on, the node is a correct leaf or
    its first correct rollout ends the path. None where nothing ended correct.
    """
    ends = (tree.verdict == Verdict.CORRECT) | (tree.rollouts_correct > 0)
    found = _follow(tree, values.value, values, ends, rollouts, (Verdict.CORRECT,))
    return None if found is None else BestPath(*found)


def worst_path(tree: Tree, values: Values, rollouts: Sequence[Rollout]) -> WorstPath | None:
    """From the root, always the child of the lowest value below which some completion ended wrong.

    Ties and the end as in `best_path`. None where nothing ended wrong.
    """
    wrong = tree.rollouts.astype(np.int64) - tree.rollouts_correct - tree.rollouts_undecided
    ends = np.isin(tree.verdict, _WRONG) | (wrong > 0)
    found = _follow(tree, -values.value, values, ends, rollouts, _WRONG)
    return None if found is None else WorstPath(*found)


def _follow(
    tree: Tree,
    score: NDArray[np.float64],
    values: Values,
    ends: NDArray[np.bool_],
    rollouts: Sequence[Rollout],
    verdicts: Collection[int],
) -> tuple[tuple[int, ...], Rollout | None] | None:
    """The way by the highest `score` to a node in `ends` (bool[n]), and the rollout, of `verdicts`, that ends it."""
    parent, reaches = tree.parent.tolist(), ends.tolist()
    scores, weight = score.tolist(), values.rollouts.tolist()
    best_child = [-1] * tree.size
    for row in range(tree.size - 1, 0, -1):
        if reaches[row]:
            above = parent[row]
            reaches[above] = True
            rival = best_child[above]
            # Rows come in falling order, so that of equals the first one is seen last and wins.
            if rival < 0 or (scores[row], weight[row]) >= (scores[rival], weight[rival]):
                best_child[above] = row
    if not reaches[0]:
        return None
    nodes: list[int] = []
    node = 0
    while best_child[node] >= 0:
        node = best_child[node]
        nodes.append(node)
    if tree.verdict[node] in verdicts:
        return tuple(nodes), None
    ending = next((r for r in rollouts if r.node == node and r.verdict in verdicts), None)
    return tuple(nodes), ending
