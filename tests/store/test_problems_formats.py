"""File formats, and files that are broken in the ways files are."""

from __future__ import annotations

import codecs
import csv
import gzip
import json
import math
import sys
import tracemalloc
from datetime import date
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from treeforge.errors import DataError, MissingExtraError
from treeforge.store.problems import ProblemFile, read_problems
from treeforge.store.rows import MAX_LINE_BYTES

ROWS: list[dict[str, Any]] = [
    {"id": "a", "question": 'Ana said "3, or 4".\nHow many?', "answer": "3", "tags": "x"},
    {"id": "b", "question": "Größe ½ 日本?", "answer": "\\frac{1}{2}", "tags": "y"},
]


def write_csv(path: Path, delimiter: str = ",") -> None:
    with path.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, list(ROWS[0]), delimiter=delimiter)
        writer.writeheader()
        writer.writerows(ROWS)


def write_format(path: Path) -> Path:
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in ROWS)
    columns = {name: [row[name] for row in ROWS] for name in ROWS[0]}
    match path.name:
        case "lines.jsonl" | "lines.ndjson" | "lines.json":
            path.write_text(lines, encoding="utf-8")
        case "crlf.jsonl":
            path.write_bytes(b"\r\n \t\r\n" + lines.replace("\n", "\r\n").encode() + b"\r\n")
        case "bom.jsonl" | "BOM.JSONL":
            path.write_bytes(codecs.BOM_UTF8 + lines.encode().removesuffix(b"\n"))
        case "lines.jsonl.gz":
            path.write_bytes(gzip.compress(lines.encode()))
        case "array.json":
            path.write_text(json.dumps(ROWS, indent=2))
        case "bom.json":
            path.write_bytes(codecs.BOM_UTF8 + json.dumps(ROWS).encode())
        case "data.json":
            path.write_text(json.dumps({"data": ROWS}))
        case "named.json":
            path.write_text(json.dumps({"version": "1.1", "problems": ROWS}))
        case "columns.json":
            path.write_text(json.dumps(columns))
        case "table.csv":
            write_csv(path)
        case "table.tsv":
            write_csv(path, "\t")
        case "table.csv.gz":
            write_csv(path.with_suffix(""))
            path.write_bytes(gzip.compress(codecs.BOM_UTF8 + path.with_suffix("").read_bytes()))
        case "table.parquet" | "table.pq":
            pq.write_table(pa.table(columns), path)
    return path


@pytest.mark.parametrize(
    "name",
    [
        *("lines.jsonl", "lines.ndjson", "lines.json", "crlf.jsonl", "bom.jsonl", "BOM.JSONL", "lines.jsonl.gz"),
        *("array.json", "bom.json", "data.json", "named.json", "columns.json"),
        *("table.csv", "table.tsv", "table.csv.gz", "table.parquet", "table.pq"),
    ],
)
def test_every_format_gives_the_same_problems(tmp_path: Path, name: str) -> None:
    read = read_problems(write_format(tmp_path / name))
    assert [(p.problem_id, p.question, p.gold_answer) for p in read.problems] == [
        (row["id"], row["question"], row["answer"]) for row in ROWS
    ]
    assert [p.meta for p in read.problems] == [{"tags": "x"}, {"tags": "y"}]
    assert read.skipped == ()


def test_one_problem_as_json(tmp_path: Path) -> None:
    path = tmp_path / "one.json"
    path.write_text(json.dumps(ROWS[0], indent=1))
    assert [p.problem_id for p in read_problems(path).problems] == ["a"]


GOOD = b'{"question": "1 + 1?", "answer": 2}\n'


