"""Rows of a problem file, one mapping a row, in the file's order: JSONL, JSON, CSV and, by way of `arrow_rows`, Parquet
and the Hub.

What cannot be read as a row comes out as a `DataError` in the row's place, so that the caller decides between stopping
and skipping; what makes the file as a whole unreadable is raised. Values are JSON's own (None, bool, int, finite float,
str, list, dict). Memory is bounded: a line by `MAX_LINE_BYTES`, a whole JSON file by `MAX_JSON_BYTES`.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import math
import re
import zlib
from collections.abc import Generator, Iterator, Set
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, cast

import msgspec

from treeforge.errors import DataError
from treeforge.store.arrow_rows import hub_rows, is_hub_source, parquet_rows
from treeforge.store.files import refuse_pointer

MAX_LINE_BYTES = 16 * 2**20
"""The longest line of a JSONL or CSV file that is read; a longer one is a bad row."""
MAX_JSON_BYTES = 2**30
"""The largest `.json` file that is read: such a file is one value and must fit in memory, unlike JSONL."""

Row = tuple[int, dict[str, Any] | DataError]
"""1-based line (JSONL, CSV) or row (JSON, Parquet, Hub), and its values, or why it cannot be read."""

_decoder = msgspec.json.Decoder()
_array_decoder = msgspec.json.Decoder(list[msgspec.Raw])
_KEY = re.compile(rb'"\s*:')
_SURROGATE = re.compile("[\ud800-\udfff]")


def read_rows(source: str | Path, own: Set[str] = frozenset()) -> Generator[Row]:
    """The rows of a file, read by its suffix, or of a Hub dataset (`hf://owner/name[/config][:split]`).

    A JSON object with one of the fields `own` is a row, and not a table, whatever lists it holds. Raises `DataError`
    where the file as a whole cannot be read, and `MissingExtraError` where `hf://` needs `datasets`.
    """
    if is_hub_source(str(source)):
        return hub_rows(str(source))
    path = Path(source)
    if path.is_dir():
        raise DataError("is a folder", path=path, fix="Name a file in it")
    if not path.exists():
        raise DataError("there is no such file", path=path, fix="Check the path; a Hub dataset is hf://owner/name")
    refuse_pointer(path)
    match Path(path.name.lower().removesuffix(".gz")).suffix:
        case ".jsonl" | ".ndjson":
            return _jsonl_rows(path, own)
        case ".json":
            return _json_rows(path, own)
        case ".csv":
            return _csv_rows(path, ",")
        case ".tsv":
            return _csv_rows(path, "\t")
        case ".parquet" | ".pq":
            return parquet_rows(path)
        case suffix:
            raise DataError(
                f"the suffix {suffix!r} names no format that can be read",
                path=path,
                fix="Known are .jsonl, .ndjson, .json, .csv and .tsv (also with .gz), .parquet and .pq",
            )


def _jsonl_rows(path: Path, own: Set[str] = frozenset(), *, first_opens: bool = True) -> Generator[Row]:
    with _opened(path) as stream:
        for number, line in _lines(stream, path):
            if isinstance(line, DataError):
                yield number, line
            elif line := line.strip():
                if first_opens and line in (b"{", b"[") and (whole := _indented(path, own)) is not None:
                    yield from whole
                    return
                first_opens = False
                yield number, _json_object(line)


def _indented(path: Path, own: Set[str]) -> Generator[Row] | None:
    """The rows of indented JSON under the suffix of JSON lines, whose first line is a bracket; None if it is none."""
    rows = _json_rows(path, own)
    try:
        first = next(rows, None)
    except DataError:
        return None
    return (row for part in ([] if first is None else [first], rows) for row in part)


def _json_rows(path: Path, own: Set[str] = frozenset()) -> Generator[Row]:
    with _opened(path) as stream:
        content = stream.read(MAX_JSON_BYTES + 1)
    if len(content) > MAX_JSON_BYTES:
        limit = MAX_JSON_BYTES // 2**20
        raise DataError(f"is larger than {limit} MiB", path=path, fix="Write it as JSONL, which is read line by line")
    content = _without_bom(content, path)
    if not content.strip():
        return
    if (array := _raw_array(content)) is not None:
        for number, raw in enumerate(array, start=1):
            yield number, _json_object(bytes(raw))
        return
    try:
        value = _decode(content)
    except DataError as error:
        first_line = content.lstrip().partition(b"\n")[0]
        if isinstance(_json_object(first_line), DataError):
            raise DataError(error.problem, path=path, line=error.line, field=error.field, fix=error.fix) from None
        yield from _jsonl_rows(path, first_opens=False)  # JSON lines under the wrong suffix: common on the Hub
        return
    rows = [value] if isinstance(value, dict) and not own.isdisjoint(value) else _table(value, path)
    for number, row in enumerate(rows, start=1):
        yield number, row if isinstance(row, dict) else _not_an_object(row)


def _raw_array(content: bytes) -> list[msgspec.Raw] | None:
    """The undecoded elements of an array; None where it is none, or only the lenient parser can say."""
    try:
        return _array_decoder.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return None


def _table(value: object, path: Path) -> list[object]:
    """The rows of a JSON value: a list; an object of equally long columns; an object that holds one list of objects;
    or one single problem.
    """
    if isinstance(value, list):
        return value
    if not isinstance(value, dict):
        raise DataError("holds neither an array nor an object", path=path, fix="Write an array of objects, or JSONL")
    columns = {name: column for name, column in value.items() if isinstance(column, list)}
    tables = [column for column in columns.values() if column and all(isinstance(row, dict) for row in column)]
    if columns and len(columns) == len(value) and not (len(columns) == len(tables) == 1):
        lengths = {name: len(column) for name, column in columns.items()}
        if len(set(lengths.values())) > 1:
            raise DataError(f"the columns differ in length: {lengths}", path=path, fix="Give each row all its values")
        return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]
    return tables[0] if len(tables) == 1 else [value]


def _csv_rows(path: Path, delimiter: str) -> Generator[Row]:
    broken: list[DataError] = []  # lines of the current row that are too long to be in its cells

    def text_lines(stream: BinaryIO) -> Iterator[str]:
        for _, line in _lines(stream, path):
            if isinstance(line, DataError):
                broken.append(line)
                yield delimiter + "\n"
            else:
                yield line.decode("utf-8", "surrogateescape")

    with _opened(path) as stream:
        # strict: without it a quote that is never closed swallows the rest of the file in silence
        reader = csv.reader(text_lines(stream), delimiter=delimiter, strict=True)
        names: list[str] | None = None
        while True:
            start = reader.line_num + 1
            row: dict[str, Any] | DataError
            try:
                cells = next(reader)
            except StopIteration:
                return
            except csv.Error as error:
                row = DataError(f"is not valid CSV in lines {start} to {reader.line_num}: {error}", fix=_CSV_FIX)
            else:
                if not cells:
                    continue
                if names is None and not broken:
                    names = _header(cells, path)
                    continue
                row = broken[0] if broken else _csv_row(names or [], cells)
            broken.clear()
            if names is None and isinstance(row, DataError):
                raise DataError(row.problem, path=path, line=start, fix=row.fix)
            yield start, row


_CSV_FIX = "Put a cell with commas, quotes or newlines in double quotes, and write each quote in it twice"


def _header(cells: list[str], path: Path) -> list[str]:
    names = [cell.strip() for cell in cells]
    repeated = sorted({name for name in names if name and names.count(name) > 1})
    if repeated:
        raise DataError(f"the header names {repeated} more than once", path=path, line=1, fix="Rename the columns")
    return names


def _csv_row(names: list[str], cells: list[str]) -> dict[str, Any] | DataError:
    if len(cells) != len(names):
        return DataError(f"has {len(cells)} cells where the header has {len(names)}", fix=_CSV_FIX)
    for name, cell in zip(names, cells, strict=True):
        if escaped := _SURROGATE.search(cell):
            return DataError(f"is not UTF-8 (byte 0x{ord(escaped.group()) - 0xDC00:02x})", field=name, fix=_UTF8_FIX)
    return {name: cell or None for name, cell in zip(names, cells, strict=True) if name}


def _json_object(line: bytes) -> dict[str, Any] | DataError:
    try:
        value = _decode(line)
    except DataError as error:
        return error
    return value if isinstance(value, dict) else _not_an_object(value)


def _not_an_object(value: object) -> DataError:
    kind = {list: "an array", str: "a string", bool: "a bool", type(None): "null"}.get(type(value), "a number")
    return DataError(
        f"is {kind} where an object is expected",
        fix='Write each row as {"question": …, "answer": …}; a file that is one array is named .json',
    )


def _decode(content: bytes) -> object:
    """One JSON value. Raises `DataError` with the line inside `content`, also where an object has one key twice."""
    try:
        value = _decoder.decode(content)
    except (msgspec.DecodeError, RecursionError):
        return _decode_leniently(content)
    # msgspec keeps the last of two equal keys. More `":` than keys: nested objects, such text, or a repeated key.
    if isinstance(value, dict) and len(_KEY.findall(content)) > len(value):
        _decode_leniently(content)
    return value


def _decode_leniently(content: bytes) -> object:
    """Decode with Python's slower parser, which reads NaN and Infinity (both become None) and says where it stopped."""
    try:
        text = content.decode("utf-8")
        value = json.loads(text, object_pairs_hook=_unique_keys, parse_constant=lambda _: None, parse_float=_finite)
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        column = error.start - content.rfind(b"\n", 0, error.start)
        what = f"is not UTF-8 (byte 0x{content[error.start]:02x}, byte {column} of the line)"
        raise DataError(what, line=line, fix=_UTF8_FIX) from None
    except json.JSONDecodeError as error:
        what = f"is not valid JSON: {error.msg} (column {error.colno})"
        raise DataError(what, line=error.lineno, fix="Write it with a JSON library") from None
    except (ValueError, RecursionError) as error:  # a number of more than 4,300 digits; nesting without end
        raise DataError(f"is JSON beyond this reader's limits: {error}", fix="Leave such values out") from None
    if "\\u" in text and _SURROGATE.search(json.dumps(value, ensure_ascii=False)):
        raise DataError("holds half of a surrogate pair (\\ud800 to \\udfff), which is no text", fix=_UTF8_FIX)
    return value


