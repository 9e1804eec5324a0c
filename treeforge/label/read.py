"""One answer's text to its readings: cleaned, normalised for string equality, parsed."""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Literal

import msgspec

from treeforge.label.parse import parse
from treeforge.label.syntax import EMPTY_SET, Based, Node, Num, Sym, Text
from treeforge.label.tokens import MAX_CHARS, LimitError, ReadError
from treeforge.label.vocabulary import ascii_math

_DOUBLED = re.compile(r"(?<!\\)\\\\(?=[a-zA-Z]{2,}|[{}$%()\[\]!,])")
_SIMPLE = re.compile(r"([+-]?)(\d{1,18})(?:\.(\d{1,18}))?")
_LATEX_GROUPS = re.compile(r"(?<=\d)\s*(?:\{\s*,\s*\}|,?\s*\\!\s*|\\[,;: ]|~)\s*(?=\d{3}(?!\d))")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,]|\.\d+,)")
_DECIMAL_COMMA = re.compile(r"([^\d,()\[\]{}]*)(\d+),(\d+)([^\d,()\[\]{}]*)")
_MERIDIEM = re.compile(r"(\d)[\s~]*(?:\\(?:text|mbox)\{\s*)?([AaPp])\.?\s?[Mm]\b\.?\s*\}?")
_WHOLE_TEXT = re.compile(r"\\(?:text|mbox|textbf|mathrm|mathbf|textrm|textit)\s*\{([^{}\\]*)\}")
_FOREIGN = re.compile(r"[^\W\d_]*[^\x00-\x7f]+(?:[^\W\d_]|[^\x00-\x7f])*")
_WRAPPED = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"), ('"', '"'))
_NOISE = re.compile(r"\\(?:left|right|mleft|mright|!|,|;|:|displaystyle|quad|qquad|big[lr]?|Big[lr]?)(?![a-zA-Z])|[$]")
_TRAILING = re.compile(r"(?:\s|~|\\[,;:! ]|(?<!\\)[.,;:])+$")
_REMARK = re.compile(r"(?<=[\d}%])\s+\((?:[A-Za-z]+(?: [A-Za-z]+)+|(?:or|i\.e\.) [^()]*)\)$")
_FOR_ALL = re.compile(r"^(?:\\text\{\s*(?:for\s+)?all\s*\}|(?:for\s+)?all\s+(?=[a-z]\s*[<>=\\]))\s*")
_SYSTEM = re.compile(r"\\left\s*\\\{\s*\\begin\{array\}(?:\{[^{}]*\})?(.*?)\\end\{array\}\s*\\right\s*\.?", re.DOTALL)
_PER_CENT = re.compile(r"(?i)\bper cent\b")
_COMPOUND_UNIT = re.compile(
    r"(?<=[\d}])\s+((?:km|cm|mm|m|kg|g|mi|ft|L|J|N|W)\s*/\s*(?:s|h|hr|min|day|kg|mol|m|L)(?:\^?\{?[23]\}?)?|m\s*\^\s*\{?[23]\}?)$"
)
_LEADING = re.compile(
    r"^(?:\\(?:therefore|approx|sim|simeq|implies|Rightarrow|Longrightarrow|to)(?![a-zA-Z])|=(?!=)|:)\s*"
)
_CURRENCY = re.compile(r"(?i)^(?:rs\.?|usd|us\$|inr|eur)\s*(?=\d)")
_DOTTED_THOUSANDS = re.compile(r"\d{1,3}(?:\.\d{3}){2,}")
_BASED = re.compile(r"(?:\\text\{)?(\d[0-9A-Z]*[A-Z][0-9A-Z]*)\}?_\{?(\d{1,2})\}?")
_SYNONYMS: dict[str, Node] = {
    phrase: node
    for node, phrases in (
        (Sym("mathbb R"), "all real numbers|all reals|real numbers|all real values|the real numbers|all real x"),
        (EMPTY_SET, "no solution|no solutions|no real solution|no real solutions|empty set|the empty set|none"),
        (Text("does not exist"), "dne|does not exist|doesnt exist|d n e"),
        (Text("infinitely many"), "infinitely many|infinitely many solutions|infinite solutions|infinite"),
    )
    for phrase in phrases.split("|")
}
"""Phrases with a mathematical meaning."""
_ABOUT = re.compile(r"(?i)^(?:about|approximately|approx\.?|roughly|around|nearly|exactly|only|just)\s+(?=[-$\\\d.])")
_SPACE = re.compile(r"\s+")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
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


