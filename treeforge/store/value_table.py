"""Values and labels of whole blocks of trees: the view `labels/` (`VALUES`) as arrays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.errors import DataError
from treeforge.forest import Rows, ranges
from treeforge.store.tables import VALUES, tree_bounds
from treeforge.value import Values

_COLUMNS = tuple(spec.name for spec in fields(Values) if spec.name != "estimator")


@dataclass(frozen=True, kw_only=True, slots=True)
class ValueTable:
    """The values and labels of several trees, n nodes in all."""

    numbers: NDArray[np.int32]
    """int32[trees]: their tree_ids."""
    starts: Rows
    """intp[trees + 1]: where each tree starts; the last is n."""
    values: Values
    hard: NDArray[np.int8]
    """int8[n]: 1 or 0, -1 for no label."""
    soft: NDArray[np.float64]
    """float64[n]: in [0, 1], NaN for no label."""

    @classmethod
    def read(cls, table: pa.Table) -> ValueTable:
        """The rows of a `VALUES` table, of at least one tree.

        Raises `DataError` where rows are not in order or there are several estimators.
        """
        bounds = tree_bounds(table)
        starts = np.array([0, *(rows.stop for _, rows in bounds)], dtype=np.intp)
        if not np.array_equal(table.column("node_id").to_numpy(), _counted(starts)):
            raise DataError("the nodes of a tree are not 0, 1, 2, … in order", field="node_id")
        estimators = table.column("estimator").unique().to_pylist()
        if len(estimators) != 1:
            raise DataError(f"the table has values of several estimators: {sorted(estimators)}", field="estimator")
        return cls(
            numbers=np.array([number for number, _ in bounds], dtype=np.int32),
            starts=starts,
            values=Values(estimator=estimators[0], **{name: table.column(name).to_numpy() for name in _COLUMNS}),
            hard=table.column("hard").cast(pa.int8()).fill_null(-1).to_numpy(),
            soft=table.column("soft").to_numpy(),
        )

    def to_arrow(self) -> pa.Table:
        """The rows (`VALUES`), as `values_table` gives those of each tree."""
        sizes = np.diff(self.starts)
        columns: dict[str, Any] = {
            "tree_id": np.repeat(self.numbers, sizes),
            "node_id": _counted(self.starts),
            "estimator": pa.repeat(pa.scalar(self.values.estimator, pa.string()), len(self.hard)),
            "hard": pa.array(self.hard == 1, pa.bool_(), mask=self.hard < 0),
            "soft": self.soft,
        }
        columns |= {name: getattr(self.values, name) for name in _COLUMNS}
        return pa.Table.from_arrays([pa.array(columns[name]) for name in VALUES.names], schema=VALUES)


def joined_values(parts: Sequence[Values]) -> Values:
    """Values of several trees by one estimator, one tree's after another's."""
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _COLUMNS}
    return Values(estimator=parts[0].estimator, **columns)


def rows_of_values(values: Values, rows: Any) -> Values:
    """The values of some rows (a slice, or an array of row numbers)."""
    return Values(estimator=values.estimator, **{name: getattr(values, name)[rows] for name in _COLUMNS})


def _counted(starts: Rows) -> NDArray[np.int32]:
    """int32[n]: each node's row in its own tree."""
    sizes = np.diff(starts)
    return ranges(np.zeros_like(sizes), sizes).astype(np.int32)
