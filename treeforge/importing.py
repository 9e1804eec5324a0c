"""Labelled reasoning of other projects becomes a run folder, which all stages after the search work on.

The rows of one problem become one tree, each a branch of its own below the root, so that no two labels are mixed. Rows
wait in a file of the new folder until all are read: memory holds the problems, and the trees of one block.
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treeforge import views
from treeforge.config import LabelConfig, Recipe, RunConfig, StepsConfig
from treeforge.errors import ConfigError, DataError, RunError, StorageError
from treeforge.evidence import Floats
from treeforge.export.folder import replaced_folder
from treeforge.export.readers import ImportedRow, Reader, ReadOptions, choose_reader
from treeforge.export.readers.prm800k import ANSWER
from treeforge.hashing import digest, encode_text
from treeforge.label import AnswerChecker
from treeforge.label.extract import extract
from treeforge.manifest import new_manifest
from treeforge.problem import Problem, make_problem
from treeforge.store.imported import SECTION, ImportedBlock
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, Tree, TreeBuilder
from treeforge.verdict import NO_VERDICT, Verdict

MAX_STEPS = 10_000
"""The longest path, in steps."""
MAX_PROBLEM_BYTES = 2**29
"""Of one problem's rows: a tree must fit in memory, with several copies of its texts."""

_MARKERS = ("The answer is", "\\boxed{", ANSWER)
_SKIP = "or leave such rows out with --skip-bad-rows"


class ImportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What was read, and what it became."""

    problems: int
    rows: int
    """Rows (files, in `hrm-pickle`) that became steps."""
    without_steps: int
    """Rows that held none, and were left out."""
    skipped: int
    """Rows that could not be used, and were left out."""
    first_skipped: str
    """Where the first of these stands and what is wrong with it; '' for none."""
    steps: int
    positive: int
    negative: int
    unlabelled: int
    endings: dict[str, int]
    """Steps that end a solution, by verdict."""


def import_file(
    source: Path | str,
    format: str,
    out: Path | str,
    *,
    options: ReadOptions | None = None,
    limit: int | None = None,
    skip_bad_rows: bool = False,
) -> ImportReport:
    """Read a file (or folder) of another project's format into a new run folder `out`; `limit` takes its first rows.

    Nothing is left of an import that fails. Raises `DataError` (file, line, field) for what cannot be read, and for the
    first bad row unless `skip_bad_rows`; `ConfigError` for an unknown format; `RunError` where `out` holds something.
    """
    source, out = Path(source), Path(out)
    reader = choose_reader(format)
    if limit is not None and limit < 1:
        raise ConfigError(f"limit must be at least 1, not {limit}")
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} holds something already; choose another --out for the imported run")
    with replaced_folder(out, frozenset()) as folder:
        waiting = folder / "rows.sqlite"
        with closing(_Rows(waiting, source.name)) as rows:
            found = rows.take(reader.read(source, options or ReadOptions()), limit, skip_bad_rows)
            if not rows.problems:
                why = found["first_skipped"] or "it has none with a step"
                raise DataError(f"has no row that can be used: {why}", path=source)
            endings, problems = _write(folder, reader, source, rows), len(rows.problems)
            rows.problems.clear()  # The labels' own reading of the run has them again.
        waiting.unlink()
        labels = views.label(folder)
    return ImportReport(
        problems=problems,
        steps=labels["nodes"],
        positive=labels["positive"],
        negative=labels["negative"],
        unlabelled=labels["unlabelled"],
        endings=endings,
        **found,
    )


class _Rows:
    """Rows that were read, in a file until their problem's turn comes."""

    def __init__(self, path: Path, source: str) -> None:
        self._source = source
        self.problems: list[Problem] = []
        self._numbers: dict[bytes, int] = {}
        """Problems by the digests of (question, gold answer) and, the first of each, of (question)."""
        self._database = sqlite3.connect(path, isolation_level=None)
        # The file is of no use after a crash.
        for setting in ("journal_mode=OFF", "synchronous=OFF", "cache_size=-65536"):
            self._execute(f"PRAGMA {setting}")
        self._execute("CREATE TABLE rows (problem INTEGER NOT NULL, row BLOB NOT NULL)")

    def take(self, found: Iterator[Any], limit: int | None, skip_bad_rows: bool) -> dict[str, Any]:
        """Read all of `found` (or `limit` rows); the counts of the report."""
        rows = without = skipped = 0
        first = ""
        self._execute("BEGIN")
        for where, row in found:
            if isinstance(row, DataError):
                if not skip_bad_rows:
                    fix = f"{row.fix}, {_SKIP}" if row.fix else f"Repair it, {_SKIP}"
                    raise DataError(row.problem, path=row.path, line=row.line, field=row.field, fix=fix)
                skipped += 1
                first = first or str(row)
            elif not row.steps:
                without += 1
            else:
                self._add(where, row)
                rows += 1
                if rows == limit:
                    break
        self._execute("CREATE INDEX by_problem ON rows (problem)")
        self._execute("COMMIT")
        return {"rows": rows, "without_steps": without, "skipped": skipped, "first_skipped": first}

    def of(self, number: int) -> list[ImportedRow]:
        """A problem's rows, in the file's order."""
        select = "SELECT sum(length(row)) FROM rows WHERE problem = ?"
        if self._execute(select, number).fetchone()[0] > MAX_PROBLEM_BYTES:
            question = self.problems[number].question[:80]
            raise DataError(
                f"has more than {MAX_PROBLEM_BYTES // 2**20} MiB of steps for one problem ({question!r} …)",
                path=self._source,
                fix="A tree must fit in memory; import a part of the file",
            )
        found = self._execute("SELECT row FROM rows WHERE problem = ? ORDER BY rowid", number)
        return [msgspec.msgpack.decode(row, type=ImportedRow) for (row,) in found]

    def close(self) -> None:
        self._database.close()

    def _add(self, where: str, row: ImportedRow) -> None:
        depth = [0] * len(row.steps)
        for place, step in enumerate(row.steps):
            depth[place] = 1 + (depth[step.parent] if step.parent >= 0 else 0)
        if max(depth) > MAX_STEPS:
            raise DataError(f"{where} has a path of more than {MAX_STEPS} steps", fix=f"Leave it out, {_SKIP}")
        self._execute("INSERT INTO rows VALUES (?, ?)", self._number(row), msgspec.msgpack.encode(row))

    def _number(self, row: ImportedRow) -> int:
        """The row's problem: with its question, but for white space, and its gold answer where both have one."""
        numbers, question = self._numbers, encode_text(" ".join(row.question.split()))
        any_, own = digest(question), digest(question, encode_text(row.gold_answer))
        first = numbers.get(any_)
        number = numbers.get(own, first if not row.gold_answer else None)
        if number is None and first is not None and not self.problems[first].gold_answer:
            number = first  # Rows without a gold answer came first.
            self.problems[number] = make_problem(self.problems[number].question, row.gold_answer, source=self._source)
        if number is None:
            number = len(self.problems)
            self.problems.append(make_problem(row.question, row.gold_answer, source=self._source))
        numbers.setdefault(any_, number)
        if row.gold_answer:
            numbers[own] = number
        return number

    def _execute(self, statement: str, *values: Any) -> sqlite3.Cursor:
        try:
            return self._database.execute(statement, values)
        except sqlite3.OperationalError as error:  # the disk is full
            raise StorageError(f"rows that were read cannot be stored beside the new run: {error}") from error


