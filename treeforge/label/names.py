"""Names in answers: `x = 5` for 5, `f(x) = 2x` for 2x, `(x, y) = (1, 2)`, `x ∈ S` for S."""

from __future__ import annotations

from collections.abc import Sequence

from treeforge.label.syntax import IMAGINARY, Call, Div, Mul, Node, Ratio, Relation, Seq, Sym, Text
from treeforge.label.walk import traits

_RATIOS = frozenset(("sin", "cos", "tan", "cot", "sec", "csc"))
EQUALITIES = frozenset(("=", "approx", "equiv", "to"))


def bare_values(a: Sequence[Node], b: Sequence[Node]) -> tuple[Sequence[Node], Sequence[Node]]:
    """Items without their names, unless all items of both lists have one."""
    if all(named(x) is not None for x in (*a, *b)):
        return a, b
    return [unnamed(x) for x in a], [unnamed(x) for x in b]


def unnamed(node: Node) -> Node:
    """The value of a named one; other nodes as they are."""
    found = named(node)
    return node if found is None else found[1]


def named(node: Node) -> tuple[Node, Node] | None:
    """(name, value) of `x = 5`, `5 = x`, `f(x) = … = 5`, `(x, y) = (1, 2)`, `x ∈ S`; None for other nodes."""
    if not isinstance(node, Relation):
        return None
    if node.ops == ("in",) and is_name(node.operands[0]):
        return node.operands[0], node.operands[1]
    if not set(node.ops) <= EQUALITIES:
        return None
    name, value = node.operands[0], last_exact(node)
    if not is_name(name):
        name, value = node.operands[-1], node.operands[-2]
        if not is_name(name) or len(node.operands) > 2:
            return None
    return name, value


def last_exact(node: Relation) -> Node:
    """The last operand before the first `≈` after the value: what follows that is no longer exact."""
    start = 1 if is_name(node.operands[0]) else 0
    for op, operand in zip(node.ops[start:], node.operands[start:], strict=False):
        if op == "approx":
            return operand
    return node.operands[-1]


def is_name(node: Node) -> bool:
    """Stands for a value: a variable, a function at its argument, a segment `AB`, a tuple of names, words."""
    if isinstance(node, Sym) or node == IMAGINARY:  # the interval I
        return True
    if isinstance(node, Call):
        if node.name == "abs":  # the length of a segment
            return isinstance(node.args[0], Mul) and is_name(node.args[0])
        return traits(node).unknown or (node.name in _RATIOS and isinstance(node.args[0], Sym | Mul))
    if isinstance(node, Mul):
        if isinstance(node.factors[-1], Sym) and node.factors[-1].name.startswith("angle "):
            return node.factors[:-1] == (Sym("m"),)
        return all(isinstance(x, Sym) and len(x.name) == 1 and x.name.isupper() for x in node.factors)
    if isinstance(node, Seq):
        return all(is_name(item) for item in node.items)
    if isinstance(node, Ratio):
        return all(is_name(part) for part in node.parts)
    if isinstance(node, Div):
        return all(isinstance(x, Sym | Mul) and is_name(x) for x in (node.a, node.b))
    return isinstance(node, Text)
