"""`rest-mcts`: what ReST-MCTS* writes of a search (arXiv 2406.03816): values of prefixes, and whole solutions."""

from __future__ import annotations

from treeforge.answers import states_answer
from treeforge.export.readers.base import At, ImportedRow, Reader, ReadOptions
from treeforge.export.readers.rows import by_row, leaves, nested
from treeforge.tree import Finish
from treeforge.verdict import Verdict


def _row(row: At, options: ReadOptions) -> ImportedRow:
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
    return ImportedRow(
        row.first("content", "question", "problem").filled(), gold.answer() if gold else "", steps, root_value
    )


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
    about="Prefixes of solutions with their values (ReST-MCTS*, `value_samples`), nested into a tree.",
    estimator="imported",
    delimiter="",
    read=by_row(_row),
)
