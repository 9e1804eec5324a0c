"""What an answer is once it has been read: a small typed syntax tree, immutable and bounded."""

from __future__ import annotations

from typing import TypeAlias

import msgspec


class _Node(msgspec.Struct, frozen=True, gc=False, tag=True):
    """Base of all nodes: immutable, hashable, tagged in JSON."""


class Num(_Node, frozen=True, gc=False):
    """The rational p/q as it was written, not reduced."""

    p: int
    q: int = 1
    digits: int = 0
    """Significant digits of a number written as a decimal (q is then a power of ten); 0 for exact ones."""


class Sym(_Node, frozen=True, gc=False):
    """A variable; subscripts and accents are part of the name."""

    name: str


class Const(_Node, frozen=True, gc=False):
    """`pi`, `e`, `i` or `inf`."""

    name: str


class Add(_Node, frozen=True, gc=False):
    """A sum of two or more terms."""

    terms: tuple[Node, ...]


class Neg(_Node, frozen=True, gc=False):
    """Unary minus."""

    x: Node


class Mul(_Node, frozen=True, gc=False):
    """A product of two or more factors."""

    factors: tuple[Node, ...]


class Div(_Node, frozen=True, gc=False):
    """A quotient."""

    a: Node
    b: Node


class Pow(_Node, frozen=True, gc=False):
    """A power."""

    base: Node
    exponent: Node


class Call(_Node, frozen=True, gc=False):
    """A function of `FUNCTIONS`, or an unknown one (`f`), at its arguments."""

    name: str
    args: tuple[Node, ...]


class Big(_Node, frozen=True, gc=False):
    """`sum`, `prod` or `int` of `body` over `var` from `low` to `high` (None where not given)."""

    op: str
    var: str
    low: Node | None
    high: Node | None
    body: Node


class PlusMinus(_Node, frozen=True, gc=False):
    """`±x` (sign 1) or `∓x` (sign -1): two values, all signs of one expression chosen together."""

    sign: int
    x: Node


class Percent(_Node, frozen=True, gc=False):
    """`x%`."""

    x: Node


class Degree(_Node, frozen=True, gc=False):
    """`x°`: an angle in degrees."""

    x: Node


class Based(_Node, frozen=True, gc=False):
    """A numeral with its base, `52_8`."""

    digits: str
    base: int


class Quantity(_Node, frozen=True, gc=False):
    """A number with a unit, as written."""

    x: Node
    unit: str


class Seq(_Node, frozen=True, gc=False):
    """Items in brackets: `(a, b)`, `[a, b)`, `{a, b}`; a bare list `a, b` has empty brackets."""

    left: str
    right: str
    items: tuple[Node, ...]


class SetOp(_Node, frozen=True, gc=False):
    """`union`, `intersection` or `difference` of sets."""

    op: str
    args: tuple[Node, ...]


class Ratio(_Node, frozen=True, gc=False):
    """`a : b : c`."""

    parts: tuple[Node, ...]


class Matrix(_Node, frozen=True, gc=False):
    """Rows of a matrix or of an array; `cases` environments are bare lists instead."""

    rows: tuple[tuple[Node, ...], ...]


class Relation(_Node, frozen=True, gc=False):
    """A chain `a < b <= c`: operators of `= != < <= > >= in approx equiv` between operands."""

    ops: tuple[str, ...]
    operands: tuple[Node, ...]


class Text(_Node, frozen=True, gc=False):
    """Words."""

    content: str


Node: TypeAlias = (
    Num
    | Sym
    | Const
    | Add
    | Neg
    | Mul
    | Div
    | Pow
    | Call
    | Big
    | PlusMinus
    | Percent
    | Degree
    | Based
    | Quantity
    | Seq
    | SetOp
    | Ratio
    | Matrix
    | Relation
    | Text
)

EULER, IMAGINARY, INFINITY = Const("e"), Const("i"), Const("inf")
EMPTY_SET = Seq("{", "}", ())
FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "approx": "approx", "equiv": "equiv"}
"""The operators of relations, read from right to left; `in` and `to` have no other side."""
