"""Solutions in: what `treeforge annotate` labels, out of plain rows and of the formats that `treeforge import` reads.

Labels that such a file holds are not read: no value of the run rests on them (`treeforge quality` compares). Part of
the pipeline.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from treeforge.answers import states_answer
from treeforge.config import Recipe, StepsConfig
from treeforge.errors import ConfigError, DataError
from treeforge.export.readers import ImportedRow, ReadOptions, choose_reader
from treeforge.export.readers.base import At
from treeforge.given import GivenSolution, make_given
from treeforge.problem import Problem, make_problem
from treeforge.store.arrow_rows import is_hub_source
from treeforge.store.problems import BadRow, Columns, row_problem
from treeforge.store.rows import read_rows
from treeforge.tree import Finish
from treeforge.written import checked, split_solution

SOLUTION_FIELDS = (
    "steps",
    "solutions",
    "responses",
    "response",
    "completion",
    "generation",
    "generated_solution",
    "model_solution",
    "model_output",
    "output",
    "solution",
)
"""Usual names of the solution, the first that a row has goes; upper and lower case are the same. `steps` counts where
it is a list; `solution` goes last, since beside a model's response it mostly is the reference."""

PLAIN = "rows"
"""The format's name in the manifest where a file has plain rows."""


class SolutionFile(msgspec.Struct, frozen=True, kw_only=True):
    """What `read_solutions` found in a file."""

    problems: tuple[Problem, ...]
    """Each problem once, in the order of the first solutions; their ids are unique."""
    solutions: dict[str, tuple[GivenSolution, ...]]
    """The solutions of each problem by its id, in the file's order."""
    lines: dict[str, int]
    """The line of each problem's first solution by the problem's id."""
    skipped: tuple[BadRow, ...]
    """Rows left out: those without any step and, with `skip_bad_rows`, those that cannot be used."""
    path: str
    """The file or `hf://` dataset as it was named."""
    format: str


def read_solutions(
    source: str | Path,
    recipe: Recipe | None = None,
    *,
    format: str | None = None,
    problems: Sequence[Problem] = (),
    question_field: str | None = None,
    answer_field: str | None = None,
    id_field: str | None = None,
    solution_field: str | None = None,
    unfinished: bool = False,
    tag: str = "ки",
    limit: int | None = None,
    skip_bad_rows: bool = False,
    gold: bool = True,
) -> SolutionFile:
    """Read solutions and their problems from plain rows (JSONL, JSON, CSV, Parquet, `hf://`) or a `format` of `import`.

    A plain row has a question and a gold answer, as for `read_problems`, and a solution: `steps` is a list of texts
    that stay as they are; any other field (`SOLUTION_FIELDS`, or `solution_field`) is a text, which the recipe's step
    format splits as it would the policy's own, or a list of several solutions, each a text or a list of steps. Rows of
    one question and gold answer are one problem, whatever their ids; the first one's id counts.

    A plain row's last step ends its solution where the judge finds an answer in it; with `unfinished` none does.

    `problems` gives gold answers (and ids) to rows whose question they have, for files that hold none. `tag` is what
    stands after each step in `math-shepherd`. `limit` takes the first so many good rows. `gold`: False reads no gold
    answers, which scoring needs none of; those of a problem are then ''.

    Raises `DataError` (file, line, field, fix) for a file that cannot be read, for one without a single solution, and
    for the first bad row unless `skip_bad_rows`: one without a gold answer, whose steps could get no verdict; with a
    blank step; with a step or path longer than the recipe allows.
    """
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1, not {limit}")
    if not tag.strip():
        raise ConfigError("--tag must not be empty")
    recipe = recipe or Recipe()
    path = str(source)
    found = _Found({" ".join(p.question.split()): p for p in problems}, recipe)
    columns, bare = (Columns(question_field, answer_field, id_field, gold=known) for known in (gold, False))
    rows = (
        _plain_rows(path, (columns, bare), solution_field, found, recipe.steps, unfinished)
        if format is None
        else _format_rows(path, format, tag, found, gold=gold)
    )
    skipped: list[BadRow] = []
    count = 0
    with closing(rows):
        for line, row in rows:
            try:
                if isinstance(row, DataError):
                    raise row
                if row is None:
                    skipped.append(BadRow(line=line, field=None, why="has no steps", fix="Nothing need be done"))
                    continue
                found.add(line, *row)
            except DataError as error:
                bad = BadRow(line=line, field=error.field, why=error.problem, fix=error.fix or "Repair it")
                if not skip_bad_rows:
                    fix = f"{bad.fix}, or leave such rows out with --skip-bad-rows"
                    where = error.path or path
                    raise DataError(bad.why, path=where, line=line or None, field=bad.field, fix=fix) from None
                skipped.append(bad)
                continue
            count += 1
            if count == limit:
                break
    if not found.problems:
        raise _no_solutions(path, skipped)
    return SolutionFile(
        problems=tuple(found.problems.values()),
        solutions={name: tuple(solutions) for name, solutions in found.solutions.items()},
        lines=found.lines,
        skipped=tuple(skipped),
        path=path,
        format=format or PLAIN,
    )


