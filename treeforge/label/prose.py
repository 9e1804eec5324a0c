"""Is a text an answer, or prose about one? And where mathematics stands in prose."""

from __future__ import annotations

import re

from treeforge.label.read import read
from treeforge.label.syntax import Text
from treeforge.label.vocabulary import FUNCTION_NAMES, SHORT_UNITS

MAX_BARE = 300
"""A longer text is never itself the answer."""

_WORD = re.compile(r"[^\W\d_]{2,}")
_LITTLE_WORDS = frozenset(
    ("it", "we", "so", "he", "she", "my", "is", "the", "as", "if", "in", "to", "for", "now", "by", "her")
)
_NOT_PROSE = frozenset((*map(str.lower, FUNCTION_NAMES), *SHORT_UNITS, "and", "or", "pi", "text", "infty"))
_VERB = re.compile(
    r"'s\b|\b(?:is|are|was|were|be|gets?|got|has|have|had|gives?|equals?|est|es|ist|so|thus|because|since|then|becomes?)\b"
)
_EXCEPT = re.compile(r"(?i)(?:all\s+)?real(?:\s+numbers?|s)?\s+(?:\w\s+)?except\b")
_EQUALS = re.compile("=")
_HARMLESS = re.compile(r"\\text\{[^{}]*\}|\b(?:and|or)\b")
_DIGIT = re.compile(r"\d")
_DELIMITERS = re.compile(r"\$|\\\(|\\\[")
_LABEL = re.compile(r"\s*[^\W\d_][^\W\d_ ]*(?: [^\W\d_]+){0,3}\s*[:：]\s*")
_OPENING = re.compile(r"\$\$|\\\[|\\\(|(?<!\\)\$")
_CLOSING = {"$$": "$$", "\\[": "\\]", "\\(": "\\)", "$": "$"}
_MACRO = re.compile(r"\\(?:begin|end)\s*\{\w+\*?\}|\\[a-zA-Z]+")


def delimited(text: str) -> list[tuple[int, int]]:
    """(start, end) of every `$…$`, `$$…$$`, `\\(…\\)` and `\\[…\\]`, delimiters included."""
    found: list[tuple[int, int]] = []
    unclosed: set[str] = set()
    position = 0
    while opening := _OPENING.search(text, position):
        mark = opening.group()
        position = opening.end()
        end = -1 if mark in unclosed else text.find(_CLOSING[mark], position)
        while mark == "$" and end > 0 and text[end - 1] == "\\":
            end = text.find("$", end + 1)
        if end < 0:
            unclosed.add(mark)
        elif end > position:
            position = end + len(mark)
            found.append((opening.start(), position))
    return found


def is_bare(text: str) -> bool:
    """Whether a text is an answer itself: mathematics that parses, or a few words."""
    if len(text) > MAX_BARE:
        return False
    plain = text.strip()
    if _EXCEPT.match(plain):
        return True
    has_delimiters = _DELIMITERS.search(plain) is not None
    if has_delimiters:
        outside = _outside(plain)
        if outside != plain and outside.strip(" .,;") and _WORD.search(_HARMLESS.sub("", outside)):
            return False
    words = _WORD.findall(_MACRO.sub(" ", plain) if "\\" in plain else plain)
    if "\n" in plain and words and "\\begin" not in plain:
        return False
    if not has_delimiters and not _DIGIT.search(plain):
        return True
    if not plain.isascii() and any(ord(c) > 0x2E7F for c in plain):
        return len(words) == 0
    if words and _is_sentence(plain):
        return False
    reading = read(plain)
    if reading.limited:
        return True
    if reading.node is None:
        return len(words) <= 2 or plain.startswith(("\\", "{", "(", "[", "$"))
    return not isinstance(reading.node, Text) or len(words) <= 2


def reads_as_mathematics(text: str) -> bool:
    """Whether a text has a reading that is no words."""
    node = read(text).node
    return node is not None and not isinstance(node, Text)


def _is_sentence(text: str) -> bool:
    """A statement in words that holds digits: `it is 5`, `7 so y is 1`, `Total: 9`; not `5 square units`."""
    if _LABEL.match(text) and not text.startswith("\\"):
        return True
    words = [m for m in _WORD.finditer(_MACRO.sub(_blank, text)) if m.group().lower() not in _NOT_PROSE]
    if not words:
        return False
    starts_with_number = not any(c.isalpha() for c in text[: words[0].start()])
    digits_after = any(c.isdigit() for c in text[words[0].end() :])
    if len(words) > 2:
        return digits_after or not (starts_with_number and any(c.isdigit() for c in text[: words[0].start()]))
    first = words[0].group()
    opens = starts_with_number and (len(first) > 3 or first.lower() in _LITTLE_WORDS)
    verb = _VERB.search(text) or (_EQUALS.search(text) if opens else None)
    if verb is None or not any(c.isdigit() for c in text[verb.end() :]):
        return False
    return opens or verb.group() == "equals" or any(c.isdigit() for c in text[: verb.start()])


def _blank(found: re.Match[str]) -> str:
    return " " * len(found.group())


def _outside(text: str) -> str:
    """The text without its delimited mathematics."""
    spans = delimited(text)
    starts = [0, *(end for _, end in spans)]
    ends = [*(start for start, _ in spans), len(text)]
    return " ".join(text[i:j] for i, j in zip(starts, ends, strict=True))
