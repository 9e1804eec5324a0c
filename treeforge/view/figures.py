"""Figures and verdicts as short, aligned texts of the terminal."""

from __future__ import annotations

import math

from rich.console import Console
from rich.text import Text

from treeforge.printable import one_line
from treeforge.tree import Finish
from treeforge.verdict import NO_VERDICT, Verdict

UNKNOWN = "–"
_ANSWER_CELLS = 24
_HIGH, _LOW = 0.75, 0.25


def styled(text: str, style: str) -> Text:
    """A `Text` that can be appended to: unlike `Text(text, style)` it hands its style on to nothing."""
    return Text().append(text, style)


def value_text(value: float) -> Text:
    """A value in 4 cells, green from 0.75 on and red up to 0.25; a dash where there is no evidence."""
    if math.isnan(value):
        return styled(f"{UNKNOWN:>4}", "dim")
    return styled(f"{value:.2f}", "green" if value >= _HIGH else "red" if value <= _LOW else "yellow")


def interval_text(low: float, high: float) -> str:
    """An interval in 7 cells, `.31–.85`; blank where it says nothing: no width (a trajectory's own end), or [0, 1]."""
    return f"{_bound(low)}–{_bound(high)}" if 0 < high - low < 1 else " " * 7


def _bound(bound: float) -> str:
    return "1.0" if bound >= 0.995 else f"{bound:.2f}"[1:]


def ending_text(finish: int, verdict: int, answer: str, *, cells: int | None = _ANSWER_CELLS) -> Text:
    """How a trajectory ended: `✓ 72`, `✗ 70`, `✗ truncated`, `? 7 undecided`, `! engine error`; empty if it goes on."""
    said = one_line(answer, cells)
    if finish == Finish.ERROR:
        return styled("! engine error" + (f": {said}" if said else ""), "magenta")
    if verdict == NO_VERDICT:
        return Text()
    if verdict == Verdict.CORRECT:
        return styled(f"✓ {said}", "bold green")
    if verdict == Verdict.UNDECIDED:
        return styled(f"? {said} undecided", "yellow")
    if finish == Finish.TRUNCATED:
        return styled("✗ truncated", "red")
    if verdict == Verdict.NO_ANSWER:
        return styled("✗ no answer", "red")
    return styled(f"✗ {said}" + (" unparsable" if verdict == Verdict.UNPARSABLE else ""), "red")


def count_text(count: float) -> str:
    """A multiplicity: whole as grown, with two digits after HNC split it."""
    return f"{count:,.0f}" if count == round(count) else f"{count:,.2f}"


def fold(text: str, cells: int, console: Console) -> list[Text]:
    """`text` in lines of at most `cells` cells, folded at spaces where it can be; at least one line."""
    if len(text) <= cells and text.isascii() and "\n" not in text:
        return [Text(text)]
    return list(Text(text).wrap(console, cells)) or [Text()]
