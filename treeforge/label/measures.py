"""Numbers that measure: percentages, quantities with units, angles, times of day, ratios."""

from __future__ import annotations

from treeforge.label.numeric import Answer, same_expression
from treeforge.label.rules import NO, Rules, all_same, pairwise
from treeforge.label.strings import letters
from treeforge.label.syntax import Based, Degree, Div, Matrix, Mul, Node, Num, Percent, Quantity, Ratio, Seq, SetOp
from treeforge.label.units import unit_size


def same_percents(a: Node, b: Node, rules: Rules) -> Answer | None:
    """A percentage with one or with a value; None where neither side is one."""
    if isinstance(a, Percent) and isinstance(b, Percent):
        return rules.same(a.x, b.x, rules)
    if not isinstance(a, Percent) and not isinstance(b, Percent):
        return None
    percent, other, swap = (a, b, False) if isinstance(a, Percent) else (b, a, True)
    assert isinstance(percent, Percent)
    if isinstance(other, Seq | Matrix | SetOp | Ratio | Based | Degree):
        return Answer(False, "exact", "a percentage and something else")
    if isinstance(other, Quantity):
        other = other.x
    value = Div(percent.x, Num(100))
    answer = rules.same(other, value, rules) if swap else rules.same(value, other, rules)
    if not answer.same and rules.policy.percent == "either":
        plain = rules.same(other, percent.x, rules) if swap else rules.same(percent.x, other, rules)
        if plain.same:
            return plain._replace(reason="a percent sign on one side only")
    return answer


def same_quantities(a: Node, b: Node, rules: Rules) -> Answer | None:
    """Numbers with units, and angles in degrees; None where neither side is one."""
    if not isinstance(a, Quantity | Degree) and not isinstance(b, Quantity | Degree):
        return None
    a, b = _in_24_hours(a), _in_24_hours(b)
    if isinstance(a, Quantity) and isinstance(b, Quantity):
        x, y = unit_size(a.unit), unit_size(b.unit)
        if x is None or y is None:
            words = letters(a.unit).casefold() == letters(b.unit).casefold()
            return rules.same(a.x, b.x, rules) if words or rules.policy.units == "optional" else NO
        if x[0] != y[0]:
            return Answer(False, "exact", f"{a.unit} and {b.unit}")
        if x == y:
            return rules.same(a.x, b.x, rules)
        return rules.same(Mul((a.x, Num(x[1], x[2]))), Mul((b.x, Num(y[1], y[2]))), rules)
    if isinstance(a, Degree) and isinstance(b, Degree):
        return rules.same(a.x, b.x, rules)
    if rules.policy.units == "exact":
        return Answer(False, "exact", "a unit on one side only")
    for angle, quantity in ((a, b), (b, a)):
        if isinstance(angle, Degree) and isinstance(quantity, Quantity) and unit_size(quantity.unit) is not None:
            return Answer(False, "exact", f"degrees and {quantity.unit}")
    if isinstance(a, Degree) != isinstance(b, Degree) and not isinstance(a, Quantity) and not isinstance(b, Quantity):
        radians = same_expression(a, b, decimal_digits=0)
        if radians.same:
            return radians._replace(reason="degrees and radians")
    return rules.same(
        a.x if isinstance(a, Quantity | Degree) else a, b.x if isinstance(b, Quantity | Degree) else b, rules
    )


def _in_24_hours(node: Node) -> Node:
    """`15:30` as 3:30 pm."""
    if not isinstance(node, Ratio) or len(node.parts) != 2:
        return node
    hour, minute = node.parts
    if not isinstance(hour, Num) or hour.q != 1 or not 12 < hour.p < 24 or not isinstance(minute, Num):
        return node
    return Quantity(Ratio((Num(hour.p - 12), minute)) if minute.p else Num(hour.p - 12), "pm")


def same_ratios(a: Node, b: Node, rules: Rules) -> Answer | None:
    """A ratio with one in whatever terms, or with its quotient; None where neither side is one."""
    if not isinstance(a, Ratio) and not isinstance(b, Ratio):
        return None
    if isinstance(a, Ratio) and isinstance(b, Ratio):
        x, y = a.parts, b.parts
        if len(x) != len(y):
            shorter, longer = sorted((x, y), key=len)
            clock = len(longer) == len(shorter) + 1 and longer[-1] == Num(0) and len(shorter) >= 2
            return pairwise(shorter, longer[:-1], rules) if clock else NO
        plain = pairwise(x, y, rules)
        if plain.same or Num(0) in x or Num(0) in y or (_is_clock(x) and _is_clock(y)):
            return plain
        products = [rules.same(Mul((x[0], q)), Mul((y[0], p)), rules) for p, q in zip(x[1:], y[1:], strict=True)]
        return all_same(products)
    ratio, other, swap = (a, b, False) if isinstance(a, Ratio) else (b, a, True)
    assert isinstance(ratio, Ratio)
    if len(ratio.parts) != 2 or isinstance(other, Seq | Matrix | SetOp):
        return NO
    quotient = Div(*ratio.parts)
    return rules.same(other, quotient, rules) if swap else rules.same(quotient, other, rules)


def _is_clock(parts: tuple[Node, ...]) -> bool:
    """Could be a time of day: `1:20`."""
    numbers = [part.p if isinstance(part, Num) and part.q == 1 else -1 for part in parts]
    return len(numbers) == 2 and 0 <= numbers[0] <= 24 and 10 <= numbers[1] < 60
