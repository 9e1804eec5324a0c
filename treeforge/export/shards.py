"""Parquet shards as `datasets` writes them: names, row groups of 100 MB, page index, content-defined chunking."""

from __future__ import annotations

import inspect
import json
import os
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from treeforge.export.schemas import Columns, make_table

ROW_GROUP_BYTES = 100 * 10**6
"""Arrow bytes of a row group, about (`datasets.config.MAX_ROW_GROUP_SIZE`): what a loader or viewer reads at once."""

SHARD_BYTES = 500 * 10**6
"""Arrow bytes of a shard, about (`datasets.config.MAX_SHARD_SIZE`)."""

CHUNKING = {"min_chunk_size": 256 * 1024, "max_chunk_size": 1024 * 1024, "norm_level": 0}
"""Content-defined chunking (`datasets.config.DEFAULT_CDC_OPTIONS`): the Hub stores pages that did not change once."""

BATCH_ROWS, BATCH_CHARS = 4096, 8 * 10**6
_CAN_CHUNK = "use_content_defined_chunking" in inspect.signature(pq.ParquetWriter.__init__).parameters


class ShardWriter:
    """Writes the rows of one split of one format, in the order in which they are added.

    Shards have temporary names until `close` knows how many there are. In memory is at most one row group and what one
    `add` brings. Raises `OSError`, and `DataError` for a text that is not Unicode.
    """

    def __init__(self, folder: Path, split: str, schema: pa.Schema, rows_per_shard: int) -> None:
        self._folder, self._split, self._schema, self._rows_per_shard = folder, split, schema, rows_per_shard
        self._texts, self._nested, self._lists = _fields(schema)
        self._batch: list[Columns] = []
        self._batch_rows = self._batch_chars = 0
        self._group: list[pa.Table] = []
        self._group_bytes = 0
        self._shard_rows = self._shard_bytes = 0
        self.arrow_bytes = self.file_bytes = 0
        """Of what was added so far, and of the shards that are closed."""
        self._shards: list[Path] = []
        self._stream: BinaryIO | None = None
        self._writer: Any = None

    def add(self, columns: Columns, count: int) -> None:
        """Add `count` rows."""
        if not count:
            return
        self._batch.append(columns)
        self._batch_rows += count
        self._batch_chars += self.chars(columns)
        if self._batch_rows >= BATCH_ROWS or self._batch_chars >= BATCH_CHARS:
            self._convert()

    def chars(self, columns: Columns) -> int:
        """About how much room some rows take: characters of texts and numbers in lists."""
        return sum(
            [
                column.nbytes if isinstance(column, pa.Array) else count(column)
                for names, count in ((self._texts, _text_chars), (self._nested, _chars), (self._lists, _lengths))
                for column in map(columns.__getitem__, names)
            ]
        )

    def close(self) -> int:
        """Write what is left, give the shards their names and return how many there are."""
        self._convert()
        self._finish_shard()
        count = len(self._shards)
        for number, path in enumerate(self._shards):
            path.rename(self._folder / f"{self._split}-{number:05d}-of-{count:05d}.parquet")
        return count

    def abort(self) -> None:
        """Let go of the open file, which stays incomplete; harmless after `close`."""
        if self._writer is not None:
            self._writer.is_open = False  # Else its finaliser would try to write a footer.
        if self._stream is not None:
            with suppress(OSError):  # What is buffered cannot be written either; the first error is the one to raise.
                self._stream.close()
        self._stream = self._writer = None

    def _convert(self) -> None:
        """Turn the batch into Arrow."""
        if not self._batch:
            return
        table = joined_table(self._batch, self._schema)
        self._batch = []
        self._batch_rows = self._batch_chars = 0
        self.add_table(table)

    def add_table(self, table: pa.Table) -> None:
        """Add a table of at least one row, cut where a shard is full."""
        most = max(1, table.num_rows * ROW_GROUP_BYTES // table.nbytes)
        start = 0
        while start < table.num_rows:
            piece = table.slice(start, min(most, BATCH_ROWS, self._rows_per_shard - self._shard_rows))
            start += piece.num_rows
            if self._group_bytes + piece.nbytes > ROW_GROUP_BYTES:
                self._write_group()
            self._group.append(piece)
            self._group_bytes += piece.nbytes
            self._shard_rows += piece.num_rows
            self._shard_bytes += piece.nbytes
            self.arrow_bytes += piece.nbytes
            if self._shard_rows == self._rows_per_shard or self._shard_bytes >= SHARD_BYTES:
                self._finish_shard()

    def _write_group(self) -> None:
        if not self._group:
            return
        # One chunk a column: page boundaries would follow the pieces.
        table = pa.concat_tables(self._group).combine_chunks()
        self._group = []
        self._group_bytes = 0
        if self._stream is None:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f".{self._split}-{len(self._shards):05d}.tmp"
            self._stream = path.open("wb")
            self._shards.append(path)
            self._writer = _open_writer(self._stream, self._schema)
        self._writer.write_table(table, row_group_size=table.num_rows)

    def _finish_shard(self) -> None:
        self._write_group()
        if self._stream is None:
            return
        if _CAN_CHUNK:
            self._writer.add_key_value_metadata({"content_defined_chunking": json.dumps(CHUNKING)})
        self._writer.close()
        self._stream.flush()
        os.fsync(self._stream.fileno())
        self.file_bytes += self._stream.tell()
        self._stream.close()
        self._stream = self._writer = None
        self._shard_rows = self._shard_bytes = 0


def _open_writer(stream: BinaryIO, schema: pa.Schema) -> Any:
    chunking = {"use_content_defined_chunking": CHUNKING} if _CAN_CHUNK else {}
    return pq.ParquetWriter(stream, schema, compression="zstd", write_page_index=True, **chunking)


def joined_table(batch: Sequence[Columns], schema: pa.Schema) -> pa.Table:
    """Several pieces of plain columns as one table."""
    return make_table({name: _joined([columns[name] for columns in batch]) for name in schema.names}, schema)


def _joined(parts: Sequence[Any]) -> Any:
    if isinstance(parts[0], pa.Array):
        return pa.concat_arrays(parts)
    return np.concatenate(parts) if isinstance(parts[0], np.ndarray) else list(chain.from_iterable(parts))


def _fields(schema: pa.Schema) -> tuple[list[str], list[str], list[str]]:
    """Names of the columns of texts, of those with texts in lists or structs, and of those with lists of numbers."""
    nested = [field for field in schema if pa.types.is_nested(field.type)]
    return (
        [field.name for field in schema if pa.types.is_string(field.type)],
        [field.name for field in nested if _holds_text(field.type)],
        [field.name for field in nested if not _holds_text(field.type)],
    )


def _holds_text(kind: Any) -> bool:
    if pa.types.is_list(kind):
        return _holds_text(kind.value_type)
    return any(_holds_text(field.type) for field in kind) if pa.types.is_struct(kind) else pa.types.is_string(kind)


def _text_chars(texts: Sequence[str | None]) -> int:
    return sum(map(len, filter(None, texts)))


def _lengths(lists: Sequence[Any]) -> int:
    return sum(map(len, lists))


def _chars(value: Any) -> int:
    """Characters of all texts inside a value."""
    if isinstance(value, str):
        return len(value)
    if isinstance(value, dict):
        return sum(map(_chars, value.values()))
    if not isinstance(value, list | tuple):
        return 0
    return sum(map(len, value)) if value and isinstance(value[0], str) else sum(map(_chars, value))
