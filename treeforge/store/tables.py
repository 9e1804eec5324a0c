"""The run folder's tables: explicit Arrow schemas, conversion from and to `Tree`, `Rollout` and `Values`.

Rows of one tree stand together, trees in ascending number, so that a table's bytes depend on its content only. Floats
that are unknown are NaN, as in the structs; only `hard` uses null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.errors import DataError
from treeforge.store.parquet import SCHEMA_VERSION, TABLE_KEY, VERSION_KEY
from treeforge.tree import TREE_FIELDS, Rollout, Tree
from treeforge.value import Values


def _required(name: str, kind: pa.DataType) -> pa.Field:
    return pa.field(name, kind, nullable=False)


def _list_of(kind: pa.DataType) -> pa.DataType:
    return pa.list_(pa.field("element", kind, nullable=False))


def _schema(table: str, columns: Sequence[pa.Field]) -> pa.Schema:
    return pa.schema(columns, metadata={TABLE_KEY: table, VERSION_KEY: str(SCHEMA_VERSION)})


_NODE_COLUMNS = (
    _required("tree_id", pa.int32()),
    _required("node_id", pa.int32()),
    _required("parent_id", pa.int32()),
    _required("depth", pa.int16()),
    _required("text", pa.string()),
    _required("observation", pa.string()),
    _required("token_count", pa.int32()),
    _required("logprob", pa.float32()),
    _required("multiplicity", pa.float64()),
    _required("finish", pa.int8()),
    _required("answer", pa.string()),
    _required("verdict", pa.int8()),
    _required("rollouts", pa.int32()),
    _required("rollouts_correct", pa.int32()),
    _required("rollouts_undecided", pa.int32()),
    _required("rollouts_truncated", pa.int32()),
    _required("visits", pa.int32()),
    _required("value_sum", pa.float64()),
    _required("prior", pa.float32()),
    _required("merged_from", _list_of(pa.int32())),
)

NODES = _schema("nodes", _NODE_COLUMNS)
"""`trees/nodes-*.parquet`: one row a node; node_id is the node's row in its tree, parent_id -1 at the root."""

COMPRESSED = _schema("compressed", (*_NODE_COLUMNS, _required("row_of", pa.int32())))
"""Compressed trees: `NODES`, and the row that each node had in the tree before compression."""

ROLLOUTS = _schema(
    "rollouts",
    (
        _required("tree_id", pa.int32()),
        _required("node_id", pa.int32()),
        _required("steps", _list_of(pa.string())),
        _required("answer", pa.string()),
        _required("verdict", pa.int8()),
        _required("finish", pa.int8()),
        _required("tokens", pa.int32()),
        _required("logprob", pa.float64()),
    ),
)
"""`trees/rollouts-*.parquet`: one row a completion that is not itself nodes."""

VALUES = _schema(
    "values",
    (
        _required("tree_id", pa.int32()),
        _required("node_id", pa.int32()),
        _required("value", pa.float64()),
        _required("rollouts", pa.int64()),
        _required("undecided", pa.int64()),
        _required("stderr", pa.float64()),
        _required("low", pa.float64()),
        _required("high", pa.float64()),
        _required("estimator", pa.string()),
        pa.field("hard", pa.bool_()),
        _required("soft", pa.float64()),
    ),
)
"""`labels/values-*.parquet`: one row a node; hard is null and soft NaN where the step has no label, hard alone inside
the abstain band."""


def nodes_table(number: int, tree: Tree) -> pa.Table:
    """The rows of one tree (`NODES`). `number` is the tree's number in the run, its tree_id."""
    n = tree.size
    arrays: list[Any] = [pa.array(np.full(n, number, np.int32)), pa.array(np.arange(n, dtype=np.int32))]
    for name in TREE_FIELDS:
        column = getattr(tree, name)
        if isinstance(column, np.ndarray):
            arrays.append(pa.array(column))
        elif name == "merged_from":
            arrays.append(pa.array(column, NODES.field(name).type))
        else:
            arrays.append(text_array(name, column))
    return pa.Table.from_arrays(arrays, schema=NODES)


def rollouts_table(number: int, rollouts: Sequence[Rollout]) -> pa.Table:
    """The rows of one tree's rollouts (`ROLLOUTS`), in the order given; none gives an empty table."""
    return pa.Table.from_arrays(
        [
            pa.array(np.full(len(rollouts), number, np.int32)),
            pa.array([r.node for r in rollouts], pa.int32()),
            text_array("steps", [list(r.steps) for r in rollouts], ROLLOUTS.field("steps").type),
            text_array("answer", [r.answer for r in rollouts]),
            pa.array([r.verdict for r in rollouts], pa.int8()),
            pa.array([r.finish for r in rollouts], pa.int8()),
            pa.array([r.tokens for r in rollouts], pa.int32()),
            pa.array([r.logprob for r in rollouts], pa.float64()),
        ],
        schema=ROLLOUTS,
    )


def values_table(number: int, values: Values, hard: NDArray[np.int8], soft: NDArray[np.float64]) -> pa.Table:
    """The rows of one tree's values and labels (`VALUES`).

    `hard`: int8[n], 1 or 0, -1 for no label. `soft`: float64[n] in [0, 1], NaN for no label.
    """
    n = len(values.value)
    return pa.Table.from_arrays(
        [
            pa.array(np.full(n, number, np.int32)),
            pa.array(np.arange(n, dtype=np.int32)),
            pa.array(values.value, pa.float64()),
            pa.array(values.rollouts, pa.int64()),
            pa.array(values.undecided, pa.int64()),
            pa.array(values.stderr, pa.float64()),
            pa.array(values.low, pa.float64()),
            pa.array(values.high, pa.float64()),
            pa.repeat(pa.scalar(values.estimator, pa.string()), n),
            pa.array(hard == 1, pa.bool_(), mask=hard < 0),
            pa.array(soft, pa.float64()),
        ],
        schema=VALUES,
    )


