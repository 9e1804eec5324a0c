"""Training rows out of what `treeforge export` writes: windows of steps with their labels, split by problem."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl

from treeforge.config import ExportConfig
from treeforge.errors import DataError
from treeforge.export.formats import FORMATS
from treeforge.export.readers.base import At
from treeforge.export.split import split_of
from treeforge.hashing import digest, encode_text, file_sha256
from treeforge.reward.base import Task
from treeforge.reward.rows import SCHEMA, Rows
from treeforge.store.arrow_rows import is_hub_source
from treeforge.store.rows import read_rows

MIN_ROWS = 8
"""Fewer training rows than this are refused."""
_BATCH = 65_536
_SUFFIXES = (".parquet", ".pq", ".jsonl", ".ndjson", ".json", ".csv", ".gz")
_FORMATS: dict[Task, tuple[str, ...]] = {"orm": ("orm",), "prm": ("hrm", "prm"), "hrm": ("hrm", "prm")}


class TrainingData(NamedTuple):
    """What a training reads."""

    train: Rows
    validation: Rows
    """Of other problems; may be empty."""
    files: dict[str, str]
    """SHA-256 of each file, by its name; of a Hub dataset, its name alone."""
    notes: tuple[str, ...]
    """One line each on what was left out, for a person."""


def read_data(
    data: Path | str, task: Task, *, hnc: bool = True, soft: bool = False, eval_share: float = 0.1
) -> TrainingData:
    """Read the rows of `data` that this task learns from.

    `data` is a run folder with an export, an export's folder, a file of it (or a folder of such), or `hf://owner/name`.
    A row is known by its columns: `hrm` (`previous`, `current`, `span`), `prm` (`completions`, `labels`) or `orm`
    (`completion`, `label`). `prm` learns from the single steps of the trees as grown, `hrm` from pairs too and, with
    `hnc`, from compressed trees. `soft` takes rows that have a soft label only.

    Where no split is called validation, `eval_share` of the problems are held out by the digest of their ids.

    Raises `DataError` (file, line, field) for rows that cannot be read or have no such shape, for too few rows, and
    where all have one label.
    """
    parts: dict[str, list[pl.DataFrame]] = {"train": [], "validation": []}
    files: dict[str, str] = {}
    for split, source, name, digest_ in source_files(str(data), _FORMATS[task], task):
        files[name] = digest_
        parts[split] += _frames(source, task, hnc=hnc)
    train, validation = (Rows(_joined(found)) for found in parts.values())
    notes: list[str] = []
    train, validation = (_labelled(rows, soft, notes, name) for rows, name in ((train, "train"), (validation, "eval")))
    if not parts["validation"] and eval_share:
        train, validation = train.of_problems(held_out_problems(train.problems(), eval_share))
    elif shared := train.problems() & validation.problems():
        what = f"{len(shared)} problems are both in train and in validation, as {sorted(shared)[0][:60]!r}"
        raise DataError(what, path=str(data), fix="Export it with treeforge, which splits by problem")
    if not len(validation):
        notes.append("no problem is held out: nothing measures the training, and it runs to its end")
    _check(train, str(data), task, soft)
    return TrainingData(train, validation, files, tuple(notes))


def source_files(data: str, formats: Sequence[str], task: str) -> Iterator[tuple[str, str, str, str]]:
    """(split, file, its name, its SHA-256) of what is to be read of `data`, for the first of `formats` that is there.

    Split is `train` or `validation`; files of a test split are left alone where there are others. Raises `DataError`
    where there is nothing of the kind.
    """
    if is_hub_source(data):
        yield "train", data, data, ""
        return
    place = Path(data)
    if (place / "manifest.json").exists():
        if not (place / "dataset").is_dir():
            raise DataError("is a run without an export", path=place, fix=f"Make one: treeforge export {place}")
        place = place / "dataset"
    if not place.exists():
        raise DataError("there is no such file or folder", path=place, fix="Name an export, or a file of one")
    if place.is_file():
        yield "train", str(place), place.name, file_sha256(place)
        return
    candidates = [(name, place / folder) for name in formats for folder in (name, "data")]
    folder = next((found for name, found in candidates if _shape(found) == name), None)
    if folder is None and any((place / name).is_dir() for name in ("data", *FORMATS)):
        known = " or ".join(formats)
        fix = f"Export it again with --format {formats[0]}; --task {task} learns from {known} rows"
        raise DataError(f"is an export without rows for --task {task}", path=place, fix=fix)
    folder = folder or place
    files = sorted(path for path in folder.iterdir() if path.is_file() and path.name.lower().endswith(_SUFFIXES))
    chosen = [path for path in files if len(files) == 1 or not path.name.startswith("test-")]
    if not chosen:
        raise DataError("holds no file of rows", path=place, fix="Name an export of treeforge, or a file of one")
    for path in chosen:
        split = "validation" if path.name.startswith(("validation-", "valid-", "eval-")) else "train"
        yield split, str(path), f"{split}: {path.name}", file_sha256(path)


def _shape(folder: Path) -> str:
    """The format of an export's folder; '' where it is none, or has no rows."""
    first = next(iter(sorted(folder.glob("*.parquet"))), None)
    return "" if first is None else _format_of(pl.read_parquet_schema(first))


def _format_of(names: Iterable[str]) -> str:
    """The format that rows with these columns have; '' where it is none that is trained on."""
    columns = set(names)
    shapes = {
        "hrm": {"previous", "span"},
        "prm": {"completions", "labels"},
        "orm": {"completion", "label"},
        "sft": {"completion", "value"},
    }
    return next((name for name, has in shapes.items() if has <= columns), "")


