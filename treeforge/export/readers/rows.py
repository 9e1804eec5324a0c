"""Readers of formats that have one row a line, and prefixes nested into a tree."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from pathlib import Path

from treeforge.errors import DataError
from treeforge.export.readers.base import At, ImportedRow, ImportedStep, Located, ReadOptions
from treeforge.store.rows import read_rows

_HEADER = re.compile(r"(?im)^(?=[ \t]*(?:step|步骤)[ \t]*\d+[ \t]*[:：])")


def by_row(
    read: Callable[[At, ReadOptions], ImportedRow | None], *, own: Set[str] = frozenset(), folders: bool = False
) -> Callable[[Path, ReadOptions], Iterator[Located]]:
    """A reader of files (JSONL, JSON, CSV, Parquet) from a function of one row; None leaves the row out.

    A JSON object with one of the fields `own` is one row. `folders`: a folder of JSON files is read as well.
    """

    def rows(path: Path, options: ReadOptions) -> Iterator[Located]:
        files = in_order(path.rglob("*"), ".json", ".jsonl") if folders and path.is_dir() else [path]
        if not files:
            raise DataError("holds no .json or .jsonl file", path=path, fix="Name the folder of the files, or one")
        for file in files:
            for line, row in read_rows(file, own):
                try:
                    if isinstance(row, DataError):
                        raise row
                    found = read(At(row), options)
                except DataError as error:
                    where = DataError(error.problem, path=file, line=line, field=error.field, fix=error.fix)
                    yield f"{file}:{line}", where
                    continue
                if found is not None:
                    yield f"{file}:{line}", found

    return rows


def in_order(paths: Iterable[Path], *suffixes: str) -> list[Path]:
    """The files with these suffixes, by name, `9` before `10`."""
    return sorted((path for path in paths if path.suffix in suffixes and path.is_file()), key=_name_key)


def _name_key(path: Path) -> list[tuple[int, str]]:
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", str(path))]


def chain(texts: Sequence[str], values: Sequence[float | None]) -> list[ImportedStep]:
    """The steps of one solution, each after the one before. A blank one is no step, and its label is left out."""
    filled = [(text, value) for text, value in zip(texts, values, strict=True) if text.strip()]
    return [ImportedStep(place - 1, text, value) for place, (text, value) in enumerate(filled)]


def by_headers(text: str, value: float | None) -> list[ImportedStep]:
    """The steps of one solution, divided where headers (`Step 2:`) are; the last one has the value."""
    parts = [part for part in _HEADER.split(text) if part.strip()]
    return chain(parts, [*[None] * (len(parts) - 1), value][: len(parts)])


def nested(
    prefixes: Sequence[tuple[str, float | None]], *, headers: bool = False, words: bool = True
) -> tuple[list[ImportedStep], float | None, dict[str, int]]:
    """Prefixes of solutions with their values -> the steps of a tree, the root's value, each prefix's last step.

    A prefix hangs below the longest other one that it continues, with `words` only from between two words. What is
    between the two is one step, or, with `headers`, several where such (`Step 2:`) divide it; only the last of these
    has the value. Of equal prefixes the first has the children.
    """
    order = sorted(range(len(prefixes)), key=lambda place: (prefixes[place][0], place))
    above: dict[int, int] = {}
    open_prefixes: list[int] = []
    for place in order:
        text = prefixes[place][0]
        while open_prefixes and not _continues(text, prefixes[open_prefixes[-1]][0], words):
            open_prefixes.pop()
        if open_prefixes and text == prefixes[open_prefixes[-1]][0]:
            above[place] = above[open_prefixes[-1]]
            continue
        above[place] = open_prefixes[-1] if open_prefixes else -1
        open_prefixes.append(place)

    steps: list[ImportedStep] = []
    last: dict[int, int] = {-1: -1}
    last_of: dict[str, int] = {}
    root_value = None
    for place in sorted(above, key=lambda place: (len(prefixes[place][0]), place)):
        text, value = prefixes[place]
        start = prefixes[above[place]][0] if above[place] >= 0 else ""
        between = text[len(start) :]
        parts = [part for part in (_HEADER.split(between) if headers else [between]) if part.strip()]
        if not parts:
            last[place] = last[above[place]]
            if last[place] < 0:
                root_value = value
            continue
        parent = last[above[place]]
        for part in parts:
            steps.append(ImportedStep(parent, part if parent >= 0 else part.lstrip()))
            parent = len(steps) - 1
        steps[parent].value = value
        last[place] = parent
        last_of.setdefault(text, parent)
    return steps, root_value, last_of


def leaves(steps: Sequence[ImportedStep]) -> list[ImportedStep]:
    """The steps that none follows."""
    inner = {step.parent for step in steps}
    return [step for place, step in enumerate(steps) if place not in inner]


def _continues(text: str, start: str, words: bool) -> bool:
    """Whether `start` is a beginning of `text`, with `words` one that ends between two words."""
    if not text.startswith(start):
        return False
    return not words or len(start) in (0, len(text)) or not (start[-1].isalnum() and text[len(start)].isalnum())
