"""The problems of a run as they lie in `problems.parquet`: each is made when somebody asks for it.

A run of 150,000 problems opens ten times as fast so, and who looks at one of them pays for one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal, overload

import msgspec
import pyarrow as pa

from treeforge.errors import StorageError
from treeforge.problem import Problem
from treeforge.store.parquet import SCHEMA_VERSION, TABLE_KEY, VERSION_KEY

PROBLEMS = pa.schema(
    [
        pa.field("tree_id", pa.int32(), nullable=False),
        pa.field("problem_id", pa.string(), nullable=False),
        pa.field("question", pa.string(), nullable=False),
        pa.field("gold_answer", pa.string(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
        pa.field("meta", pa.string(), nullable=False),
        pa.field("status", pa.string(), nullable=False),
        pa.field("reason", pa.string(), nullable=False),
    ],
    metadata={TABLE_KEY: b"problems", VERSION_KEY: str(SCHEMA_VERSION)},
)
"""`problems.parquet`: the input as read, `meta` as JSON, and each problem's status (open, done, exhausted, failed)."""

TextColumn = Literal["problem_id", "question", "gold_answer", "source"]
_PAGE = 256
"""Problems made at once: who asks for one mostly asks for its neighbours next."""


class SavedProblems(Sequence[Problem]):
    """The rows of a `PROBLEMS` table as problems, in order. Raises `StorageError` for one whose `meta` is damaged."""

    def __init__(self, table: pa.Table, path: Path) -> None:
        self._table, self._path = table, path
        self._page: tuple[int, list[Problem]] = -1, []

    def __len__(self) -> int:
        return int(self._table.num_rows)

    @overload
    def __getitem__(self, place: int) -> Problem: ...

    @overload
    def __getitem__(self, place: slice) -> list[Problem]: ...

    def __getitem__(self, place: int | slice) -> Problem | list[Problem]:
        if isinstance(place, slice):
            start, stop, step = place.indices(len(self))
            return [self[number] for number in range(start, stop, step)]
        number = place + len(self) if place < 0 else place
        if not 0 <= number < len(self):
            raise IndexError(f"there are {len(self)} problems, and no number {place}")
        page, rest = divmod(number, _PAGE)
        kept, problems = self._page  # One read and one write, so that threads may share it.
        if kept != page:
            problems = self._made(page)
            self._page = page, problems
        return problems[rest]

    def __iter__(self) -> Iterator[Problem]:
        for page in range(-(-len(self) // _PAGE)):
            yield from self._made(page)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Sequence):
            return NotImplemented
        return len(self) == len(other) and all(a == b for a, b in zip(self, other, strict=True))

    __hash__ = None  # type: ignore[assignment]

    def column(self, name: TextColumn) -> list[str]:
        """One field of every problem."""
        found: list[str] = self._table[name].to_pylist()
        return found

    def statuses(self) -> dict[int, tuple[str, str]]:
        """(status, reason) of every problem by its number, as saved at the end of a sitting."""
        columns = (self._table[name].to_pylist() for name in ("tree_id", "status", "reason"))
        return {number: (status, reason) for number, status, reason in zip(*columns, strict=True)}

    def _made(self, page: int) -> list[Problem]:
        return [self._problem(row) for row in self._table.slice(page * _PAGE, _PAGE).to_pylist()]

    def _problem(self, row: dict[str, Any]) -> Problem:
        try:
            meta = msgspec.json.decode(row["meta"], type=dict[str, Any])
        except msgspec.MsgspecError as error:
            raise StorageError(
                f"{self._path}: the field meta of problem {row['tree_id']} is damaged ({error}). It is the run's only "
                "copy of its problems: restore it from a copy, or start a new run folder."
            ) from error
        return Problem(
            problem_id=row["problem_id"],
            question=row["question"],
            gold_answer=row["gold_answer"],
            source=row["source"],
            meta=meta,
        )
