"""Where a written solution states its final answer: `\\boxed{}`, GSM8K's `####` and words. Linear time, no
interpretation."""

from __future__ import annotations

import re

_BOX = re.compile(r"\\(?:boxed|fbox)\s*")
_TOKEN = re.compile(r"\\[a-zA-Z]+|[^\s$\\]{1,200}")
_BRACE = re.compile(r"\\.|[{}]", re.DOTALL)
_HASHES = re.compile(r"####[ \t]*([^\n]*)")
_STATES = re.compile(r"(?i)answer\s*(?:is|:)|^[ \t]*#+[ \t]*answer\b", re.MULTILINE)


def boxed(text: str) -> list[tuple[int, int, str]]:
    """Every balanced outermost `\\boxed{…}`, as (start, end, content), in order.

    `\\boxed 7` without braces gives its next token; `\\{` and `\\}` are text, not braces. An unbalanced box is
    left out.
    """
    if "boxed" not in text and "fbox" not in text:
        return []
    closing = _closing_braces(text)
    found: list[tuple[int, int, str]] = []
    position = 0
    while match := _BOX.search(text, position):
        start = match.end()
        if start < len(text) and text[start] == "{":
            end = closing.get(start)
            if end is None:
                position = start + 1
                continue
            found.append((match.start(), end + 1, text[start + 1 : end].strip()))
            position = end + 1
        else:
            token = _TOKEN.match(text, start)
            if token:
                found.append((match.start(), token.end(), token.group()))
            position = token.end() if token else start
    return found


def last_boxed(text: str) -> str | None:
    """Content of the last balanced `\\boxed{…}`, or None."""
    boxes = boxed(text)
    return boxes[-1][2] if boxes else None


def after_hashes(text: str) -> str | None:
    """What follows the last `####` on its line (GSM8K), or None."""
    found = _HASHES.findall(text)
    return found[-1].strip() or None if found else None


def states_answer(text: str) -> bool:
    """Whether a step states a final answer: a box, GSM8K's `####`, or words that announce one."""
    return last_boxed(text) is not None or after_hashes(text) is not None or _STATES.search(text) is not None


def _closing_braces(text: str) -> dict[int, int]:
    """Position of every `{` that is closed -> position of its `}`, in one pass."""
    closing: dict[int, int] = {}
    open_at: list[int] = []
    for match in _BRACE.finditer(text):
        brace = match.group()
        if brace == "{":
            open_at.append(match.start())
        elif brace == "}" and open_at:
            closing[open_at.pop()] = match.start()
    return closing