class _Found:
    """The problems and solutions so far."""

    def __init__(self, golds: dict[str, Problem], recipe: Recipe) -> None:
        self._golds, self._recipe = golds, recipe
        self.problems: dict[tuple[str, str], Problem] = {}
        self.solutions: dict[str, list[GivenSolution]] = {}
        self.lines: dict[str, int] = {}

    def known(self, question: str) -> Problem | None:
        """The problem that the caller gave with this question."""
        return self._golds.get(" ".join(question.split()))

    def add(self, line: int, problem: Problem, solutions: Sequence[GivenSolution]) -> None:
        """Take in a row; `DataError` where its id is another problem's, or a solution is too large."""
        solutions = [checked(solution, self._recipe) for solution in solutions]
        key = (problem.question, problem.gold_answer)
        if key not in self.problems:
            if problem.problem_id in self.solutions:
                first = self.lines[problem.problem_id]
                raise DataError(
                    f"the id {problem.problem_id!r} is that of row {first}, with another question or gold answer",
                    fix="Give each problem its own id, or name another field with --id-field (id_field=)",
                )
            self.problems[key] = problem
            self.solutions[problem.problem_id] = []
            self.lines[problem.problem_id] = line
        self.solutions[self.problems[key].problem_id] += solutions


_Row = tuple[Problem, list[GivenSolution]]
_Rows = Generator[tuple[int, _Row | DataError | None]]
"""1-based line (0 unknown), and what the row holds, or why it cannot be used; None: no step."""


def _plain_rows(
    path: str, columns: tuple[Columns, Columns], named: str | None, found: _Found, steps: StepsConfig, unfinished: bool
) -> _Rows:
    name = path if is_hub_source(path) else Path(path).name
    for line, row in read_rows(path):
        try:
            if isinstance(row, DataError):
                raise row
            field = _solution_field(row, named)
            solutions = _solutions(At(row[field], field), field, line, steps)
            if unfinished:
                solutions = [msgspec.structs.replace(solution, ends=()) for solution in solutions]
            rest = {key: value for key, value in row.items() if key != field}
            problem = found.known(columns[0].question(rest)) or _row_problem(rest, columns, name)
        except DataError as error:
            yield line, error
        else:
            yield line, (problem, solutions)


def _row_problem(row: dict[str, Any], columns: tuple[Columns, Columns], name: str) -> Problem:
    """A row's problem. `columns`: with the gold answer, and without."""
    try:
        return row_problem(row, columns[0], name)
    except DataError as error:
        row_problem(row, columns[1], name)  # Raises where the answer is not what is wrong.
        fix = f"{error.fix}, or name a file of problems with their gold answers by --problems"
        raise DataError(error.problem, field=error.field, fix=fix) from None


def _solution_field(row: dict[str, Any], named: str | None) -> str:
    if named is not None:
        if named not in row:
            raise DataError(f"there is no field {named!r}", fix="Name the field of the solution with --solution-field")
        return named
    folded = {name.strip().lower(): name for name in reversed(row)}
    for usual in SOLUTION_FIELDS:
        value = row.get(folded.get(usual, ""))
        if isinstance(value, list) or (isinstance(value, str) and usual != "steps"):
            return folded[usual]
    raise DataError(
        f"there is no solution field ({', '.join(SOLUTION_FIELDS)})",
        fix="Name the field of the solution with --solution-field (solution_field=)",
    )


def _solutions(at: At, field: str, line: int, steps: StepsConfig) -> list[GivenSolution]:
    """A row's solutions: a text, a list of steps (under a name like `steps`), or a list of texts and lists."""
    if isinstance(at.value, str):
        return [split_solution(at.filled(), steps, line)]
    listed = at.items()
    if not listed:
        raise at.error("is an empty list", "Fill it in or leave the row out")
    if "step" in field.lower() and isinstance(listed[0].value, str):
        return [_listed(listed, at, line)]
    return [
        split_solution(item.filled(), steps, line) if isinstance(item.value, str) else _listed(item.items(), item, line)
        for item in listed
    ]


def _listed(items: Sequence[At], at: At, line: int) -> GivenSolution:
    texts = [item.text() for item in items]
    try:
        return make_given(texts, row=line)
    except DataError as error:
        place = (error.field or "").removeprefix("steps")
        raise DataError(error.problem, field=at.path + place, fix=error.fix) from None


def _format_rows(path: str, format: str, tag: str, found: _Found, *, gold: bool) -> _Rows:
    name = path if is_hub_source(path) else Path(path).name
    for where, row in choose_reader(format).read(Path(path), ReadOptions(tag=tag)):
        line = int(number) if (number := where.rpartition(":")[2]).isdecimal() else 0
        if isinstance(row, DataError):
            yield line, row
        elif not row.steps:
            yield line, None
        else:
            try:
                yield line, _format_row(row, line, name, found, gold=gold)
            except DataError as error:
                yield line, DataError(error.problem, path=where if not line else None, field=error.field, fix=error.fix)


def _format_row(row: ImportedRow, line: int, name: str, found: _Found, *, gold: bool) -> _Row:
    """A row's problem and steps; what it says of their worth, and steps that could not be sampled, are left out."""
    problem = found.known(row.question)
    if problem is None and gold and not row.gold_answer:
        raise DataError(
            "has no gold answer, without which no completion of a step can be judged",
            field="gold_answer",
            fix="Name a file of problems with their answers by --problems",
        )
    places = {-1: -1}
    steps, parents, ends = list[str](), list[int](), list[int]()
    for place, step in enumerate(row.steps):
        if step.finish == Finish.ERROR:
            continue
        places[place] = len(steps)
        if step.finish in (Finish.ANSWERED, Finish.STOP) or states_answer(step.text):
            ends.append(len(steps))
        steps.append(step.text)
        parents.append(places[step.parent])
    solution = make_given(steps, parents=parents, ends=ends, row=line)
    return problem or make_problem(row.question, row.gold_answer if gold else "", source=name), [solution]


def _no_solutions(path: str, skipped: Sequence[BadRow]) -> DataError:
    if not skipped:
        return DataError("has no rows", path=path, fix="Write one solution a row, with its question and gold answer")
    first = skipped[0]
    what = f"none of its {len(skipped)} rows can be used; the first, {first.line}: {first.why}"
    return DataError(what, path=path, line=first.line or None, field=first.field, fix=first.fix)
