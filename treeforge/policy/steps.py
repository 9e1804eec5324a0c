"""Splitting completions into steps. Pure functions of (text, step format); model text is untrusted and bounded here."""

from __future__ import annotations

from typing import NamedTuple

from treeforge.config import StepsConfig
from treeforge.sample import Sample
from treeforge.tree import Finish

_REPLACEMENT = "\ufffd"
# Plain integers: looking up an enum's member costs more than splitting a step does.
_OPEN, _STOP, _ANSWERED, _TRUNCATED, _ERROR = map(int, Finish)
_FINISHES = {"delimiter": _OPEN, "stop": _STOP, "length": _TRUNCATED}
_SURROGATES = dict.fromkeys(range(55296, 57344), _REPLACEMENT) | {0: _REPLACEMENT}


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
    steps = text.splitlines(keepends=True) if delimiter == "\n" else []
    if len(steps) != text.count("\n") + (text[-1] != "\n"):  # there are other line ends, which separate nothing here
        pieces = text.split(delimiter)
        last = pieces.pop()
        steps = [piece + delimiter for piece in pieces]
        if last:
            steps.append(last)
    if not any(map(str.isspace, steps)):
        return steps
    joined: list[str] = []
    head = ""
    for step in steps:
        if step.isspace():
            if joined:
                joined[-1] += step
            else:
                head += step
        else:
            joined.append(head + step)
            head = ""
    if head:
        joined.append(head)
    return joined


class Parsed(NamedTuple):
    """A completion as steps. All-blank text gives no steps."""

    steps: list[str]
    finish: int
    """A `Finish`: how the last step ended; the others are OPEN."""


def parse(sample: Sample, config: StepsConfig, *, max_steps: int) -> Parsed:
    """Split a sample into steps and say how it ended.

    The first step that holds an answer marker ends the trajectory; what the model wrote after it stays in the journal
    only. More than `max_steps` steps, or a step longer than `config.max_step_chars`, end it as TRUNCATED.
    """
    if sample.finish == "error":
        return Parsed([], _ERROR)
    text = sample.text
    if sample.finish == "delimiter":
        text += config.delimiter
    steps = split_steps(text, config.delimiter)
    if not steps or (len(steps) == 1 and steps[0].isspace()):
        return Parsed([], _TRUNCATED if sample.finish == "length" else _STOP)
    finish = _FINISHES[sample.finish]
    limit = config.max_step_chars
    if len(text) > limit:
        for i, step in enumerate(steps):
            if len(step) > limit:
                del steps[i + 1 :]
                steps[i] = step[:limit]
                text, finish = "".join(steps), _TRUNCATED
                break
    marked = _first_marker(text, config.answer_markers)
    if marked >= 0:
        kept, end = len(steps), len(text) - len(steps[-1])
        while end > marked:
            kept -= 1
            end -= len(steps[kept - 1])
        if kept <= max_steps:
            cut_off = finish == _TRUNCATED and kept == len(steps)
            return Parsed(steps[:kept], _TRUNCATED if cut_off else _ANSWERED)
    if len(steps) > max_steps or (len(steps) == max_steps and finish == _OPEN):
        return Parsed(steps[:max_steps], _TRUNCATED)
    return Parsed(steps, finish)


def _first_marker(text: str, markers: tuple[str, ...]) -> int:
    first = -1
    for marker in markers:
        found = text.find(marker)
        if found >= 0 and (first < 0 or found < first):
            first = found
    return first
