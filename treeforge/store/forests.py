"""Node tables of whole blocks as arrays (`Forest`) and Arrow texts, without an object a tree or a string a node.

Here the texts stay in Arrow's memory: what does not look into them (labels, HNC, most formats) never makes Python
strings of them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.errors import DataError
from treeforge.forest import ARRAY_FIELDS, Forest, Rows
from treeforge.store.tables import COMPRESSED, NODES, text_array, tree_bounds
from treeforge.tree import TREE_FIELDS, Tree

_LIST = NODES.field("merged_from").type

_NARROW_BYTES, _NARROW_ROWS = 2**30, 2**8
"""Texts of one Arrow array with narrow offsets end at 2 GiB. Half of that leaves room for what HNC joins; so few rows
stay below it."""

TEXTS = ("text", "observation", "answer")


@dataclass(frozen=True, kw_only=True, slots=True)
class NodeTable:
    """The nodes of several trees, n in all."""

    numbers: NDArray[np.int32]
    """int32[trees]: their tree_ids."""
    forest: Forest
    text: Any
    """Arrow strings, n: as in `Tree`; so the other two."""
    observation: Any
    answer: Any
    merged_from: Any
    """Arrow lists of int32, n: rows of the node's own tree, as in `Tree`."""

    @classmethod
    def read(cls, table: pa.Table) -> NodeTable:
        """The trees of a `NODES` (or `COMPRESSED`) table, checked.

        Raises `DataError` where rows are not in order, `TreeError` where a tree breaks an invariant.
        """
        bounds = tree_bounds(table)
        starts = np.array([0, *(rows.stop for _, rows in bounds)], dtype=np.intp)
        offset = np.repeat(starts[:-1], np.diff(starts))
        node, parent = table.column("node_id").to_numpy(), table.column("parent_id").to_numpy()
        if not np.array_equal(node + offset, np.arange(len(node))):
            raise DataError("the nodes of a tree are not 0, 1, 2, … in order", field="node_id")
        columns = {name: table.column(name).to_numpy() for name in ARRAY_FIELDS if name != "parent"}
        texts = {name: _whole(table.column(name)) for name in (*TEXTS, "merged_from")}
        forest = Forest(
            starts=starts,
            parent=np.where(parent >= 0, parent + offset, -1).astype(np.int32),
            observed=_filled(texts["observation"]),
            merged=list_sizes(texts["merged_from"]) > 0,
            **columns,
        )
        forest.check()
        return cls(numbers=np.array([number for number, _ in bounds], dtype=np.int32), forest=forest, **texts)

    @classmethod
    def of(cls, numbers: Sequence[int], trees: Sequence[Tree]) -> NodeTable:
        """`trees` and their tree_ids."""
        texts = {name: text_array(name, [text for tree in trees for text in getattr(tree, name)]) for name in TEXTS}
        return cls(
            numbers=np.array(numbers, dtype=np.int32),
            forest=Forest.of(trees),
            merged_from=pa.array([rows for tree in trees for rows in tree.merged_from], _LIST),
            **texts,
        )

    @property
    def sizes(self) -> dict[int, int]:
        """Nodes of each tree, by its tree_id."""
        return dict(zip(self.numbers.tolist(), self.forest.sizes.tolist(), strict=True))

    def select(self, trees: Rows) -> NodeTable:
        """Some of the trees, in the order given."""
        if len(trees) == len(self.numbers) and (np.diff(trees) == 1).all():
            return self
        rows = pa.array(self.forest.rows_of(trees))
        return NodeTable(
            numbers=self.numbers[trees],
            forest=self.forest.select(trees),
            **{name: getattr(self, name).take(rows) for name in (*TEXTS, "merged_from")},
        )

    def trees(self) -> Iterator[Tree]:
        """Each tree by itself."""
        columns: dict[str, Any] = {name: getattr(self.forest, name) for name in ARRAY_FIELDS}
        columns |= {name: getattr(self, name).to_pylist() for name in TEXTS}
        merged: Sequence[tuple[int, ...]] = [()] * self.forest.size
        if self.forest.merged.any():
            merged = [tuple(rows) for rows in self.merged_from.to_pylist()]
        for rows in self.forest.rows():
            own = {name: column[rows] for name, column in columns.items()}
            own["parent"] = np.where(own["parent"] >= 0, own["parent"] - rows.start, -1)
            yield Tree(merged_from=tuple(merged[rows]), **own)

    def merged(self, forest: Forest, p: Rows, x: Rows) -> NodeTable:
        """The trees after HNC: `forest` has their arrays, and each of `x` (in row order) merged with its `p`."""
        nothing = pa.scalar("", self.text.type)
        joined = pc.binary_join_element_wise(self.text.take(pa.array(p)), self.text.take(pa.array(x)), nothing)
        rows = np.arange(forest.size)
        rows[x] = forest.size + np.arange(len(x))
        start = self.forest.offset[x]
        offsets = np.zeros(forest.size + 1, dtype=np.int32)
        offsets[x + 1] = 2
        parts = np.stack([p - start, x - start], axis=1).astype(np.int32).ravel()
        return NodeTable(
            numbers=self.numbers,
            forest=forest,
            text=pa.concat_arrays([self.text, joined]).take(pa.array(rows)),
            observation=self.observation,
            answer=self.answer,
            merged_from=lists(np.cumsum(offsets, dtype=np.int32), parts, _LIST),
        )

    def to_nodes(self) -> pa.Table:
        """The rows (`NODES`)."""
        return pa.Table.from_arrays(self._columns(), schema=NODES)

    def to_compressed(self, trees: Rows) -> pa.Table:
        """The rows of some of the trees (`COMPRESSED`); every node has the row that it had before compression."""
        columns = self.select(trees)._columns()
        return pa.Table.from_arrays([*columns, columns[1]], schema=COMPRESSED)

    def _columns(self) -> list[Any]:
        forest = self.forest
        columns: dict[str, Any] = {name: getattr(forest, name) for name in ARRAY_FIELDS}
        columns["parent"] = np.where(forest.parent >= 0, forest.parent - forest.offset, -1).astype(np.int32)
        columns |= {name: getattr(self, name) for name in (*TEXTS, "merged_from")}
        node = (np.arange(forest.size) - forest.offset).astype(np.int32)
        arrays = [np.repeat(self.numbers, forest.sizes), node, *(columns[name] for name in TREE_FIELDS)]
        return [_narrow(pa.array(column)) for column in arrays]


