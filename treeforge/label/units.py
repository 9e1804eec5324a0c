"""Units of answers: which words are the same unit, and which differ in size."""

from __future__ import annotations

import re

_SIZES: dict[str, tuple[str, int, int]] = {}


def _define(dimension: str, table: str) -> None:
    for line in table.split(";"):
        names, _, size = line.partition("=")
        p, _, q = size.strip().partition("/")
        for name in names.split():
            _SIZES[name] = (dimension, int(p), int(q or 1))


_define("length", "mm millimeter = 1; cm centimeter = 10; dm decimeter = 100; m meter = 1000; km kilometer = 1000000")
_define("us length", "in inch = 1; ft foot feet = 12; yd yard = 36; mi mile = 63360")
_define("time", "ms millisecond = 1/1000; sec second s = 1; min minute = 60; hr hour h = 3600")
_define("time", "day = 86400; week = 604800")
_define("months", "month mo = 1; year yr = 12")
_define("mass", "mg milligram = 1; g gram gm = 1000; kg kilogram = 1000000")
_define("us mass", "oz ounce = 1; lb pound = 16; ton = 32000")
_define("volume", "ml milliliter = 1; l liter = 1000")
_define("us volume", "cup = 1; pint = 2; quart = 4; gallon gal = 16")
_define("morning", "am midnight = 1")
_define("afternoon", "pm noon = 1")
_define("celsius", "c celsius = 1")
_define("fahrenheit", "f fahrenheit = 1")
_define("money", "cent = 1; dollar = 100")

_WORD = re.compile(r"[a-z]+|\d+")
_IGNORED = frozenset(("of", "the", "per", "a", "an"))
_SPEEDS = {"mph": "mi/h", "kph": "km/h", "kmh": "km/h", "mps": "m/s"}
_RATE = re.compile(r"\s*(?:/|\bper\b|\ban?\b)\s*")
_SPELLINGS = {"metre": "meter", "kilometre": "kilometer", "centimetre": "centimeter", "litre": "liter"}


def unit_size(unit: str) -> tuple[str, int, int] | None:
    """(dimension, p, q): the size p/q of a known unit in its dimension's smallest; None for other words."""
    rate = _RATE.split(_SPEEDS.get(unit, unit))
    if len(rate) == 2 and all(rate):
        over, under = _simple_size(rate[0]), _simple_size(rate[1])
        if over is None or under is None:
            return None
        return f"{over[0]}/{under[0]}", over[1] * under[2], over[2] * under[1]
    return _simple_size(unit)


def _simple_size(unit: str) -> tuple[str, int, int] | None:
    words = [
        word
        for word in _WORD.findall(unit.lower().replace("squared", "2").replace("cubed", "3"))
        if word not in _IGNORED
    ]
    power = 1
    for prefix, value in (("square", 2), ("sq", 2), ("cubic", 3), ("cu", 3)):
        if prefix in words:
            words.remove(prefix)
            power = value
    if len(words) == 2 and words[1] in ("1", "2", "3"):
        power = int(words.pop())
    if len(words) != 1:
        return None
    word = _SPELLINGS.get(words[0].rstrip("s"), words[0])
    found = _SIZES.get(word) or _SIZES.get(word.rstrip("s")) or _SIZES.get(word.removesuffix("es"))
    if found is None:
        return None
    dimension, p, q = found
    return f"{dimension}^{power}", p**power, q**power
