"""The best path of a tree: what a greedy reader of its values would follow to a correct end."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from treeforge.tree import Rollout, Tree
from treeforge.value import Values
from treeforge.verdict import Verdict


class BestPath(msgspec.Struct, frozen=True):
    """A correct trajectory."""

    nodes: tuple[int, ...]
    """Rows from the root's child down; empty where a rollout of the root itself is all there is."""
    rollout: Rollout | None
    """The correct own rollout of the last node that ends it; None where the last node does."""


def best_path(tree: Tree, values: Values, rollouts: Sequence[Rollout]) -> BestPath | None:
    """From the root, always the child of the highest value below which some completion ended correct.

    Among equals, the one with more outcomes, then the first. Where no child leads on, the node is a correct leaf or
    its first correct rollout ends the path. None where nothing ended correct.
    """
    parent = tree.parent.tolist()
    reaches = ((tree.verdict == Verdict.CORRECT) | (tree.rollouts_correct > 0)).tolist()
    value, weight = values.value.tolist(), values.rollouts.tolist()
    best_child = [-1] * tree.size
    for row in range(tree.size - 1, 0, -1):
        if reaches[row]:
            above = parent[row]
            reaches[above] = True
            rival = best_child[above]
            # Rows come in falling order, so that of equals the first one is seen last and wins.
            if rival < 0 or (value[row], weight[row]) >= (value[rival], weight[rival]):
                best_child[above] = row
    if not reaches[0]:
        return None
    nodes: list[int] = []
    node = 0
    while best_child[node] >= 0:
        node = best_child[node]
        nodes.append(node)
    if tree.verdict[node] == Verdict.CORRECT:
        return BestPath(tuple(nodes), None)
    ending = next((r for r in rollouts if r.node == node and r.verdict == Verdict.CORRECT), None)
    return BestPath(tuple(nodes), ending)
