"""The trees of a run's blocks as they were grown, with the verdicts that count: what labels, compressed trees and
shards are made of.
"""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from treeforge.errors import DataError, StorageError, TreeError
from treeforge.recheck import Verdicts
from treeforge.store.blocks import TreeFiles
from treeforge.store.forests import NodeTable
from treeforge.store.parquet import foreign, how_to_remake
from treeforge.store.run import RunFolder
from treeforge.store.tables import rollouts_from_table, rollouts_table
from treeforge.tree import TreeRecord


class GrownTrees:
    """Reads trees that have ended, a block at a time. How they ended is read once: it is one query for all blocks."""

    def __init__(self, run: RunFolder, verdicts: Verdicts) -> None:
        self.run, self.verdicts = run, verdicts
        self._files = TreeFiles(run.path / "trees")
        self._statuses = run.statuses()
        self._sizes = run.node_counts()

    def nodes(self, members: Sequence[int]) -> NodeTable:
        """The nodes of some trees of one block, in order. Their rollouts are read where verdicts may have changed."""
        if self.verdicts.about is None:
            return self._table(self.run.block_nodes(members), members)
        return self.with_rollouts(members)[0]

    def with_rollouts(self, members: Sequence[int]) -> tuple[NodeTable, pa.Table]:
        """The nodes of some trees of one block, in order, and the rows of their rollouts (`ROLLOUTS`)."""
        if self.verdicts.about is None:
            nodes, rollouts = self._read(members)
            return self._table(nodes, members), rollouts
        records = [(number, self.verdicts.apply(number, record)) for number, record in self.records(members)]
        table = NodeTable.of([number for number, _ in records], [record.tree for _, record in records])
        return table, pa.concat_tables([rollouts_table(number, record.rollouts) for number, record in records])

    def records(self, members: Sequence[int]) -> list[tuple[int, TreeRecord]]:
        """Some trees of one block with their rollouts, in order, by the run's own verdicts."""
        nodes, rollouts = self._read(members)
        table, beside = self._table(nodes, members), dict(rollouts_from_table(rollouts))
        problems = self.run.problems
        return [
            (number, TreeRecord(problems[number].problem_id, tree, beside.get(number, ()), *self.ending(number)))
            for number, tree in zip(table.numbers.tolist(), table.trees(), strict=True)
        ]

    def _read(self, members: Sequence[int]) -> tuple[pa.Table, pa.Table]:
        return self._files.read(members[0] // self.run.block, set(members))

    def _table(self, rows: pa.Table, members: Sequence[int]) -> NodeTable:
        """The trees of some rows. `StorageError` where one is none, or has not as many nodes as the journal says."""
        path = self._files.table_path("nodes", members[0] // self.run.block)
        try:
            table = NodeTable.read(rows)
        except (DataError, TreeError) as error:
            raise StorageError(f"{path} is damaged: {error}. {how_to_remake(path)}.") from error
        found = table.sizes
        strange = self._strange(found)
        if strange is not None:
            self._sizes = self.run.node_counts()  # It may have been grown further since.
            strange = self._strange(found)
        if strange is not None:
            raise foreign(
                path, f"{found[strange]} nodes of tree {strange}, where the journal has {self._sizes[strange]}"
            )
        return table

    def _strange(self, found: dict[int, int]) -> int | None:
        return next((tree for tree, size in found.items() if self._sizes.get(tree, size) != size), None)

    def ending(self, number: int) -> tuple[str, str]:
        """(status, reason) of a tree."""
        return self._statuses[number]
