"""`math-shepherd`: solutions whose steps end in a tag, and the same text with `+` or `-` in its place (2312.08935).

In some hundred of the 445,000 rows a tag stands in or after the question, before the first step; the mark in its place
is no step's and is left out, as TRL's script leaves it out. OpenRLHF's copies have the marks as a list.
"""

from __future__ import annotations

import re

from treeforge.answers import states_answer
from treeforge.export.readers.base import At, ImportedRow, Reader, ReadOptions
from treeforge.export.readers.rows import by_row, chain
from treeforge.tree import Finish
from treeforge.verdict import Verdict

_FIRST_STEPS = (re.compile(r"Step 1\s*:"), re.compile(r"step 1\s*:", re.IGNORECASE))
"""Where the solution begins: as nearly all rows write it, and as few do."""
_MARK = re.compile(r"\s*([+-])\s*")


def _row(row: At, options: ReadOptions) -> ImportedRow:
    field = row.first("input", "text")
    *parts, rest = field.text().split(options.tag)
    if not parts:
        what = f"has no step that ends in {options.tag!r}"
        raise field.error(what, "Name the file's own step tag with --tag")
    values: list[float | None] = [*_labels(row.first("label", "value"), parts)]
    question, first, place = _opening(field, parts)
    texts = [first, *parts[place + 1 :], rest]
    solution = chain([text.strip() for text in texts], [*values[place:], None])
    for last in solution[-1:]:
        if states_answer(last.text) and last.value in (0, 1):
            # The last step's label is whether its answer is right.
            last.finish = Finish.ANSWERED
            last.verdict = Verdict.CORRECT if last.value else Verdict.INCORRECT
    return ImportedRow(question, "", solution)


def _opening(field: At, parts: list[str]) -> tuple[str, str, int]:
    """(question, first step, the part it stands in) of the texts before the tags.

    A question goes on over tags to a first `Step 1:`; without one, to its only question mark, else the first tag.
    """
    for place, part in enumerate(parts):
        if match := next((found for header in _FIRST_STEPS if (found := header.search(part))), None):
            question, first = _joined([*parts[:place], part[: match.start()]]), part[match.start() :]
            break
    else:
        before, mark, first = parts[0].partition("?")
        question, place = before.strip() + mark, 0
        if not mark or "?" in first or not first.strip():
            if len(parts) == 1:
                what = "has neither 'Step 1:' after its question nor a single '?' to end it"
                raise field.error(what, "Repair the row or leave it out")
            question, first, place = parts[0].strip(), parts[1], 1
    if not question:
        raise field.error("has no question before 'Step 1:'", "Repair the row or leave it out")
    return question, first, place


def _joined(parts: list[str]) -> str:
    """A text without the tags between its parts, which blanks surround."""
    pieces = [parts[0]]
    for part in parts[1:]:
        pieces[-1] = pieces[-1].rstrip()
        pieces.append(part if part[:1].isspace() else " " + part)
    return "".join(pieces).strip()


def _labels(at: At, parts: list[str]) -> list[float]:
    """The mark of each part: of a list, or after each part of a text that repeats them."""
    if isinstance(at.value, list):
        marks = [item.mark() for item in at.items()]
        if len(marks) != len(parts):
            raise at.error(f"has {len(marks)} marks for {len(parts)} step tags", "Repair the row or leave it out")
        return marks
    label = at.text()
    values, place = [], len(label) - len(label.lstrip())
    for number, part in enumerate(parts, start=1):
        wanted = part.strip()
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
