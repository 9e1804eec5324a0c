"""Parquet shards as `datasets` writes them: split-00000-of-00004.parquet, row groups of 100 MB, page index, chunking."""

from __future__ import annotations

import inspect
import json
import os
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow as pa
import pyarrow.parquet as pq

from treeforge.export.schemas import Columns, make_table
from treeforge.store.files import storage_error

ROW_GROUP_BYTES = 100 * 10**6
"""Arrow bytes of a row group, at most (`datasets.config.MAX_ROW_GROUP_SIZE`): what a loader or viewer reads at once."""

SHARD_BYTES = 500 * 10**6
"""Arrow bytes of a shard, about (`datasets.config.MAX_SHARD_SIZE`)."""

CHUNKING = {"min_chunk_size": 256 * 1024, "max_chunk_size": 1024 * 1024, "norm_level": 0}
"""Content-defined chunking (`datasets.config.DEFAULT_CDC_OPTIONS`): the Hub stores pages that did not change once."""

_BATCH_ROWS, _BATCH_CHARS = 4096, 8 * 2**20
_CAN_CHUNK = "use_content_defined_chunking" in inspect.signature(pq.ParquetWriter.__init__).parameters


class ShardWriter:
    """Writes the rows of one split of one format, in the order in which they are added.

    Shards have temporary names until `close` knows how many there are. What is in memory is at most a row group (and
    what one `add` brings). The same rows, however they were cut into calls, give the same bytes.
    """

    def __init__(self, folder: Path, split: str, schema: pa.Schema, rows_per_shard: int) -> None:
        self.rows = 0
        """Rows added so far."""
        self._folder, self._split, self._schema, self._rows_per_shard = folder, split, schema, rows_per_shard
        self._batch: list[Columns] = []
        self._batch_rows = self._batch_chars = 0
        self._pending: list[pa.RecordBatch] = []
        self._pending_bytes = 0
        self._shards: list[Path] = []
        self._shard_rows = self._shard_bytes = 0
        self._stream: BinaryIO | None = None
        self._writer: Any = None

    def add(self, columns: Columns, count: int) -> None:
        """Add `count` rows. Raises `StorageError`, or `DataError` for a text that is not Unicode."""
        ...