def lists(offsets: NDArray[np.int32], values: NDArray[np.int32], kind: pa.DataType) -> Any:
    """n Arrow lists of int32. `offsets`, int32[n + 1]: where in `values` each begins, and where the last ends."""
    return pa.ListArray.from_arrays(pa.array(offsets), pa.array(values), type=kind)


def list_sizes(array: Any) -> NDArray[np.int32]:
    """int32[n]: how long each list of an Arrow array is."""
    sizes: NDArray[np.int32] = pc.list_value_length(array).to_numpy(zero_copy_only=False)
    return sizes


def text_sizes(array: Any) -> NDArray[np.int32]:
    """int32[n]: UTF-8 bytes of each text of an Arrow array."""
    sizes: NDArray[np.int32] = pc.binary_length(array).to_numpy(zero_copy_only=False)
    return sizes


def _filled(array: Any) -> NDArray[np.bool_]:
    filled: NDArray[np.bool_] = text_sizes(array) > 0
    return filled


def _whole(column: pa.ChunkedArray) -> Any:
    """A column as one array; of wide offsets where its texts would not fit into narrow ones."""
    if column.num_chunks == 1:
        return column.chunk(0)
    if pa.types.is_string(column.type) and column.nbytes > _NARROW_BYTES:
        column = column.cast(pa.large_string())
    return pa.concat_arrays(column.chunks or [pa.array([], column.type)])


def _narrow(array: Any) -> Any:
    """The column as the tables have it: texts of wide offsets in several chunks of narrow ones."""
    if not pa.types.is_large_string(array.type):
        return array
    starts = range(0, len(array), _NARROW_ROWS)
    # Taken, not sliced: a slice keeps the wide offsets of the whole.
    parts = (array.take(pa.array(np.arange(start, min(start + _NARROW_ROWS, len(array))))) for start in starts)
    return pa.chunked_array([part.cast(pa.string()) for part in parts], pa.string())
