"""What an expression contains, found in one walk."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from treeforge.label.syntax import (
    Add,
    Big,
    Call,
    Const,
    Degree,
    Div,
    Matrix,
    Mul,
    Neg,
    Node,
    Percent,
    PlusMinus,
    Pow,
    Quantity,
    Ratio,
    Relation,
    Seq,
    SetOp,
    Sym,
    Text,
)
from treeforge.label.vocabulary import FUNCTIONS

_KNOWN = FUNCTIONS | {"root", "factorial", "factorial2", "conj", "mod"}


class Traits(NamedTuple):
    """Variables and special things of an expression."""

    symbols: frozenset[str]
    imaginary: bool
    """The imaginary unit stands in it."""
    bare_log: bool
    """A logarithm without a base stands in it."""
    unknown: bool
    """A function nobody defined, words, or a list stands in it."""
    plus_minus: bool
    degrees: bool
    """An angle in degrees stands in it."""
    divisors: bool
    """A `gcd` or `lcm` stands in it."""
    matrices: bool
    lists: bool
    """A list, a set or words stand in it."""
    bigs: bool
    """A sum, product, limit or integral stands in it."""
    sums: bool
    """A sum or product over a running variable stands in it."""


@lru_cache(maxsize=4096)
def traits(node: Node) -> Traits:
    """Walk the tree once."""
    symbols: set[str] = set()
    imaginary = bare_log = unknown = plus_minus = degrees = divisors = matrices = lists = bigs = sums = False
    bound: set[str] = set()
    stack: list[Node] = [node]
    while stack:
        item = stack.pop()
        if isinstance(item, Sym):
            symbols.add(item.name)
        elif isinstance(item, Const):
            imaginary = imaginary or item.name == "i"
        elif isinstance(item, PlusMinus):
            plus_minus = True
            stack.append(item.x)
        elif isinstance(item, Call):
            bare_log = bare_log or (item.name == "log" and len(item.args) == 1)
            unknown = unknown or item.name not in _KNOWN
            divisors = divisors or item.name in ("gcd", "lcm")
            stack.extend(item.args)
        elif isinstance(item, Big):
            bound.add(item.var)
            bigs = True
            sums = sums or item.op in ("sum", "prod")
            stack.append(item.body)
            stack.extend(x for x in (item.low, item.high) if x is not None)
        elif isinstance(item, Text | Seq | SetOp | Relation | Ratio):
            unknown = lists = True
            stack.extend(children(item))
        else:
            degrees = degrees or isinstance(item, Degree)
            matrices = matrices or isinstance(item, Matrix)
            stack.extend(children(item))
    return Traits(
        frozenset(symbols - bound),
        imaginary,
        bare_log,
        unknown,
        plus_minus,
        degrees,
        divisors,
        matrices,
        lists,
        bigs,
        sums,
    )


def children(node: Node) -> tuple[Node, ...]:
    """The nodes right below a node."""
    if isinstance(node, Add):
        return node.terms
    if isinstance(node, Mul):
        return node.factors
    if isinstance(node, Neg | PlusMinus | Percent | Degree | Quantity):
        return (node.x,)
    if isinstance(node, Div):
        return node.a, node.b
    if isinstance(node, Pow):
        return node.base, node.exponent
    if isinstance(node, Call | SetOp):
        return node.args
    if isinstance(node, Seq):
        return node.items
    if isinstance(node, Ratio):
        return node.parts
    if isinstance(node, Relation):
        return node.operands
    if isinstance(node, Matrix):
        return tuple(cell for row in node.rows for cell in row)
    return ()
