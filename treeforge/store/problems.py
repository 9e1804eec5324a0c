"""Problem files in: questions and gold answers out of the datasets that people have.

`read_problems` finds the fields by their usual names, takes the gold answer out of a worked solution (GSM8K's `####`,
MATH's `\\boxed{}`), and says of every row that it cannot use which line, which field, why, and what to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from contextlib import closing
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from treeforge.answers import after_hashes, boxed
from treeforge.errors import ConfigError, DataError
from treeforge.problem import Problem, make_problem
from treeforge.store.arrow_rows import is_hub_source
from treeforge.store.rows import read_rows

QUESTION_FIELDS = ("question", "problem", "prompt", "query")
"""Usual names of the question, the first that a row has goes; upper and lower case are the same in all three lists."""
ANSWER_FIELDS = (
    "final_answer",
    "gold_answer",
    "gold",
    "ground_truth",
    "ground_truth_answer",
    "expected_answer",
    "answer",
    "solution",
)
"""Usual names of the gold answer. Names that can only mean a final answer go first, `solution` goes last: in a file
with several, the later ones tend to be worked out. A null gives way to the next name."""
ID_FIELDS = ("id", "problem_id", "unique_id", "question_id", "uid", "uuid", "idx", "index")
"""Usual names of the id; a row without one gets a digest of question and gold answer."""

MAX_GOLD_CHARS = 500
"""The longest gold answer, in characters; MATH's longest has 81."""
MAX_BARE_SOLUTION_CHARS = 40
"""The longest `solution` that passes for a bare answer when it has neither `\\boxed{}` nor `####`."""
MAX_ID_CHARS = 200

_SURROGATE = re.compile("[\ud800-\udfff]")
_ASKS_FOR_LIST = re.compile(r"separated by (?:a )?comma", re.IGNORECASE)
_BOX_START = re.compile(r"\\(?:boxed|fbox)\b")


class BadRow(msgspec.Struct, frozen=True, kw_only=True):
    """A row that gave no problem, and why."""

    line: int
    """1-based line (JSONL, CSV) or row (JSON, Parquet, Hub)."""
    field: str | None
    """The field at fault; None where the row as a whole is."""
    why: str
    """What is wrong with it."""
    fix: str
    """What to do about it."""


class ProblemFile(msgspec.Struct, frozen=True, kw_only=True):
    """What `read_problems` found in a file."""

    problems: tuple[Problem, ...]
    """The good rows, in the file's order; their ids are unique."""
    lines: dict[str, int]
    """The line of each problem by its id, as in `BadRow`."""
    skipped: tuple[BadRow, ...]
    """Rows left out: the same problem once more, and, with `skip_bad_rows`, those that cannot be used."""
    path: str
    """The file or `hf://` dataset as it was named."""


