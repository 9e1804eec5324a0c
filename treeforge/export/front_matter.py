"""The card's YAML: what the Hub and `load_dataset` read of a dataset before its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from treeforge.export.formats import FORMATS
from treeforge.export.report import ExportReport, FormatReport
from treeforge.export.schemas import scalar_name

_TAGS = ("reward-model", "process-reward-model", "reasoning", "synthetic", "treeforge")
_SIZES = ("1K", "10K", "100K", "1M", "10M", "100M", "1B", "10B", "100B", "1T")


def front_matter(title: str, license: str, report: ExportReport) -> Iterator[str]:
    """The lines of the card's YAML, with the `---` around them."""
    written = [format for format in report.formats if format.splits]
    yield "---"
    yield f"license: {yaml_string(license)}"
    yield f"pretty_name: {yaml_string(title)}"
    yield "task_categories:"
    yield "- text-classification"
    yield "tags:"
    yield from (f"- {tag}" for tag in _TAGS)
    yield "size_categories:"
    yield f"- {_size_category(max((format.rows for format in written), default=0))}"
    yield "configs:"
    for number, format in enumerate(written):
        yield f"- config_name: {format.name}"
        if number == 0:
            yield "  default: true"
        yield "  data_files:"
        for split in format.splits:
            yield f"  - split: {split}"
            yield f"    path: {format.folder}/{split}-*.parquet"
    yield "dataset_info:"
    for format in written:
        yield from _dataset_info(format)
    yield "---"


def _dataset_info(format: FormatReport) -> Iterator[str]:
    """A configuration's columns, and the sizes of its splits: what `datasets` checks, and the Hub shows."""
    yield f"- config_name: {format.name}"
    yield "  features:"
    for column in FORMATS[format.name].columns:
        yield from _feature(column.name, column.kind, "  ")
    yield "  splits:"
    for name, split in format.splits.items():
        yield f"  - name: {name}"
        yield f"    num_bytes: {split.arrow_bytes}"
        yield f"    num_examples: {split.rows}"
    yield f"  download_size: {sum(split.file_bytes for split in format.splits.values())}"
    yield f"  dataset_size: {sum(split.arrow_bytes for split in format.splits.values())}"


def _feature(name: str, kind: pa.DataType, indent: str) -> Iterator[str]:
    yield f"{indent}- name: {name}"
    yield from _kind(kind, indent + "  ")


def _kind(kind: Any, indent: str) -> Iterator[str]:
    """A column's type in the words of `datasets.Features`."""
    if pa.types.is_struct(kind):
        yield f"{indent}struct:"
        for field in kind:
            yield from _feature(field.name, field.type, indent)
    elif not pa.types.is_list(kind):
        yield f"{indent}dtype: {scalar_name(kind)}"
    elif pa.types.is_struct(kind.value_type):
        yield f"{indent}list:"
        for field in kind.value_type:
            yield from _feature(field.name, field.type, indent)
    elif pa.types.is_list(kind.value_type):
        yield f"{indent}list:"
        yield from _kind(kind.value_type, indent + "  ")
    else:
        yield f"{indent}list: {scalar_name(kind.value_type)}"


def yaml_string(text: str) -> str:
    """A double-quoted YAML scalar; whatever is not plain ASCII is written as an escape."""
    return (
        '"'
        + "".join(c if c.isascii() and c.isprintable() and c not in '"\\' else f"\\U{ord(c):08x}" for c in text)
        + '"'
    )


def _size_category(rows: int) -> str:
    limits = [10 ** (3 + i) for i in range(len(_SIZES))]
    for i, limit in enumerate(limits):
        if rows < limit:
            return f"n<{_SIZES[0]}" if i == 0 else f"{_SIZES[i - 1]}<n<{_SIZES[i]}"
    return f"n>{_SIZES[-1]}"