def _frames(source: str, task: Task, *, hnc: bool) -> Iterator[pl.DataFrame]:
    rows: list[tuple[Any, ...]] = []
    for line, row in read_rows(source):
        try:
            if isinstance(row, DataError):
                raise row
            rows += _windows(At(row), task, hnc=hnc)
        except DataError as error:
            raise DataError(error.problem, path=source, line=line, field=error.field, fix=error.fix) from None
        if len(rows) >= _BATCH:
            yield pl.DataFrame(rows, schema=SCHEMA, orient="row")
            rows = []
    yield pl.DataFrame(rows, schema=SCHEMA, orient="row")


def _joined(frames: list[pl.DataFrame]) -> pl.DataFrame:
    return pl.concat(frames) if frames else pl.DataFrame(schema=SCHEMA)


def _windows(row: At, task: Task, *, hnc: bool) -> Iterator[tuple[Any, ...]]:
    """(question, previous, current, hard, soft, problem_id, single) of the windows of a row."""
    names = row.object()
    shape = _format_of(names)
    if shape not in _FORMATS[task]:
        known = f"--task {task} learns from rows of the format {' or '.join(_FORMATS[task])}"
        fix = f"{known}: export with --format {_FORMATS[task][0]}"
        raise DataError(f"has the columns {', '.join(names)[:200]}", fix=fix)
    question = row["prompt"].text()
    problem = names.get("problem_id")
    if not isinstance(problem, str):
        problem = digest(encode_text(question)).hex()
    if shape == "orm":
        yield _row(question, "", row["completion"], row["label"], None, problem, single=False)
    elif shape == "hrm":
        span, grown = names["span"], not _passes(row)
        if span not in (1, 2) or isinstance(span, bool):
            raise row["span"].error("is neither 1 (a step) nor 2 (two consecutive steps)", "Correct the row")
        if (span == 1 or task == "hrm") and (grown or (hnc and task == "hrm")):
            previous = row["previous"].text()
            if not row["current"].text():
                raise row["current"].error("is empty", "Fill it in or leave the row out")
            single = span == 1 and grown
            yield _row(question, previous, row["current"], row["hard"], row.get("soft"), problem, single=single)
    else:
        yield from _of_chain(row, question, problem, task)


def _passes(row: At) -> int:
    """The HNC pass that a row of `hrm` comes from, 0 for a tree as grown."""
    compressed = row.get("compressed")
    if compressed is None:
        return 0
    if not isinstance(compressed.value, int) or compressed.value < 0:
        raise compressed.wrong("the number of an HNC pass, 0 for none,")
    return int(compressed.value)


def _of_chain(row: At, question: str, problem: str, task: Task) -> Iterator[tuple[Any, ...]]:
    steps, labels = row["completions"].items(), row["labels"].items()
    values = None if (soft := row.get("values")) is None else soft.items()
    if len(steps) != len(labels) or (values is not None and len(values) != len(steps)):
        raise row["labels"].error(f"has {len(labels)} labels for {len(steps)} steps", "Give each step a label")
    before = [""]
    for step in steps:
        before.append(before[-1] + step.text())
    for place, (step, label) in enumerate(zip(steps, labels, strict=True)):
        value = values[place] if values is not None else None
        yield _row(question, before[place], step, label, value, problem, single=True)
        if task == "hrm" and place:
            pair = steps[place - 1].text() + step.text()
            yield _row(question, before[place - 1], pair, label, value, problem, single=False)


def _row(
    question: str, previous: str, current: At | str, label: At, value: At | None, problem: str, *, single: bool
) -> tuple[Any, ...]:
    text = current if isinstance(current, str) else current.text()
    hard = -1 if label.value is None else int(label.share() > 0.5)
    soft = value.share() if value is not None and value.value is not None else float(hard) if hard >= 0 else np.nan
    return question, previous, text, hard, soft, problem, single


def _labelled(rows: Rows, soft: bool, notes: list[str], name: str) -> Rows:
    has = ~np.isnan(rows.soft) if soft else rows.hard >= 0
    if missing := int((~has).sum()):
        notes.append(f"{missing:,} rows of {name} have no {'soft' if soft else 'hard'} label and are left out")
    return rows.keep(has)


def held_out_problems(problems: set[str], share: float) -> set[str]:
    """The problems of the digest's upper end, `share` of all; at least one where there are two, and never all."""
    config = ExportConfig(test_share=0, validation_share=share)
    held = {problem for problem in problems if split_of(problem, config) == "validation"}
    if not held and len(problems) > 1:
        held = {min(problems, key=lambda problem: digest(encode_text(problem)))}
    return held if len(held) < len(problems) else set()


def _check(train: Rows, data: str, task: Task, soft: bool) -> None:
    if len(train) < MIN_ROWS:
        more = "more problems, or label and export again with weaker filters"
        raise DataError(
            f"has {len(train)} training rows for --task {task}; at least {MIN_ROWS} are needed",
            path=data,
            fix=f"Give it {more}",
        )
    values = train.soft if soft else train.hard
    if (values == values[0]).all():
        which = f"the soft label {values[0]:g}" if soft else ("right" if values[0] else "wrong")
        raise DataError(
            f"all {len(train):,} training rows are labelled {which}: nothing can be learnt from them",
            path=data,
            fix="Add problems that are sometimes solved and sometimes not (`treeforge stats` shows the balance)",
        )
