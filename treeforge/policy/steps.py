"""Splitting completions into steps. Pure functions of (text, step format); model text is untrusted and bounded here."""

from __future__ import annotations

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
    # The first is a quick test that nearly all texts pass.
    if (min(steps) >= "!" and text.isascii()) or not any(map(str.isspace, steps)):
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


def parse(sample: Sample, config: StepsConfig, max_steps: int) -> tuple[list[str], int]:
    """Split a sample into steps and say how the last one ended, as a `Finish`. All-blank text gives no steps.

    The first step that holds an answer marker ends the trajectory; what the model wrote after it stays in the journal
    only. More than `max_steps` steps, or a step longer than `config.max_step_chars`, end it as TRUNCATED.
    """
    text, ended, delimiter = sample.text, sample.finish, config.delimiter
    if ended == "error":
        return [], _ERROR
    if ended == "delimiter":
        text += delimiter
    steps = split_steps(text, delimiter)
    count = len(steps)
    if not steps or (count == 1 and text.isspace()):
        return [], _TRUNCATED if ended == "length" else _STOP
    finish = _FINISHES[ended]
    limit = config.max_step_chars
    if len(text) > limit:
        for i, step in enumerate(steps):
            if len(step) > limit:
                del steps[i + 1 :]
                steps[i] = step[:limit]
                text, finish, count = "".join(steps), _TRUNCATED, i + 1
                break
    marked = len(text)
    for marker in config.answer_markers:
        found = text.find(marker)
        if 0 <= found < marked:
            marked = found
    if marked < len(text):
        kept, end = count, len(text) - len(steps[-1])
        while end > marked:
            kept -= 1
            end -= len(steps[kept - 1])
        if kept <= max_steps:
            if kept < count:
                return steps[:kept], _ANSWERED
            return steps, _TRUNCATED if finish == _TRUNCATED else _ANSWERED
    if count > max_steps or (count == max_steps and finish == _OPEN):
        return steps[:max_steps], _TRUNCATED
    return steps, finish
