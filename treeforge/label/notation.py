"""Syntax trees in plain notation, for people: what a text was read as."""

from __future__ import annotations

from treeforge.label.syntax import (
    Add,
    Based,
    Big,
    Call,
    Const,
    Degree,
    Div,
    Matrix,
    Mul,
    Neg,
    Node,
    Num,
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

_SIGNS = {"union": " ∪ ", "intersection": " ∩ ", "difference": " \\ "}
_RELATIONS = {"<=": "≤", ">=": "≥", "!=": "≠", "in": "∈", "approx": "≈", "equiv": "≡", "to": "→"}
_CONSTANTS = {"pi": "π", "inf": "∞"}


def notation(node: Node) -> str:
    """One line in plain mathematics, with brackets wherever they could be missed."""
    if isinstance(node, Num):
        return str(node.p) if node.q == 1 else _decimal(node) if node.digits else f"{node.p}/{node.q}"
    if isinstance(node, Sym):
        return node.name
    if isinstance(node, Const):
        return _CONSTANTS.get(node.name, node.name)
    if isinstance(node, Add):
        return " + ".join(map(_part, node.terms))
    if isinstance(node, Mul):
        return "*".join(map(_part, node.factors))
    if isinstance(node, Neg):
        return f"-{_part(node.x)}"
    if isinstance(node, Div):
        return f"{_part(node.a)}/{_part(node.b)}"
    if isinstance(node, Pow):
        return f"{_part(node.base)}^{_part(node.exponent)}"
    if isinstance(node, PlusMinus):
        return f"{'±' if node.sign > 0 else '∓'}{_part(node.x)}"
    if isinstance(node, Percent):
        return f"{_part(node.x)}%"
    if isinstance(node, Degree):
        return f"{_part(node.x)}°"
    if isinstance(node, Quantity):
        return f"{_part(node.x)} [{node.unit}]"
    if isinstance(node, Based):
        return f"{node.digits} (base {node.base})"
    if isinstance(node, Call):
        return f"{node.name}({_list(node.args)})"
    if isinstance(node, Big):
        return _big(node)
    if isinstance(node, Seq):
        if node.left:
            return f"{node.left}{_list(node.items)}{node.right}"
        separator = f" {node.right} " if node.right else ", "
        return f"list: {separator.join(map(notation, node.items))}"
    if isinstance(node, SetOp):
        return _SIGNS[node.op].join(map(_part, node.args))
    if isinstance(node, Ratio):
        return " : ".join(map(_part, node.parts))
    if isinstance(node, Matrix):
        return f"matrix [{'; '.join(map(_list, node.rows))}]"
    if isinstance(node, Relation):
        signs = [f" {_RELATIONS.get(op, op)} " for op in node.ops]
        return "".join(x for pair in zip(map(notation, node.operands), [*signs, ""], strict=True) for x in pair)
    assert isinstance(node, Text)
    return f'"{node.content}"'


def _part(node: Node) -> str:
    text = notation(node)
    simple = isinstance(node, Sym | Const | Call | Seq | Text) or (
        isinstance(node, Num) and node.q == 1 and node.p >= 0
    )
    return text if simple else f"({text})"


def _list(nodes: tuple[Node, ...]) -> str:
    return ", ".join(map(notation, nodes))


def _decimal(node: Num) -> str:
    places = len(str(node.q)) - 1
    whole, fraction = divmod(abs(node.p), node.q)
    return f"{'-' if node.p < 0 else ''}{whole}.{fraction:0{places}d}"


def _big(node: Big) -> str:
    bounds = [notation(bound) for bound in (node.low, node.high) if bound is not None]
    return f"{node.op}[{node.var}: {' … '.join(bounds)}]({notation(node.body)})"
