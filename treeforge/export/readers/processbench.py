"""`processbench`: solutions with the place of their first wrong step, found by people (arXiv 2412.06559)."""

from __future__ import annotations

from treeforge.export.readers.base import At, ImportedRow, Reader, ReadOptions
from treeforge.export.readers.rows import by_row, chain
from treeforge.tree import Finish
from treeforge.verdict import Verdict


def _row(row: At, options: ReadOptions) -> ImportedRow:
    texts = [item.text().strip() for item in row["steps"].items()]
    label = row["label"]
    wrong = label.integer()
    if wrong is None or not -1 <= wrong < len(texts):
        what = f"is {repr(label.value)[:40]}, no step of {len(texts)} and not -1"
        raise label.error(what, "Repair the row or leave it out")
    if wrong >= 0 and not texts[wrong]:
        raise label.error(f"is {wrong}, a blank step", "Repair the row or leave it out")
    # After the first error nothing was judged.
    values = [1.0 if wrong < 0 or place < wrong else 0.0 if place == wrong else None for place in range(len(texts))]
    steps = chain(texts, values)
    right = row.get("final_answer_correct")
    if steps and right is not None:
        if not isinstance(right.value, bool):
            raise right.wrong("true or false")
        steps[-1].finish = Finish.ANSWERED
        steps[-1].verdict = Verdict.CORRECT if right.value else Verdict.INCORRECT
    gold = row.get("gold_answer")
    return ImportedRow(row.first("problem", "question", "prompt").filled(), gold.answer() if gold else "", steps)


PROCESSBENCH = Reader(
    name="processbench",
    about="Solutions with their first wrong step or -1: right before it, wrong there, no label after it.",
    estimator="human",
    delimiter="\n\n",
    read=by_row(_row),
)
