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
    before = -1
    listed = label["steps"]
    written = question.get("pre_generated_steps")
    originals = [item.text().strip() for item in written.items()] if written else []
    for place, step in enumerate([] if listed.value is None else listed.items()):
        chosen = _step(step, steps, before, options, originals[place] if place < len(originals) else None)
        if chosen is None:
            break  # Nothing says what a later step goes on from.
        before = chosen
    return ImportedRow(question["problem"].filled(), gold.answer() if gold else "", steps)


def _step(step: At, steps: list[ImportedStep], before: int, options: ReadOptions, original: str | None) -> int | None:
    """Append a step's completions below `before`; the place of the one to go on from, None where there is none.

    `original`: the step of the solution that was labelled (phase 2), which the labeller need not have chosen.
    """
    listed = step["completions"]
    places, texts = list[int](), list[str]()
    for completion in [] if listed.value is None else listed.items():
        texts.append(completion["text"].text().strip())
        places.append(_add(steps, before, texts[-1], _value(completion["rating"], options)))
    chosen = step["chosen_completion"]
    if chosen.value is not None:
        index = chosen.integer()
        if index is None or not 0 <= index < len(places):
            raise chosen.error(f"names none of the {len(places)} completions", "Repair the row or leave it out")
        return places[index]
    human = step.get("human_completion")
    if human is not None:
        # The labeller's own text has no rating: it is a step to go on from, without a label.
        return _add(steps, before, human["text"].text().strip(), None)
    if original in texts:
        return places[texts.index(original)]
    return places[0] if len(places) == 1 else None


def _add(steps: list[ImportedStep], before: int, text: str, value: float | None) -> int:
    """The place of a step; that of the one before it where the text is blank, which is no step."""
    if not text:
        return before
    steps.append(ImportedStep(before, text, value, Finish.ANSWERED if ANSWER in text else Finish.OPEN))
    return len(steps) - 1


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
