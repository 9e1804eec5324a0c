"""Verdicts on final answers, and the Protocol of what gives them."""

from __future__ import annotations

from enum import IntEnum
from typing import Literal, Protocol

import msgspec

from treeforge.problem import Problem

NO_VERDICT = -1
"""In an int8 verdict array: this node ends no trajectory, or its completion failed in the engine."""


class Verdict(IntEnum):
    """What a judge says of a trajectory's final answer. In a value, `NO_ANSWER` and `UNPARSABLE` count as wrong."""

    INCORRECT = 0
    CORRECT = 1
    NO_ANSWER = 2
    """The trajectory ended without an answer."""
    UNPARSABLE = 3
    """There is an answer, and it is no mathematics that can be read."""
    UNDECIDED = 4
    """Both were read and the comparison did not end in its limits; widens the interval of a value."""


Route = Literal["none", "string", "exact", "numeric", "symbolic", "limit"]
"""How a verdict was reached: no comparison, equal strings, exact numbers, numerically, by sympy, a limit was hit."""


class Judgement(msgspec.Struct, frozen=True):
    """A verdict with its evidence."""

    verdict: Verdict
    answer: str = ""
    """The answer that was extracted, as written; empty where there was none."""
    route: Route = "none"
    reason: str = ""
    """One line for a person."""


class Judge(Protocol):
    """Judges how a trajectory ended. Implementations are deterministic and never execute the text they read."""

    def judge(self, problem: Problem, text: str) -> Judgement:
        """Judge the last step(s) of a trajectory, `text`, against the problem's gold answer."""
        ...
