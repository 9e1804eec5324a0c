"""What a comparison is asked for, and lists of comparisons."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from treeforge.label.check_policy import CheckPolicy
from treeforge.label.names import bare_values
from treeforge.label.numeric import Answer
from treeforge.label.syntax import Node
from treeforge.verdict import Route

MAX_ITEMS = 100
"""Longer unordered lists are not matched (route `limit`)."""

YES, NO = Answer(True, "exact"), Answer(False, "exact")
_MAX_SPELLINGS = 4
_RANK: dict[Route, int] = {"none": 0, "string": 1, "exact": 2, "numeric": 3, "symbolic": 4, "limit": 5}


class Rules(NamedTuple):
    """What is asked of a comparison beside the two answers."""

    policy: CheckPolicy
    same: Callable[[Node, Node, Rules], Answer]
    """Compares two nodes: `decide.same`."""
    symbolic: Callable[[Node, Node], bool | None] | None = None
    """Asked what stays open; None leaves it open."""


def ask_sympy(a: Node, b: Node, rules: Rules, otherwise: Answer) -> Answer:
    """What sympy says; `otherwise` where it says nothing."""
    verdict = rules.symbolic(a, b) if rules.symbolic is not None else None
    return otherwise if verdict is None else Answer(verdict, "symbolic")


def all_same(answers: Sequence[Answer]) -> Answer:
    """All parts the same: the strongest route that was needed."""
    for answer in answers:
        if answer.same is False:
            return answer
    for answer in answers:
        if answer.same is None:
            return answer
    return max(answers, key=lambda answer: _RANK[answer.route], default=YES)


def pairwise(a: Sequence[Node], b: Sequence[Node], rules: Rules) -> Answer:
    """Each item with the one in its place."""
    if len(a) != len(b):
        return Answer(False, "exact", f"{len(a)} items, not {len(b)}")
    answers = []
    for x, y in zip(a, b, strict=True):
        answers.append(rules.same(x, y, rules))
        if answers[-1].same is False:
            return answers[-1]
    return all_same(answers)


def unordered(a: Sequence[Node], b: Sequence[Node], rules: Rules) -> Answer:
    """Each item of one list in the other. The prediction may repeat items where the gold answer does not."""
    if len(a) > MAX_ITEMS or len(b) > MAX_ITEMS:
        return Answer(None, "limit", f"a list of more than {MAX_ITEMS} items")
    a, b = bare_values(a, b)
    if len(a) == 1 < len(b) <= _MAX_SPELLINGS and all(rules.same(b[0], other, rules).same for other in b[1:]):
        b = b[:1]  # one value written in several ways
    if len(a) < len(b):
        return Answer(False, "exact", f"{len(a)} items, not {len(b)}")
    left = list(b)
    answers: list[Answer] = []
    for x in a:
        matched = False
        for i, y in enumerate(left):
            answer = rules.same(x, y, rules)
            if answer.same is not False:
                answers.append(answer)
                if answer.same:
                    del left[i]
                    matched = True
                    break
        if not matched:
            repeated = len(a) > len(b) and any(rules.same(x, y, rules).same for y in b)
            if not repeated:
                if any(answer.same is None for answer in answers):
                    return next(answer for answer in answers if answer.same is None)
                return Answer(False, "exact", "an item is in one list only")
    if left:
        return Answer(False, "exact", "an item is in one list only")
    return all_same([answer for answer in answers if answer.same])
