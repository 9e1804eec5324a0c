"""Sets of real numbers: intervals, finite sets, unions, and inequalities in one variable, in one canonical form."""

from __future__ import annotations

from functools import cmp_to_key
from typing import NamedTuple

from treeforge.label.balls import Ball, precision
from treeforge.label.evaluation import ball
from treeforge.label.exact import InexactError
from treeforge.label.numeric import CONSTANT_BITS, is_constant, real_value
from treeforge.label.syntax import EMPTY_SET, FLIPPED, INFINITY, Add, Call, Neg, Node, Num, Relation, Seq, SetOp, Sym
from treeforge.label.walk import traits

MAX_PIECES = 64
"""A set of more pieces is compared item by item instead."""

_REALS = frozenset(("mathbb R", "Bbb R"))
_HALVES = {"mathbb R^+": (">", 0), "mathbb R_+": (">", 0), "mathbb R^-": ("<", 0), "mathbb R_-": ("<", 0)}


class Piece(NamedTuple):
    """A non-empty interval of the real line; a point has equal closed ends."""

    low: Ball
    low_closed: bool
    high: Ball
    high_closed: bool


def real_set(node: Node) -> list[Piece] | None:
    """The disjoint pieces of a set of reals, from left to right; None where it is no such set."""
    pieces = _pieces(node)
    return None if pieces is None else _merged(pieces)


def same_set(a: list[Piece], b: list[Piece]) -> bool:
    """Whether two canonical sets are equal."""
    return len(a) == len(b) and all(
        x.low_closed == y.low_closed
        and x.high_closed == y.high_closed
        and _equal(x.low, y.low)
        and _equal(x.high, y.high)
        for x, y in zip(a, b, strict=True)
    )


def is_set_like(node: Node) -> bool:
    """Written as a set of reals in a way that nothing else is."""
    if isinstance(node, SetOp) or _is_difference(node):
        return True
    if isinstance(node, Seq):
        if _is_list_of_parts(node):
            return any(is_set_like(x) for x in node.items)
        return (
            node.left in ("(", "[")
            and len(node.items) == 2
            and (node.left + node.right in ("[)", "(]") or any(_infinite(item) for item in node.items))
        )
    return isinstance(node, Relation) and _is_inequality(node)


def _is_list_of_parts(node: Seq) -> bool:
    """Whether a bare list describes one set: its items do, and all of them speak of the same variable."""
    if node.left != "" or len(node.items) < 2 or not all(map(_part_of_set, node.items)):
        return False
    names = [_variables(item) for item in node.items if isinstance(item, Relation)]
    return all(name == names[0] for name in names)


def _variables(node: Relation) -> frozenset[str]:
    in_set = node.ops == ("in",)
    return traits(node.operands[0] if in_set else node).symbols


def _part_of_set(node: Node) -> bool:
    """An item of a list that describes a set: an inequality, `x = 2`, an interval."""
    if isinstance(node, Relation):
        return _is_inequality(node) or (node.ops in (("=",), ("in",)) and isinstance(node.operands[0], Sym))
    return isinstance(node, Seq) and node.left in ("(", "[") and len(node.items) == 2


def _is_difference(node: Node) -> bool:
    """`\\mathbb{R} - \\{0\\}`."""
    if not isinstance(node, Add) or not isinstance(node.terms[0], Sym | Seq):
        return False
    return all(isinstance(x, Neg) and isinstance(x.x, Seq) and x.x.left == "{" for x in node.terms[1:])


def _infinite(node: Node) -> bool:
    return node in (INFINITY, Neg(INFINITY))


def _is_inequality(node: Relation) -> bool:
    return all(op in ("<", "<=", ">", ">=", "!=") for op in node.ops)


def _pieces(node: Node) -> list[Piece] | None:
    if isinstance(node, Sym) and node.name in _REALS:
        return complement([])
    if isinstance(node, Sym) and node.name in _HALVES:
        op, bound = _HALVES[node.name]
        return _half_line(Sym("x"), op, Num(bound))
    if isinstance(node, Add) and _is_difference(node):
        removed = [term.x for term in node.terms[1:] if isinstance(term, Neg)]
        return _pieces(SetOp("difference", (node.terms[0], *removed)))
    if isinstance(node, Seq):
        return _from_brackets(node)
    if isinstance(node, SetOp):
        sets = [_pieces(arg) for arg in node.args]
        result = sets[0]
        for other in sets[1:]:
            if result is None or other is None or len(result) + len(other) > MAX_PIECES:
                return None
            if node.op == "union":
                result = result + other
            elif node.op == "intersection":
                result = _intersection(_merged(result), _merged(other))
            else:
                result = _intersection(_merged(result), complement(_merged(other)))
        return result
    if isinstance(node, Relation):
        return _from_relation(node)
    return None


def _from_brackets(node: Seq) -> list[Piece] | None:
    if node == EMPTY_SET:
        return []
    if _is_list_of_parts(node):
        return _listed(node)
    if node.left in ("{", ""):
        points = [real_value(item) for item in node.items if is_constant(item)]
        if len(points) != len(node.items) or any(point is None for point in points):
            return None
        return [Piece(point, True, point, True) for point in points]
    if len(node.items) != 2 or node.left not in "([" or node.right not in ")]":
        return None
    low, high = (real_value(item) if is_constant(item) else None for item in node.items)
    if low is None or high is None or not low < high:
        return None
    return [Piece(low, node.left == "[", high, node.right == "]")]


