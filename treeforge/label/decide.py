"""Are two readings the same answer? By type of node, under a `CheckPolicy`. Nothing here reads text."""

from __future__ import annotations

from treeforge.label.lists import same_matrices, same_sequences, same_set_operations
from treeforge.label.measures import same_percents, same_quantities, same_ratios
from treeforge.label.numeric import Answer, constant_difference, infinite_sign, same_expression, surely_differ
from treeforge.label.relations import same_real_sets, same_relations
from treeforge.label.rewrite import expand_divisors, fold_matrices, items_of, without_degrees
from treeforge.label.rules import YES, Rules, ask_sympy, unordered
from treeforge.label.sets import is_set_like
from treeforge.label.strings import same_numerals, same_texts
from treeforge.label.syntax import Add, Big, Call, Const, Div, Mul, Neg, Node, Num, PlusMinus, Pow, Relation, Sym
from treeforge.label.walk import traits

_EXPRESSIONS = frozenset((Num, Sym, Const, Add, Neg, Mul, Div, Pow, Call, Big, PlusMinus))
_CONSTANTS = frozenset("CcKk")
_RULES = (
    same_texts,
    same_percents,
    same_quantities,
    same_numerals,
    same_ratios,
    same_matrices,
    same_sequences,
    same_set_operations,
)
"""One for each type of answer that is no expression, asked in this order; None where it does not apply."""


def same(a: Node, b: Node, rules: Rules) -> Answer:
    """Whether prediction `a` and gold `b` are the same answer; `same` is None where that stayed open."""
    if a == b:
        return YES
    if type(a) in _EXPRESSIONS and type(b) in _EXPRESSIONS:
        return _expressions(a, b, rules)
    if isinstance(a, Relation) or isinstance(b, Relation):
        return same_relations(a, b, rules)
    if is_set_like(a) or is_set_like(b):
        answer = same_real_sets(a, b)
        if answer is not None and (answer.same or type(a) is not type(b)):
            return answer
    for rule in _RULES:
        answer = rule(a, b, rules)
        if answer is not None:
            return answer
    return _expressions(a, b, rules)


def _expressions(a: Node, b: Node, rules: Rules) -> Answer:
    """Two expressions; sums and multiples of matrices look like them, and `±` makes two of one."""
    if type(a) is type(b) is Num:
        return same_expression(a, b, decimal_digits=rules.policy.decimal_digits)
    if infinite_sign(a) or infinite_sign(b):
        return Answer(infinite_sign(a) == infinite_sign(b), "exact")
    left, right = traits(a), traits(b)
    if left.plus_minus or right.plus_minus:
        return unordered(items_of(a), items_of(b), rules)
    if left.matrices or right.matrices or left.lists or right.lists:
        sets = same_real_sets(a, b) if is_set_like(a) or is_set_like(b) else None
        if sets is not None:
            return sets
        a, b = fold_matrices(a), fold_matrices(b)
        answer = same_matrices(a, b, rules)
        if answer is not None:
            return answer
        if traits(a).lists != traits(b).lists:
            return Answer(False, "exact", "a list and a number")
    if left.symbols & _CONSTANTS and right.symbols & _CONSTANTS:
        constants = _up_to_a_constant(a, b)
        if constants is not None:
            return constants
    if left.divisors or right.divisors:
        a, b = expand_divisors(a), expand_divisors(b)
    answer = same_expression(a, b, decimal_digits=rules.policy.decimal_digits)
    if answer.route == "numeric" and not answer.same and not (left.unknown or right.unknown):
        bigs = (left.bigs, right.bigs)
        if answer.same is None or (any(bigs) and not surely_differ(a, b)):
            answer = ask_sympy(a, b, rules, answer._replace(same=False if all(bigs) else None))
    if not answer.same and left.degrees != right.degrees and rules.policy.units == "optional":
        plain = same_expression(without_degrees(a), without_degrees(b), decimal_digits=0)
        return plain._replace(reason="a degree sign on one side only") if plain.same else answer
    return answer


def _up_to_a_constant(a: Node, b: Node) -> Answer | None:
    """Antiderivatives, both with their constant `+ C`: the same where they differ by a number."""
    rests = []
    for node in (a, b):
        terms = node.terms if isinstance(node, Add) else ()
        names = [term.name for term in terms if isinstance(term, Sym) and term.name in _CONSTANTS]
        rest = [term for term in terms if not isinstance(term, Sym) or term.name not in _CONSTANTS]
        if len(names) != 1 or not rest or names[0] in traits(Add(tuple(rest))).symbols:
            return None
        rests.append((names[0], Add(tuple(rest)) if len(rest) > 1 else rest[0]))
    (first, x), (second, y) = rests
    if "C" not in (first, second) or traits(x).symbols != traits(y).symbols or not traits(x).symbols:
        return None
    same_up_to = constant_difference(x, y)
    return Answer(True, "numeric", "the same up to a constant") if same_up_to else None
