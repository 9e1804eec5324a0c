"""Does an inequality hold on a set of reals and nowhere else? Checked at its ends, inside it, and around it."""

from __future__ import annotations

from treeforge.label.balls import Ball, precision
from treeforge.label.evaluation import ball
from treeforge.label.exact import InexactError
from treeforge.label.numeric import CONSTANT_BITS
from treeforge.label.sets import Piece, complement
from treeforge.label.syntax import Add, Neg, Relation
from treeforge.label.tokens import LimitError
from treeforge.label.walk import traits

_BITS = 256
_INSIDE = (1e-9, 1e-3, 0.13, 0.31, 0.5, 0.62, 0.87, 1 - 1e-3, 1 - 1e-9)
_OUTWARDS = (1e-9, 1e-3, 0.3, 1.0, 2.7, 11.0, 150.0, 1e4)
_COMPARISONS = frozenset(("<", "<=", ">", ">=", "!=", "="))


def holds_exactly_on(relation: Relation, pieces: list[Piece]) -> bool | None:
    """Whether the chain `relation`, in one variable, has the solution set `pieces`; None where that stayed open.

    Between the ends of its solution set a continuous inequality changes nothing, so points there are strong evidence.
    """
    names = traits(relation).symbols
    if len(names) != 1 or not set(relation.ops) <= _COMPARISONS:
        return None
    name = next(iter(names))
    try:
        with precision(_BITS):
            gaps = complement(pieces)
            inside = [x for piece in pieces for x in _samples(piece)]
            outside = [x for gap in gaps for x in _samples(gap)]
        if not all(_holds(relation, name, x, _BITS) for x in inside):
            return False
        if any(_holds(relation, name, x, _BITS) for x in outside):
            return False
        for piece in pieces:
            for end, closed in ((piece.low, piece.low_closed), (piece.high, piece.high_closed)):
                if end.is_finite() and _holds(relation, name, end, CONSTANT_BITS) != closed:
                    return False
    except (InexactError, LimitError):
        return None
    return True


def _samples(piece: Piece) -> list[Ball]:
    """Points inside an interval, near its ends and far out; none for a single point."""
    low, high = piece.low, piece.high
    if low.is_finite() and high.is_finite():
        return [low + (high - low) * share for share in _INSIDE] if low < high else []
    if low.is_finite():
        return [low + step for step in _OUTWARDS]
    if high.is_finite():
        return [high - step for step in _OUTWARDS]
    return [low.__class__(sign * step) for step in (0.0, *_OUTWARDS) for sign in (1, -1)]


def _holds(relation: Relation, name: str, x: Ball, bits: int) -> bool:
    """The truth of the chain at a point; false where a side is not a real number."""
    for left, op, right in zip(relation.operands, relation.ops, relation.operands[1:], strict=False):
        difference = ball(Add((left, Neg(right))), {}, bits, at={name: x})
        if not difference.is_finite() or not difference.imag.contains(0):
            return False
        value = difference.real
        zero = value.contains(0)
        true = {
            "<": not zero and value < 0,
            "<=": zero or value < 0,
            ">": not zero and value > 0,
            ">=": zero or value > 0,
            "!=": not zero,
            "=": zero,
        }[op]
        if not true:
            return False
    return True
