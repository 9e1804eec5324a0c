"""Are two expressions the same number, or the same function? Exact arithmetic first, rigorous intervals after it."""

from __future__ import annotations

from typing import NamedTuple

from treeforge.label.balls import Ball, infinity, precision
from treeforge.label.evaluation import ball
from treeforge.label.exact import InexactError, Rational, rational
from treeforge.label.syntax import INFINITY, Add, Mul, Neg, Node, Num
from treeforge.label.tokens import LimitError
from treeforge.label.walk import Traits, traits
from treeforge.verdict import Route

BITS, MORE_BITS, CONSTANT_BITS = 128, 512, 4096
"""Precision of the first comparison, of the one that confirms an equality of functions, and one of constants."""

_FLOAT_DIGITS = 15
"""A decimal of as many digits was printed by a machine: its last ones are noise."""

# All positive, of mixed signs, all negative first: three agreements then tell |x| from x.
_POINTS: tuple[tuple[Rational, ...], ...] = (
    ((1789, 997), (2311, 1409), (3163, 1201), (1931, 1571), (2777, 1013), (3671, 1607), (2089, 1949), (4027, 1777)),
    ((-1811, 953), (2371, 1433), (-3187, 1181), (1973, 1553), (-2801, 1031), (3691, 1601), (-2141, 1933), (4049, 1759)),
    ((-641, 929), (-1033, 1451), (-409, 1151), (-1571, 2063), (-821, 1061), (-739, 1583), (-1483, 1913), (-877, 1733)),
    ((617, 991), (1013, 1427), (397, 1193), (1567, 2053), (811, 1009), (733, 1621), (1481, 1951), (863, 1783)),
    ((9973, 977), (12007, 1429), (7019, 1217), (15013, 1549), (8821, 1019), (6661, 1627), (13049, 1987), (5051, 1753)),
    ((2203, 941), (-1789, 1447), (3203, 1163), (-2131, 1543), (2903, 1051), (-1319, 1597), (2207, 1931), (-3019, 1741)),
    ((211, 997), (337, 1409), (101, 1201), (457, 1571), (173, 1013), (389, 1607), (307, 1949), (593, 1777)),
    ((1109, 953), (1801, 1433), (1493, 1181), (1877, 1553), (1213, 1031), (1907, 1601), (2243, 1933), (2011, 1759)),
    (
        (45007, 977),
        (79999, 1429),
        (52009, 1217),
        (97001, 1549),
        (64007, 1019),
        (91009, 1627),
        (83003, 1987),
        (39019, 1753),
    ),
)
_INTEGERS: tuple[tuple[Rational, ...], ...] = (
    ((7, 1), (4, 1), (11, 1), (3, 1), (9, 1), (5, 1), (13, 1), (6, 1)),
    ((4, 1), (9, 1), (2, 1), (8, 1), (5, 1), (12, 1), (3, 1), (10, 1)),
    ((6, 1), (3, 1), (8, 1), (5, 1), (10, 1), (2, 1), (7, 1), (4, 1)),
)


class Answer(NamedTuple):
    """Whether two things are the same; None where that stayed open."""

    same: bool | None
    route: Route
    reason: str = ""


def point(names: tuple[str, ...], row: tuple[Rational, ...]) -> dict[str, Rational]:
    """A value for each variable, by its place in the alphabet of both answers."""
    return {
        name: row[i] if i < len(row) else (row[i % len(row)][0] + 2 * i, row[i % len(row)][1])
        for i, name in enumerate(names)
    }


def _variables(left: Traits, right: Traits) -> tuple[str, ...]:
    """The variables of both sides, in the order of the alphabet."""
    return tuple(sorted(left.symbols | right.symbols))


def same_expression(a: Node, b: Node, *, decimal_digits: int) -> Answer:
    """Compare two expressions at fixed points: one proven difference decides, agreement everywhere is equality."""
    names: tuple[str, ...] = ()
    if not (type(a) is type(b) is Num):
        left, right = traits(a), traits(b)
        names = _variables(left, right)
    answer = _exact(a, b, names)
    if answer is None:
        answer = _intervals(a, b, names, left, right, log_base=0)
        if answer.same is False and (left.bare_log or right.bare_log):
            decimal = _intervals(a, b, names, left, right, log_base=10)
            answer = decimal if decimal.same else answer
    if answer.same is False and not names and decimal_digits:
        return _rounded(a, b, decimal_digits) or _rounded(b, a, decimal_digits) or answer
    return answer


def _exact(a: Node, b: Node, names: tuple[str, ...]) -> Answer | None:
    """Exact rationals, at three points where there are variables; None where a value is not rational."""
    agreed = 0
    try:
        for row in _POINTS if names else _POINTS[:1]:
            values = point(names, row) if names else {}
            try:
                (p, q), (r, s) = rational(a, values), rational(b, values)
            except ZeroDivisionError:
                continue
            if p * s != r * q:
                return Answer(
                    False, "exact", "" if not names else "they differ where the variables have the same values"
                )
            agreed += 1
            if agreed == 3 or not names:
                return Answer(True, "exact")
    except InexactError:
        return None
    return None


