"""The files of a run's trees: a spill for each that ended, merged into its block's tables when the block is whole.

Numbers and blocks only; which trees count as ended is the run folder's knowledge.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator
from pathlib import Path
from typing import Literal

import pyarrow as pa

from treeforge.errors import DataError, StorageError
from treeforge.store.files import storage_error
from treeforge.store.parquet import foreign, read_table, write_table
from treeforge.store.tables import NODES, ROLLOUTS, nodes_table, rollouts_table
from treeforge.tree import TreeRecord

Kind = Literal["nodes", "rollouts"]
_SCHEMAS: tuple[tuple[Kind, pa.Schema], ...] = (("nodes", NODES), ("rollouts", ROLLOUTS))


class TreeFiles:
    """The folder `trees/`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._spills = folder / "spill"

    def spill(self, number: int, record: TreeRecord) -> None:
        """Write one tree to a file of its own. Not synced: the journal can make it again."""
        path = self.spill_path(number)
        sink = pa.BufferOutputStream()
        for table in (nodes_table(number, record.tree), rollouts_table(number, record.rollouts)):
            with pa.ipc.new_stream(sink, table.schema) as writer:
                writer.write_table(table)
        temporary = path.with_suffix(".tmp")
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            temporary.write_bytes(sink.getvalue())
            temporary.replace(path)
        except OSError as error:
            raise storage_error(error, path) from error

    def merge(self, block: int, members: Collection[int]) -> None:
        """Write the block's tables from its spills and what was merged before, and drop the spills."""
        if any(self.spill_path(number).exists() for number in members):
            nodes, rollouts = self.read(block, set(members))
            write_table(nodes, self.table_path("nodes", block))
            write_table(rollouts, self.table_path("rollouts", block))
            for number in members:
                self.spill_path(number).unlink(missing_ok=True)

    def read(self, block: int, wanted: set[int]) -> tuple[pa.Table, pa.Table]:
        """Nodes and rollouts of the wanted trees of a block, in order; a spill goes before what was merged."""
        spilled = {number: (nodes, rollouts) for number, nodes, rollouts in self.spilled(sorted(wanted))}
        merged: list[tuple[pa.Table, pa.Table]] = []
        rest = wanted - spilled.keys()
        if rest:
            nodes, rollouts = (read_table(self.table_path(kind, block), schema) for kind, schema in _SCHEMAS)
            merged.append((self._whole(nodes, block, rest), trees_of(rollouts, rest)))
        parts = [*merged, *spilled.values()]
        nodes, rollouts = (pa.concat_tables([part[i] for part in parts]) for i in (0, 1))
        if merged and spilled:
            nodes = nodes.sort_by([("tree_id", "ascending"), ("node_id", "ascending")])
            order = pa.compute.sort_indices(rollouts["tree_id"])  # stable, so that a tree's rollouts keep their order
            rollouts = rollouts.take(order)
        return nodes, rollouts

    def read_nodes(self, block: int, wanted: set[int]) -> pa.Table:
        """`read` without the rollouts: most of a whole block's cost where nobody looks at them."""
        if self._spills.is_dir():
            return self.read(block, wanted)[0]
        return self._whole(read_table(self.table_path("nodes", block), NODES), block, wanted)

    def _whole(self, table: pa.Table, block: int, wanted: set[int]) -> pa.Table:
        """The nodes of the wanted trees. `StorageError` where some are missing."""
        found = trees_of(table, wanted)
        if missing := wanted - set(found["tree_id"].unique().to_pylist()):
            raise foreign(self.table_path("nodes", block), f"no tree {min(missing)}, which has ended")
        return found

    def spilled(self, numbers: Iterable[int]) -> Iterator[tuple[int, pa.Table, pa.Table]]:
        """(number, nodes, rollouts) of those trees that wait for the rest of their block."""
        if not self._spills.is_dir():
            return
        for number in numbers:
            path = self.spill_path(number)
            if path.exists():
                try:
                    tables = self._read_spill(path)
                except StorageError:
                    if path.exists():
                        raise
                    continue  # a writer merged it into its block's tables just now
                yield number, *tables

    def tables(self, kind: Kind, blocks: Iterable[int]) -> list[Path]:
        """The tables of these blocks that stand by now."""
        return [path for block in blocks if (path := self.table_path(kind, block)).exists()]

    def present(self, blocks: Iterable[int], numbers: Iterable[int]) -> set[int]:
        """Which trees can be read: all in whole tables of the blocks, and those of `numbers` with a spill."""
        found: set[int] = set()
        for block in blocks:
            if self.table_path("rollouts", block).exists() and self.table_path("nodes", block).exists():
                with contextlib.suppress(StorageError, DataError):
                    table = read_table(self.table_path("nodes", block), NODES, columns=["tree_id"])
                    found |= set(table["tree_id"].unique().to_pylist())
        for number in set(numbers) - found:
            with contextlib.suppress(StorageError):
                if self.spill_path(number).exists():
                    self._read_spill(self.spill_path(number))
                    found.add(number)
        return found

    def clean(self, ended: Collection[int]) -> None:
        """Drop half-written spills and those of trees that have not ended."""
        for leftover in self._spills.glob("*"):
            ours = leftover.stem.isdecimal() and leftover.suffix in (".tmp", ".arrow")
            if ours and (leftover.suffix == ".tmp" or int(leftover.stem) not in ended):
                leftover.unlink(missing_ok=True)

    def tidy(self) -> None:
        """Drop the spill folder where it is empty."""
        with contextlib.suppress(OSError):
            self._spills.rmdir()

    def spill_path(self, number: int) -> Path:
        """Where a tree waits for its block."""
        return self._spills / f"{number:08d}.arrow"

    def table_path(self, kind: Kind, block: int) -> Path:
        """Where a block's table lies."""
        return self.folder / f"{kind}-{block:05d}.parquet"

    @staticmethod
    def _read_spill(path: Path) -> tuple[pa.Table, pa.Table]:
        try:
            with pa.memory_map(str(path)) as source:
                tables = tuple(pa.ipc.open_stream(source).read_all() for _ in range(2))
        except (OSError, pa.ArrowInvalid) as error:
            raise StorageError(f"{path} is damaged ({error}); delete it and run `treeforge resume`") from error
        return tables[0], tables[1]


def trees_of(table: pa.Table, trees: set[int]) -> pa.Table:
    """The rows of these trees; the table itself, not a copy, where it has no others."""
    if set(table["tree_id"].unique().to_pylist()) <= trees:
        return table
    return table.filter(pa.compute.is_in(table["tree_id"], value_set=pa.array(sorted(trees), pa.int32())))
