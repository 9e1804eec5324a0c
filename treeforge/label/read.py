"""One answer's text to its readings: cleaned, normalised for string equality, parsed."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

from treeforge.label.clean import clean, normal_form, prepare
from treeforge.label.parse import parse
from treeforge.label.syntax import EMPTY_SET, Based, Node, Num, Sym, Text
from treeforge.label.tokens import MAX_CHARS, LimitError, ReadError

_SIMPLE = re.compile(r"([+-]?)(\d{1,18})(?:\.(\d{1,18}))?")
_DECIMAL_COMMA = re.compile(r"([^\d,()\[\]{}]*)(\d+),(\d+)((?:\\text\{[^{}]*\})?[^\d,()\[\]{}]*)")
_BASED = re.compile(r"(?:\\text\{)?(\d[0-9A-Z]*[A-Z][0-9A-Z]*)\}?_\{?(\d{1,2})\}?")
_NUMBER_WORDS = "zero|one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve"
_PHRASES: tuple[tuple[Node, str], ...] = (
    (Sym("mathbb R"), "all real numbers|all reals|real numbers|all real values|the real numbers|all real x"),
    (EMPTY_SET, "no solution|no solutions|no real solution|no real solutions|empty set|the empty set|none"),
    (Text("does not exist"), "dne|does not exist|doesnt exist|d n e"),
    (Text("infinitely many"), "infinitely many|infinitely many solutions|infinite solutions|infinite"),
    *((Num(n), word) for n, word in enumerate(_NUMBER_WORDS.split("|"))),
)
_SYNONYMS = {phrase: node for node, phrases in _PHRASES for phrase in phrases.split("|")}
"""Phrases with a mathematical meaning."""
_DIGIT = re.compile(r"\d")
_WORDY = re.compile(r"[A-Za-z]{2,}")
_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mbox|textit|textrm|mathbf|operatorname|[ ,;:!])|[{}$*~]")


class Reading(msgspec.Struct, frozen=True):
    """What a text says."""

    key: str
    """The normal form for string equality."""
    node: Node | None
    """The syntax tree; None where it could not be read."""
    other: Node | None = None
    """A second reading of an ambiguous text: `1,234` as a list, `1,22` as a decimal."""
    other_kind: Literal["", "list", "decimal", "short decimal"] = ""
    """How it reads then; a `short decimal` has one digit after the comma and is believed of predictions only."""
    reason: str = ""
    """Why it could not be read; empty otherwise."""
    limited: bool = False
    """It was not read because of a limit."""


@lru_cache(maxsize=8192)
def read(text: str) -> Reading:
    """Read one answer."""
    simple = _SIMPLE.fullmatch(text)
    if simple is not None:
        return Reading(text, _simple(simple))
    if len(text) > MAX_CHARS:
        return Reading(
            normal_form(text[: 4 * MAX_CHARS]), None, reason=f"longer than {MAX_CHARS} characters", limited=True
        )
    text = clean(text)
    key = normal_form(text)
    if not key:
        return Reading("", None, reason="empty")
    based = _BASED.fullmatch(text)
    if based is not None:
        return Reading(key, Based(based.group(1), int(based.group(2))))
    if not _DIGIT.search(text) and (node := _phrase(text)) is not None:
        return Reading(key, node)
    joined = prepare(text)
    tree: Node
    try:
        tree = parse(joined)
    except LimitError as error:
        return Reading(key, None, reason=str(error), limited=True)
    except (ReadError, RecursionError) as error:
        words = _as_words(text)
        return Reading(key, words, reason="" if words else str(error))
    return Reading(key, tree, *_second_reading(text, joined))


def _phrase(text: str) -> Node | None:
    """A phrase with a mathematical meaning: `no solution`, `all real numbers`, `seven`."""
    phrase = " ".join(_WORDY.findall(_MARKUP.sub(" ", text.replace("'", "")))).lower()
    return _SYNONYMS.get("does not exist" if phrase.endswith("does not exist") else phrase)


def _simple(found: re.Match[str]) -> Num:
    sign, whole, fraction = found.groups()
    value = int(whole + (fraction or ""))
    digits = len((whole + fraction).lstrip("0")) if fraction else 0
    return Num(-value if sign == "-" else value, 10 ** len(fraction or ""), digits)


def _second_reading(text: str, joined: str) -> tuple[Node | None, Literal["", "list", "decimal", "short decimal"]]:
    if "," in text:
        if text != joined and re.fullmatch(r"[-\d,\s]+", text):
            return _try(text), "list"
        found = _DECIMAL_COMMA.fullmatch(joined)
        if found is not None:
            before, whole, fraction, after = found.groups()
            return _try(f"{before}{whole}.{fraction}{after}"), "decimal" if len(fraction) > 1 else "short decimal"
    return None, ""


def _try(text: str) -> Node | None:
    try:
        return parse(text)
    except (ReadError, LimitError, RecursionError):
        return None


def _as_words(text: str) -> Text | None:
    """Prose that is no mathematics; None for broken mathematics."""
    plain = _MARKUP.sub(" ", text)
    if "\\" in plain or "^" in plain or not _WORDY.search(plain) or text.count("{") != text.count("}"):
        return None if plain.isascii() else Text(plain)
    return Text(" ".join(plain.split()))