def read_problems(
    source: str | Path,
    *,
    question_field: str | None = None,
    answer_field: str | None = None,
    id_field: str | None = None,
    limit: int | None = None,
    skip_bad_rows: bool = False,
) -> ProblemFile:
    """Read problems from JSONL, JSON, CSV (all also `.gz`), Parquet, or `hf://owner/name[/config][:split]`.

    Fields are found by their usual names (`QUESTION_FIELDS`, `ANSWER_FIELDS`, `ID_FIELDS`) or named exactly by the
    options. The other columns go to `meta`, and so does the answer's when the gold answer is only a part of it.
    `limit` takes the first so many good rows and reads no further.

    The gold answer is the last balanced `\\boxed{}` of the text, or what follows `####` on its last line, or the whole
    text where it is short. Where the question asks for values "separated by commas" and the solution boxes them one
    by one, all of them are the gold answer.

    A row that repeats an earlier problem (same id, question and gold answer) is left out and recorded in `skipped`; one
    id with two different problems is an error.

    Raises `DataError` (file, line, field, fix) for a file that cannot be read, for one without a single problem, and
    for the first bad row unless `skip_bad_rows`; `MissingExtraError` for `hf://` without the `datasets` library;
    `ConfigError` for a limit below 1.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1, not {limit}")
    path = str(source)
    columns = Columns(question_field, answer_field, id_field)
    name = path if is_hub_source(path) else Path(path).name
    seen: dict[str, tuple[int, Problem]] = {}
    skipped: list[BadRow] = []
    with closing(read_rows(source)) as rows:
        for line, row in rows:
            try:
                if isinstance(row, DataError):
                    raise row
                problem = row_problem(row, columns, name)
                earlier = seen.get(problem.problem_id)
                if earlier is None:
                    seen[problem.problem_id] = line, problem
                    if len(seen) == limit:
                        break
                else:
                    skipped.append(_repeated(line, problem, *earlier))
            except DataError as error:
                bad = BadRow(line=line, field=error.field, why=error.problem, fix=error.fix or "")
                if not skip_bad_rows:
                    fix = f"{bad.fix}, or leave such rows out with --skip-bad-rows"
                    raise DataError(bad.why, path=path, line=line, field=bad.field, fix=fix) from None
                skipped.append(bad)
    if not seen:
        raise _no_problems(path, skipped)
    return ProblemFile(
        problems=tuple(problem for _, problem in seen.values()),
        lines={problem_id: line for problem_id, (line, _) in seen.items()},
        skipped=tuple(skipped),
        path=path,
    )


def _repeated(line: int, problem: Problem, first_line: int, first: Problem) -> BadRow:
    if (problem.question, problem.gold_answer) != (first.question, first.gold_answer):
        what = "question" if problem.question != first.question else "gold answer"
        raise DataError(
            f"the id {problem.problem_id!r} is that of row {first_line}, with another {what}",
            fix="Give each problem its own id, or name another field with --id-field (id_field=)",
        )
    return BadRow(line=line, field=None, why=f"is the same problem as row {first_line}", fix="Nothing need be done")


def _no_problems(path: str, skipped: Sequence[BadRow]) -> DataError:
    if not skipped:
        return DataError("has no rows", path=path, fix="Write one problem a row, with a question and an answer")
    first = skipped[0]
    what = f"none of its {len(skipped)} rows can be used; the first, {first.line}: {first.why}"
    return DataError(what, path=path, line=first.line, field=first.field, fix=first.fix)


class Columns:
    """Which of a row's columns hold question, gold answer and id: named exactly, or found by their usual names."""

    def __init__(self, question: str | None, answer: str | None, problem_id: str | None, *, gold: bool = True) -> None:
        """`gold`: False leaves gold answers out, whether or not the rows hold any."""
        self._named = question, answer, problem_id
        self.gold = gold
        self.find = lru_cache(maxsize=64)(self._find)

    def question(self, row: dict[str, Any]) -> str:
        """A row's question. Raises `DataError` where it has none."""
        names = tuple(row)
        found = _pick(names, self._named[0], QUESTION_FIELDS)
        if not found:
            raise _missing("question", self._named[0], QUESTION_FIELDS, names)
        return _text(row[found[0]], found[0])

    def _find(self, names: tuple[str, ...]) -> tuple[str, tuple[str, ...], str | None]:
        """Column of the question, columns that may hold the gold answer, column of the id (None: there is none)."""
        question, answer, problem_id = self._named
        questions = _pick(names, question, QUESTION_FIELDS)
        if not questions:
            raise _missing("question", question, QUESTION_FIELDS, names)
        answers = _pick([name for name in names if name != questions[0]], answer, ANSWER_FIELDS) if self.gold else []
        if self.gold and not answers:
            raise _missing("answer", answer, ANSWER_FIELDS, names)
        ids = _pick([name for name in names if name not in (questions[0], *answers)], problem_id, ID_FIELDS)
        if problem_id is not None and not ids:
            raise _missing("id", problem_id, ID_FIELDS, names)
        return questions[0], tuple(answers), ids[0] if ids else None


def _pick(names: Iterable[str], named: str | None, usual: Sequence[str]) -> list[str]:
    """The columns that may be meant, best first."""
    if named is not None:
        return [name for name in names if name == named]
    ranks = [(usual.index(folded), name) for name in names if (folded := name.strip().lower()) in usual]
    return [name for _, name in sorted(ranks, key=lambda ranked: ranked[0])]


