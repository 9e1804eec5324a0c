"""`prm800k`: OpenAI's human step ratings (arXiv 2305.20050), phases 1 and 2.

A row is one labeller's walk through a problem: at each step some completions with ratings, one of which (or a text of
the labeller's own, in phase 1) was chosen to go on from.
"""

from __future__ import annotations

from treeforge.export.readers.base import At, ImportedRow, ImportedStep, Reader, ReadOptions
from treeforge.export.readers.rows import by_row
from treeforge.tree import Finish

ANSWER = "# Answer"
_UNFINISHED = ("give_up", "bad_problem")


def _row(row: At, options: ReadOptions) -> ImportedRow | None:
    question, label = row["question"], row["label"]
    reason = label["finish_reason"].text()
    if options.finished_only and reason in _UNFINISHED:
        return None
    gold = question.get("ground_truth_answer")
    steps: list[ImportedStep] = []
    chosen: int | None = -1
    listed = label["steps"]
    places = [] if listed.value is None else listed.items()
    for place, step in enumerate(places):
        if chosen is None:
            raise step.error("follows a step of which no completion was chosen", "Repair the row or leave it out")
        before = chosen
        chosen = _step(step, steps, before, options, last=place == len(places) - 1)
    return ImportedRow(question["problem"].filled(), gold.answer() if gold else "", steps)


def _step(step: At, steps: list[ImportedStep], before: int, options: ReadOptions, *, last: bool) -> int | None:
    """Append a step's completions below `before`; the place of the one to go on from, None where there is none."""
    listed = step["completions"]
    completions = [] if listed.value is None else listed.items()
    first = len(steps)
    for completion in completions:
        text = completion["text"].text()
        finish = Finish.ANSWERED if ANSWER in text else Finish.OPEN
        steps.append(ImportedStep(before, text.strip(), _value(completion["rating"], options), finish))
    chosen = step["chosen_completion"]
    if chosen.value is not None:
        if type(chosen.value) is not int or not 0 <= chosen.value < len(completions):
            raise chosen.error(f"names none of the {len(completions)} completions", "Repair the row or leave it out")
        return first + chosen.value
    human = step.get("human_completion")
    if human is not None:
        # The labeller's own text has no rating: it is a step to go on from, without a label.
        text = human["text"].text()
        steps.append(ImportedStep(before, text.strip(), None, Finish.ANSWERED if ANSWER in text else Finish.OPEN))
        return len(steps) - 1
    if len(completions) == 1 and not last:
        return first
    return None


def _value(rating: At, options: ReadOptions) -> float | None:
    match rating.value:
        case None:
            return None
        case bool():
            raise rating.wrong("a rating (-1, 0, 1 or null)")
        case 1:
            return 1.0
        case -1:
            return 0.0
        case 0:
            return {"skip": None, "positive": 1.0, "negative": 0.0}[options.neutral]
        case _:
            raise rating.wrong("a rating (-1, 0, 1 or null)")


PRM800K = Reader(
    name="prm800k",
    about="Human ratings of steps (PRM800K, phases 1 and 2): every rated completion is a step below the chosen ones.",
    estimator="human",
    delimiter="\n\n",
    read=by_row(_row),
)
