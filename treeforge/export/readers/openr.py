"""`openr`: OmegaPRM trees of OpenR's data generator, flat (prefixes with values) or nested."""

from __future__ import annotations

from treeforge.answers import states_answer
from treeforge.export.readers.base import At, ImportedRow, ImportedStep, Reader, ReadOptions
from treeforge.export.readers.rows import by_row, leaves, nested
from treeforge.tree import Finish


def _row(row: At, options: ReadOptions) -> ImportedRow:
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
        prefixes.append((text[start:].lstrip(), item["mc_value"].share()))
    steps, root_value, _ = nested(prefixes)
    return steps, root_value


def _nested(root: At) -> tuple[list[ImportedStep], float | None]:
    steps: list[ImportedStep] = []
    below = _children(root, -1)
    while below:
        node, parent = below.pop()
        text = node["text"].text().strip()
        if not text:
            raise node["text"].error("is empty", "Repair the row or leave it out")
        steps.append(ImportedStep(parent, text + "\n", node["mc_value"].share()))
        below += _children(node, len(steps) - 1)
    for step in leaves(steps):
        step.text = step.text.rstrip("\n")
    return steps, root["mc_value"].share()


def _children(node: At, place: int) -> list[tuple[At, int]]:
    """A node's children with its place, the last one first, as a stack wants them."""
    children = node.get("children")
    return [(child, place) for child in reversed(children.items())] if children else []


OPENR = Reader(
    name="openr",
    about="Trees with a Monte Carlo value a node (OpenR, OmegaPRM): flat prefixes or nested children.",
    estimator="imported",
    delimiter="",
    read=by_row(_row),
)