def _missing(what: str, named: str | None, usual: Sequence[str], names: Sequence[str]) -> DataError:
    shown = ", ".join(repr(name[:40]) for name in names[:12]) + (", …" if len(names) > 12 else "")
    wanted = f"there is no field {named!r}" if named is not None else f"there is no {what} field ({', '.join(usual)})"
    fix = f"Name the field of the {what} with --{what}-field ({what}_field=)"
    return DataError(f"{wanted}; the row has {shown or 'no fields'}", fix=fix)


def row_problem(row: dict[str, Any], columns: Columns, source: str) -> Problem:
    """The problem that a row holds; `source` is its file's name. Raises `DataError` that names the field."""
    question_field, answer_fields, id_field = columns.find(tuple(row))
    question = _text(row[question_field], question_field)
    used, gold = {question_field, id_field}, ""
    if columns.gold:
        answer_field = next((field for field in answer_fields if row[field] is not None), answer_fields[0])
        answer = _text(number_as_text(row[answer_field], answer_field), answer_field)
        gold = final_gold(answer, question, answer_field)
        used |= {answer_field} if answer == gold else set()
    return make_problem(
        question,
        gold,
        problem_id=None if id_field is None else _identifier(row[id_field], id_field),
        source=source,
        meta={name: value for name, value in row.items() if name not in used},
    )


def _text(value: object, field: str) -> str:
    if not isinstance(value, str):
        kind = {list: "a list", dict: "an object", bool: "a bool", type(None): "missing (null)"}.get(
            type(value), "a number"
        )
        raise DataError(f"is {kind} where text is expected", field=field, fix="Write text, or name another field")
    text = value.strip()
    if not text:
        raise DataError("is empty", field=field, fix="Fill it in or remove the row")
    if "\0" in text or _SURROGATE.search(text):
        raise DataError("holds a NUL character or half of a surrogate pair", field=field, fix="Remove it from the text")
    return text


def number_as_text(value: object, field: str) -> object:
    """A number as one writes it (72, 0.5, 1000000); a whole float is a whole number. Other values as they are."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return value
    try:
        return str(int(value)) if value == int(value) else format(Decimal(repr(value)), "f")
    except ValueError:  # more than 4,300 digits
        raise DataError("is too long a number", field=field, fix="Write it as text in a shorter form") from None


def _identifier(value: object, field: str) -> str | None:
    value = number_as_text(value, field)
    if value is None or value == "":
        return None
    text = _text(value, field)
    if len(text) > MAX_ID_CHARS or not text.isprintable():
        what = f"is no id: it is longer than {MAX_ID_CHARS} characters or not printable"
        raise DataError(what, field=field, fix="Shorten it, or name another field with --id-field (id_field=)")
    return text


def final_gold(answer: str, question: str, field: str) -> str:
    """The final answer that `answer`, bare or worked out, states. Raises `DataError` where it states none."""
    worked = field.strip().lower() == "solution"
    boxes = [content for _, _, content in boxed(answer)]
    if boxes:
        one_by_one = _ASKS_FOR_LIST.search(question) and all(box and "," not in box for box in boxes)
        gold = ", ".join(dict.fromkeys(boxes)) if one_by_one else boxes[-1]
    elif _BOX_START.search(answer):
        raise DataError("opens a \\boxed{ that is never closed or empty", field=field, fix="Complete the text")
    elif "####" in answer.splitlines()[-1]:
        gold = after_hashes(answer) or ""
    elif (worked and len(answer) > MAX_BARE_SOLUTION_CHARS) or ("\n" in answer and "\\begin{" not in answer):
        what = "is a worked solution that states its final answer neither in \\boxed{} nor after ####"
        raise DataError(
            what, field=field, fix="Add it, or name the field of the answer with --answer-field (answer_field=)"
        )
    else:
        gold = answer
    if not gold:
        raise DataError("states an empty final answer", field=field, fix="Fill in \\boxed{} or what follows ####")
    if len(gold) > MAX_GOLD_CHARS:
        what = f"is longer than {MAX_GOLD_CHARS} characters, too long for a final answer"
        raise DataError(what, field=field, fix="Name the field of the answer with --answer-field (answer_field=)")
    return gold
