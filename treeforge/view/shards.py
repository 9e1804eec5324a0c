"""The run's exported training rows, a page at a time, as the trainer sees them."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

import polars as pl

from treeforge.errors import ConfigError, StorageError
from treeforge.export.schemas import FORMAT_KEY
from treeforge.printable import printable

PAGE = 50
"""Rows of a page at most."""
CELL_CHARS = 1_500
"""Of a text in a row."""
_SHARD = re.compile(r"([a-z]+)-\d{5}-of-\d{5}\.parquet")


def shard_splits(dataset: Path) -> list[dict[str, Any]]:
    """The formats and splits of an export with their rows and columns; empty where there is none."""
    found: dict[tuple[str, str], list[Path]] = {}
    for path in sorted(dataset.glob("*/*.parquet")):
        if match := _SHARD.fullmatch(path.name):
            found.setdefault((path.parent.name, match[1]), []).append(path)
    splits = []
    for (folder, split), files in found.items():
        frame = _scan(files)
        rows = _collected(frame.select(pl.len()), dataset).item()
        name = pl.read_parquet_metadata(files[0]).get(FORMAT_KEY.decode(), folder)
        columns = frame.collect_schema().names()
        splits.append({"format": folder, "name": name, "split": split, "rows": rows, "columns": columns})
    return splits


def shard_rows(dataset: Path, format: str, split: str, offset: int, limit: int) -> list[dict[str, Any]]:
    """Some rows of a split, texts cut at `CELL_CHARS`. `ConfigError` for a split that there is not."""
    known = {(each["format"], each["split"]) for each in shard_splits(dataset)}
    if (format, split) not in known:
        raise ConfigError(f"the export has no {split} rows of {format}")
    files = sorted(path for path in (dataset / format).glob(f"{split}-*.parquet") if _SHARD.fullmatch(path.name))
    page = _collected(_scan(files).slice(max(offset, 0), min(max(limit, 0), PAGE)), dataset)
    return [{name: _cell(value) for name, value in row.items()} for row in page.to_dicts()]


def _scan(files: list[Path]) -> pl.LazyFrame:
    return pl.scan_parquet(files, glob=False)


def _collected(frame: pl.LazyFrame, dataset: Path) -> pl.DataFrame:
    try:
        return frame.collect(engine="streaming")
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
