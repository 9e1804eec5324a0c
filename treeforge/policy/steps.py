"""Splitting completions into steps. Pure functions of (text, step format); model text is untrusted and bounded here."""

from __future__ import annotations

from typing import NamedTuple

from treeforge.config import StepsConfig
from treeforge.sample import Sample
from treeforge.tree import Finish

_REPLACEMENT = "\ufffd"
_FINISHES = {"delimiter": Finish.OPEN, "stop": Finish.STOP, "length": Finish.TRUNCATED}
_SURROGATES = {code: _REPLACEMENT for code in range(0xD800, 0xE000)} | {0: _REPLACEMENT}


def clean_text(text: str) -> str:
    """Replace NUL and lone surrogates with U+FFFD: no file format, database or prompt can carry them."""
    if text.isascii():
        return text.replace("\0", _REPLACEMENT) if "\0" in text else text
    return text.translate(_SURROGATES)


def split_steps(text: str, delimiter: str) -> list[str]:
    """Split so that the steps concatenate to `text`; each keeps its delimiter, blank pieces join a neighbour.

    A blank piece belongs to the step before it; blank text at the very start belongs to the first step.
    """
    if delimiter not in text:
        return [text] if text else []
    pieces = text.split(delimiter)
    steps: list[str] = []
    head = ""
    last = len(pieces) - 1
    for i, piece in enumerate(pieces):
        whole = piece + delimiter if i < last else piece
        if not piece or piece.isspace():
            if steps:
                steps[-1] += whole
            else:
                head += whole
        elif head:
            steps.append(head + whole)
            head = ""
        else:
            steps.append(whole)
    if head:
        steps.append(head)
    return steps


class Parsed(NamedTuple):
    """A completion as steps. All-blank text gives no steps."""

    steps: list[str]
    finish: Finish
    """How the last step ended; the others are OPEN."""


def parse(sample: Sample, config: StepsConfig, *, max_steps: int) -> Parsed:
    """Split a sample into steps and say how it ended.

    The first step that holds an answer marker ends the trajectory; what the model wrote after it stays in the journal
    only. More than `max_steps` steps, or a step longer than `config.max_step_chars`, end it as TRUNCATED.
    """
    if sample.finish == "error":
        return Parsed([], Finish.ERROR)
    text = sample.text
    if sample.finish == "delimiter":
        text += config.delimiter
    steps = split_steps(text, config.delimiter)
    if not steps or (len(steps) == 1 and steps[0].isspace()):
        return Parsed([], Finish.TRUNCATED if sample.finish == "length" else Finish.STOP)
    finish = _FINISHES[sample.finish]
    limit = config.max_step_chars
    if len(text) > limit:
        for i, step in enumerate(steps):
            if len(step) > limit:
                del steps[i + 1 :]
                steps[i] = step[:limit]
                text, finish = "".join(steps), Finish.TRUNCATED
                break
    marked = _first_marker(text, config.answer_markers)
    if marked >= 0:
        end = 0
        for i, step in enumerate(steps):
            end += len(step)
            if end > marked:
                break
        if i < max_steps:
            cut_off = finish is Finish.TRUNCATED and i == len(steps) - 1
            return Parsed(steps[: i + 1], Finish.TRUNCATED if cut_off else Finish.ANSWERED)
    if len(steps) > max_steps or (len(steps) == max_steps and finish is Finish.OPEN):
        return Parsed(steps[:max_steps], Finish.TRUNCATED)
    return Parsed(steps, finish)


def _first_marker(text: str, markers: tuple[str, ...]) -> int:
    first = -1
    for marker in markers:
        found = text.find(marker)
        if found >= 0 and (first < 0 or found < first):
            first = found
    return first
