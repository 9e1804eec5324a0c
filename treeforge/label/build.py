"""Small constructions that the parser makes of numerals, signs and factors."""

from __future__ import annotations

from treeforge.label.syntax import (
    Based,
    Degree,
    Mul,
    Neg,
    Node,
    Num,
    Percent,
    PlusMinus,
    Quantity,
    Relation,
    Seq,
    Sym,
    Text,
)
from treeforge.label.tokens import LimitError, ReadError


def number(text: str) -> Num:
    """A numeral's exact value, with the digits that were given where it is a decimal."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, point, fraction = mantissa.partition(".")
    if not point and not exponent:
        return Num(int(whole))
    p, q = int(whole + fraction or "0"), 10 ** len(fraction)
    digits = len((whole + fraction).lstrip("0")) if fraction else 0
    if exponent:
        shift = int(exponent)
        if abs(shift) > 400:
            raise LimitError("an exponent beyond 400")
        return Num(p * 10**shift, q) if shift >= 0 else Num(p, q * 10**-shift, digits)
    return Num(p, q, digits)


def repeating(text: str) -> Num:
    """`0.1\\overline{6}`: the exact rational."""
    head, _, block = text.partition("\\")
    block = "".join(c for c in block if c.isdigit())
    whole, _, fixed = head.partition(".")
    scale, nines = 10 ** len(fixed), 10 ** len(block) - 1
    return Num(int(whole + fixed or "0") * nines + int(block), scale * nines)


def negated(node: Node) -> Node:
    """Minus a node; signs go into numbers, and before units stay with the number."""
    if isinstance(node, Num):
        return Num(-node.p, node.q, node.digits)
    if isinstance(node, Quantity):
        return Quantity(negated(node.x), node.unit)
    if isinstance(node, Based):
        return Based(f"-{node.digits}", node.base)
    if isinstance(node, Percent | Degree):
        return type(node)(negated(node.x))
    return Neg(node)


def factors_of(node: Node) -> list[Node]:
    """Factors of a product, of nested products too."""
    if isinstance(node, Seq) and len(node.items) == 1:
        return factors_of(node.items[0])
    if not isinstance(node, Mul):
        return [node]
    return [inner for factor in node.factors for inner in factors_of(factor)]


def product(factors: list[Node]) -> Node:
    """One factor as it is, more as a product."""
    return factors[0] if len(factors) == 1 else Mul(tuple(map(_ungrouped, factors)))


def _ungrouped(node: Node) -> Node:
    """Braces around one factor of a product only group it."""
    return node.items[0] if isinstance(node, Seq) and len(node.items) == 1 else node


def spread_exclusions(items: list[Node]) -> list[Node]:
    """`x ≠ 0, 1` and `x ≠ ±2` as `x ≠ 0, x ≠ 1` and `x ≠ 2, x ≠ -2`; other lists as they are."""
    first = items[0]
    if not isinstance(first, Relation) or first.ops != ("!=",) or any(isinstance(x, Relation) for x in items[1:]):
        return items
    name, value = first.operands
    values = [
        x for item in (value, *items[1:]) for x in ((item.x, Neg(item.x)) if isinstance(item, PlusMinus) else (item,))
    ]
    return [Relation(("!=",), (name, x)) for x in values]


def primed(base: Node, mark: Text | Node) -> Node:
    """A name with a prime: `f'`."""
    if isinstance(base, Sym) and isinstance(mark, Text):
        return Sym(base.name + mark.content)
    raise ReadError("a prime on an expression")
