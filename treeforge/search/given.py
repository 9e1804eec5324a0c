"""Given solutions as nodes: what `step-rollouts`, `adaptive` and `omega` start from where nothing is sampled first."""

from __future__ import annotations

import math

from treeforge.config import StepsConfig
from treeforge.search.growing import GrowingTree


def place(tree: GrowingTree) -> list[list[int]]:
    """Make the steps of the tree's given solutions nodes; for each solution the node of every step.

    They have multiplicity 0: the policy did not sample them, so that they count in no value but their own. Identical
    first steps are one path (where duplicates are merged). A step that states the final answer ends a trajectory, with
    the judge's verdict. Every other one is a prefix that completions go on from, so that it ends in the delimiter; one
    that stands at the beginning of the next step is moved, not doubled.
    """
    ended_by = tree.steps.delimiter
    found: list[list[int]] = []
    for solution in tree.given:
        ends = set(solution.ends)
        rows: list[int] = []
        lacks: list[bool] = []
        for number, (text, parent) in enumerate(zip(solution.steps, solution.parents, strict=True)):
            if parent >= 0 and lacks[parent] and text.startswith(ended_by) and not text[len(ended_by) :].isspace():
                text = text[len(ended_by) :] or text
            before = rows[parent] if parent >= 0 else 0
            ending = tree.ending(before, text) if number in ends else None
            lacks.append(ending is None and lacks_end(tree.steps, text))
            rows.append(tree.prefix_node(before, text + ended_by if lacks[-1] else text, 0, math.nan, ending))
        found.append(rows)
    return found


def last_nodes(tree: GrowingTree, placed: list[list[int]]) -> list[int]:
    """Of what `place` gave: the nodes that no step of their solution follows, each once, in order."""
    last: dict[int, None] = {}
    for solution, rows in zip(tree.given, placed, strict=True):
        inner = set(solution.parents)
        last |= dict.fromkeys(row for number, row in enumerate(rows) if number not in inner)
    return list(last)


def lacks_end(steps: StepsConfig, text: str) -> bool:
    """Whether a step's text needs the delimiter before another one can follow. A sentence or turn needs white space."""
    if steps.split == "delimiter":
        return not text.endswith(steps.delimiter)
    return not text[-1].isspace()