def read_bytes(tmp_path: Path, content: bytes, name: str = "problems.jsonl", **options: Any) -> ProblemFile:
    path = tmp_path / name
    path.write_bytes(content)
    return read_problems(path, **options)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (b'{"question": "caf\xe9?", "answer": 1}', "is not UTF-8 (byte 0xe9, byte 18 of the line)"),
        (b'{"question": "half \\ud83d", "answer": 1}', "half of a surrogate pair"),
        (b'{"question": "half \\udc00 of it", "answer": 1}', "half of a surrogate pair"),
        (b'{"question": "cut off", "ans', "is not valid JSON: Unterminated string"),
        (b'{"question": "two", "answer": 1} {"question": "rows", "answer": 1}', "is not valid JSON: Extra data"),
        (b"[1, 2]", "is an array where an object is expected"),
        (b'"text"', "is a string where an object is expected"),
        (b"null", "is null where an object is expected"),
        (b"17", "is a number where an object is expected"),
        (b"[" * 100_000, "beyond this reader's limits"),
        (b'{"question": "long", "answer": ' + b"7" * 5000 + b"}", "beyond this reader's limits"),
        (b'{"question": "a?", "answer": 1, "answer": 2}', "the key appears twice in one object"),
        (b'{"question": "a?", "answer": 1, "more": {"x": 1, "x": 1}}', "the key appears twice in one object"),
        (b'{"question": "a?", "answer": NaN}', "is missing (null)"),
        (b'{"question": "a?", "answer": -Infinity}', "is missing (null)"),
        (b'{"question": "a?", "answer": 1e999}', "is missing (null)"),
        (b'{"question": "nul \\u0000", "answer": 1}', "NUL"),
    ],
)
@pytest.mark.parametrize("name", ["problems.jsonl", "lines.json"])
def test_a_broken_line(tmp_path: Path, line: bytes, why: str, name: str) -> None:
    content = GOOD + b"\n" + line + b"\n" + GOOD.replace(b"1 + 1", b"2 + 0")
    with pytest.raises(DataError) as caught:
        read_bytes(tmp_path, content, name)
    assert caught.value.line == 3
    assert why in caught.value.problem
    assert f"{name}:3: " in str(caught.value)
    assert "--skip-bad-rows" in str(caught.value)
    read = read_bytes(tmp_path, content, name, skip_bad_rows=True)
    assert [p.question for p in read.problems] == ["1 + 1?", "2 + 0?"]
    assert [(bad.line, why in bad.why, bool(bad.fix)) for bad in read.skipped] == [(3, True, True)]


def test_text_that_looks_like_keys_is_no_repeated_key(tmp_path: Path) -> None:
    row = {"question": 'label("A": 1, "A": 2)?', "answer": 3, "more": [{"x": 1}, {"x": 2}]}
    read = read_bytes(tmp_path, json.dumps(row).encode())
    assert read.problems[0].meta == {"more": [{"x": 1}, {"x": 2}]}


def test_numbers_that_json_lacks_become_null_in_meta(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, b'{"question": "a?", "answer": 1, "score": NaN, "big": 1e999, "t": 0.25}')
    assert read.problems[0].meta == {"score": None, "big": None, "t": 0.25}


def test_a_line_of_50_mb_is_refused_in_bounded_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.jsonl"
    with path.open("wb") as stream:
        stream.write(GOOD + b'{"question": "')
        for _ in range(50):
            stream.write(b"x" * 10**6)
        stream.write(b'?", "answer": 1}\n' + GOOD.replace(b"1 + 1", b"2 + 0"))
    tracemalloc.start()
    try:
        read = read_problems(path, skip_bad_rows=True)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert [p.question for p in read.problems] == ["1 + 1?", "2 + 0?"]
    assert [(bad.line, bad.why) for bad in read.skipped] == [(2, "the line is longer than 16 MiB")]
    assert peak < 2.5 * MAX_LINE_BYTES


@pytest.mark.parametrize("content", [b"", b"\n \n\r\n", codecs.BOM_UTF8])
@pytest.mark.parametrize("name", ["empty.jsonl", "empty.json", "empty.csv"])
def test_an_empty_file(tmp_path: Path, content: bytes, name: str) -> None:
    with pytest.raises(DataError, match=r"empty\.\w+: has no rows\. Write one problem a row"):
        read_bytes(tmp_path, content, name)


@pytest.mark.parametrize(
    ("content", "name"), [(b"[]", "a.json"), (b'{"data": []}', "a.json"), (b"id,question,answer\n", "a.csv")]
)
def test_a_file_without_rows(tmp_path: Path, content: bytes, name: str) -> None:
    with pytest.raises(DataError, match="has no rows"):
        read_bytes(tmp_path, content, name)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
@pytest.mark.parametrize("name", ["a.jsonl", "a.json", "a.csv"])
def test_utf16(tmp_path: Path, encoding: str, name: str) -> None:
    with pytest.raises(DataError, match=r"a\.\w+:1: is UTF-16\. Save the file as UTF-8"):
        read_bytes(tmp_path, ("\ufeff" + GOOD.decode()).encode(encoding), name)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no such file"):
        read_problems(tmp_path / "missing.jsonl")
    with pytest.raises(DataError, match="is a folder"):
        read_problems(tmp_path)
    with pytest.raises(DataError, match=r"the suffix '\.xlsx' names no format"):
        read_bytes(tmp_path, b"PK", "a.xlsx")


def test_damaged_gzip(tmp_path: Path) -> None:
    whole = gzip.compress(GOOD * 1000)
    for content in (whole[:-20], b"no gzip", whole[:30] + b"\xff" * 20 + whole[50:]):
        with pytest.raises(DataError, match="is a damaged gzip file"):
            read_bytes(tmp_path, content, "a.jsonl.gz")


