"""Rows out of Arrow: Parquet files, and Hub datasets through the `datasets` library.

Their columns have types that JSON lacks. `plain` turns a value into JSON's own types, or leaves it out.
"""

from __future__ import annotations

import math
import re
from collections.abc import Generator
from datetime import date, time
from decimal import Decimal
from pathlib import Path
from typing import Any

from treeforge.errors import DataError, MissingExtraError

BATCH_ROWS = 1024
_HUB = re.compile(r"hf:/{1,2}(?:datasets/)?(\w[\w.-]*/\w[\w.-]*)(?:/([\w.-]+))?(?::([\w.-]+))?")
_LEFT_OUT = object()


def is_hub_source(source: str) -> bool:
    """Whether this names a dataset on the Hub; `Path` writes `hf://` with one slash."""
    return source.startswith("hf:/")


def parquet_rows(path: Path) -> Generator[tuple[int, dict[str, Any] | DataError]]:
    """The rows of a Parquet file with their 1-based numbers, a batch in memory at a time."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = 0
    try:
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                raise DataError(f"has the columns {repeated} more than once", path=path, fix="Rename the columns")
            for batch in file.iter_batches(batch_size=BATCH_ROWS):
                for row in _batch_rows(_shortest_floats(batch)):
                    number += 1
                    yield number, row
    except (pa.ArrowException, OSError) as error:
        what = f"is no whole Parquet file: {str(error).splitlines()[0][:200]}"
        raise DataError(what, path=path, fix="Write or fetch it again; a download may have stopped early") from None


def _batch_rows(batch: Any) -> list[dict[str, Any] | DataError]:
    try:
        return [plain_row(row) for row in batch.to_pylist()]
    except UnicodeDecodeError as error:
        if batch.num_rows == 1:
            return [DataError(f"holds text that is not UTF-8 ({error.reason})", fix="Write the column as UTF-8")]
        return [row for index in range(batch.num_rows) for row in _batch_rows(batch.slice(index, 1))]


def _shortest_floats(batch: Any) -> Any:
    """Narrow floats as the decimal they were written as: float32 0.1 is 0.1, not 0.10000000149011612."""
    import pyarrow as pa

    for index, field in enumerate(batch.schema):
        if pa.types.is_float32(field.type) or pa.types.is_float16(field.type):
            column = batch.column(index).cast(pa.string()).cast(pa.float64())
            batch = batch.set_column(index, field.name, column)
    return batch


def hub_rows(source: str) -> Generator[tuple[int, dict[str, Any] | DataError]]:
    """The rows of `hf://owner/name[/config][:split]`, streamed. Without a split: the only one, or `train`.

    As in `datasets` itself, a local folder `owner/name` goes before the Hub's dataset of that name.
    """
    match = _HUB.fullmatch(source)
    if match is None:
        raise DataError("names no Hub dataset", path=source, fix="Write hf://owner/name[/config][:split]")
    try:
        from datasets import load_dataset
    except ImportError:
        raise MissingExtraError("reading hf://", "hub") from None
    name, config, split = match.groups()
    number = 0
    try:
        splits = load_dataset(name, name=config, streaming=True)
        chosen = split or (next(iter(splits)) if len(splits) == 1 else "train")
        if chosen not in splits:
            raise DataError(f"has no split {chosen!r}", path=source, fix=f"Add one of :{', :'.join(splits)}")
        for row in splits[chosen]:
            number += 1
            yield number, plain_row(row)
    except DataError:
        raise
    except Exception as error:  # `datasets` lets through what its file systems, parsers and HTTP client raise
        what = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
        where = f"after row {number}" if number else "at the start"
        fix = "Check name, config and split, the network, and `hf auth login` for a gated dataset"
        raise DataError(f"the Hub dataset cannot be read ({where}): {what}", path=source, fix=fix) from error


def plain_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row in JSON's own types; columns that have no such form (images, raw bytes) are left out."""
    return {
        name: value for name, value in ((name, plain(value)) for name, value in row.items()) if value is not _LEFT_OUT
    }


def plain(value: object) -> object:
    """A value in JSON's own types: NaN and infinities become None, decimals and dates their text, UTF-8 bytes text."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else None
        case list() | tuple():
            return [item for item in map(plain, value) if item is not _LEFT_OUT]
        case dict():
            return plain_row(value)
        case Decimal():
            return format(value.normalize(), "f") if value.is_finite() else None
        case date() | time():
            return value.isoformat()
        case bytes():
            try:
                return value.decode("utf-8")
            except UnicodeDecodeError:
                return _LEFT_OUT
        case _:
            return _LEFT_OUT
