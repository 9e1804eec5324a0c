"""Labels of steps, people's and ours, by what makes a step the same: the problem and all text up to the step's end."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

from treeforge.errors import DataError, RunError
from treeforge.export.readers import ImportedRow, ReadOptions, choose_reader
from treeforge.export.readers.base import At
from treeforge.hashing import digest, encode_text
from treeforge.store.rows import read_rows
from treeforge.store.run import RunFolder
from treeforge.store.tables import VALUES, values_from_table
from treeforge.store.views import read_view, view_state
from treeforge.tree import Finish


class HumanLabels:
    """What people said: labels by step, and whole solutions."""

    def __init__(self) -> None:
        self.labels: dict[bytes, list[bool]] = defaultdict(list)
        """By the step's key (`step_key`); several where several people judged it."""
        self.depth: dict[bytes, int] = {}
        """Every step's, labelled or not."""
        self.problem: dict[bytes, int] = {}
        """The number of its question."""
        self.questions: dict[str, int] = {}
        self.solutions: list[tuple[list[bytes], int]] = []
        """The steps of a solution, and the place of its first wrong one, or -1."""

    def add(self, row: ImportedRow) -> None:
        """Add a row of their file."""
        question = _plain(row.question)
        number = self.questions.setdefault(question, len(self.questions))
        texts, paths = [""] * len(row.steps), [list[int]() for _ in row.steps]
        keys: list[bytes] = []
        for place, step in enumerate(row.steps):
            before = step.parent
            texts[place] = f"{texts[before] if before >= 0 else ''} {step.text}"
            paths[place] = [*(paths[before] if before >= 0 else []), place]
            key = step_key(question, texts[place])
            keys.append(key)
            self.depth[key], self.problem[key] = len(paths[place]), number
            if step.value is not None and step.value != 0.5:
                self.labels[key].append(step.value > 0.5)
        inner = {step.parent for step in row.steps}
        for place, step in enumerate(row.steps):
            if place in inner:
                continue
            wrong = next((n for n, at in enumerate(paths[place]) if row.steps[at].value == 0), -1)
            if wrong >= 0 or step.finish != Finish.OPEN:
                self.solutions.append(([keys[at] for at in paths[place]], wrong))


def read_human(path: Path, format: str | None) -> HumanLabels:
    """People's labels in a file of `format`, which is guessed where it is None. `DataError` where it holds none."""
    human = HumanLabels()
    for row in human_rows(path, format or guessed_format(path)):
        human.add(row)
    if not human.labels:
        raise no_labels(path)
    return human


def guessed_format(path: Path) -> str:
    """`prm800k` or `processbench`, by a file's first row."""
    row = next((row for _, row in read_rows(path) if isinstance(row, dict)), {})
    return "prm800k" if isinstance(row.get("label"), dict) else "processbench"


def human_rows(path: Path, format: str) -> Iterator[ImportedRow]:
    """The rows of a file of people's labels. `DataError` for the first that cannot be read."""
    for _, found in choose_reader(format).read(path, ReadOptions(hard=True)):
        if isinstance(found, DataError):
            raise found
        yield found


def no_labels(path: Path) -> DataError:
    """The error for a file without a labelled step."""
    return DataError("holds no labelled step", path=path, fix="Name a file in the format prm800k or processbench")


def labelled_steps(path: Path) -> Iterator[tuple[str, str, bool, str]]:
    """(question, all text to the step's end, label, the problem's level or '') of every step with a hard label."""
    if (path / "manifest.json").exists():
        yield from _of_run(RunFolder.open(path))
        return
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    for file in files:
        for line, row in read_rows(file):
            try:
                if isinstance(row, DataError):
                    raise row
                yield from _of_row(At(row))
            except DataError as error:
                raise DataError(error.problem, path=file, line=line, field=error.field, fix=error.fix) from None


def _of_run(run: RunFolder) -> Iterator[tuple[str, str, bool, str]]:
    state = view_state(run, "labels")
    if state is None or state["stale"]:
        which = "no labels" if state is None else "older labels than trees"
        raise RunError(f"{run.path} has {which}; make them with `treeforge label {run.path}`")
    for block in run.blocks:
        table = read_view(run, "labels", "values", VALUES, block)
        labels = {number: hard for number, _, hard, _ in values_from_table(table)}
        for number, record in run.records(sorted(labels)):
            problem, tree = run.problems[number], record.tree
            level = str(problem.meta.get("level") or "")
            texts = [""]
            for parent, text, seen in zip(tree.parent[1:].tolist(), tree.text[1:], tree.observation[1:], strict=True):
                texts.append(texts[parent] + text + seen)
            for node, hard in enumerate(labels[number].tolist()):
                if hard >= 0:
                    yield problem.question, texts[node], hard == 1, level


def _of_row(row: At) -> Iterator[tuple[str, str, bool, str]]:
    if "completions" in row.object():
        text = ""
        labels = row["labels"].items()
        for number, step in enumerate(row["completions"].items()):
            text += " " + step.text()
            if number < len(labels) and labels[number].value is not None:
                yield row["prompt"].text(), text, labels[number].share() > 0.5, ""
        return
    if row["span"].value == 1 and (label := row.get("hard")) is not None:
        yield row["prompt"].text(), row["previous"].text() + " " + row["current"].text(), label.share() > 0.5, ""


def _plain(text: str) -> str:
    return " ".join(text.split())


def step_key(question: str, text: str) -> bytes:
    """Stands for a step: `text` is all that leads up to its end. White space makes no difference."""
    return digest(encode_text(_plain(question)), encode_text(_plain(text)))
