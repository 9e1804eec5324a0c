"""The text that a reward model is shown, in the HRM paper's order: question, previous reasoning, current step."""

from __future__ import annotations

from typing import NamedTuple

from treeforge.reward.base import Window

PROMPT = "question-previous-current/1"
"""The format's name; it stands in each model's card, and a model that was trained for another is refused."""
RIGHT, WRONG = "+", "-"
"""What the head `token` says of a step that is right, and of one that is wrong."""


class Parts(NamedTuple):
    """A window's text in three parts, of which the middle one may lose its beginning."""

    question: str
    previous: str
    current: str


def parts(window: Window, *, ask: bool = False) -> Parts:
    """The text of a window; `ask`: with the question that `RIGHT` or `WRONG` answers."""
    verdict = "\n\nRight (+) or wrong (-)?\n" if ask else ""
    return Parts(
        f"Question:\n{window.question}\n\nReasoning so far:\n",
        window.previous,
        f"\n\nTo judge:\n{window.current}{verdict}",
    )