def _listed(node: Seq) -> list[Piece] | None:
    """Inequalities hold together, unless they are joined by *or* or never do; intervals are united."""
    sets = [_pieces(item) for item in node.items]
    known = [_merged(s) for s in sets if s is not None]
    if len(known) != len(sets):
        return None
    united = [piece for s in known for piece in s]
    if node.right == "or" or not all(isinstance(item, Relation) for item in node.items):
        return united
    result = known[0]
    for other in known[1:]:
        result = _intersection(result, other)
    return result or united


def _from_relation(node: Relation) -> list[Piece] | None:
    """`a < x <= b`, `x in S`, `x != a`, and anything linear in its one variable."""
    if node.ops == ("in",):
        return _pieces(node.operands[1])
    if node.ops == ("=",) and isinstance(node.operands[0], Sym) and is_constant(node.operands[1]):
        point = real_value(node.operands[1])
        return None if point is None or not point.is_finite() else [Piece(point, True, point, True)]
    if not _is_inequality(node):
        return None
    result: list[Piece] = complement([])
    for left, op, right in zip(node.operands, node.ops, node.operands[1:], strict=False):
        step = _half_line(left, op, right)
        if step is None:
            return None
        result = _intersection(result, step)
    return result


def _half_line(left: Node, op: str, right: Node) -> list[Piece] | None:
    if is_constant(left):
        left, op, right = right, FLIPPED[op], left
    if _is_name(left) and is_constant(right):
        bound = real_value(right)
    else:
        difference = Add((left, Neg(right)))
        names = traits(difference).symbols
        if len(names) != 1 or traits(difference).unknown:
            return None
        with precision(CONSTANT_BITS):
            solved = _linear_root(difference, next(iter(names)))
        if solved is None:
            return None
        bound, negative = solved
        op = FLIPPED[op] if negative else op
    if bound is None or not bound.is_finite():
        return None
    everything = complement([])[0]
    closed = op in ("<=", ">=")
    if op == "!=":
        return complement([Piece(bound, True, bound, True)])
    if op in ("<", "<="):
        return [Piece(everything.low, False, bound, closed)]
    return [Piece(bound, closed, everything.high, False)]


def _is_name(node: Node) -> bool:
    return isinstance(node, Sym) or (isinstance(node, Call) and traits(node).unknown)


def _linear_root(node: Node, name: str) -> tuple[Ball, bool] | None:
    """Root and sign of the slope of a linear function of one variable; None for any other function."""
    try:
        at = [ball(node, {name: x}, CONSTANT_BITS) for x in ((0, 1), (1, 1), (1789, 997), (-411, 613))]
    except InexactError:
        return None
    if not all(x.is_finite() and x.imag.contains(0) for x in at):
        return None
    start, slope = at[0].real, at[1].real - at[0].real
    if slope.contains(0):
        return None
    for x, value in zip(((1789, 997), (-411, 613)), at[2:], strict=True):
        if not (start * x[1] + slope * x[0] - value.real * x[1]).contains(0):
            return None
    return -start / slope, bool(slope < 0)


def _equal(a: Ball, b: Ball) -> bool:
    if a.is_finite() and b.is_finite():
        return bool(a.overlaps(b))
    return not a.is_finite() and not b.is_finite() and bool(a > 0) == bool(b > 0)


def _below(a: Ball, b: Ball) -> bool:
    return not _equal(a, b) and bool(a < b)


def _merged(pieces: list[Piece]) -> list[Piece]:
    """Sorted, overlapping and touching pieces joined."""

    def order(x: Piece, y: Piece) -> int:
        if _equal(x.low, y.low):
            return int(y.low_closed) - int(x.low_closed)
        return -1 if _below(x.low, y.low) else 1

    result: list[Piece] = []
    for piece in sorted(pieces, key=cmp_to_key(order)):
        if result:
            last = result[-1]
            touching = _equal(last.high, piece.low) and (last.high_closed or piece.low_closed)
            if touching or _below(piece.low, last.high):
                if _equal(last.high, piece.high):
                    result[-1] = last._replace(high_closed=last.high_closed or piece.high_closed)
                elif _below(last.high, piece.high):
                    result[-1] = last._replace(high=piece.high, high_closed=piece.high_closed)
                continue
        result.append(piece)
    return result


def complement(pieces: list[Piece]) -> list[Piece]:
    """The real line without canonical pieces."""
    low: Ball = real_value(Neg(INFINITY))
    high: Ball = real_value(INFINITY)
    result: list[Piece] = []
    start, closed = low, False
    for piece in pieces:
        if _below(start, piece.low) or (_equal(start, piece.low) and closed and not piece.low_closed):
            result.append(Piece(start, closed, piece.low, not piece.low_closed and piece.low.is_finite()))
        start, closed = piece.high, not piece.high_closed
    if start.is_finite() or not pieces:
        result.append(Piece(start, closed, high, False))
    return result


def _intersection(a: list[Piece], b: list[Piece]) -> list[Piece]:
    result: list[Piece] = []
    for x in a:
        for y in b:
            low, low_closed = _tighter(x.low, x.low_closed, y.low, y.low_closed, upper=False)
            high, high_closed = _tighter(x.high, x.high_closed, y.high, y.high_closed, upper=True)
            if _below(low, high) or (_equal(low, high) and low_closed and high_closed):
                result.append(Piece(low, low_closed, high, high_closed))
    return result


def _tighter(a: Ball, a_closed: bool, b: Ball, b_closed: bool, *, upper: bool) -> tuple[Ball, bool]:
    if _equal(a, b):
        return a, a_closed and b_closed
    smaller = _below(a, b)
    return (a, a_closed) if smaller == upper else (b, b_closed)
