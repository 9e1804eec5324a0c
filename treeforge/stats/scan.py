"""A run's tables as polars frames: lazy scans of the Parquet blocks, and the trees that are spilled but not merged yet.

Nothing is locked: a run that grows can be read. What is counted are the trees that had ended when `scan_run` was
called, each once, whatever a writer merges meanwhile. Verdicts are those that count: a recheck's where there was one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import polars as pl

from treeforge.errors import StorageError
from treeforge.stats.rechecked import Rechecked, rechecked
from treeforge.store.blocks import Kind
from treeforge.store.parquet import how_to_remake
from treeforge.store.run import OPEN, RunFolder

if TYPE_CHECKING:
    import pyarrow as pa

KINDS: tuple[Kind, ...] = ("nodes", "rollouts")
_NODES: dict[str, type[pl.DataType]] = {
    "tree_id": pl.Int32,
    "node_id": pl.Int32,
    "parent_id": pl.Int32,
    "depth": pl.Int16,
    "text": pl.String,
    "token_count": pl.Int32,
    "multiplicity": pl.Float64,
    "finish": pl.Int8,
    "answer": pl.String,
    "verdict": pl.Int8,
    "rollouts": pl.Int32,
    "rollouts_correct": pl.Int32,
    "rollouts_undecided": pl.Int32,
    "rollouts_truncated": pl.Int32,
    "visits": pl.Int32,
    "value_sum": pl.Float64,
}
_ROLLOUTS: dict[str, type[pl.DataType]] = {
    "tree_id": pl.Int32,
    "node_id": pl.Int32,
    "answer": pl.String,
    "verdict": pl.Int8,
    "finish": pl.Int8,
    "tokens": pl.Int32,
}
_VALUES: dict[str, type[pl.DataType]] = {
    "tree_id": pl.Int32,
    "node_id": pl.Int32,
    "value": pl.Float64,
    "low": pl.Float64,
    "high": pl.Float64,
    "hard": pl.Boolean,
}


_COLUMNS = {"nodes": _NODES, "rollouts": _ROLLOUTS}


@dataclass(frozen=True, slots=True)
class RunScan:
    """The trees of a run that have ended, as frames. Columns mean what they mean in `treeforge.store.tables`."""

    statuses: dict[int, tuple[str, str]]
    """(status, reason) of every problem by its number."""
    nodes: pl.LazyFrame
    """One row a node."""
    rollouts: pl.LazyFrame
    """One row a completion that is not itself nodes."""
    blocks: tuple[int, ...]
    """The numbers of the blocks that hold trees."""
    recheck: Rechecked | None
    """By whose verdicts the frames are; None: by those of the search."""
    _files: dict[tuple[Kind, int], Path]
    _waiting: dict[tuple[Kind, int], list[pl.DataFrame]]
    """Spilled trees by their block."""
    _wanted: set[int] | None

    @property
    def files(self) -> tuple[Path, ...]:
        """The tables that are read."""
        return tuple(self._files.values())

    def block(self, kind: Kind, number: int) -> pl.LazyFrame:
        """One block of `nodes` or `rollouts`. Each tree's rows stand together, in their order."""
        return _judged(self.recheck, {of: self._as_grown(of, number) for of in KINDS})[kind]

    def _as_grown(self, kind: Kind, number: int) -> pl.LazyFrame:
        file = self._files.get((kind, number))
        waiting = (frame.lazy() for frame in self._waiting.get((kind, number), []))
        return pl.concat([_scan([file] if file else [], _COLUMNS[kind], self._wanted), *waiting])


def scan_run(run: RunFolder) -> RunScan:
    """The trees that have ended by now.

    Spilled trees are read before the list of tables is made, so that one which a writer merges in between is found in
    the latter; a tree that is in both (grown again after `extend`) counts as spilled.
    """
    statuses = run.statuses()
    merged = {number for number, outcome in statuses.items() if outcome != OPEN}
    waiting: dict[tuple[Kind, int], list[pl.DataFrame]] = defaultdict(list)
    for number, nodes, rollouts in run.spilled(sorted(merged)):
        block = number // run.block
        waiting["nodes", block].append(_frame(nodes, _NODES))
        waiting["rollouts", block].append(_frame(rollouts, _ROLLOUTS))
        merged.remove(number)
    wanted = None if len(merged) == len(run.problems) else merged
    files: dict[tuple[Kind, int], Path] = {}
    frames: dict[Kind, pl.LazyFrame] = {}
    for kind in KINDS:
        tables = run.table_files(kind)
        files |= {(kind, int(file.stem.rpartition("-")[2])): file for file in tables}
        spilled = (frame.lazy() for (of, _), trees in waiting.items() if of == kind for frame in trees)
        frames[kind] = pl.concat([_scan(tables, _COLUMNS[kind], wanted), *spilled])
    blocks = sorted({block for _, block in (*files, *waiting)})
    recheck = rechecked(run)
    frames = _judged(recheck, frames)
    return RunScan(statuses, frames["nodes"], frames["rollouts"], tuple(blocks), recheck, files, waiting, wanted)


def _judged(recheck: Rechecked | None, frames: dict[Kind, pl.LazyFrame]) -> dict[Kind, pl.LazyFrame]:
    if recheck is None:
        return frames
    nodes, rollouts = frames["nodes"], frames["rollouts"]
    return {"nodes": recheck.nodes(nodes, rollouts), "rollouts": recheck.rollouts(rollouts)}


def scan_values(file: Path) -> pl.LazyFrame:
    """One block's saved values and labels, one row a node, whether stale or not."""
    return _scan([file], _VALUES, None)


def collect(*frames: pl.LazyFrame, files: Iterable[Path] = (), streaming: bool = True) -> list[pl.DataFrame]:
    """The frames' rows, computed by the streaming engine, or by the one that is faster for a block.

    `StorageError` for a damaged file; it is named where it is one of `files`.
    """
    try:
        return [frame.collect(engine="streaming" if streaming else "in-memory") for frame in frames]
    except (pl.exceptions.ComputeError, pl.exceptions.SchemaError, OSError) as error:
        cause = " ".join(str(error).split())[:300]
        listed = list(files)
        found = next((file for read in _READS for file in listed if _fails(read, file)), None)
        if found is None:
            raise StorageError(f"a table of the run cannot be read: {cause}. Ask again, or resume the run.") from error
        raise StorageError(f"{found} is damaged: {cause}. {how_to_remake(found)}.") from error


_READS: tuple[Callable[[Path], object], ...] = (pl.read_parquet_schema, pl.read_parquet)
"""Footers first, which is quick; what is wrong further inside takes a look at everything."""


def _fails(read: Callable[[Path], object], file: Path) -> bool:
    try:
        read(file)
    except (pl.exceptions.PolarsError, OSError):
        return True
    return False


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