def test_bad_rows_of_an_array_keep_their_numbers(tmp_path: Path) -> None:
    repeated_key = b'{"question": "b?", "answer": 1, "answer": 2}'
    rows = b'[{"question": "a?", "answer": 1}, ' + repeated_key + b', 5,\n{"question": "c?", "answer": 3}]'
    read = read_bytes(tmp_path, rows, "a.json", skip_bad_rows=True)
    assert [p.question for p in read.problems] == ["a?", "c?"]
    assert [bad.line for bad in read.skipped] == [2, 3]


@pytest.mark.parametrize(
    ("content", "line", "why"),
    [
        (b'[{"question": "a?", "answer": 1},\n {"question": "b?", "answer": 2\n', 3, "is not valid JSON"),
        (
            b'[{"question": "a?"},\n {"question": "caf\xe9?"}, NaN]',
            2,
            r"is not UTF-8 \(byte 0xe9, byte 19 of the line\)",
        ),
        (b'{"question": ["a?", "b?"], "answer": [1]}', None, "the columns differ in length"),
        (b'"text"', None, "holds neither an array nor an object"),
    ],
)
def test_a_broken_json_file(tmp_path: Path, content: bytes, line: int | None, why: str) -> None:
    with pytest.raises(DataError, match=why) as caught:
        read_bytes(tmp_path, content, "a.json", skip_bad_rows=True)
    assert caught.value.line == line


def test_a_json_file_that_only_python_reads(tmp_path: Path) -> None:
    read = read_bytes(tmp_path, b'[{"question": "a?", "answer": 1, "score": NaN}]', "a.json")
    assert read.problems[0].meta == {"score": None}


def test_csv_rows_that_are_ragged_broken_or_not_utf8(tmp_path: Path) -> None:
    content = (
        b'question,answer,level\n"two\nlines?",1,\n\nshort,2\nlong,3,4,5\ncaf\xe9?,6,7\n'
        b'"stray " quote",8,9\nwhole?,10,11\n"never closed,12,13\n'
    )
    with pytest.raises(DataError, match=r"a.csv:5: has 2 cells where the header has 3"):
        read_bytes(tmp_path, content, "a.csv")
    read = read_bytes(tmp_path, content, "a.csv", skip_bad_rows=True)
    assert [(p.question, p.gold_answer, p.meta) for p in read.problems] == [
        ("two\nlines?", "1", {"level": None}),
        ("whole?", "10", {"level": "11"}),
    ]
    assert [(bad.line, bad.field) for bad in read.skipped] == [
        (5, None),
        (6, None),
        (7, "question"),
        (8, None),
        (10, None),
    ]
    assert read.skipped[1].why == "has 4 cells where the header has 3"
    assert read.skipped[2].why == "is not UTF-8 (byte 0xe9)"
    assert "unexpected end of data" in read.skipped[4].why


def test_a_csv_line_that_is_too_long_takes_its_whole_row_along(tmp_path: Path) -> None:
    long = b"x" * (MAX_LINE_BYTES + 1)
    content = b'question,answer\n"first\n' + long + b'\nlast",1\n' + long + b",2\ngood?,3\n"
    read = read_bytes(tmp_path, content, "a.csv", skip_bad_rows=True)
    assert [p.question for p in read.problems] == ["good?"]
    assert [(bad.line, bad.why) for bad in read.skipped] == [
        (line, "the line is longer than 16 MiB") for line in (2, 5)
    ]
    with pytest.raises(DataError, match=r"a.csv:1: the line is longer"):
        read_bytes(tmp_path, long + b"\ngood?,3\n", "a.csv", skip_bad_rows=True)


def test_a_csv_header_that_names_a_column_twice(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"a.csv:1: the header names \['answer'\] more than once"):
        read_bytes(tmp_path, b"question,answer,answer\na?,1,2\n", "a.csv")


def test_parquet_values_become_json(tmp_path: Path) -> None:
    table = pa.table(
        {
            "question": pa.array([b"a?", b"b?", b"c?"], pa.binary()),
            "answer": pa.array([0.1, 2.0, math.nan], pa.float32()),
            "price": pa.array([Decimal("1.50"), None, None], pa.decimal128(9, 2)),
            "day": pa.array([date(2024, 2, 29), None, None]),
            "image": pa.array([b"\xff\xd8", None, None], pa.binary()),
            "steps": pa.array([[{"p": math.inf}], None, None]),
        }
    )
    pq.write_table(table, tmp_path / "a.parquet")
    read = read_problems(tmp_path / "a.parquet", skip_bad_rows=True)
    assert [(p.question, p.gold_answer) for p in read.problems] == [("a?", "0.1"), ("b?", "2")]
    assert read.problems[0].meta == {"price": "1.5", "day": "2024-02-29", "steps": [{"p": None}]}
    assert [(bad.line, bad.field, bad.why) for bad in read.skipped] == [
        (3, "answer", "is missing (null) where text is expected")
    ]


