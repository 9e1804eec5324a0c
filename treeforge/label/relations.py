"""Equations, inequalities and sets of reals."""

from __future__ import annotations

from treeforge.label.inequality import holds_exactly_on
from treeforge.label.names import EQUALITIES, last_exact, named
from treeforge.label.numeric import Answer, constant_ratio, is_constant
from treeforge.label.rewrite import renamed
from treeforge.label.rules import Rules, ask_sympy, pairwise
from treeforge.label.sets import real_set, same_set
from treeforge.label.syntax import (
    FLIPPED,
    Add,
    Call,
    Matrix,
    Neg,
    Node,
    Quantity,
    Ratio,
    Relation,
    Seq,
    SetOp,
    Sym,
    Text,
)
from treeforge.label.vocabulary import FUNCTIONS
from treeforge.label.walk import traits


def same_relations(a: Node, b: Node, rules: Rules) -> Answer:
    """A relation with a relation, or with the value it names."""
    if isinstance(a, Relation) and isinstance(b, Relation):
        return _two_relations(a, b, rules)
    relation, other, swap = (a, b, False) if isinstance(a, Relation) else (b, a, True)
    assert isinstance(relation, Relation)

    def ordered(x: Node, y: Node) -> Answer:
        return rules.same(y, x, rules) if swap else rules.same(x, y, rules)

    found = named(relation)
    if found is not None and rules.policy.names == "optional":
        return ordered(found[1], other)
    if rules.policy.relations_as_sets:
        answer = same_real_sets(a, b) or _solution_set(relation, other)
        if answer is not None:
            return answer
    if set(relation.ops) <= EQUALITIES:
        if len(relation.ops) > 1 or all(is_constant(operand) for operand in relation.operands):
            return ordered(last_exact(relation), other)  # a computation states its last value
        if isinstance(other, Seq) and len(relation.operands) == 2 and other.left == "":
            return Answer(False, "exact", "an equation and a list")
        return Answer(False, "exact", "an equation and a value")
    return Answer(False, "exact", "a relation and a value")


def _two_relations(a: Relation, b: Relation, rules: Rules) -> Answer:
    if len(a.ops) == len(b.ops) == 1 and {a.ops[0], b.ops[0]} <= EQUALITIES:
        x, y = _difference(a), _difference(b)
        if x is not None and y is not None:
            ratio = constant_ratio(x, y)
            if ratio is not None:
                return Answer(True, "numeric", "equations up to a constant factor")
    first, second = named(a), named(b)
    if first is not None and second is not None:
        values = rules.same(_with_arguments_of(first, second), second[1], rules)
        if _same_name(first[0], second[0]) or values.same is False:
            return values
        return Answer(False, "exact", "the same value of another variable")
    left, right = _ascending(a), _ascending(b)
    if left.ops == right.ops and len(left.operands) == len(right.operands):
        answer = pairwise(left.operands, right.operands, rules)
        if answer.same is not False:
            return answer
        if len(left.ops) == 1:
            if left.ops[0] in ("=", "!="):
                answer = pairwise(left.operands, right.operands[::-1], rules)
                if answer.same:
                    return answer
            x, y = _difference(left), _difference(right)
            ratio = constant_ratio(x, y) if x is not None and y is not None else None
            if ratio is not None and (left.ops[0] in ("=", "!=") or ratio.real > 0):
                return Answer(True, "numeric", "relations up to a constant factor")
    one_variable = traits(a).symbols == traits(b).symbols
    sets = same_real_sets(a, b) if one_variable or "in" in a.ops + b.ops else None
    if sets is None and one_variable and len(traits(a).symbols) == 1 and not (EQUALITIES & {*a.ops, *b.ops}):
        return ask_sympy(a, b, rules, Answer(None, "numeric", "inequalities that were not solved"))
    return sets or Answer(False, "numeric", "different relations")


def _with_arguments_of(a: tuple[Node, Node], b: tuple[Node, Node]) -> Node:
    """The value of `f(n) = 2n` in the variables of `f(x) = 2x`."""
    if isinstance(a[0], Call) and isinstance(b[0], Call) and len(a[0].args) == len(b[0].args):
        pairs = list(zip(a[0].args, b[0].args, strict=True))
        if all(isinstance(x, Sym) and isinstance(y, Sym) for x, y in pairs):
            return renamed(a[1], {x.name: y.name for x, y in pairs if isinstance(x, Sym) and isinstance(y, Sym)})
    return a[1]


def _same_name(a: Node, b: Node) -> bool:
    """One name, or a function written as `y` by one and as `f(x)` by the other."""
    if a == b or (isinstance(a, Sym) and isinstance(b, Sym) and a.name.lower() == b.name.lower()):
        return True
    if isinstance(a, Call) and isinstance(b, Call):
        known = a.name in FUNCTIONS or b.name in FUNCTIONS  # cos(x) and sin(x) are no two names of one function
        return not known and (a.name == b.name or len(a.args) == len(b.args))
    return (isinstance(a, Call) and b in (Sym("y"), Text("y"))) or (isinstance(b, Call) and a == Sym("y"))


def _difference(relation: Relation) -> Node | None:
    a, b = relation.operands[0], relation.operands[1]
    if any(isinstance(x, Seq | Matrix | SetOp | Ratio | Text | Quantity) for x in (a, b)):
        return None
    return Add((a, Neg(b)))


def _ascending(relation: Relation) -> Relation:
    """The chain with its signs turned to `<`."""
    if relation.ops[0] in (">", ">=") and all(op in FLIPPED for op in relation.ops):
        return Relation(tuple(FLIPPED[op] for op in reversed(relation.ops)), relation.operands[::-1])
    return relation


def _solution_set(relation: Relation, other: Node) -> Answer | None:
    """An inequality that is not linear, and a set of reals."""
    pieces = None if set(relation.ops) <= EQUALITIES else real_set(other)
    holds = None if pieces is None else holds_exactly_on(relation, pieces)
    return None if holds is None else Answer(holds, "numeric")


def same_real_sets(a: Node, b: Node) -> Answer | None:
    """Two sets of reals in whatever form; None where one is none."""
    x = real_set(a)
    y = real_set(b) if x is not None else None
    if x is None or y is None:
        return None
    equal = same_set(x, y)
    return Answer(equal, "numeric", "" if equal else "different sets of reals")