def clean(text: str) -> str:
    """The answer without delimiters, emphasis, a closing full stop and doubled backslashes; Unicode as LaTeX."""
    text = _ABOUT.sub("", ascii_math(text.strip()))
    if "\\\\" in text and "\\begin" not in text:
        text = _DOUBLED.sub(lambda _: "\\", text)
    changed = True
    while changed:
        changed = False
        text = _LEADING.sub("", text.strip())
        if text.endswith("\\\\"):
            text = text[:-2]
        stripped = _REMARK.sub("", _TRAILING.sub("", text))
        if stripped != text and not text.endswith("..."):
            text, changed = stripped, True
        for opening, closing in _WRAPPED:
            if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
                inner = text[len(opening) : -len(closing)]
                if opening not in inner or (opening == "$" and inner.count("$") == inner.count("\\$")):
                    text, changed = inner, True
        if (
            (box := re.match(r"\\(?:boxed|fbox)\s*\{", text))
            and text.endswith("}")
            and _closes_last(text, box.end() - 1)
        ):
            text, changed = text[box.end() : -1], True
    if whole := _WHOLE_TEXT.fullmatch(text):
        inner = whole.group(1).strip()
        if any(c.isdigit() for c in inner):
            text = inner
    if not text.isascii():
        text = _FOREIGN.sub(lambda m: "\\text{" + m.group() + "}", text)
    return text


def _closes_last(text: str, opening: int) -> bool:
    depth = 0
    for i in range(opening, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i == len(text) - 1
    return False


def normal_form(text: str) -> str:
    """The text with all that never matters left out; equal normal forms are the same answer under every policy."""
    text = _FRACTION.sub(lambda _: "\\frac", _NOISE.sub("", text))
    text = _SPACE.sub(" ", text).strip()
    return re.sub(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])", "", text)


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
    phrase = " ".join(_WORDY.findall(_MARKUP.sub(" ", text.replace("'", "")))).lower()
    if phrase.endswith("does not exist"):
        phrase = "does not exist"
    if phrase in _SYNONYMS and not any(c.isdigit() for c in text):
        return Reading(key, _SYNONYMS[phrase])
    joined = _prepare(text)
    try:
        node = parse(joined)
    except LimitError as error:
        return Reading(key, None, reason=str(error), limited=True)
    except (ReadError, RecursionError) as error:
        words = _as_words(text)
        return Reading(key, words, reason="" if words else str(error))
    return Reading(key, node, *_second_reading(text, joined))


def _simple(found: re.Match[str]) -> Num:
    sign, whole, fraction = found.groups()
    value = int(whole + (fraction or ""))
    digits = len((whole + fraction).lstrip("0")) if fraction else 0
    return Num(-value if sign == "-" else value, 10 ** len(fraction or ""), digits)


def _prepare(text: str) -> str:
    """Digit groups joined, times of day marked."""
    if "," in text or "\\" in text or "~" in text:
        text = _LATEX_GROUPS.sub("", text)
        if "," in text:
            text = _join_thousands(text)
    text = _FOR_ALL.sub("", _CURRENCY.sub("", text))
    if "array" in text:
        text = _SYSTEM.sub(r"\\begin{cases}\1\\end{cases}", text)
    if " " in text:
        text = _COMPOUND_UNIT.sub(lambda m: f"\\text{{ {m.group(1)} }}", _PER_CENT.sub("percent", text))
    if "." in text and _DOTTED_THOUSANDS.fullmatch(text):
        text = text.replace(".", "")
    if ("m" in text or "M" in text) and _MERIDIEM.search(text):
        text = _MERIDIEM.sub(lambda m: f"{m.group(1)} \\text{{{m.group(2).lower()}m}}", text)
    return text


def _join_thousands(text: str) -> str:
    """`1,234` as one number: outside brackets always, inside them where the separators of items look different."""

    def joined(found: re.Match[str]) -> str:
        before = text[: found.start()]
        depth = sum(before.count(c) for c in "([") - sum(before.count(c) for c in ")]")
        listed = re.search(r"(?:^|[^A-Za-z}^_\\])\\?\{[^{}]*$", before) is not None
        if (depth > 0 or listed) and ", " not in text and ";" not in text:
            return found.group()
        return found.group().replace(",", "")

    return _THOUSANDS.sub(joined, text)


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
