"""`rest-mcts`: what ReST-MCTS* writes of a search (arXiv 2406.03816): values of prefixes, and whole solutions.

Its searches hold both; its data sets, taken out of these, one row a prefix (`prompt_answer`) or a solution (`summary`).
"""

from __future__ import annotations

import re

from treeforge.answers import states_answer
from treeforge.export.readers.base import At, ImportedRow, Reader, ReadOptions
from treeforge.export.readers.rows import by_headers, by_row, leaves, nested
from treeforge.tree import Finish
from treeforge.verdict import Verdict

_PROMPT = re.compile(
    r"\s*(?:Problem|问题)\s*[:：](.*?)\n[ \t]*(?:Solution|步骤)\s*[:：](?:\s*【答案】)?(.*)", re.DOTALL
)


def _row(row: At, options: ReadOptions) -> ImportedRow:
    fields = row.object()
    if "prompt_answer" in fields:
        return _value_row(row)
    if "value_samples" not in fields and ("summary" in fields or "solution" in fields):
        return _policy_row(row)
    prefixes: list[tuple[str, float | None]] = [
        (sample["steps"].text(), sample["value"].share()) for sample in row["value_samples"].items()
    ]
    solutions = _solutions(row)
    known = {text for text, _ in prefixes}
    prefixes += [(text, None) for text in solutions if text not in known]
    steps, root_value, last = nested(prefixes, headers=True)
    inner = {step.parent for step in steps}
    for step in leaves(steps):
        if states_answer(step.text):
            step.finish = Finish.ANSWERED
    for text, right in solutions.items():
        place = last.get(text)
        if place is not None and place not in inner:
            steps[place].finish = Finish.ANSWERED
            steps[place].verdict = Verdict.CORRECT if right else Verdict.INCORRECT
    gold = row.get("real_answer")
    return ImportedRow(_question(row), gold.answer() if gold else "", steps, root_value)


def _question(row: At) -> str:
    return row.first("content", "question", "problem").filled()


def _value_row(row: At) -> ImportedRow:
    """A prefix with its value: question and steps stand in one text."""
    prompt = row["prompt_answer"]
    match = _PROMPT.fullmatch(prompt.text())
    if match is None or not match[1].strip():
        raise prompt.error("is no 'Problem:… Solution:…'", "Repair the row or leave it out")
    value = row["label"].share()
    steps = by_headers(match[2].lstrip(), value)
    return ImportedRow(match[1].strip(), "", steps, None if steps else value)


def _policy_row(row: At) -> ImportedRow:
    """A whole solution and whether it was right: of the extracted samples, or one that was searched for by itself."""
    fields = row.object()
    label = row.first("label", "accurate", "correct")
    if not isinstance(label.value, bool):
        raise label.wrong("true or false")
    text = row["solution"].text() if "solution" in fields else row["summary"].text()
    steps = by_headers(text.lstrip(), None)
    for last in steps[-1:]:
        last.finish = Finish.ANSWERED
        last.verdict = Verdict.CORRECT if label.value else Verdict.INCORRECT
    gold = row.get("real_answer")
    return ImportedRow(_question(row), gold.answer() if gold else "", steps)


def _solutions(row: At) -> dict[str, bool]:
    """Whole solutions and whether they were right; absent in files that hold values only."""
    listed = row.get("policy_samples")
    found: dict[str, bool] = {}
    for sample in listed.items() if listed else ():
        right = sample["correct"]
        if not isinstance(right.value, bool):
            raise right.wrong("true or false")
        found[sample["solution"].text()] = right.value
    return found


REST_MCTS = Reader(
    name="rest-mcts",
    about="Prefixes of solutions with their values (ReST-MCTS*), nested into a tree; and the rows of its data sets.",
    estimator="imported",
    delimiter="",
    read=by_row(_row, own=frozenset({"value_samples"})),
)
