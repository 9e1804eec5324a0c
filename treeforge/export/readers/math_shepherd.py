"""`math-shepherd`: solutions whose steps end in a tag, and the same text with `+` or `-` in its place (2312.08935)."""

from __future__ import annotations

import re

from treeforge.answers import states_answer
from treeforge.export.readers.base import At, ImportedRow, Reader, ReadOptions
from treeforge.export.readers.rows import by_row, chain
from treeforge.tree import Finish
from treeforge.verdict import Verdict

_FIRST_STEP = re.compile(r"(?:^|\s)(?=Step 1\s*:)")
_MARK = re.compile(r"\s*([+-])\s*")


def _row(row: At, options: ReadOptions) -> ImportedRow:
    text, label = row["input"].text(), row["label"].text()
    parts = text.split(options.tag)
    if len(parts) < 2:
        what = f"has no step that ends in {options.tag!r}"
        raise row["input"].error(what, "Name the file's own step tag with --tag")
    if parts[-1].strip():
        raise row["input"].error("goes on after its last step tag", "Repair the row or leave it out")
    opening = _FIRST_STEP.split(parts[0], maxsplit=1)
    if len(opening) < 2 or not opening[0].strip():
        raise row["input"].error("has no 'Step 1:' after its question", "Repair the row or leave it out")
    question, first = opening
    steps = [step.strip() for step in (first, *parts[1:-1])]
    solution = chain(steps, _labels(row["label"], label, parts[:-1]))
    if states_answer(steps[-1]):
        # The last step's label is whether its answer is right.
        solution[-1].finish = Finish.ANSWERED
        solution[-1].verdict = Verdict.CORRECT if solution[-1].value else Verdict.INCORRECT
    return ImportedRow(question.strip(), "", solution)


def _labels(at: At, label: str, parts: list[str]) -> list[float]:
    """The mark after each part of `label`, which repeats the parts."""
    values, place = [], 0
    for number, part in enumerate(parts, start=1):
        wanted = part.strip()
        place = len(label) - len(label[place:].lstrip())
        mark = _MARK.match(label, place + len(wanted)) if label.startswith(wanted, place) else None
        if mark is None:
            what = f"does not repeat `input` with + or - after each step (step {number})"
            raise at.error(what, "Repair the row or leave it out")
        values.append(1.0 if mark[1] == "+" else 0.0)
        place = mark.end()
    return values


MATH_SHEPHERD = Reader(
    name="math-shepherd",
    about="Solutions with + or - after each step: each row is a path; a final answer's mark is its verdict.",
    estimator="imported",
    delimiter="\n",
    read=by_row(_row),
)
