"""Complex balls (Arb, through python-flint): the library, its precision, and the functions of mathematics on balls."""

from __future__ import annotations

import threading
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

from treeforge.label.exact import InexactError
from treeforge.label.tokens import LimitError

MAX_EXPONENT = 1e9
"""A power, exponential or factorial of a larger logarithm is not computed (route `limit`)."""

Ball = Any
"""`flint.acb`, or `flint.arb` where a value is real; the library ships no types."""

_PRECISION = threading.RLock()
"""The library's precision is one for all threads."""


@lru_cache(maxsize=1)
def flint() -> Any:
    """The library, imported when it is first needed."""
    import flint

    return flint


@contextmanager
def precision(bits: int) -> Iterator[None]:
    """Arithmetic with balls inside is done with `bits` bits."""
    context = flint().ctx
    with _PRECISION:
        before = context.prec
        context.prec = bits
        try:
            yield
        finally:
            context.prec = before


def infinity(sign: int) -> Ball:
    """Plus or minus infinity, as a real ball."""
    return flint().arb.pos_inf() if sign > 0 else flint().arb.neg_inf()


def guard(exponent: Ball) -> None:
    """Raise `LimitError` before a power or a factorial of this size, `InexactError` where the size is unknown."""
    if not exponent.is_finite():
        raise InexactError
    if not exponent.abs_upper() < MAX_EXPONENT:
        raise LimitError("a number too large to compute")


def root(x: Ball, n: int) -> Ball:
    """Real for an odd root of a negative real, as in school; principal otherwise."""
    if n == 2:
        return x.sqrt()
    if n % 2 and x.imag.is_zero() and x.real < 0:
        return -((-x) ** (type(x)(1) / n))
    return x ** (type(x)(1) / n)


def modulo(x: Ball, n: Ball) -> Ball:
    """What is left of x after whole multiples of n."""
    return x - n * _floor(_real(x / n))


def stand_in(name: str, args: list[Ball]) -> Ball:
    """A function nobody defined: a fixed generic analytic one, so that equal arguments, and only they, agree."""
    library = flint()
    fmpq = library.fmpq
    seed = zlib.crc32(name.encode("utf-8", "replace")) % 9973 + 3
    result = library.acb(fmpq(seed, 7919))
    for place, x in enumerate(args, start=2):
        guard(x)
        result = result + (x * fmpq(seed % 89 + place, 97)).cos() * fmpq(seed % 83 + 7, 13) + x * x / seed
    return result


def _floor(x: Ball) -> Ball:
    """The floor, where the ball leaves no doubt."""
    result = x.real_floor()
    if not result.is_exact():
        raise InexactError
    return result


def _real(x: Ball) -> Ball:
    if not x.imag.is_zero():
        raise InexactError
    return x


FUNCTIONS: dict[str, Callable[[Ball], Ball]] = {
    "sqrt": lambda x: x.sqrt(),
    "exp": lambda x: x.exp(),
    "ln": lambda x: x.log(),
    "lg": lambda x: x.log() / type(x)(10).log(),
    "abs": lambda x: type(x)(abs(x)),
    "floor": lambda x: _floor(_real(x)),
    "ceil": lambda x: -_floor(-_real(x)),
    "sgn": lambda x: x.real_sgn(),
    "factorial": lambda x: (x + 1).gamma(),
    "sin": lambda x: x.sin(),
    "cos": lambda x: x.cos(),
    "tan": lambda x: x.tan(),
    "cot": lambda x: x.cot(),
    "sec": lambda x: x.sec(),
    "csc": lambda x: x.csc(),
    "arcsin": lambda x: x.asin(),
    "arccos": lambda x: x.acos(),
    "arctan": lambda x: x.atan(),
    "arccot": lambda x: (1 / x).atan(),
    "arcsec": lambda x: (1 / x).acos(),
    "arccsc": lambda x: (1 / x).asin(),
    "sinh": lambda x: x.sinh(),
    "cosh": lambda x: x.cosh(),
    "tanh": lambda x: x.tanh(),
    "coth": lambda x: x.coth(),
    "sech": lambda x: x.sech(),
    "csch": lambda x: x.csch(),
    "arcsinh": lambda x: x.asinh(),
    "arccosh": lambda x: x.acosh(),
    "arctanh": lambda x: x.atanh(),
    "Re": lambda x: type(x)(x.real),
    "Im": lambda x: type(x)(x.imag),
    "conj": lambda x: x.conjugate(),
}
"""Functions of one argument that the library has, by their canonical names."""