def _intervals(a: Node, b: Node, names: tuple[str, ...], left: Traits, right: Traits, *, log_base: int) -> Answer:
    imaginary = left.imaginary or right.imaginary or not names
    agreed, wanted = 0, 3 if names else 1
    rows = (*_POINTS, *_INTEGERS) if names else _POINTS[:1]
    if names and (left.sums or right.sums):
        rows = (*_INTEGERS, *_POINTS)
    for row in rows:
        values = point(names, row) if names else {}
        try:
            x, y = ball(a, values, BITS, log_base=log_base), ball(b, values, BITS, log_base=log_base)
            if not _usable(x, imaginary) or not _usable(y, imaginary):
                continue
            if not x.overlaps(y):
                return Answer(False, "numeric", "their values differ")
            bits = MORE_BITS if names else CONSTANT_BITS
            x, y = ball(a, values, bits, log_base=log_base), ball(b, values, bits, log_base=log_base)
        except InexactError:
            continue
        if not x.overlaps(y):
            return Answer(False, "numeric", "their values differ")
        if not _sharp(x) or not _sharp(y):
            return Answer(None, "limit", "cancellation beyond the precision")
        agreed += 1
        if agreed == wanted:
            return Answer(True, "numeric")
    if agreed >= 2:
        return Answer(True, "numeric")
    return Answer(None, "numeric", "no common point to compare at")


def _usable(x: Ball, imaginary: bool) -> bool:
    return bool(x.is_finite()) and (imaginary or bool(x.imag.contains(0)))


def _sharp(x: Ball) -> bool:
    """A value known to 200 bits, or a zero known to as many places."""
    return x.rel_accuracy_bits() > 200 or bool(x.abs_upper() < 2.0**-200)


def _rounded(decimal: Node, other: Node, least_digits: int) -> Answer | None:
    """A decimal against a value that is no decimal: does the value round to the digits that were given?"""
    sign = 1
    while isinstance(decimal, Neg):
        decimal, sign = decimal.x, -sign
    if not isinstance(decimal, Num) or decimal.digits < least_digits:
        return None
    if isinstance(other, Num) and (other.q == 1 or (other.digits and decimal.digits < _FLOAT_DIGITS)):
        return None
    difference = Add((Mul((other, Num(decimal.q))), Num(-sign * decimal.p)))
    try:
        error = ball(difference, {}, MORE_BITS)
    except (InexactError, LimitError):
        return None
    units = 0.5 if decimal.digits < 8 else 1 if decimal.digits < _FLOAT_DIGITS else 10
    if error.is_finite() and error.imag.contains(0) and abs(error) <= units:
        return Answer(True, "numeric", f"equal to the {decimal.digits} digits given")
    return None


def constant_ratio(a: Node, b: Node) -> Ball | None:
    """The constant c with a = c·b at all points, where neither side is constant; None where there is none."""
    names = _variables(traits(a), traits(b))
    if not names:
        return None
    with precision(BITS):
        return _ratio(a, b, names)


def surely_differ(a: Node, b: Node) -> bool:
    """Whether two expressions with sums differ where all their sums and integrals can be worked out."""
    names = _variables(traits(a), traits(b))
    for row in _INTEGERS:
        values = point(names, row)
        try:
            x, y = ball(a, values, BITS, strict=True), ball(b, values, BITS, strict=True)
        except (InexactError, LimitError):
            continue
        if x.is_finite() and y.is_finite() and not x.overlaps(y):
            return True
    return False


def constant_difference(a: Node, b: Node) -> bool:
    """Whether a - b has one real value at all points where it has one, and at three of them at least."""
    names = _variables(traits(a), traits(b))
    difference, values = Add((a, Neg(b))), []
    for row in _POINTS:
        try:
            value = ball(difference, point(names, row), MORE_BITS)
        except (InexactError, LimitError):
            continue
        if value.is_finite() and value.imag.contains(0) and _sharp(value):
            values.append(value.real)
    return len(values) >= 3 and all(value.overlaps(values[0]) for value in values)


def _ratio(a: Node, b: Node, names: tuple[str, ...]) -> Ball | None:
    ratios: list[Ball] = []
    values_of_a: list[Ball] = []
    for row in _POINTS:
        try:
            x, y = ball(a, point(names, row), BITS), ball(b, point(names, row), BITS)
        except InexactError:
            continue
        if not (x.is_finite() and y.is_finite()) or x.contains(0) or y.contains(0):
            continue
        ratios.append(x / y)
        values_of_a.append(x)
        if len(ratios) > 1 and not ratios[-1].overlaps(ratios[0]):
            return None
        if len(ratios) == 4:
            break
    if len(ratios) < 3 or all(value.overlaps(values_of_a[0]) for value in values_of_a):
        return None
    return ratios[0]


def real_value(node: Node, bits: int = CONSTANT_BITS) -> Ball | None:
    """A real constant as an `arb`, infinities too; None for anything else."""
    if sign := infinite_sign(node):
        return infinity(sign)
    try:
        value = ball(node, {}, bits)
    except (InexactError, LimitError):
        return None
    return value.real if value.is_finite() and value.imag.contains(0) else None


def infinite_sign(node: Node) -> int:
    """1 for infinity, -1 for minus infinity, 0 for anything else."""
    if isinstance(node, Neg):
        return -infinite_sign(node.x)
    return int(node == INFINITY)


def is_constant(node: Node) -> bool:
    """Whether an expression has no variables and no unknown functions."""
    found = traits(node)
    return not found.symbols and not found.unknown
