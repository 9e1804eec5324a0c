"""Exact rational values of expressions, as unreduced pairs of integers: ten times faster than `fractions`, bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import comb, factorial, gcd, isqrt, lcm, prod

from treeforge.label.syntax import Add, Big, Call, Div, Mul, Neg, Node, Num, Percent, Pow, Sym

Rational = tuple[int, int]
"""(p, q) with q > 0, not reduced."""

MAX_BITS = 60_000
"""An integer of more bits is left to interval arithmetic."""
MAX_TERMS = 1_000
"""A sum or product of more terms is not written out."""


class InexactError(Exception):
    """The expression has no rational value here, or one too large to write out."""


def rational(node: Node, values: Mapping[str, Rational], terms: int = MAX_TERMS) -> Rational:
    """The exact value of `node` with variables at `values`.

    `terms` is how many terms of sums and products may be written out, nested ones multiplied.
    Raises `InexactError` where there is none; a zero denominator is `ZeroDivisionError`.
    """
    kind = type(node)
    if kind is Num:
        return node.p, node.q  # type: ignore[union-attr]
    if isinstance(node, Sym):
        try:
            return values[node.name]
        except KeyError:
            raise InexactError from None
    if isinstance(node, Mul):
        p, q = 1, 1
        for factor in node.factors:
            a, b = rational(factor, values, terms)
            p, q = p * a, q * b
        return _bounded(p, q)
    if isinstance(node, Add):
        p, q = 0, 1
        for term in node.terms:
            a, b = rational(term, values, terms)
            p, q = (p + a, q) if b == q else (p * b + a * q, q * b)
        return _bounded(p, q)
    if isinstance(node, Neg):
        p, q = rational(node.x, values, terms)
        return -p, q
    if isinstance(node, Div):
        (a, b), (c, d) = rational(node.a, values, terms), rational(node.b, values, terms)
        if c == 0:
            raise ZeroDivisionError
        return _bounded(a * d, b * c) if c > 0 else _bounded(-a * d, -b * c)
    if isinstance(node, Pow):
        return _power(rational(node.base, values, terms), rational(node.exponent, values, terms))
    if isinstance(node, Call):
        return _call(node, values, terms)
    if isinstance(node, Big):
        return _big(node, values, terms)
    if isinstance(node, Percent):
        p, q = rational(node.x, values, terms)
        return p, q * 100
    raise InexactError


def _bounded(p: int, q: int) -> Rational:
    if q > 0xFFFFFFFFFFFFFFFF:
        common = gcd(p, q)
        p, q = p // common, q // common
        if q.bit_length() > MAX_BITS:
            raise InexactError
    if p.bit_length() > MAX_BITS:
        raise InexactError
    return p, q


def _power(base: Rational, exponent: Rational) -> Rational:
    (p, q), (n, m) = base, exponent
    if m != 1:
        n, m = _reduced(n, m)
        if m != 1:
            return _root(_power(base, (n, 1)), m)
    if n < 0:
        if p == 0:
            raise ZeroDivisionError
        p, q, n = (q, p, -n) if p > 0 else (-q, -p, -n)
    if n * max(p.bit_length(), q.bit_length()) > MAX_BITS:
        if q != 1 or abs(p) > 1:
            raise InexactError
        n = n % 2 + 2
    return p**n, q**n


def _root(value: Rational, index: int) -> Rational:
    """The real root where it is rational, of negative numbers the odd ones; small indices only."""
    if not 1 < index <= 64:
        raise InexactError
    p, q = value
    common = gcd(p, q)
    p, q = p // common, q // common
    if p < 0:
        if index % 2 == 0:
            raise InexactError
        return -_integer_root(-p, index), _integer_root(q, index)
    return _integer_root(p, index), _integer_root(q, index)


def _integer_root(n: int, index: int) -> int:
    if index == 2:
        root = isqrt(n)
    else:
        if n.bit_length() > 900:
            raise InexactError
        root = round(n ** (1 / index))
    if root**index != n:
        raise InexactError
    return root


def _call(node: Call, values: Mapping[str, Rational], terms: int) -> Rational:
    name = node.name
    if name == "root":
        p, q = rational(node.args[0], values, terms)
        n, m = rational(node.args[1], values, terms)
        if n % m:
            raise InexactError
        return _root((p, q), n // m)
    if name not in _EXACT:
        raise InexactError
    return _EXACT[name](*(rational(arg, values, terms) for arg in node.args))


def _integer(value: Rational) -> int:
    if value[0] % value[1]:
        raise InexactError
    return value[0] // value[1]


def _factorial(x: Rational) -> Rational:
    n = _integer(x)
    if not 0 <= n <= 4_000:
        raise InexactError
    return _bounded(factorial(n), 1)


def _double_factorial(x: Rational) -> Rational:
    n = _integer(x)
    if not 0 <= n <= 4_000:
        raise InexactError
    return _bounded(prod(range(n, 0, -2)), 1)


def _binomial(x: Rational, y: Rational) -> Rational:
    n, k = _integer(x), _integer(y)
    if not 0 <= k <= n <= 4_000:
        raise InexactError
    return comb(n, k), 1


def _gcd(*values: Rational) -> Rational:
    reduced = [_reduced(*value) for value in values]
    return gcd(*(p for p, _ in reduced)), lcm(*(q for _, q in reduced))


def _lcm(*values: Rational) -> Rational:
    reduced = [_reduced(*value) for value in values]
    return lcm(*(p for p, _ in reduced)), gcd(*(q for _, q in reduced))


def _modulo(x: Rational, n: Rational) -> Rational:
    if n[0] == 0:
        raise ZeroDivisionError
    return x[0] * n[1] % (n[0] * x[1]), x[1] * n[1]


def _reduced(p: int, q: int) -> Rational:
    common = gcd(p, q) or 1
    return p // common, q // common


def _largest(*values: Rational) -> Rational:
    best = values[0]
    for value in values[1:]:
        if value[0] * best[1] > best[0] * value[1]:
            best = value
    return best


def _negative(x: Rational) -> Rational:
    return -x[0], x[1]


_EXACT: dict[str, Callable[..., Rational]] = {
    "abs": lambda x: (abs(x[0]), x[1]),
    "floor": lambda x: (x[0] // x[1], 1),
    "ceil": lambda x: (-(-x[0] // x[1]), 1),
    "sgn": lambda x: ((x[0] > 0) - (x[0] < 0), 1),
    "mod": _modulo,
    "gcd": _gcd,
    "lcm": _lcm,
    "max": _largest,
    "min": lambda *values: _negative(_largest(*map(_negative, values))),
    "binom": _binomial,
    "factorial": _factorial,
    "factorial2": _double_factorial,
    "sqrt": lambda x: _root(x, 2),
}


def _big(node: Big, values: Mapping[str, Rational], terms: int) -> Rational:
    if node.op in ("int", "lim") or node.low is None or node.high is None or not node.var:
        raise InexactError
    low, high = _integer(rational(node.low, values, terms)), _integer(rational(node.high, values, terms))
    count = max(high - low + 1, 1)
    if count > terms:
        raise InexactError
    p, q = (0, 1) if node.op == "sum" else (1, 1)
    for index in range(low, high + 1):
        a, b = rational(node.body, {**values, node.var: (index, 1)}, terms // count)
        p, q = _bounded(p * b + a * q, q * b) if node.op == "sum" else _bounded(p * a, q * b)
    return p, q