def _write(folder: Path, reader: Reader, source: Path, rows: _Rows) -> dict[str, int]:
    """Make the run in `folder`; its endings by verdict."""
    steps = StepsConfig(preset="custom", delimiter=reader.delimiter or "\n", answer_markers=_MARKERS)
    labels = LabelConfig(estimator=reader.estimator) if reader.estimator else LabelConfig()
    manifest = new_manifest(RunConfig(recipe=Recipe(steps=steps), label=labels), source.name)
    if reader.estimator:
        manifest[SECTION] = {"format": reader.name, "estimator": reader.estimator}
    endings: Counter[str] = Counter()
    checker = AnswerChecker(markers=_MARKERS)
    estimator = reader.estimator or None
    with RunFolder.create(folder, manifest, rows.problems) as run:
        assert run.journal is not None
        manifest["policy"] = {"backend": "imported", "format": reader.name}
        manifest["judge"] = f"{AnswerChecker.__module__}.{AnswerChecker.__qualname__}"
        manifest["problems"] |= {"count": len(run.problems), "digest": run.problems_digest()}
        for block in run.blocks:
            trees = ImportedBlock(folder / "trees", block, estimator)
            outcomes = []
            for number in run.members(block):
                tree, values = _tree(run.problems[number], rows.of(number), reader, checker)
                trees.add(number, tree, values)
                outcomes.append((number, "done", f"imported from {reader.name}", tree.size))
                endings.update(Verdict(code).name.lower() for code in tree.verdict[tree.verdict != NO_VERDICT].tolist())
            trees.write()
            run.journal.record_outcomes(outcomes)
        run.write_manifest()
    run.write_problems()  # How they ended stands in the journal by now.
    return dict(sorted(endings.items()))


def _tree(problem: Problem, rows: list[ImportedRow], reader: Reader, checker: AnswerChecker) -> tuple[Tree, Floats]:
    """The tree of a problem's rows, and its nodes' values, NaN for none."""
    builder = TreeBuilder()
    values: list[float | None] = [_mean([row.root_value for row in rows])]
    for row in rows:
        node = {-1: 0}
        for place, step in enumerate(row.steps):
            finish, verdict, answer = _ending(step.text, step.finish, step.verdict, problem, checker)
            text = step.text + (reader.delimiter if finish == Finish.OPEN else "")
            node[place] = builder.add(node[step.parent], text, finish=finish, answer=answer, verdict=verdict)
            values.append(step.value)
    value = np.array([np.nan if known is None else known for known in values])
    return builder.freeze(), value


def _ending(
    text: str, finish: int, verdict: int | None, problem: Problem, checker: AnswerChecker
) -> tuple[int, int, str]:
    """(finish, verdict, answer) of a step: the file's own word, else the checker's where there is a gold answer."""
    if finish in (Finish.OPEN, Finish.ERROR):
        return finish, NO_VERDICT, ""
    if verdict is not None:
        return finish, verdict, extract(text, _MARKERS) if verdict != Verdict.NO_ANSWER else ""
    if not problem.gold_answer:
        return Finish.OPEN, NO_VERDICT, ""
    said = checker.judge(problem, text)
    ended = Finish.STOP if said.verdict == Verdict.NO_ANSWER else Finish.ANSWERED
    return ended, int(said.verdict), said.answer


def _mean(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None
