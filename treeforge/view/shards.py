"""The run's exported training rows, a page at a time, as the trainer sees them."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import polars as pl

from treeforge.errors import ConfigError, StorageError
from treeforge.export.schemas import FORMAT_KEY
from treeforge.printable import printable

T = TypeVar("T")

PAGE = 50
"""Rows of a page at most."""
CELL_CHARS = 1_500
"""Of a text in a row."""
_ATTEMPTS = 5
_SHARD = re.compile(r"([a-z]+)-\d{5}-of-\d{5}\.parquet")


def shard_splits(dataset: Path) -> list[dict[str, Any]]:
    """The formats and splits of an export with their rows and columns; empty where there is none."""
    return _whole(dataset, _splits)


def shard_rows(dataset: Path, format: str, split: str, offset: int, limit: int) -> list[dict[str, Any]]:
    """Some rows of a split, texts cut at `CELL_CHARS`; the format by its folder or its name (`data` is that of `hrm`).

    `ConfigError` for a split that there is not.
    """

    def read(folder: Path) -> list[dict[str, Any]]:
        shards = _files(folder)
        named = (files for (_, part), files in shards.items() if part == split and _name(files, "") == format)
        files = shards.get((format, split)) or next(named, None)
        if files is None:
            raise ConfigError(f"the export has no {split} rows of {format}")
        page = _collected(_scan(files).slice(max(offset, 0), min(max(limit, 0), PAGE)), folder)
        return [{name: _cell(value) for name, value in row.items()} for row in page.to_dicts()]

    return _whole(dataset, read)


def _whole(dataset: Path, read: Callable[[Path], T]) -> T:
    """What `read` says of the folder, of one export from end to end: another one may take its place meanwhile."""
    for _ in range(_ATTEMPTS):
        before = _identity(dataset)
        # Where folders cannot be swapped in one step, the old one has this name for an instant.
        old = dataset.with_name(f".{dataset.name}.old")
        try:
            found = read(old if before is None and old.is_dir() else dataset)
        except (ConfigError, StorageError):
            if _identity(dataset) == before and not old.is_dir():
                raise
            continue
        if _identity(dataset) == before:
            return found
    raise StorageError(f"{dataset} is being written again and again; ask once more when that is over")


def _identity(folder: Path) -> tuple[int, int] | None:
    """Of the folder that has this name now; None where there is none."""
    try:
        stat = folder.stat()
    except OSError:
        return None
    return stat.st_dev, stat.st_ino


def _files(dataset: Path) -> dict[tuple[str, str], list[Path]]:
    """The shards by (folder, split), in order."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(dataset.glob("*/*.parquet")):
        if match := _SHARD.fullmatch(path.name):
            found.setdefault((path.parent.name, match[1]), []).append(path)
    return found


def _splits(dataset: Path) -> list[dict[str, Any]]:
    splits = []
    for (folder, split), files in _files(dataset).items():
        frame = _scan(files)
        rows = _collected(frame.select(pl.len()), dataset).item()
        columns = _checked(frame.collect_schema, dataset).names()
        splits.append(
            {"format": folder, "name": _name(files, folder), "split": split, "rows": rows, "columns": columns}
        )
    return splits


def _name(files: list[Path], otherwise: str) -> str:
    """The format's name, as the shards say it."""
    return _checked(lambda: pl.read_parquet_metadata(files[0]), files[0].parent.parent).get(
        FORMAT_KEY.decode(), otherwise
    )


def _scan(files: list[Path]) -> pl.LazyFrame:
    return pl.scan_parquet(files, glob=False)


def _collected(frame: pl.LazyFrame, dataset: Path) -> pl.DataFrame:
    return _checked(lambda: frame.collect(engine="streaming"), dataset)


def _checked(read: Callable[[], T], dataset: Path) -> T:
    try:
        return read()
    except (pl.exceptions.PolarsError, OSError) as error:
        cause = " ".join(str(error).split())[:200]
        raise StorageError(f"{dataset} cannot be read ({cause}); make it again with `treeforge export`") from error


def _cell(value: Any) -> Any:
    if isinstance(value, str):
        cut = printable(value[:CELL_CHARS])
        return cut if len(value) <= CELL_CHARS else f"{cut}… ({len(value):,} characters)"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _cell(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_cell(item) for item in value[:100]]
    return value if value is None or isinstance(value, int | float | bool) else printable(str(value))
