"""`openr`: what OpenR's scripts write: OmegaPRM trees, flat (prefixes with values) or nested; prefixes of its first
generator; and training rows (`process`, `label`), as its data set MATH-APS has them.
"""

from __future__ import annotations

import re

from treeforge.answers import states_answer
from treeforge.export.readers.base import At, ImportedRow, ImportedStep, Reader, ReadOptions
from treeforge.export.readers.rows import by_row, chain, leaves, nested
from treeforge.tree import Finish

_TAG = re.compile("ки|\n{5,}")
"""What stands after each step of a training row: OpenR's step tags, the earlier one and the later."""


def _row(row: At, options: ReadOptions) -> ImportedRow:
    fields = row.object()
    if "states" in fields:
        return _states(row)
    if "process" in fields:
        return _training(row)
    if "partial_answer" in fields:
        steps = chain([row["partial_answer"].text().strip()], [_value(row["mc_score"])])
        return ImportedRow(row["question"].filled(), "", steps)
    question = row["question"].filled()
    gold = row.get("final_answer")
    tree = row["reasoning_steps"]
    steps, root_value = _nested(tree) if isinstance(tree.value, dict) else _flat(tree, question)
    for step in leaves(steps):
        if states_answer(step.text):
            step.finish = Finish.ANSWERED
    return ImportedRow(question, gold.answer() if gold else "", steps, root_value)


def _flat(listed: At, question: str) -> tuple[list[ImportedStep], float | None]:
    prefixes: list[tuple[str, float | None]] = []
    for item in listed.items():
        prefix = item["solution_prefix"]
        text = prefix.text()
        start = len(text) - len(text.lstrip()) + len(question)
        if not text.lstrip().startswith(question):
            raise prefix.error("does not begin with the question", "Repair the row or leave it out")
        prefixes.append((text[start:].lstrip(), _value(item["mc_value"])))
    steps, root_value, _ = nested(prefixes)
    return steps, root_value


def _nested(root: At) -> tuple[list[ImportedStep], float | None]:
    steps: list[ImportedStep] = []
    below = _children(root, -1)
    while below:
        node, parent = below.pop()
        text = node["text"].text().strip()
        # An empty rollout is a node without text: its children go on from its parent.
        if text:
            steps.append(ImportedStep(parent, text + "\n", _value(node["mc_value"])))
            parent = len(steps) - 1
        below += _children(node, parent)
    for step in leaves(steps):
        step.text = step.text.rstrip("\n")
    return steps, _value(root["mc_value"])


def _children(node: At, place: int) -> list[tuple[At, int]]:
    """A node's children with its place, the last one first, as a stack wants them."""
    children = node.get("children")
    return [(child, place) for child in reversed(children.items())] if children else []


def _states(row: At) -> ImportedRow:
    """The first generator's: a state stands there once a rollout, and what it was joined of has no blank between."""
    states = ((state["state"].text().lstrip(), _value(state["mcs"])) for state in row["states"].items())
    steps, root_value, _ = nested([*dict.fromkeys(states)], words=False)
    return ImportedRow(row["q"].filled(), "", steps, root_value)


def _training(row: At) -> ImportedRow:
    """`process`, a tag after each step, and `label`: `+`, `-`, 1 or 0 of each, or of the only one."""
    question, process, label = row["question"].filled(), row["process"], row.first("label", "labels")
    *texts, rest = _TAG.split(process.text())
    texts = [text.strip() for text in (texts if texts and not rest.strip() else [*texts, rest])]
    values: list[float | None] = [item.mark() for item in (label.items() if isinstance(label.value, list) else [label])]
    if len(texts) != len(values):
        what = f"has {len(values)} labels for the {len(texts)} steps of `process`"
        raise label.error(what, "Repair the row or leave it out")
    # A tree's rows begin with its root, which is the question.
    root_value = values.pop(0) if texts[0] == question else None
    steps = chain(texts[-len(values) :] if values else [], values)
    for step in steps[:-1]:
        step.text += "\n"
    return ImportedRow(question, "", steps, root_value)


def _value(at: At) -> float | None:
    return None if at.value is None else at.share()


OPENR = Reader(
    name="openr",
    about="Trees with a Monte Carlo value a node (OpenR, OmegaPRM), flat or nested, and OpenR's training rows.",
    estimator="imported",
    delimiter="",
    read=by_row(_row, own=frozenset({"reasoning_steps", "states"}), folders=True),
)
