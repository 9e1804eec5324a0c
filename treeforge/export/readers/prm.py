"""`prm`: a prompt, the steps after it and a label each: the stepwise shape of TRL and axolotl."""

from __future__ import annotations

from treeforge.answers import states_answer
from treeforge.export.readers.base import At, ImportedRow, Reader, ReadOptions
from treeforge.export.readers.rows import by_row, chain
from treeforge.tree import Finish

_GOLD = ("gold_answer", "ground_truth", "answer")


def _row(row: At, options: ReadOptions) -> ImportedRow:
    completions = row["completions"]
    labels = row.first(*(("labels", "values") if options.hard else ("values", "labels")))
    texts = [item.text() for item in completions.items()]
    values = [None if item.value is None else item.share() for item in labels.items()]
    if len(texts) != len(values):
        raise labels.error(f"has {len(values)} labels for {len(texts)} steps", "Give each step a label")
    gold = next((found for name in _GOLD if (found := row.get(name)) is not None), None)
    steps = chain([text.strip() for text in texts], values)
    if steps and gold is not None and states_answer(steps[-1].text):
        steps[-1].finish = Finish.ANSWERED
    return ImportedRow(row["prompt"].filled(), gold.answer() if gold is not None else "", steps)


PRM = Reader(
    name="prm",
    about="Prompt, steps and a label a step (the stepwise shape of TRL and axolotl): each row is a path.",
    estimator="imported",
    delimiter="\n",
    read=by_row(_row),
)
