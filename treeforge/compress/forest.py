"""Several trees in one struct of arrays: what a level-by-level computation needs to do many small trees at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeforge.tree import TREE_FIELDS, Tree


@dataclass(frozen=True, kw_only=True, slots=True)
class Forest:
    """Trees one after another. `tree` has several roots, so it is no valid `Tree`; its rows count through."""

    tree: Tree
    """The columns; `parent` and `merged_from` name rows of the forest."""
    starts: NDArray[np.intp]
    """intp[trees + 1]: where each tree starts; the last is n."""

    @classmethod
    def of(cls, trees: Sequence[Tree]) -> Forest:
        """`trees`, none of them compressed before."""
        if len(trees) == 1:
            return cls(tree=trees[0], starts=np.array([0, trees[0].size], dtype=np.intp))
        sizes = np.array([tree.size for tree in trees], dtype=np.intp)
        starts = np.concatenate(([0], np.cumsum(sizes))).astype(np.intp)
        columns: dict[str, Any] = {}
        for name in TREE_FIELDS:
            parts = [getattr(tree, name) for tree in trees]
            is_array = isinstance(parts[0], np.ndarray)
            columns[name] = np.concatenate(parts) if is_array else tuple(chain.from_iterable(parts))
        parent = columns["parent"]
        columns["parent"] = np.where(parent >= 0, parent + np.repeat(starts[:-1], sizes), -1).astype(np.int32)
        return cls(tree=Tree(**columns), starts=starts)

    def rows(self) -> Iterator[slice]:
        """The rows of each tree."""
        for start, stop in pairwise(self.starts.tolist()):
            yield slice(start, stop)

    def trees(self) -> Iterator[Tree]:
        """Each tree by itself, its rows counted from 0."""
        columns = {name: getattr(self.tree, name) for name in TREE_FIELDS}
        for rows in self.rows():
            own = {name: column[rows] for name, column in columns.items()}
            start = rows.start
            own["parent"] = np.where(own["parent"] >= 0, own["parent"] - start, -1).astype(np.int32)
            if start and any(own["merged_from"]):
                own["merged_from"] = tuple([tuple([row - start for row in merged]) for merged in own["merged_from"]])
            yield Tree(**own)