def tree_from_table(table: pa.Table) -> Tree:
    """The tree of a table that holds exactly one. Raises as `trees_from_table` does."""
    found = list(trees_from_table(table))
    if len(found) != 1:
        raise DataError(f"one tree was expected, the table has {len(found)}", field="tree_id")
    return found[0][1]


def trees_from_table(table: pa.Table) -> Iterator[tuple[int, Tree]]:
    """The trees of a `NODES` (or `COMPRESSED`) table, in order, as (tree_id, tree), each checked.

    Raises `DataError` where rows are not in order, `TreeError` where a tree breaks an invariant.
    """
    columns = {name: _plain(table.column(name)) for name in ("node_id", "parent_id", *TREE_FIELDS[1:])}
    node_id = columns.pop("node_id")
    columns["parent"] = columns.pop("parent_id")
    for number, rows in tree_bounds(table):
        if not np.array_equal(node_id[rows], np.arange(rows.stop - rows.start)):
            raise DataError(f"the nodes of tree {number} are not 0, 1, 2, … in order", field="node_id")
        tree = Tree(**{name: column[rows] for name, column in columns.items()})
        tree.check()
        yield number, tree


def rollouts_from_table(table: pa.Table) -> Iterator[tuple[int, tuple[Rollout, ...]]]:
    """The rollouts of a `ROLLOUTS` table, in order, as (tree_id, rollouts). A tree without rollouts does not occur."""
    columns = [_plain(table.column(name)) for name in ROLLOUTS.names[1:]]
    listed = [c.tolist() if isinstance(c, np.ndarray) else c for c in columns]
    for number, rows in tree_bounds(table):
        yield number, tuple(Rollout(*row) for row in zip(*(c[rows] for c in listed), strict=True))


def values_from_table(table: pa.Table) -> Iterator[tuple[int, Values, NDArray[np.int8], NDArray[np.float64]]]:
    """The values and labels of a `VALUES` table, in order, as (tree_id, values, hard, soft); see `values_table`.

    Raises `DataError` where rows are not in order or one tree has several estimators.
    """
    names = [spec.name for spec in fields(Values)]
    columns = {name: _plain(table.column(name)) for name in (*names, "node_id", "soft")}
    hard = table.column("hard").cast(pa.int8()).fill_null(-1).to_numpy()
    for number, rows in tree_bounds(table):
        if not np.array_equal(columns["node_id"][rows], np.arange(rows.stop - rows.start)):
            raise DataError(f"the nodes of tree {number} are not 0, 1, 2, … in order", field="node_id")
        estimators = set(columns["estimator"][rows])
        if len(estimators) != 1:
            raise DataError(f"tree {number} has values of several estimators: {sorted(estimators)}", field="estimator")
        arrays = {name: columns[name][rows] for name in names if name != "estimator"}
        yield number, Values(estimator=estimators.pop(), **arrays), hard[rows], columns["soft"][rows]


def text_array(name: str, texts: Sequence[Any], kind: pa.DataType | None = None) -> Any:
    """An Arrow string array (or of `kind`, lists of strings); `DataError` names the row of a text that is not Unicode.

    `clean_text` keeps lone surrogates out of trees; this is the last line, so that nothing partial is written.
    """
    try:
        return pa.array(texts, kind or pa.string())
    except UnicodeEncodeError:
        for row, text in enumerate(texts):
            try:
                (text if isinstance(text, str) else "".join(text)).encode()
            except UnicodeEncodeError as error:
                problem = f"row {row} holds a lone surrogate ({error.object[error.start]!a}), which no file can carry"
                raise DataError(
                    problem, field=name, fix="Clean the text with treeforge.policy.steps.clean_text"
                ) from None
        raise


def _plain(column: pa.ChunkedArray) -> Any:
    """A numpy array of numbers, or a list of texts or of tuples (a list column)."""
    if pa.types.is_list(column.type):
        return [value for chunk in column.chunks for value in _tuples(chunk)]
    # By way of numpy, which is several times as fast as `to_pylist`.
    return column.to_numpy().tolist() if pa.types.is_string(column.type) else column.to_numpy()


def _tuples(lists: pa.ListArray) -> Iterable[tuple[Any, ...]]:
    items = lists.flatten().to_numpy(zero_copy_only=False).tolist()
    if not items:
        return [()] * len(lists)
    ends = lists.value_lengths().to_numpy(zero_copy_only=False).cumsum().tolist()
    return (tuple(items[start:end]) for start, end in pairwise([0, *ends]))


def tree_bounds(table: pa.Table) -> list[tuple[int, slice]]:
    """(tree_id, its rows) in order. Raises `DataError` unless the rows of a tree stand together and trees ascend."""
    ids = table.column("tree_id").to_numpy()
    if len(ids) == 0:
        return []
    steps = np.diff(ids)
    if (steps < 0).any():
        row = int(np.flatnonzero(steps < 0)[0]) + 1
        raise DataError(f"row {row}: trees are not in ascending order", field="tree_id")
    starts = [0, *(np.flatnonzero(steps) + 1).tolist(), len(ids)]
    return [(int(ids[start]), slice(start, stop)) for start, stop in pairwise(starts)]
