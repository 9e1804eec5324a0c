"""Parquet files of a run folder: written atomically, and read with their schema and checksums checked."""

from __future__ import annotations

import errno
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from treeforge.errors import DataError, StorageError
from treeforge.store.files import atomic_file, storage_error

SCHEMA_VERSION = 1
"""Version of all schemas of a run folder's tables; a file with another one is refused."""

TABLE_KEY, VERSION_KEY = b"treeforge.table", b"treeforge.schema_version"


def write_table(table: pa.Table, path: Path) -> None:
    """Write a Parquet file atomically: the same rows give the same bytes (with the same pyarrow).

    zstd, with a checksum a page, so that `read_table` notices a damaged file. Raises `StorageError` (disk full,
    read-only folder …); the file that was there before then stays.
    """
    with atomic_file(path) as stream:
        # Page boundaries follow the chunks of the table in memory; one chunk makes the bytes depend on the rows only.
        pq.write_table(table.combine_chunks(), stream, compression="zstd", write_page_checksum=True)


def read_table(path: Path, schema: pa.Schema, *, columns: Sequence[str] | None = None) -> pa.Table:
    """Read a file that `write_table` wrote, all of it or some `columns`; `schema` is what it must hold.

    Raises `StorageError` for a missing or damaged file, `DataError` for one that is not treeforge's, of another table
    or of another schema version. Nothing but the footer is read before that is known.
    """
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            _check_schema(path, file.schema_arrow, schema)
            table = file.read(columns=None if columns is None else list(columns))
        table.validate(full=True)
    except OSError as error:
        if error.errno:
            found = storage_error(error, path, "read")
            gone = error.errno == errno.ENOENT and path.parent.name in _MAKERS
            raise (StorageError(f"{found} {how_to_remake(path)}.") if gone else found) from error
        raise _damaged(path, error) from error
    except (pa.ArrowException, UnicodeDecodeError) as error:
        raise _damaged(path, error) from error
    return table


_MAKERS = {"trees": "resume", "labels": "label", "verdicts": "label", "compressed": "compress"}
"""The commands that make a run's tables, by their folder."""


def how_to_remake(path: Path) -> str:
    """What to do about a table of a run that is missing or damaged."""
    folder, run = path.parent.name, path.parent.parent
    if folder == "trees" and path.name.startswith("values-"):
        return "It holds imported labels: restore it from a copy, or import the run again"
    if folder not in _MAKERS:
        return "Delete it and run the same command again"
    how = ""
    if folder == "trees":
        how = ": trees are made again from the journal, without the model (imported ones by importing the run again)"
    return f"Delete it if it is there and run `treeforge {_MAKERS[folder]} {run}`{how}"


def foreign(path: Path, what: str) -> StorageError:
    """The error for a table that is whole and not of this run: `what` it holds."""
    return StorageError(f"{path} is not of this run: it holds {what}. {how_to_remake(path)}.")


def same_rows(a: Path, b: Path) -> bool:
    """Whether two files hold equal tables, however they were compressed and whatever wrote them."""
    try:
        return bool(pq.read_table(a).equals(pq.read_table(b)))
    except (OSError, pa.ArrowException):
        return False


def _damaged(path: Path, error: Exception) -> StorageError:
    cause = " ".join(str(error).split())[:200]
    return StorageError(f"{path} is damaged or no Parquet file: {cause}. {how_to_remake(path)}.")


def _check_schema(path: Path, found: pa.Schema, expected: pa.Schema) -> None:
    table = expected.metadata[TABLE_KEY].decode()
    metadata = found.metadata or {}
    if TABLE_KEY not in metadata:
        raise DataError(f"was not written by treeforge; a table of {table} was expected", path=path)
    if metadata[TABLE_KEY] != expected.metadata[TABLE_KEY]:
        raise DataError(f"is a table of {metadata[TABLE_KEY].decode(errors='replace')}, not of {table}", path=path)
    if metadata.get(VERSION_KEY) != expected.metadata[VERSION_KEY]:
        version = metadata.get(VERSION_KEY, b"none").decode(errors="replace")
        raise DataError(
            f"has schema version {version}, this treeforge reads version {expected.metadata[VERSION_KEY].decode()}",
            path=path,
            fix=how_to_remake(path),
        )
    if not found.equals(expected):
        differing = sorted({field.name for field in set(found).symmetric_difference(expected)})
        raise DataError(f"does not have the columns of {table}; these differ: {', '.join(differing)}", path=path)
