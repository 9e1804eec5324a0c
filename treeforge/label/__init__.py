"""The answer checker, and the step labels that are made of values.

Importing this loads no sympy; the checker with its patterns is loaded when it is first named.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from treeforge.label.check_policy import PRESETS, CheckPolicy

if TYPE_CHECKING:
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


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module 'treeforge.label' has no attribute '{name}'")
    return getattr(import_module("treeforge.label.checker"), name)
