"""The answer checker, and the step labels that are made of values. Importing this loads no sympy."""

from __future__ import annotations

from treeforge.label.check_policy import PRESETS, CheckPolicy
from treeforge.label.checker import AnswerChecker, CheckStatistics, check, check_many, explain, gold_problem

__all__ = [
    "PRESETS",
    "AnswerChecker",
    "CheckPolicy",
    "CheckStatistics",
    "check",
    "check_many",
    "explain",
    "gold_problem",
]