def test_parquet_text_that_is_not_utf8_costs_its_row_only(tmp_path: Path) -> None:
    question = pa.array([b"a?", b"\xff", b"c?"], pa.binary()).view(pa.string())
    pq.write_table(pa.table({"question": question, "answer": [1, 2, 3]}), tmp_path / "a.parquet")
    read = read_problems(tmp_path / "a.parquet", skip_bad_rows=True)
    assert [p.question for p in read.problems] == ["a?", "c?"]
    assert [(bad.line, "not UTF-8" in bad.why) for bad in read.skipped] == [(2, True)]


def test_parquet_is_read_in_batches_and_limit_stops_it(tmp_path: Path) -> None:
    numbers = list(range(3000))
    pq.write_table(pa.table({"question": [f"{n} + 0?" for n in numbers], "answer": numbers}), tmp_path / "a.parquet")
    assert [p.gold_answer for p in read_problems(tmp_path / "a.parquet").problems] == [str(n) for n in numbers]
    assert len(read_problems(tmp_path / "a.parquet", limit=1500).problems) == 1500


def test_damaged_parquet(tmp_path: Path) -> None:
    pq.write_table(
        pa.table({"question": [f"{n}?" for n in range(999)], "answer": [1] * 999}), tmp_path / "whole.parquet"
    )
    whole = (tmp_path / "whole.parquet").read_bytes()
    for content in (b"", b"PAR1", whole[: len(whole) // 2], whole[:50] + b"\xff" * 500 + whole[550:]):
        with pytest.raises(DataError, match="is no whole Parquet file"):
            read_bytes(tmp_path, content, "a.parquet")


def test_parquet_with_one_name_twice(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a?"]), pa.array([1]), pa.array([2])], ["question", "answer", "answer"])
    pq.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(DataError, match=r"has the columns \['answer'\] more than once"):
        read_problems(tmp_path / "a.parquet")


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that the real `datasets` library loads as the dataset `owner/name`, without a network."""
    datasets = pytest.importorskip("datasets")
    folder = tmp_path / "owner" / "name"
    folder.mkdir(parents=True)
    for split, numbers in {"train": (1, 2, 3), "test": (4,)}.items():
        rows = ({"question": f"{n} + 0?", "answer": f"It is\n#### {n}", "score": n / 4} for n in numbers)
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    return folder


@pytest.mark.parametrize(
    ("source", "golds"),
    [
        ("hf://owner/name", ["1", "2", "3"]),
        ("hf://owner/name:test", ["4"]),
        ("hf://owner/name/default:test", ["4"]),
        (Path("hf://owner/name:test"), ["4"]),
    ],
)
def test_hub_datasets(hub: Path, source: str | Path, golds: list[str]) -> None:
    read = read_problems(source)
    assert [p.gold_answer for p in read.problems] == golds
    assert read.problems[0].source == read.path == str(source)
    assert read.problems[0].meta == {"answer": f"It is\n#### {golds[0]}", "score": int(golds[0]) / 4}


def test_a_hub_dataset_with_one_split_needs_no_name_of_it(hub: Path) -> None:
    (hub / "train.jsonl").unlink()
    assert [p.gold_answer for p in read_problems("hf://owner/name").problems] == ["4"]


def test_hub_datasets_that_cannot_be_read(hub: Path) -> None:
    with pytest.raises(DataError, match=r"has no split 'validation'. Add one of :train, :test"):
        read_problems("hf://owner/name:validation")
    with pytest.raises(DataError, match="the Hub dataset cannot be read"):
        read_problems("hf://owner/name/no-such-config")
    (hub / "train.jsonl").write_bytes(GOOD + b'{"question": ')
    with pytest.raises(DataError, match="the Hub dataset cannot be read"):
        read_problems("hf://owner/name")


@pytest.mark.parametrize("source", ["hf://name", "hf://a/b/c/d", "hf://a/b:c:d", "hf://../../etc"])
def test_names_that_are_no_hub_dataset(source: str) -> None:
    with pytest.raises(DataError, match="names no Hub dataset"):
        read_problems(source)


def test_hub_datasets_without_the_library(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'treeforge\[hub\]'"):
        read_problems("hf://owner/name")
