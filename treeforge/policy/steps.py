"""Splitting completions into steps. Pure functions of (text, step format); model text is untrusted and bounded here."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence

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
    steps = text.splitlines(True) if delimiter == "\n" else []
    if len(steps) < 2 and delimiter not in text:
        return [text] if text else []
    if len(steps) != text.count("\n") + (text[-1] != "\n"):  # there are other line ends, which separate nothing here
        pieces = text.split(delimiter)
        last = pieces.pop()
        steps = [piece + delimiter for piece in pieces]
        if last:
            steps.append(last)
    # The first is a quick test that nearly all texts pass.
    if (min(steps) >= "!" and text.isascii()) or not any(map(str.isspace, steps)):
        return steps
    return _join_blank(steps)


def _join_blank(steps: list[str]) -> list[str]:
    """A blank piece belongs to the step before it, at the very start to the first one."""
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


def split_text(text: str, config: StepsConfig) -> list[str]:
    """Split as the step format says. The steps concatenate to `text`, and none is blank unless all of it is.

    Sentences end at `.`, `?` or `!` before white space and at line ends, not within mathematics (`$…$`, `\\(…\\)`,
    `\\[…\\]`), after common abbreviations, or after the number of a list's item. Linear in the length.
    """
    if config.split == "delimiter":
        return split_steps(text, config.delimiter)
    sentences = _sentences(text, config.think_close)
    if config.split == "sentence":
        return sentences
    steps: list[str] = []
    for sentence in sentences:
        if (
            not steps
            or _begins(sentence, config.turn_words)
            or (config.think_close and config.think_close in steps[-1])
        ):
            steps.append(sentence)
        else:
            steps[-1] += sentence
    return steps


def _begins(sentence: str, words: tuple[str, ...]) -> bool:
    text = sentence.lstrip()
    return any(text.startswith(word) and not text[len(word) : len(word) + 1].isalnum() for word in words)


_BOUNDARY = re.compile(r"""[.?!]["')\]*]*\s+|\n\s*|\$\$?\s*|\\[\[\]()]\s*""")
_ABBREVIATION = re.compile(r"(?:^|[\s(])(?:e\.g|i\.e|cf|vs|approx|resp|Mr|Mrs|Ms|Dr|St|Fig|Eq|No)\.$")
_CLOSES = ("\\]", "\\)")
_OPENS = {"$": "$", "$$": "$$", "\\[": "\\]", "\\(": "\\)"}


def _sentences(text: str, always_after: str) -> list[str]:
    pieces: list[str] = []
    start, inside = 0, ""
    for found in _BOUNDARY.finditer(text):
        whole = found.group()
        mark = whole.rstrip()
        if not mark:  # a line's end
            if whole.count("\n") > 1:
                inside = ""  # a blank line ends mathematics that nothing closed
            ends = not inside and not text.startswith(("\\[", "$$"), found.end())
        elif mark in _OPENS or mark in _CLOSES:
            closed = mark == inside
            inside = ("" if closed else inside) if inside else _OPENS.get(mark, "")
            stopped = text[found.start() - 1] in ".?!" and (whole != mark or mark == "\\]")
            ends = not inside and ("\n" in whole or (closed and stopped))
        else:
            ends = not inside and not _ends_early(text, start, found)
        if ends:
            pieces.append(text[start : found.end()])
            start = found.end()
    if start < len(text):
        pieces.append(text[start:])
    if always_after:
        pieces = [part for piece in pieces for part in _cut_after(piece, always_after)]
    return _join_blank(pieces)


def _ends_early(text: str, start: int, found: re.Match[str]) -> bool:
    """A full stop that ends no sentence: of an abbreviation, or of an item's number."""
    if text[found.start()] != "." or "\n" in found.group():
        return False
    if found.start() - start < 8 and text[start : found.start()].strip().isdigit():
        return True
    return _ABBREVIATION.search(text[max(start, found.start() - 8) : found.start() + 1]) is not None


def _cut_after(piece: str, mark: str) -> list[str]:
    before, found, after = piece.partition(mark)
    return [before + found, after] if found and after else [piece]


def starts_thinking(config: StepsConfig) -> bool:
    """A solution begins inside a thinking section, which the template or `assistant_start` opens."""
    if not config.think_close:
        return False
    return ends_thinking(config.assistant_start, config, thinking=not config.think_open)


def ends_thinking(text: str, config: StepsConfig, *, thinking: bool) -> bool:
    """Whether a text ends inside a thinking section, where it began inside one (`thinking`) or did not."""
    if config.think_close in text or (config.think_open and config.think_open in text):
        return thinks_until(text, config, thinking=thinking) == len(text)
    return thinking


def thinks_until(text: str, config: StepsConfig, *, thinking: bool) -> int:
    """Where the last thinking section of a text ends: 0 where it has none, its length where it ends inside one."""
    closed = text.rfind(config.think_close)
    if config.think_open and text.rfind(config.think_open) > closed:
        return len(text)
    if closed >= 0:
        return min(closed + len(config.think_close), len(text) - 1)
    return len(text) if thinking else 0


def parse(sample: Sample, config: StepsConfig, max_steps: int, *, thinking: bool = False) -> tuple[list[str], int]:
    """Split a sample into steps and say how the last one ended, as a `Finish`. All-blank text gives no steps.

    The first step that holds an answer marker, outside a thinking section, ends the trajectory; what the model wrote
    after it stays in the journal only. More than `max_steps` steps, a step longer than `config.max_step_chars`, or an
    end inside a thinking section end it as TRUNCATED. `thinking`: the prefix ends inside such a section.
    """
    text, ended = sample.text, sample.finish
    if ended == "error":
        return [], _ERROR
    if ended == "delimiter":
        text += config.delimiter
    steps = split_steps(text, config.delimiter) if config.split == "delimiter" else split_text(text, config)
    count = len(steps)
    if count < 2 and (not count or text.isspace()):
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
    marked, said = len(text), 0
    close = config.think_close  # looking for one character is quick, and most texts have none
    if close and (thinking or close[0] in text or config.think_open[:1] in text):
        said = thinks_until(text, config, thinking=thinking)
        if said == marked and finish == _STOP:
            finish = _TRUNCATED
    for marker in config.answer_markers:
        found = text.find(marker, said)
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


def step_costs(sample: Sample, steps: Sequence[str]) -> tuple[list[int], list[float]]:
    """Tokens and log-probability of each of a sample's steps.

    Where the policy did not say, tokens go by share of characters and log-probabilities are NaN.
    """
    count, characters = len(steps), max(sum(map(len, steps)), 1)
    if len(sample.step_tokens) >= count:
        tokens = list(sample.step_tokens[:count])
    elif count == 1:
        tokens = [sample.tokens]
    else:
        tokens = [round(sample.tokens * len(step) / characters) for step in steps]
    if len(sample.step_logprobs) >= count:
        logprobs = list(sample.step_logprobs[:count])
    elif count == 1 and sample.logprob is not None:
        logprobs = [sample.logprob]
    else:
        logprobs = [math.nan] * count
    return tokens, logprobs
