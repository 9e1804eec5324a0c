"""Answers in forms that no formula has: number words, numerals with a base, compound quantities."""

from __future__ import annotations

import re
from itertools import pairwise

from treeforge.label.build import number
from treeforge.label.syntax import Based, Num, Quantity
from treeforge.label.units import unit_size

_ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen"
)
_TENS = "twenty thirty forty fifty sixty seventy eighty ninety"
_SCALES = {"hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9}
_CARDINALS = {word: n for n, word in enumerate(_ONES.split(" "))} | {
    word: 10 * n for n, word in enumerate(_TENS.split(" "), start=2)
}
_PARTS = {"half": 2, "halves": 2, "third": 3, "quarter": 4, "fourth": 4, "fifth": 5, "sixth": 6, "seventh": 7}
_PARTS |= {"eighth": 8, "ninth": 9, "tenth": 10, "hundredth": 100, "thousandth": 1000}
_BASES = {word: n for n, word in enumerate(_ONES.split(" ")) if n > 1}

_BASED = re.compile(
    r"(-?)(?:\\(?:text|mathrm|mathbf|texttt|overline)\s*\{)?\(?\s*([0-9A-Za-z]+)\s*\)?\}?\s*"
    r"(?:_\s*\{?\(?(?:\\(?:text|mathrm)\s*\{)?\s*(?:base\s*\}?\s*)?(\d{1,2}|[a-z]+)\s*\}?\)?\}?"
    r"|(?:\\text\s*\{)?\s*\(?\s*(?:in\s+)?base[\s-]*(\d{1,2}|[a-z]+)\s*\)?\}?)"
)
_PREFIXED = re.compile(r"0([xbo])([0-9A-Fa-f]+)")
_MARKUP = re.compile(r"\\(?:text|mathrm|mbox)\s*\{|[{}]|\\[ ,;:]|~")
_PART_OF_QUANTITY = r"(\d+(?:\.\d+)?)\s*([A-Za-z]+)\.?"
_COMPOUND = re.compile(
    rf"{_PART_OF_QUANTITY}[\s,]*(?:and\s+)?{_PART_OF_QUANTITY}(?:[\s,]*(?:and\s+)?{_PART_OF_QUANTITY})?"
)
_FEET = re.compile(r"(?:(\d+)\s*')?\s*(\d+(?:\.\d+)?)\s*(?:\"|'')")


def number_words(text: str) -> Num | None:
    """`twenty-one`, `one hundred and five`, `two thirds`, `two and a half`; None for any other words."""
    words = text.lower().replace("-", " ").split()
    if not 0 < len(words) <= 12:
        return None
    part = _PARTS.get(words[-1]) or _PARTS.get(words[-1].removesuffix("s"))
    if part is None:
        whole = _cardinal(words)
        return None if whole is None else Num(whole)
    before = words[:-1]
    while before[-1:] == ["of"] or (len(before) > 1 and before[-1] in ("a", "an")):
        before = before[:-1]
    if before in ([], ["a"], ["an"], ["one"]):
        return Num(1, part) if before or part == 2 else None
    if before[-1] == "and":
        whole = _cardinal(before[:-1])
        return None if whole is None else Num(whole * part + 1, part)
    if "and" in before:
        at = before.index("and")
        whole, count = _cardinal(before[:at]), _cardinal(before[at + 1 :])
        return None if whole is None or count is None else Num(whole * part + count, part)
    count = _cardinal(before) if words[-1].endswith("s") else None  # `twenty-fifth` is an ordinal
    return None if count is None else Num(count, part)


def _cardinal(words: list[str]) -> int | None:
    """The value of a number in words; None where a word, or their order, is no number's."""
    total, group, scale = 0, 0, 10**12
    if len(words) > 1 and words[0] == "a":
        words = ["one", *words[1:]]
    for i, word in enumerate(words):
        if word == "hundred":
            if not 0 < group < 100:
                return None
            group *= 100
        elif word in _SCALES:
            if group == 0 or _SCALES[word] >= scale:
                return None
            total, group, scale = total + group * _SCALES[word], 0, _SCALES[word]
        elif word in _CARDINALS:
            value = _CARDINALS[word]
            open_tens = group % 100 and group % 10 == 0 and group % 100 >= 20 and 0 < value < 10
            if (group % 100 and not open_tens) or (value == 0 and len(words) > 1):
                return None
            group += value
        elif word != "and" or not 0 < i < len(words) - 1 or words[i - 1] not in _SCALES:
            return None
    return total + group if words else None


def based_numeral(text: str) -> Based | None:
    """`1011_{\\text{two}}`, `(1011)_2`, `1011 (base 2)`, `2A_{16}`, `0x2A`; None for other texts."""
    if prefixed := _PREFIXED.fullmatch(text):
        base = {"x": 16, "b": 2, "o": 8}[prefixed.group(1)]
        return _valid(prefixed.group(2), base)
    found = _BASED.fullmatch(text)
    if found is None:
        return None
    sign, digits, subscript, word = found.groups()
    named = subscript or word
    base = int(named) if named.isdigit() else _BASES.get(named, 0)
    numeral = _valid(digits, base) if base else None
    if numeral is None or (not digits.isdigit() and subscript and not _surely_digits(digits, base)):
        return None
    return Based(sign + numeral.digits, base)


def _surely_digits(digits: str, base: int) -> bool:
    """A numeral with letters, and no variable with its index: `2A_{12}`, `FF_{16}`; not `A_{12}`, `2a_{12}`."""
    if digits.isupper() or base == 16:
        return digits[0].isdigit() or (len(digits) > 1 and base == 16 and digits.isupper())
    return False


def _valid(digits: str, base: int) -> Based | None:
    if not 1 < base <= 36 or any(int(digit, 36) >= base for digit in digits):
        return None
    return Based(digits, base)


def compound_quantity(text: str) -> Quantity | None:
    """`5 feet 3 inches`, `2 h 30 min`, `5'3"` in the smallest named unit, money in the largest; None for others."""
    if feet := _FEET.fullmatch(text):
        inches = Num(int(feet.group(1) or 0) * 12)
        return Quantity(_total([(inches, 1, 1), (number(feet.group(2)), 1, 1)]), "inch")
    found = _COMPOUND.fullmatch(_MARKUP.sub(" ", text).strip())
    if found is None:
        return None
    named = [group for group in found.groups() if group is not None]
    numbers, units = named[::2], named[1::2]
    sizes = [unit_size(unit) for unit in units]
    known = [size for size in sizes if size is not None]
    if len(known) != len(units) or any(size[0] != known[0][0] for size in known):
        return None
    if any(a[1] * b[2] <= b[1] * a[2] for a, b in pairwise(known)):
        return None
    shown = 0 if known[0][0].startswith("money") else -1
    _, p, q = known[shown]
    parts = [(number(value), size[1] * q, size[2] * p) for value, size in zip(numbers, known, strict=True)]
    return Quantity(_total(parts), units[shown])


def _total(parts: list[tuple[Num, int, int]]) -> Num:
    p, q = 0, 1
    for value, times, over in parts:
        p, q = p * value.q * over + value.p * times * q, q * value.q * over
    return Num(p, q)