_UTF8_FIX = "Save the file as UTF-8"


def _finite(literal: str) -> float | None:
    number = float(literal)
    return number if math.isfinite(number) else None


def _unique_keys(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in names if names.count(name) > 1)
        raise DataError("the key appears twice in one object", field=repeated[:100], fix="Keep one of them")
    return row


def _lines(stream: BinaryIO, path: Path) -> Iterator[tuple[int, bytes | DataError]]:
    """Lines with their 1-based numbers; of a line that is too long only its end is looked for."""
    number = 0
    while line := stream.readline(MAX_LINE_BYTES + 1):
        number += 1
        if number == 1:
            line = _without_bom(line, path)
        if len(line) <= MAX_LINE_BYTES:
            yield number, line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(2**20)
        what = f"the line is longer than {MAX_LINE_BYTES // 2**20} MiB"
        yield number, DataError(what, fix="Shorten it, or check that each row ends in a newline")


def _without_bom(content: bytes, path: Path) -> bytes:
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        raise DataError("is UTF-16", path=path, line=1, fix=_UTF8_FIX)
    return content.removeprefix(codecs.BOM_UTF8)


@contextmanager
def _opened(path: Path) -> Iterator[BinaryIO]:
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".gz":
                yield cast(BinaryIO, gzip.GzipFile(fileobj=file))
            else:
                yield file
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise DataError(f"is a damaged gzip file: {error}", path=path, fix="Fetch or compress it again") from None
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror or error}", path=path, fix="Check the file") from None
