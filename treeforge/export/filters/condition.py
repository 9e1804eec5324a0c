"""`where`: an SQL condition on the columns of the rows, read by polars. No Python is evaluated."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.errors import ConfigError
from treeforge.export.filters.sql import complaint
from treeforge.export.formats import Format, Rows
from treeforge.export.schemas import make_table

if TYPE_CHECKING:
    import polars as pl

OPTION = "--where (export.where)"
_SHOWN = 100
"""Characters of a condition in an error."""


class Condition:
    """A condition that is true or false for each row by itself; null is false."""

    def __init__(self, sql: str) -> None:
        if why := complaint(sql):
            raise _error(sql, why)
        import polars as pl  # Takes as long as the rest of an export's imports, which mostly have no condition.

        self.sql = sql
        try:
            self._expression = pl.sql_expr(sql)
            self._names = set(self._expression.meta.root_names())
        except pl.exceptions.PolarsError as error:
            raise _error(sql, f"is no SQL condition: {_line(error)}") from None
        if not self._names:
            raise _error(sql, "names no column, so it cannot tell rows apart")

    def applies(self, format: Format) -> bool:
        """Whether the format has all the columns. `ConfigError` where the condition does not fit their types."""
        import polars as pl

        if not self._names <= set(format.schema.names):
            return False
        found = self._evaluate(format.schema.empty_table(), format.name)
        if found.len() != 0 or found.dtype != pl.Boolean:
            raise _error(self.sql, "does not say true or false for each row; write a comparison of columns")
        return True

    def missing(self, formats: tuple[Format, ...]) -> ConfigError:
        """The error where no format has the columns."""
        known = "; ".join(f"{format.name}: {', '.join(format.schema.names)}" for format in formats)
        return ConfigError(
            f"{OPTION}: no format of this export has all of {', '.join(sorted(self._names))}. Columns are {known}"
        )

    def keep(self, rows: Rows, schema: pa.Schema) -> Rows:
        """The rows for which the condition is true."""
        found = self._evaluate(make_table(rows.columns, schema), "a tree")
        mask: NDArray[np.bool_] = found.fill_null(False).to_numpy()
        return rows.keep(mask)

    def _evaluate(self, table: pa.Table, where: str) -> pl.Series:
        import polars as pl

        try:
            frame = pl.DataFrame(pl.from_arrow(table))
            return frame.select(self._expression.alias("_")).to_series()
        except pl.exceptions.PolarsError as error:
            raise _error(self.sql, f"fails on {where}: {_line(error)}") from None


def _error(sql: str, why: str) -> ConfigError:
    shown = sql if len(sql) <= _SHOWN else sql[:_SHOWN] + "…"
    return ConfigError(f"{OPTION}: {shown!r} {why}")


def _line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
