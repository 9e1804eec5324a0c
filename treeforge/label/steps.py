"""Values -> step labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treeforge.config import LabelConfig
from treeforge.evidence import Evidence, Levels
from treeforge.tree import Finish, Tree
from treeforge.value import FROM_ELSEWHERE, Values

NO_LABEL = -1
"""In `NodeLabels.hard`: this node has no label."""
NO_ERROR = -1
"""In `first_errors`: no step so far is wrong."""
UNKNOWN_ERROR = -2
"""In `first_errors`: there may be a wrong step, and labels do not say which is the first."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLabels:
    """The labels of all n nodes of a tree (or of several in one array): each says something of the node's last step."""

    hard: NDArray[np.int8]
    """int8[n]: 1 where the value is greater than the threshold, else 0; -1 (`NO_LABEL`) where there is no label."""
    soft: NDArray[np.float64]
    """float64[n]: the value; NaN where there is no label. In the abstain band there is a soft label and no hard one."""


def label_nodes(tree: Tree | Evidence, values: Values, config: LabelConfig) -> NodeLabels:
    """Label the nodes of `tree` from their `values` (of the same tree).

    Left without a label: the root (it is no step), engine errors, nodes without a value, and nodes with fewer than
    `config.min_rollouts` decided outcomes at or below them. With `config.band` hard labels start beyond the band: 1
    where the value is greater than threshold + band, 0 where it is at most threshold - band, none between.
    """
    labelled = (
        (tree.parent >= 0)
        & (tree.finish != Finish.ERROR)
        & ~np.isnan(values.value)
        & ((values.rollouts >= config.min_rollouts) | (values.estimator in FROM_ELSEWHERE))
    )
    hard = np.where(labelled, values.value > config.threshold + config.band, NO_LABEL).astype(np.int8)
    if config.band:
        hard[(hard == 0) & (values.value > config.threshold - config.band)] = NO_LABEL
    return NodeLabels(hard=hard, soft=np.where(labelled, values.value, np.nan))


def advantages(tree: Tree | Evidence, values: Values) -> NDArray[np.float64]:
    """float64[n]: each step's change of value from its parent's, in [-1, 1]; NaN at roots and where one is unknown."""
    change = values.value - values.value[tree.parent]
    return np.where(tree.parent >= 0, change, np.nan)


def first_errors(tree: Tree | Evidence, hard: NDArray[np.int8]) -> NDArray[np.int32]:
    """int32[n]: of the steps from the root to each node, the index of the first one labelled 0, the root's child at 0.

    `NO_ERROR` (-1, as in ProcessBench) where none is. A step without a label counts as right where one labelled 1
    follows before any that is labelled 0; else it might be the first wrong one itself: `UNKNOWN_ERROR` from there on.
    `hard`: int8[n], as in `NodeLabels`.
    """
    levels = Levels.of(tree if isinstance(tree, Evidence) else Evidence.of(tree))
    label, found = hard[levels.order], np.full(len(hard), NO_ERROR, dtype=np.int32)
    settled = np.zeros(len(hard), dtype=np.bool_)
    starts = levels.starts.tolist()
    for depth in range(1, len(starts) - 2):
        rows = slice(starts[depth], starts[depth + 1])
        parent = levels.parent[rows]
        before = found[parent]
        wrong, right = label[rows] == 0, label[rows] == 1
        here = np.where(right, NO_ERROR, UNKNOWN_ERROR)
        here[wrong & (before == NO_ERROR)] = depth - 1
        found[rows] = np.where(settled[parent], before, here)
        settled[rows] = settled[parent] | wrong
    out = np.empty_like(found)
    out[levels.order] = found
    return out
