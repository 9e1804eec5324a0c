"""What a format sees of one problem: its tree, values and labels, and the trees that compression made of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.problem import Problem
from treeforge.tree import Tree, TreeRecord
from treeforge.value import Values


class LabelledTree(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of n nodes with its values and labels: the one that was grown, or what one HNC pass made of it."""

    tree: Tree
    values: Values
    hard: NDArray[np.int8]
    """int8[n]: the hard label of every node, 1 or 0; -1 for none."""
    soft: NDArray[np.float64]
    """float64[n]: the soft label of every node, in [0, 1]; NaN for none."""
    row_of: NDArray[np.int32]
    """int32[n]: each node's row in the tree that was grown, which is its node_id everywhere; there 0, 1, 2, …"""
    fresh: Mapping[int, NDArray[np.bool_]] = {}
    """bool[n] a span: rows whose sample (texts and label) does not occur in the uncompressed tree. Missing: all."""
    number: int = 1
    """The HNC pass that made it; of no meaning for a tree as grown."""


CompressedTree = LabelledTree
"""The name for a `LabelledTree` that an HNC pass made."""


class ExportTree(msgspec.Struct, frozen=True, kw_only=True):
    """One problem's tree, ready for export."""

    number: int
    """The tree's number in the run (tree_id)."""
    problem: Problem
    record: TreeRecord
    """The tree as grown, its rollouts and how it ended."""
    values: Values
    """Of `record.tree`."""
    hard: NDArray[np.int8]
    """int8[n]: labels of `record.tree`, as in `LabelledTree`."""
    soft: NDArray[np.float64]
    """float64[n]: the same, soft."""
    compressed: tuple[LabelledTree, ...] = ()
    """What the HNC passes made of it, in order; a pass that changed nothing is left out."""

    def passes(self) -> Iterator[tuple[int, LabelledTree]]:
        """(0, the tree as grown), (1, the first HNC pass), …"""
        tree = self.record.tree
        rows = np.arange(tree.size, dtype=np.int32)
        yield 0, LabelledTree(tree=tree, values=self.values, hard=self.hard, soft=self.soft, row_of=rows)
        yield from ((labelled.number, labelled) for labelled in self.compressed)
