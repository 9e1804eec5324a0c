"""One answer's text to its readings: cleaned, normalised for string equality, parsed."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

from treeforge.label.build import negated, number
from treeforge.label.clean import chosen, clean, normal_form, prepare
from treeforge.label.forms import based_numeral, compound_quantity, number_words
from treeforge.label.parse import parse
from treeforge.label.syntax import EMPTY_SET, Node, Num, Quantity, Sym, Text
from treeforge.label.tokens import MAX_CHARS, LimitError, ReadError

_SIMPLE = re.compile(r"([+-]?)(\d{1,18}(?:\.\d{1,18})?)")
_DECIMAL_COMMA = re.compile(r"([^\d,()\[\]{}]*)(\d+),(\d+)((?:\\text\{[^{}]*\})?[^\d,()\[\]{}]*)")
_PHRASES: tuple[tuple[Node, str], ...] = (
    (
        Sym("mathbb R"),
        "all real numbers|set of all real numbers|set of real numbers|every real number|all reals|real numbers"
        "|all real values|the real numbers|all real x",
    ),
    (EMPTY_SET, "no solution|no solutions|no real solution|no real solutions|empty set|the empty set|none"),
    (Text("does not exist"), "dne|does not exist|doesnt exist|d n e"),
    (Text("infinitely many"), "infinitely many|infinitely many solutions|infinite solutions|infinite"),
    (Num(12), "dozen"),
    (Quantity(Num(12), "pm"), "noon|twelve noon"),
    (Quantity(Num(12), "am"), "midnight|twelve midnight"),
)
_SYNONYMS = {phrase: node for node, phrases in _PHRASES for phrase in phrases.split("|")}
"""Phrases with a mathematical meaning."""
_DIGIT = re.compile(r"\d")
_WORDY = re.compile(r"[A-Za-z]{2,}")
_LETTERS = re.compile(r"[A-Za-z]+")
_THERE = re.compile(r"^(?:there (?:is|are|exists?)|(?:the )?(?:equation|inequality|system) has) ")
_LETTER_UNIT = re.compile(
    r"(-?\d+(?:\.\d+)?(?:\s?(?:\\times|\\cdot|\*|x)\s?10\^\{?-?\d+\}?)?)(?:\s|\\[ ,;]|~)+(\\Omega|[mgLlshNJWVAK])"
)
_COUNTED = re.compile(r"([A-Za-z]+(?:-[a-z]+)?) ((?!of\b|or\b|and\b|more\b|to\b)[a-z]+)")
_DIGIT_LIST = re.compile(r"\s*-?(?:0|[1-9]\d*)(?:\s*,\s*-?(?:0|[1-9]\d*))+\s*")
_CHOSEN = re.compile(r"([CP])\s*\(\s*(\d{1,3})\s*,\s*(\d{1,3})\s*\)")
_MARKUP = re.compile(r"\\(?:text|textbf|mathrm|mbox|textit|textrm|mathbf|operatorname|[ ,;:!])|[{}$*~]")


OtherKind = Literal["", "list", "decimal", "short decimal", "unit", "number"]


class Reading(msgspec.Struct, frozen=True):
    """What a text says."""

    key: str
    """The normal form for string equality."""
    node: Node | None
    """The syntax tree; None where it could not be read."""
    other: Node | None = None
    """A second reading of an ambiguous text: `1,234` as a list, `1,22` as a decimal."""
    other_kind: OtherKind = ""
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
        value = number(simple.group(2))
        return Reading(text, negated(value) if simple.group(1) == "-" else value)
    if len(text) > MAX_CHARS:
        return Reading(
            normal_form(text[: 4 * MAX_CHARS]), None, reason=f"longer than {MAX_CHARS} characters", limited=True
        )
    text = clean(text)
    key = normal_form(text)
    if not key:
        return Reading("", None, reason="empty")
    special = _special(text)
    if special is not None:
        return Reading(key, special)
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
    if len(text) > 80:
        return None
    plain = _MARKUP.sub(" ", text.replace("'", ""))
    phrase = " ".join(_WORDY.findall(plain)).lower()
    phrase = "does not exist" if phrase.endswith("does not exist") else _THERE.sub("", phrase)
    return _SYNONYMS.get(phrase) or number_words(" ".join(_LETTERS.findall(plain)))


def _special(text: str) -> Node | None:
    """What has another form than a formula; None for all else."""
    if not _DIGIT.search(text):
        return _phrase(text)
    if "_" in text or "ase" in text or text[:2] in ("0x", "0b", "0o"):
        return based_numeral(text)
    last = text[-1]
    if (last.isalpha() or last in "\"'}.") and not text.startswith("\\"):
        return compound_quantity(text)
    return None


def _second_reading(text: str, joined: str) -> tuple[Node | None, OtherKind]:
    if "," in text:
        if text != joined and _DIGIT_LIST.fullmatch(text):
            return _try(text), "list"
        found = _DECIMAL_COMMA.fullmatch(joined)
        if found is not None:
            before, whole, fraction, after = found.groups()
            return _try(f"{before}{whole}.{fraction}{after}"), "decimal" if len(fraction) > 1 else "short decimal"
        if (found := _CHOSEN.fullmatch(text)) is not None:
            letter, n, k = found.groups()
            return _try(chosen(n, letter, k)), "number"
    elif (found := _LETTER_UNIT.fullmatch(text)) is not None:
        return _try(f"{prepare(found.group(1))}\\text{{{found.group(2)}}}"), "unit"
    elif not _DIGIT.search(text) and (counted := _COUNTED.fullmatch(text)) is not None:
        number = number_words(counted.group(1))
        return (None if number is None else Quantity(number, counted.group(2))), "unit"
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
