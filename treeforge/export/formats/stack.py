"""Rows out of all passes of a block at once: tree by tree, of each tree pass by pass, without a loop over trees."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from operator import attrgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.export.schemas import LIST_OF_ROWS
from treeforge.forest import Rows, ranges
from treeforge.store.forests import list_sizes, lists

PIECE_BYTES = 32 * 2**20
"""About how many bytes of text are made at once."""

NOTHING = pa.scalar("", pa.large_string())


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

    @cached_property
    def depth(self) -> NDArray[np.int16]:
        """int16[n]: steps from the root."""
        return self.arrays("nodes.forest.depth")

    @cached_property
    def hard(self) -> NDArray[np.int8]:
        """int8[n]: the hard label, -1 for none."""
        return self.arrays("hard")

    @cached_property
    def levels(self) -> list[Rows]:
        """The rows of each depth, from 1 on."""
        order = np.argsort(self.depth, kind="stable")
        return np.split(order, np.cumsum(np.bincount(self.depth))[:-1])[1:]

    @cached_property
    def steps(self) -> Any:
        """Arrow texts, n: each step's, after what an environment answered to the step before it."""
        text = self.texts("text").cast(pa.large_string())
        if not self.arrays("nodes.forest.observed").any():
            return text
        after = pa.array(self.parent, mask=self.depth <= 1)
        before = self.texts("observation").cast(pa.large_string()).take(after).fill_null("")
        return pc.binary_join_element_wise(before, text, NOTHING)

    def from_root(self, join: Any, values: NDArray[Any], root: Any) -> NDArray[Any]:
        """any[n]: `values` joined from the first step down to each node by a numpy function of two; `root` at roots."""
        out = np.array(values)
        out[self.parent < 0] = root
        for rows in self.levels:
            out[rows] = join(out[self.parent[rows]], out[rows])
        return out

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
        if len({part.type for part in parts}) > 1:  # Where texts of one pass do not fit into narrow offsets.
            parts = [part.cast(pa.large_string()) for part in parts]
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


@dataclass(frozen=True, slots=True)
class Paths:
    """The steps that lead to each of k nodes: from the root's child down to and including the node."""

    nodes: Rows
    """intp[m]: rows of the stack, path after path."""
    offsets: Rows
    """intp[k + 1]: where each path starts; the last is m."""

    @classmethod
    def of(cls, stack: Stack, ends: Rows) -> Paths:
        """The paths to `ends`, intp[k]."""
        left = stack.depth[ends].astype(np.intp)
        offsets = np.concatenate(([0], np.cumsum(left)))
        nodes = np.empty(offsets[-1], dtype=np.intp)
        row, place = ends, offsets[1:]
        while len(row):
            going = left > 0
            row, left, place = row[going], left[going] - 1, place[going] - 1
            nodes[place] = row
            row = stack.parent[row]
        return cls(nodes, offsets)

    def lists(self, values: Any) -> Any:
        """k Arrow lists of `values`, an array of m."""
        values = values if isinstance(values, pa.Array) else pa.array(values)
        return pa.ListArray.from_arrays(pa.array(self.offsets.astype(np.int32)), values)

    def joined(self, texts: Any, separator: str = "") -> Any:
        """k Arrow texts: of each path the texts of its nodes. `texts`, n Arrow texts of wide offsets."""
        return pc.binary_join(self.lists(texts.take(pa.array(self.nodes))), pa.scalar(separator, pa.large_string()))

    def reduced(self, join: Any, values: NDArray[Any]) -> NDArray[Any]:
        """any[k]: of each path, which has a step at least, `values` (any[m]) joined by a numpy function of two."""
        found: NDArray[Any] = join.reduceat(values, self.offsets[:-1])
        return found


def pieces(sizes: NDArray[np.integer[Any]]) -> Iterator[slice]:
    """Slices of rows of about `PIECE_BYTES` each. `sizes`, int[k]: bytes of each row's texts."""
    if len(sizes):
        piece = (np.cumsum(sizes, dtype=np.int64) - sizes) // PIECE_BYTES
        bounds = [*np.flatnonzero(np.diff(piece, prepend=-1)).tolist(), len(sizes)]
        for start, stop in pairwise(bounds):
            yield slice(start, stop)


def ranks(groups: NDArray[np.integer[Any]]) -> Rows:
    """intp[k]: each row's place among those of its group, from 0. `groups`, int[k]: those of a group come together."""
    first = np.flatnonzero(np.diff(groups, prepend=-1))
    sizes = np.diff(np.append(first, len(groups)))
    return ranges(np.zeros(len(sizes), dtype=np.intp), sizes)


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
