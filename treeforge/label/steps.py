"""Values -> step labels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treeforge.config import LabelConfig
from treeforge.evidence import Evidence
from treeforge.tree import Finish, Tree
from treeforge.value import Values

NO_LABEL = -1
"""In `NodeLabels.hard`: this node has no label."""


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeLabels:
    """The labels of all n nodes of a tree (or of several in one array): each says something of the node's last step."""

    hard: NDArray[np.int8]
    """int8[n]: 1 where the value is greater than the threshold, else 0; -1 (`NO_LABEL`) where there is no label."""
    soft: NDArray[np.float64]
    """float64[n]: the value; NaN where there is no label."""


def label_nodes(tree: Tree | Evidence, values: Values, config: LabelConfig) -> NodeLabels:
    """Label the nodes of `tree` from their `values` (of the same tree).

    Left without a label: the root (it is no step), engine errors, nodes without a value, and nodes with fewer than
    `config.min_rollouts` decided outcomes at or below them.
    """
    labelled = (
        (tree.parent >= 0)
        & (tree.finish != Finish.ERROR)
        & ~np.isnan(values.value)
        & (values.rollouts >= config.min_rollouts)
    )
    hard = np.where(labelled, values.value > config.threshold, NO_LABEL).astype(np.int8)
    return NodeLabels(hard=hard, soft=np.where(labelled, values.value, np.nan))
