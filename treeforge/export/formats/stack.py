"""Rows out of all passes of a block at once: tree by tree, of each tree pass by pass, without a loop over trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.export.schemas import LIST_OF_ROWS
from treeforge.forest import Rows, ranges
from treeforge.store.forests import list_sizes, lists

PIECE_BYTES = 32 * 2**20
"""About how many bytes of text are made at once."""


class Stack:
    """The nodes of a block's passes one after another, in one numbering: n rows."""

    def __init__(self, block: ExportBlock) -> None:
        self._passes = block.passes
        self.starts: Rows = np.cumsum([0, *(forest.nodes.forest.size for forest in block.passes)])
        """intp[passes + 1]: where each pass starts; the last is n."""
        self.size = int(self.starts[-1])
        """n."""
        self.place = self.arrays("place_of")
        """intp[n]: the place of each node's tree in the block."""
        parents = [forest.nodes.forest.parent.astype(np.intp) for forest in self._passes]
        self.parent: Rows = np.concatenate(
            [np.where(parent >= 0, parent + start, -1) for parent, start in zip(parents, self.starts, strict=False)]
        )
        """intp[n]: rows of the stack; -1 at roots."""

    def arrays(self, name: str) -> NDArray[Any]:
        """An array of all passes, by its name in `LabelledForest`, as in `nodes.forest.depth`."""
        return self.joined(map(attrgetter(name), self._passes))

    def joined(self, parts: Iterable[NDArray[Any]]) -> NDArray[Any]:
        """An array of all passes, given for each."""
        listed = list(parts)
        return listed[0] if len(listed) == 1 else np.concatenate(listed)

    def texts(self, name: str) -> Any:
        """Arrow texts or lists of all passes, by their name in `NodeTable`."""
        parts = [getattr(forest.nodes, name) for forest in self._passes]
        return parts[0] if len(parts) == 1 else pa.concat_arrays(parts)

    def pass_of(self, rows: Rows) -> NDArray[np.int8]:
        """int8[k]: the pass of each row, 0 for trees as grown."""
        numbers = np.array([forest.number for forest in self._passes], dtype=np.int8)
        found: NDArray[np.int8] = numbers[np.searchsorted(self.starts, rows, side="right") - 1]
        return found

    def by_tree(self, chosen: Sequence[Rows]) -> tuple[Rows, Rows]:
        """All of several sets of rows, tree by tree, of each tree the sets in order; and which set each row is of."""
        rows, of = np.concatenate(chosen), np.repeat(np.arange(len(chosen)), [len(part) for part in chosen])
        order = np.argsort(self.place[rows], kind="stable")
        return rows[order], of[order]


def pieces(sizes: NDArray[np.integer[Any]]) -> Iterator[slice]:
    """Slices of rows of about `PIECE_BYTES` each. `sizes`, int[k]: bytes of each row's texts."""
    if len(sizes):
        piece = (np.cumsum(sizes, dtype=np.int64) - sizes) // PIECE_BYTES
        bounds = [*np.flatnonzero(np.diff(piece, prepend=-1)).tolist(), len(sizes)]
        for start, stop in pairwise(bounds):
            yield slice(start, stop)


class Lists:
    """A column of lists of int32, of which rows take some."""

    def __init__(self, array: Any) -> None:
        self._size = list_sizes(array)
        self._start = np.cumsum(self._size) - self._size
        self._values = array.flatten().to_numpy(zero_copy_only=False)

    def joined(self, rows: Sequence[tuple[Rows, NDArray[np.bool_]]]) -> Any:
        """An Arrow array of k lists, each joined of the lists at several rows, in that order, as far as these count."""
        sizes = np.stack([np.where(counts, self._size[row], 0) for row, counts in rows], axis=1)
        starts = np.stack([self._start[row] for row, _ in rows], axis=1)
        offsets = np.concatenate(([0], np.cumsum(sizes.sum(axis=1)))).astype(np.int32)
        return lists(offsets, self._values[ranges(starts.ravel(), sizes.ravel())], LIST_OF_ROWS)
