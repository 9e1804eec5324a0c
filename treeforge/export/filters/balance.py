"""`balance`: as many rows of the one label as of the other, chosen by a digest."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats import Rows
from treeforge.export.schemas import Columns
from treeforge.export.shards import BATCH_CHARS, BATCH_ROWS, ShardWriter, joined_table
from treeforge.hashing import digest, encode_text


class BalancedWriter:
    """Keeps rows in a temporary file until it is known how many there are of each label; then writes what stays.

    In memory are 9 bytes a row. Rows without a label stay. A row's chance depends on its problem and its place in the
    problem's rows only, so that more problems change little.
    """

    def __init__(self, writer: ShardWriter, path: Path, schema: pa.Schema) -> None:
        self._writer, self._path, self._schema = writer, path, schema
        self._batch: list[Columns] = []
        self._batch_rows = self._batch_chars = 0
        self._file: Any = None
        self._labels: list[NDArray[np.int8]] = []
        self._priorities: list[NDArray[np.uint64]] = []
        self._number = -1
        self._generator: np.random.PCG64 | None = None

    def add(self, rows: Rows, block: ExportBlock) -> None:
        """Add rows of a block's trees."""
        assert rows.numbers is not None
        self._labels.append(np.full(rows.count, -1, np.int8) if rows.labels is None else rows.labels)
        firsts = np.flatnonzero(np.diff(rows.numbers, prepend=-1))
        for first, last in pairwise([*firsts.tolist(), rows.count]):
            generator = self._generator_of(int(rows.numbers[first]), block)
            self._priorities.append(np.asarray(generator.random_raw(last - first), dtype=np.uint64))
        self._batch.append(rows.columns)
        self._batch_rows += rows.count
        self._batch_chars += self._writer.chars(rows.columns)
        if self._batch_rows >= BATCH_ROWS or self._batch_chars >= BATCH_CHARS:
            self._spool()

    def _generator_of(self, number: int, block: ExportBlock) -> np.random.PCG64:
        """A tree's random numbers, which go on where its rows come in several pieces."""
        if self._generator is None or number != self._number:
            problem = block.problems[int(np.searchsorted(block.numbers, number))]
            seed = digest(b"balance", encode_text(problem.problem_id))
            self._number, self._generator = number, np.random.PCG64(int.from_bytes(seed, "little"))
        return self._generator

    def close(self) -> NDArray[np.bool_]:
        """Write the rows that stay; bool[rows added]: which."""
        self._spool()
        labels = np.concatenate(self._labels) if self._labels else np.empty(0, np.int8)
        keep = _balanced(labels, np.concatenate(self._priorities) if self._priorities else np.empty(0, np.uint64))
        if self._file is not None:
            self._file.close()
            self._file = None
            start = 0
            with pa.memory_map(str(self._path)) as source:
                reader = pa.ipc.open_file(source)
                for number in range(reader.num_record_batches):
                    table = pa.Table.from_batches([reader.get_batch(number)])
                    table = table.filter(pa.array(keep[start : start + table.num_rows]))
                    start += len(reader.get_batch(number))
                    if table.num_rows:
                        self._writer.add_table(table)
            self._path.unlink()
        return keep

    def abort(self) -> None:
        """Let go of the open file."""
        if self._file is not None:
            self._file.close()
            self._file = None

    def _spool(self) -> None:
        if not self._batch:
            return
        table = joined_table(self._batch, self._schema).combine_chunks()
        self._batch = []
        self._batch_rows = self._batch_chars = 0
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            options = pa.ipc.IpcWriteOptions(compression="zstd")
            self._file = pa.ipc.new_file(str(self._path), self._schema, options=options)
        self._file.write_table(table)


def _balanced(labels: NDArray[np.int8], priorities: NDArray[np.uint64]) -> NDArray[np.bool_]:
    """bool[n]: all rows of the rarer label, as many of the other one (those of least priority), and all without one."""
    keep = np.ones(len(labels), dtype=np.bool_)
    sides = [np.flatnonzero(labels == label) for label in (0, 1)]
    many, few = sorted(sides, key=len, reverse=True)
    order = np.argsort(priorities[many], kind="stable")
    keep[many[order[len(few) :]]] = False
    return keep
