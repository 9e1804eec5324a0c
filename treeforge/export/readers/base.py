"""What a reader makes of one row: steps with their labels, and a row's fields with their place for error messages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec

from treeforge.errors import DataError
from treeforge.store.problems import final_gold, number_as_text
from treeforge.tree import Finish

MAX_TEXT_CHARS = 2**20
"""The longest step or question, in characters. Prefixes are concatenated, so that texts must have a bound."""
ROUNDING = 1e-6
"""How far beyond 0 or 1 a value may be and still pass for it: sums and means of floats end there."""

_MARKS = {"+": 1.0, "-": 0.0}


class ImportedStep(msgspec.Struct, array_like=True):
    """One step of a row, and what the file says of it."""

    parent: int
    """The place of the step before it in its row's `steps`; -1 for a first step."""
    text: str
    value: float | None = None
    """In [0, 1]: the label or value that the file gives the step; None for none."""
    finish: int = Finish.OPEN
    """A `Finish`: whether and how the trajectory ends here."""
    verdict: int | None = None
    """A `Verdict` that the file itself states; None leaves it to the answer checker where there is a gold answer."""


class ImportedRow(msgspec.Struct, array_like=True):
    """The steps of one row (one file, in `hrm`): a path, or a tree. Rows of one problem become one tree."""

    question: str
    gold_answer: str
    """'' where the file has none."""
    steps: list[ImportedStep]
    root_value: float | None = None
    """The value of the empty prefix, where the file has it."""


class ReadOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What may be chosen when a file is read."""

    neutral: Literal["skip", "positive", "negative"] = "skip"
    """`prm800k`: what a neutral rating (0) becomes: no label, as in the HRM paper, or one of the two."""
    finished_only: bool = False
    """`prm800k`: leave out rows that the labeller gave up on or called a bad problem, as the HRM paper does."""
    hard: bool = False
    """`prm`: read the labels where a row has values as well."""
    tag: str = "ки"
    """`math-shepherd`: what stands after each step."""

    def __post_init__(self) -> None:
        if not self.tag.strip():
            raise ValueError("tag must not be empty")


Located = tuple[str, ImportedRow | DataError]
"""Where it stands (`FILE:LINE`, or the file of a tree), and what it holds or why it cannot be used."""


class Reader(msgspec.Struct, frozen=True, kw_only=True):
    """A format that can be read. Registered in `treeforge.export.readers`."""

    name: str
    about: str
    """One sentence: what the format is and what its rows become."""
    estimator: Literal["human", "imported", ""]
    """Where its labels come from; '' where its trees have outcomes of their own, and values are computed from these."""
    delimiter: str
    """Put after each step that others follow, so that prefixes are plain concatenation; '' where the texts have it."""
    read: Callable[[Path, ReadOptions], Iterator[Located]]
    """Its rows, one in memory at a time. Raises `DataError` for a file that cannot be read as a whole."""


class At:
    """A value of a row and its place in it, so that an error can name the field."""

    def __init__(self, value: Any, path: str = "") -> None:
        self.value, self.path = value, path

    def __getitem__(self, name: str) -> At:
        """A field of an object; `DataError` where it is missing."""
        if name not in self.object():
            raise DataError("is missing", field=self._below(name), fix="Check that --format names the file's format")
        return At(self.value[name], self._below(name))

    def get(self, name: str) -> At | None:
        """A field of an object; None where it is missing or null."""
        value = self.object().get(name)
        return None if value is None else At(value, self._below(name))

    def first(self, *names: str) -> At:
        """The first of these fields that is there and not null; `DataError` where none is."""
        return next((found for name in names if (found := self.get(name)) is not None), None) or self[names[0]]

    def object(self) -> dict[str, Any]:
        """The value, an object."""
        if not isinstance(self.value, dict):
            raise self.wrong("an object")
        return self.value

    def items(self) -> list[At]:
        """The elements of a list."""
        if not isinstance(self.value, list):
            raise self.wrong("a list")
        return [At(item, f"{self.path}[{index}]") for index, item in enumerate(self.value)]

    def text(self) -> str:
        """The value, a text."""
        if not isinstance(self.value, str):
            raise self.wrong("text")
        if len(self.value) > MAX_TEXT_CHARS:
            raise self.error(f"is longer than {MAX_TEXT_CHARS} characters", "Leave the row out")
        if "\0" in self.value or not _is_unicode(self.value):
            raise self.error("holds a NUL character or half of a surrogate pair", "Remove it from the text")
        return self.value

    def filled(self) -> str:
        """The value, a text that is not blank, without surrounding blanks."""
        text = self.text().strip()
        if not text:
            raise self.error("is empty", "Fill it in or leave the row out")
        return text

    def answer(self) -> str:
        """A gold answer: text, a number, or a list of one; '' where the file does not say which it is.

        Several answers may be parts of one or alternatives, and a worked solution may state none: no verdict rests on
        such.
        """
        if isinstance(self.value, list):
            found = {item.answer() for item in self.items()}
            return found.pop() if len(found) == 1 else ""
        text = At(number_as_text(self.value, self.path), self.path).text().strip()
        try:
            return final_gold(text, "", self.path) if text else ""
        except DataError:
            return ""

    def share(self) -> float:
        """The value, a number (or bool) in [0, 1]."""
        if not isinstance(self.value, int | float) or not -ROUNDING <= self.value <= 1 + ROUNDING:
            raise self.wrong("a number in [0, 1]")
        return min(max(float(self.value), 0.0), 1.0)

    def mark(self) -> float:
        """The value, `+` (1) or `-` (0), or a number in [0, 1]."""
        if not isinstance(self.value, str):
            return self.share()
        if self.value.strip() not in _MARKS:
            raise self.error(f"is {self.value[:40]!r} where + or - is expected", "Repair the row or leave it out")
        return _MARKS[self.value.strip()]

    def integer(self) -> int | None:
        """The value, a whole number, also where a table made a float of it; None for anything else."""
        if isinstance(self.value, float) and self.value.is_integer():
            return int(self.value)
        return self.value if type(self.value) is int else None

    def wrong(self, expected: str) -> DataError:
        """The error for a value of another kind."""
        kinds = {list: "a list", dict: "an object", bool: "a bool", str: "text", type(None): "null"}
        kind = kinds.get(type(self.value)) or repr(self.value)[:40]
        return self.error(f"is {kind} where {expected} is expected", "Check that --format names the file's format")

    def error(self, problem: str, fix: str) -> DataError:
        """An error about this value."""
        return DataError(problem, field=self.path or None, fix=fix)

    def _below(self, name: str) -> str:
        return f"{self.path}.{name}" if self.path else name


def _is_unicode(text: str) -> bool:
    """Whether it holds no half of a surrogate pair; a search by pattern takes many times as long."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
