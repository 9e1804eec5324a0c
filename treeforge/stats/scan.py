"""A run's tables as polars frames: lazy scans of the Parquet blocks, and the trees that are spilled but not merged yet.

Nothing is locked: a run that grows can be read. What is counted are the trees that had ended when `scan_run` was
called, each once, whatever a writer merges meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import polars as pl

from treeforge.errors import StorageError
from treeforge.store.run import OPEN, RunFolder

if TYPE_CHECKING:
    import pyarrow as pa

_NODES: dict[str, type[pl.DataType]] = {
    "tree_id": pl.Int32,
    "node_id": pl.Int32,
    "parent_id": pl.Int32,
    "depth": pl.Int16,
    "text": pl.String,
    "token_count": pl.Int32,
    "multiplicity": pl.Float64,
    "finish": pl.Int8,
    "verdict": pl.Int8,
}
_ROLLOUTS: dict[str, type[pl.DataType]] = {
    "tree_id": pl.Int32,
    "node_id": pl.Int32,
    "verdict": pl.Int8,
    "finish": pl.Int8,
    "tokens": pl.Int32,
}
_VALUES: dict[str, type[pl.DataType]] = {
    "tree_id": pl.Int32,
    "node_id": pl.Int32,
    "value": pl.Float64,
    "hard": pl.Boolean,
}


@dataclass(frozen=True, slots=True)
class RunScan:
    """The trees of a run that have ended, as frames. Columns mean what they mean in `treeforge.store.tables`."""

    statuses: dict[int, tuple[str, str]]
    """(status, reason) of every problem by its number."""
    nodes: pl.LazyFrame
    """One row a node."""
    rollouts: pl.LazyFrame
    """One row a completion that is not itself nodes."""


def scan_run(run: RunFolder) -> RunScan:
    """The trees that have ended by now.

    Spilled trees are read before the list of tables is made, so that one which a writer merges in between is found in
    the latter; a tree that is in both (grown again after `extend`) counts as spilled.
    """
    statuses = run.statuses()
    ended = [number for number, outcome in statuses.items() if outcome != OPEN]
    spilled: list[tuple[int, pl.DataFrame, pl.DataFrame]] = [
        (number, _frame(nodes, _NODES), _frame(rollouts, _ROLLOUTS)) for number, nodes, rollouts in run.spilled(ended)
    ]
    merged = set(ended).difference(number for number, _, _ in spilled)
    wanted = None if len(merged) == len(run.problems) else merged

    def frame(
        kind: Literal["nodes", "rollouts"], columns: dict[str, type[pl.DataType]], at: Literal[1, 2]
    ) -> pl.LazyFrame:
        waiting = [tree[at].lazy() for tree in spilled]
        return pl.concat([_scan(run.table_files(kind), columns, wanted), *waiting])

    return RunScan(statuses, frame("nodes", _NODES, 1), frame("rollouts", _ROLLOUTS, 2))


def scan_labels(run: RunFolder) -> pl.LazyFrame:
    """The saved values and labels, one row a node, whether stale or not; no rows where there are none."""
    return _scan(sorted((run.path / "labels").glob("values-*.parquet")), _VALUES, None)


def collect(*frames: pl.LazyFrame) -> list[pl.DataFrame]:
    """The frames' rows, computed by the streaming engine. `StorageError` for a damaged file."""
    try:
        return [frame.collect(engine="streaming") for frame in frames]
    except (pl.exceptions.ComputeError, pl.exceptions.SchemaError, OSError) as error:
        cause = " ".join(str(error).split())[:300]
        raise StorageError(
            f"a table of the run cannot be read: {cause}. Delete that file and resume the run."
        ) from error


def _scan(files: Sequence[Path], columns: dict[str, type[pl.DataType]], trees: Iterable[int] | None) -> pl.LazyFrame:
    if not files:
        return pl.LazyFrame(schema=columns)
    frame = pl.scan_parquet(list(files), glob=False).select(columns.keys())
    return (
        frame
        if trees is None
        else frame.filter(pl.col("tree_id").is_in(pl.Series(sorted(trees), dtype=pl.Int32).implode()))
    )


def _frame(table: pa.Table, columns: dict[str, type[pl.DataType]]) -> pl.DataFrame:
    frame = pl.from_arrow(table.select(list(columns)))
    assert isinstance(frame, pl.DataFrame)
    return frame
