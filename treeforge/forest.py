"""Several trees in one struct of arrays: what level-by-level computations need to do many small trees at once.

A call of numpy costs more than its work on a tree of some dozen nodes; on a block of trees it costs nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeforge.errors import TreeError
from treeforge.tree import Finish, Tree
from treeforge.verdict import NO_VERDICT

Rows = NDArray[np.intp]

ARRAY_FIELDS: tuple[str, ...] = tuple(spec.name for spec in fields(Tree) if spec.metadata["dtype"] is not None)
"""The fields of `Tree` that are arrays, in order."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Forest:
    """Trees one after another, n nodes in all. Fields of one name mean what they mean in `Tree`; texts are not here.

    `parent` names rows of the forest.
    """

    starts: Rows
    """intp[trees + 1]: where each tree starts; the last is n."""
    parent: NDArray[np.int32]
    depth: NDArray[np.int16]
    token_count: NDArray[np.int32]
    logprob: NDArray[np.float32]
    multiplicity: NDArray[np.float64]
    finish: NDArray[np.int8]
    verdict: NDArray[np.int8]
    rollouts: NDArray[np.int32]
    rollouts_correct: NDArray[np.int32]
    rollouts_undecided: NDArray[np.int32]
    rollouts_truncated: NDArray[np.int32]
    visits: NDArray[np.int32]
    value_sum: NDArray[np.float64]
    prior: NDArray[np.float32]
    observed: NDArray[np.bool_]
    """bool[n]: an environment answered to the step."""
    merged: NDArray[np.bool_]
    """bool[n]: HNC merged the node (`merged_from` is not empty)."""

    @classmethod
    def of(cls, trees: Sequence[Tree]) -> Forest:
        """The arrays of `trees`."""
        starts = np.concatenate(([0], np.cumsum([tree.size for tree in trees]))).astype(np.intp)
        columns: dict[str, Any] = {
            name: np.concatenate([getattr(tree, name) for tree in trees]) for name in ARRAY_FIELDS
        }
        offset = np.repeat(starts[:-1], np.diff(starts))
        columns["parent"] = np.where(columns["parent"] >= 0, columns["parent"] + offset, -1).astype(np.int32)
        observed, merged = (
            np.array([bool(value) for tree in trees for value in getattr(tree, name)], dtype=np.bool_)
            for name in ("observation", "merged_from")
        )
        return cls(starts=starts, observed=observed, merged=merged, **columns)

    @property
    def size(self) -> int:
        """n, the number of nodes, the roots included."""
        return len(self.parent)

    @property
    def sizes(self) -> Rows:
        """intp[trees]: nodes of each tree."""
        return np.diff(self.starts)

    @property
    def tree_of(self) -> Rows:
        """intp[n]: the place of each node's tree."""
        return np.repeat(np.arange(len(self.starts) - 1), self.sizes)

    @property
    def offset(self) -> Rows:
        """intp[n]: where each node's tree starts; a row less this is the node's row in its own tree."""
        return np.repeat(self.starts[:-1], self.sizes)

    def rows(self) -> Iterator[slice]:
        """The rows of each tree."""
        for start, stop in pairwise(self.starts.tolist()):
            yield slice(start, stop)

    def rows_of(self, trees: Rows) -> Rows:
        """intp[k]: all rows of some trees, in the order given."""
        return ranges(self.starts[trees], self.sizes[trees])

    def select(self, trees: Rows) -> Forest:
        """Some of the trees, in the order given."""
        rows, sizes = self.rows_of(trees), self.sizes[trees]
        starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.intp)
        columns = {spec.name: getattr(self, spec.name)[rows] for spec in fields(self) if spec.name != "starts"}
        moved = columns["parent"] + np.repeat(starts[:-1] - self.starts[trees], sizes)
        columns["parent"] = np.where(columns["parent"] >= 0, moved, -1).astype(np.int32)
        return Forest(starts=starts, **columns)

    def changed(self, **columns: Any) -> Forest:
        """The same with some columns replaced."""
        return replace(self, **columns)

    def check(self) -> None:
        """Raise `TreeError` unless every invariant of `Tree` that is about arrays holds; it names field, tree and row.

        Where a root and its tree's other nodes stand is `starts`' own: each tree's first row is its root.
        """
        root = np.zeros(self.size, dtype=np.bool_)
        root[self.starts[:-1]] = True
        parent, offset = self.parent, self.offset
        self._require((parent < 0) == root, "parent", "the first row alone is a root: -1")
        self._require(
            root | ((parent >= offset) & (parent < np.arange(self.size))), "parent", "stands before its child"
        )
        self._require(
            np.where(root, self.depth == 0, self.depth == self.depth[parent] + 1), "depth", "one more than the parent's"
        )
        self._require(np.isfinite(self.multiplicity) & (self.multiplicity >= 0), "multiplicity", "finite, not negative")
        self._require(self.token_count >= 0, "token_count", "not negative")
        parts = (self.rollouts_correct, self.rollouts_undecided, self.rollouts_truncated)
        counted = sum((part.astype(np.int64) for part in parts), start=np.zeros(self.size, dtype=np.int64))
        self._require(
            (counted <= self.rollouts) & (np.minimum.reduce(parts) >= 0),
            "rollouts",
            "correct, undecided and truncated are disjoint parts of rollouts",
        )
        inner = np.zeros(self.size, dtype=np.bool_)
        inner[parent[~root]] = True
        self._require(~inner | (self.finish == Finish.OPEN), "finish", "a node with children is OPEN")
        said = self.verdict != NO_VERDICT
        self._require(~said | (self.finish != Finish.OPEN), "verdict", "an open node has none")
        self._require(~said | (self.finish != Finish.ERROR), "verdict", "an engine error has none")

    def _require(self, holds: NDArray[np.bool_], name: str, rule: str) -> None:
        if not holds.all():
            row = int(np.flatnonzero(~holds)[0])
            tree = int(np.searchsorted(self.starts, row, side="right")) - 1
            raise TreeError(f"{name} at row {row - int(self.starts[tree])} of tree {tree} of these: {rule}")


def ranges(starts: NDArray[np.integer[Any]], sizes: NDArray[np.integer[Any]]) -> Rows:
    """intp[sum(sizes)]: the numbers from each start on, `sizes` many, one run after another."""
    total = int(sizes.sum())
    before = np.cumsum(sizes) - sizes
    out: Rows = np.arange(total, dtype=np.intp) + np.repeat(np.asarray(starts, dtype=np.intp) - before, sizes)
    return out
