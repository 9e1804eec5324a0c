import json

import datasets.config
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.forest import block_of, export_tree

from treeforge.errors import DataError
from treeforge.export import FORMATS, shards
from treeforge.export.formats import Context
from treeforge.export.schemas import Column, make_schema
from treeforge.export.shards import ShardWriter

SCHEMA = make_schema("test", (Column("text", pa.string(), ""), Column("number", pa.int32(), "")))


def columns(texts, first=0):
    return {"text": texts, "number": np.arange(first, first + len(texts), dtype=np.int32)}


def write(folder, parts, rows_per_shard=10):
    writer = ShardWriter(folder, "train", SCHEMA, rows_per_shard)
    first = 0
    for texts in parts:
        writer.add(columns(texts, first), len(texts))
        first += len(texts)
    return writer.close()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


def test_shards_are_full_and_in_order(tmp_path):
    assert write(tmp_path, [["a"] * 7, ["b"] * 7, ["c"] * 11]) == 3
    assert names(tmp_path) == [f"train-0000{i}-of-00003.parquet" for i in range(3)]
    tables = [pq.read_table(tmp_path / name) for name in names(tmp_path)]
    assert [table.num_rows for table in tables] == [10, 10, 5]
    assert pa.concat_tables(tables)["number"].to_pylist() == list(range(25))


def test_no_rows_leave_no_file_and_no_folder(tmp_path):
    writer = ShardWriter(tmp_path / "none", "train", SCHEMA, 10)
    writer.add(columns([]), 0)
    assert writer.close() == 0
    assert not (tmp_path / "none").exists()


def test_an_exact_multiple_leaves_no_empty_shard(tmp_path):
    assert write(tmp_path, [["a"] * 20]) == 2


def test_every_shard_has_the_schema_and_what_the_hub_wants(tmp_path):
    format = FORMATS["hrm"]
    writer = ShardWriter(tmp_path, "test", format.schema, 7)
    for rows in format.rows(block_of(export_tree(1)), Context()):
        writer.add(rows.columns, rows.count)
    assert writer.close() > 1
    for name in names(tmp_path):
        file = pq.ParquetFile(tmp_path / name)
        assert file.schema_arrow.equals(format.schema)
        assert file.schema_arrow.metadata == {b"treeforge.format": b"hrm", b"treeforge.schema_version": b"1"}
        assert json.loads(file.metadata.metadata[b"content_defined_chunking"]) == datasets.config.DEFAULT_CDC_OPTIONS
        column = file.metadata.row_group(0).column(0)
        assert column.compression == "ZSTD"
        assert column.has_column_index
        assert column.has_offset_index


def test_limits_are_those_of_datasets():
    from datasets.utils.py_utils import convert_file_size_to_int

    assert convert_file_size_to_int(datasets.config.MAX_ROW_GROUP_SIZE) == shards.ROW_GROUP_BYTES
    assert convert_file_size_to_int(datasets.config.MAX_SHARD_SIZE) == shards.SHARD_BYTES
    assert datasets.config.DEFAULT_CDC_OPTIONS == shards.CHUNKING


def test_row_groups_and_shards_are_bounded_in_bytes(tmp_path, monkeypatch):
    monkeypatch.setattr(shards, "ROW_GROUP_BYTES", 10_000)
    monkeypatch.setattr(shards, "SHARD_BYTES", 50_000)
    count = write(tmp_path, [["x" * 900] * 40, ["y" * 900] * 100, ["z" * 20_000] * 3], rows_per_shard=10**6)
    groups = []
    for name in names(tmp_path):
        metadata = pq.ParquetFile(tmp_path / name).metadata
        groups.append([metadata.row_group(i).num_rows for i in range(metadata.num_row_groups)])
    assert sum(map(sum, groups)) == 143
    assert count == len(groups) == 3
    assert max(max(rows) for rows in groups) <= 11
    table = pa.concat_tables([pq.read_table(tmp_path / name) for name in names(tmp_path)])
    assert table["number"].to_pylist() == list(range(143))


def test_row_groups_do_not_depend_on_how_many_batches_came(tmp_path, monkeypatch):
    parts = [[f"{i} {j}" for j in range(50)] for i in range(100)]
    write(tmp_path / "a", parts, 3000)
    monkeypatch.setattr(shards, "BATCH_ROWS", 100)
    write(tmp_path / "b", parts, 3000)
    assert names(tmp_path / "a") == names(tmp_path / "b")
    for name in names(tmp_path / "a"):
        assert (tmp_path / "a" / name).read_bytes() == (tmp_path / "b" / name).read_bytes()


def test_a_lone_surrogate_is_named(tmp_path):
    with pytest.raises(DataError, match=r"'text': row 1 holds a lone surrogate"):
        write(tmp_path, [["fine", "b\udcffd"]])


def test_a_full_disk_ends_in_its_error_and_nothing_is_raised_later(tmp_path, monkeypatch, recwarn):
    writer = ShardWriter(tmp_path, "train", SCHEMA, 10)
    writer.add(columns(["a"] * 15), 15)
    monkeypatch.setattr(shards.os, "fsync", _no_space)
    with pytest.raises(OSError, match="No space"):
        writer.close()
    writer.abort()
    writer.abort()
    del writer
    assert not recwarn.list


def _no_space(descriptor):
    raise OSError(28, "No space left on device")
