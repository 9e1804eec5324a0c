"""Are two readings the same answer? By type of node, under a `CheckPolicy`. Nothing here reads text."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import NamedTuple

from treeforge.label.check_policy import CheckPolicy
from treeforge.label.inequality import holds_exactly_on
from treeforge.label.numeric import Answer, constant_ratio, infinite_sign, is_constant, same_expression
from treeforge.label.rewrite import expand_divisors, fold_matrices, items_of, renamed, without_degrees
from treeforge.label.sets import is_set_like, real_set, same_set
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
from treeforge.label.units import unit_size
from treeforge.label.walk import traits
from treeforge.verdict import Route

MAX_ITEMS = 100
"""Longer unordered lists are not matched (route `limit`)."""

_EXPRESSIONS = frozenset((Num, Sym, Const, Add, Neg, Mul, Div, Pow, Call, Big, PlusMinus))
_MAX_SPELLINGS = 4
_YES, _NO = Answer(True, "exact"), Answer(False, "exact")
_RANK: dict[Route, int] = {"none": 0, "string": 1, "exact": 2, "numeric": 3, "symbolic": 4, "limit": 5}
_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<=", "=": "=", "!=": "!=", "approx": "approx", "equiv": "equiv"}
_ALNUM = re.compile(r"[^\w]+")
_EQUALITIES = frozenset(("=", "approx", "equiv", "to"))


class Rules(NamedTuple):
    """What is asked of a comparison beside the two answers."""

    policy: CheckPolicy
    symbolic: Callable[[Node, Node], bool | None] | None = None
    """Asked what stays open; None leaves it open."""


def same(a: Node, b: Node, rules: Rules) -> Answer:
    """Whether prediction `a` and gold `b` are the same answer; `same` is None where that stayed open."""
    if a == b:
        return _YES
    if type(a) in _EXPRESSIONS and type(b) in _EXPRESSIONS:
        return _expressions(a, b, rules)
    if isinstance(a, Relation) or isinstance(b, Relation):
        return _relations(a, b, rules)
    if is_set_like(a) or is_set_like(b):
        answer = _real_sets(a, b)
        if answer is not None and (answer.same or type(a) is not type(b)):
            return answer
    for rule in (_texts, _percents, _quantities, _based, _ratios, _matrices, _sequences, _set_operations):
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
        return _unordered(items_of(a), items_of(b), rules)
    if left.matrices or right.matrices or left.lists or right.lists:
        a, b = fold_matrices(a), fold_matrices(b)
        answer = _matrices(a, b, rules)
        if answer is not None:
            return answer
        if traits(a).lists != traits(b).lists:
            return Answer(False, "exact", "a list and a number")
    if left.divisors or right.divisors:
        a, b = expand_divisors(a), expand_divisors(b)
    answer = same_expression(a, b, decimal_digits=rules.policy.decimal_digits)
    if answer.route == "numeric" and not answer.same and not (left.unknown or right.unknown):
        bigs = (left.bigs, right.bigs)
        if answer.same is None or any(bigs):
            answer = _symbolic(a, b, rules, answer._replace(same=False if all(bigs) else None))
    if not answer.same and left.degrees != right.degrees and rules.policy.units == "optional":
        plain = same_expression(without_degrees(a), without_degrees(b), decimal_digits=0)
        return plain._replace(reason="a degree sign on one side only") if plain.same else answer
    return answer


def _symbolic(a: Node, b: Node, rules: Rules, otherwise: Answer) -> Answer:
    """What sympy says; `otherwise` where it says nothing."""
    verdict = rules.symbolic(a, b) if rules.symbolic is not None else None
    return otherwise if verdict is None else Answer(verdict, "symbolic")


def _all(answers: Sequence[Answer]) -> Answer:
    """All parts the same: the strongest route that was needed."""
    for answer in answers:
        if answer.same is False:
            return answer
    for answer in answers:
        if answer.same is None:
            return answer
    return max(answers, key=lambda answer: _RANK[answer.route], default=_YES)


def _pairwise(a: Sequence[Node], b: Sequence[Node], rules: Rules) -> Answer:
    if len(a) != len(b):
        return Answer(False, "exact", f"{len(a)} items, not {len(b)}")
    answers = []
    for x, y in zip(a, b, strict=True):
        answers.append(same(x, y, rules))
        if answers[-1].same is False:
            return answers[-1]
    return _all(answers)


def _unordered(a: Sequence[Node], b: Sequence[Node], rules: Rules) -> Answer:
    """Each item of one list in the other. The prediction may repeat items where the gold answer does not."""
    if len(a) > MAX_ITEMS or len(b) > MAX_ITEMS:
        return Answer(None, "limit", f"a list of more than {MAX_ITEMS} items")
    a, b = _bare_values(a, b)
    if len(a) == 1 < len(b) <= _MAX_SPELLINGS and all(same(b[0], other, rules).same for other in b[1:]):
        b = b[:1]  # one value written in several ways
    if len(a) < len(b):
        return Answer(False, "exact", f"{len(a)} items, not {len(b)}")
    left = list(b)
    answers: list[Answer] = []
    for x in a:
        matched = False
        for i, y in enumerate(left):
            answer = same(x, y, rules)
            if answer.same is not False:
                answers.append(answer)
                if answer.same:
                    del left[i]
                    matched = True
                    break
        if not matched:
            repeated = len(a) > len(b) and any(same(x, y, rules).same for y in b)
            if not repeated:
                if any(answer.same is None for answer in answers):
                    return next(answer for answer in answers if answer.same is None)
                return Answer(False, "exact", "an item is in one list only")
    if left:
        return Answer(False, "exact", "an item is in one list only")
    return _all([answer for answer in answers if answer.same])


# Names: `x = 5` for 5, `x ∈ S` for S


def _bare_values(a: Sequence[Node], b: Sequence[Node]) -> tuple[Sequence[Node], Sequence[Node]]:
    """Items without their names, unless all items of both lists have one."""
    if all(_named(x) is not None for x in (*a, *b)):
        return a, b
    return [_unnamed(x) for x in a], [_unnamed(x) for x in b]


def _unnamed(node: Node) -> Node:
    found = _named(node)
    return node if found is None else found[1]


def _named(node: Node) -> tuple[Node, Node] | None:
    """(name, value) of `x = 5`, `5 = x`, `f(x) = … = 5`, `(x, y) = (1, 2)`, `x ∈ S`; None for other nodes."""
    if not isinstance(node, Relation):
        return None
    if node.ops == ("in",) and _is_name(node.operands[0]):
        return node.operands[0], node.operands[1]
    if not set(node.ops) <= _EQUALITIES:
        return None
    name, value = node.operands[0], _last_exact(node)
    if not _is_name(name):
        name, value = node.operands[-1], node.operands[-2]
        if not _is_name(name) or len(node.operands) > 2:
            return None
    return name, value


def _last_exact(node: Relation) -> Node:
    """The last operand before the first `≈` after the value: what follows that is no longer exact."""
    start = 1 if _is_name(node.operands[0]) else 0
    for op, operand in zip(node.ops[start:], node.operands[start:], strict=False):
        if op == "approx":
            return operand
    return node.operands[-1]


def _is_name(node: Node) -> bool:
    if isinstance(node, Sym):
        return True
    if isinstance(node, Call):
        return traits(node).unknown and node.name not in ("abs",)
    if isinstance(node, Mul):
        return all(isinstance(x, Sym) and len(x.name) == 1 and x.name.isupper() for x in node.factors)
    if isinstance(node, Seq):
        return all(_is_name(item) for item in node.items)
    if isinstance(node, Ratio):
        return all(_is_name(part) for part in node.parts)
    return isinstance(node, Text)


def _relations(a: Node, b: Node, rules: Rules) -> Answer:
    """A relation with a relation, or with the value it names."""
    if isinstance(a, Relation) and isinstance(b, Relation):
        return _two_relations(a, b, rules)
    relation, other, swap = (a, b, False) if isinstance(a, Relation) else (b, a, True)
    assert isinstance(relation, Relation)
    ordered: Callable[[Node, Node], Answer] = lambda x, y: same(y, x, rules) if swap else same(x, y, rules)  # noqa: E731
    found = _named(relation)
    if found is not None and rules.policy.names == "optional":
        return ordered(found[1], other)
    if rules.policy.relations_as_sets:
        answer = _real_sets(a, b) or _solution_set(relation, other)
        if answer is not None:
            return answer
    if set(relation.ops) <= _EQUALITIES:
        if all(is_constant(operand) for operand in relation.operands):
            return ordered(_last_exact(relation), other)
        if isinstance(other, Seq) and len(relation.operands) == 2 and other.left == "":
            return Answer(False, "exact", "an equation and a list")
        return Answer(False, "exact", "an equation and a value")
    return Answer(False, "exact", "a relation and a value")


def _two_relations(a: Relation, b: Relation, rules: Rules) -> Answer:
    if len(a.ops) == len(b.ops) == 1 and {a.ops[0], b.ops[0]} <= _EQUALITIES:
        x, y = _difference(a), _difference(b)
        if x is not None and y is not None:
            ratio = constant_ratio(x, y)
            if ratio is not None:
                return Answer(True, "numeric", "equations up to a constant factor")
    first, second = _named(a), _named(b)
    if first is not None and second is not None:
        values = same(_with_arguments_of(first, second), second[1], rules)
        if _same_name(first[0], second[0]) or values.same is False:
            return values
        return Answer(False, "exact", "the same value of another variable")
    left, right = _ascending(a), _ascending(b)
    if left.ops == right.ops and len(left.operands) == len(right.operands):
        answer = _pairwise(left.operands, right.operands, rules)
        if answer.same is not False:
            return answer
        if len(left.ops) == 1:
            if left.ops[0] in ("=", "!="):
                answer = _pairwise(left.operands, right.operands[::-1], rules)
                if answer.same:
                    return answer
            x, y = _difference(left), _difference(right)
            ratio = constant_ratio(x, y) if x is not None and y is not None else None
            if ratio is not None and (left.ops[0] in ("=", "!=") or ratio.real > 0):
                return Answer(True, "numeric", "relations up to a constant factor")
    one_variable = traits(a).symbols == traits(b).symbols
    sets = _real_sets(a, b) if one_variable or "in" in a.ops + b.ops else None
    if sets is None and one_variable and len(traits(a).symbols) == 1 and not (_EQUALITIES & {*a.ops, *b.ops}):
        return _symbolic(a, b, rules, Answer(None, "numeric", "inequalities that were not solved"))
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
        return a.name == b.name or len(a.args) == len(b.args)
    return (isinstance(a, Call) and b in (Sym("y"), Text("y"))) or (isinstance(b, Call) and a == Sym("y"))


def _difference(relation: Relation) -> Node | None:
    a, b = relation.operands[0], relation.operands[1]
    if any(isinstance(x, Seq | Matrix | SetOp | Ratio | Text | Quantity) for x in (a, b)):
        return None
    return Add((a, Neg(b)))


def _ascending(relation: Relation) -> Relation:
    """The chain with its signs turned to `<`."""
    if relation.ops[0] in (">", ">=") and all(op in _FLIPPED for op in relation.ops):
        return Relation(tuple(_FLIPPED[op] for op in reversed(relation.ops)), relation.operands[::-1])
    return relation


def _solution_set(relation: Relation, other: Node) -> Answer | None:
    """An inequality that is not linear, and a set of reals."""
    pieces = None if set(relation.ops) <= _EQUALITIES else real_set(other)
    holds = None if pieces is None else holds_exactly_on(relation, pieces)
    return None if holds is None else Answer(holds, "numeric")


def _real_sets(a: Node, b: Node) -> Answer | None:
    x = real_set(a)
    y = real_set(b) if x is not None else None
    if x is None or y is None:
        return None
    return Answer(same_set(x, y), "numeric", "" if same_set(x, y) else "different sets of reals")


# One rule a type: None where it does not apply


def _texts(a: Node, b: Node, rules: Rules) -> Answer | None:
    if not isinstance(a, Text) and not isinstance(b, Text):
        return None
    x, y = _word_list(a), _word_list(b)
    if x is None or y is None:
        return Answer(False, "string", "words and mathematics")
    if rules.policy.text_case == "fold":
        x, y = [word.casefold() for word in x], [word.casefold() for word in y]
    equal = "".join(x) == "".join(y)
    if not equal and rules.policy.lists == "unordered" and all(len(word) == 1 for word in (*x, *y)):
        equal = sorted(x) == sorted(y)  # the letters of several options
    return Answer(equal, "string", "" if equal else "different words")


def _word_list(node: Node) -> list[str] | None:
    """A node as words without punctuation and conjunctions; None for what is no words."""
    if isinstance(node, Text):
        return [word for word in _ALNUM.split(node.content) if word and word.lower() not in ("and", "or")]
    if isinstance(node, Seq):
        parts = [_word_list(item) for item in node.items]
        return None if any(part is None for part in parts) else [word for part in parts for word in part or ()]
    words = words_of(node)
    return None if words is None else [words]


def words_of(node: Node) -> str | None:
    """A node as words, without punctuation and spaces: `(C)`, `VW`, `east`; None for what is no word."""
    if isinstance(node, Text):
        return _ALNUM.sub("", node.content)
    if isinstance(node, Sym):
        return _ALNUM.sub("", node.name)
    if isinstance(node, Num) and node.q == 1:
        return str(node.p)
    if isinstance(node, Mul | Seq):
        parts = [words_of(x) for x in (node.factors if isinstance(node, Mul) else node.items)]
        return None if any(part is None for part in parts) else "".join(part or "" for part in parts)
    if isinstance(node, Const):
        return node.name
    if isinstance(node, Quantity):
        inner = words_of(node.x)
        return None if inner is None else inner + _ALNUM.sub("", node.unit)
    return None


def _percents(a: Node, b: Node, rules: Rules) -> Answer | None:
    if isinstance(a, Percent) and isinstance(b, Percent):
        return same(a.x, b.x, rules)
    if not isinstance(a, Percent) and not isinstance(b, Percent):
        return None
    percent, other, swap = (a, b, False) if isinstance(a, Percent) else (b, a, True)
    assert isinstance(percent, Percent)
    if isinstance(other, Seq | Matrix | SetOp | Ratio | Based | Degree):
        return Answer(False, "exact", "a percentage and something else")
    if isinstance(other, Quantity):
        other = other.x
    value = Div(percent.x, Num(100))
    answer = same(other, value, rules) if swap else same(value, other, rules)
    if not answer.same and rules.policy.percent == "either":
        plain = same(other, percent.x, rules) if swap else same(percent.x, other, rules)
        if plain.same:
            return plain._replace(reason="a percent sign on one side only")
    return answer


def _quantities(a: Node, b: Node, rules: Rules) -> Answer | None:
    """Numbers with units, and angles in degrees."""
    if not isinstance(a, Quantity | Degree) and not isinstance(b, Quantity | Degree):
        return None
    if isinstance(a, Quantity) and isinstance(b, Quantity):
        x, y = unit_size(a.unit), unit_size(b.unit)
        if x is None or y is None:
            words = _ALNUM.sub("", a.unit).casefold() == _ALNUM.sub("", b.unit).casefold()
            return same(a.x, b.x, rules) if words or rules.policy.units == "optional" else _NO
        if x[0] != y[0]:
            return Answer(False, "exact", f"{a.unit} and {b.unit}")
        if x == y:
            return same(a.x, b.x, rules)
        return same(Mul((a.x, Num(x[1], x[2]))), Mul((b.x, Num(y[1], y[2]))), rules)
    if isinstance(a, Degree) and isinstance(b, Degree):
        return same(a.x, b.x, rules)
    if rules.policy.units == "exact":
        return Answer(False, "exact", "a unit on one side only")
    for angle, quantity in ((a, b), (b, a)):
        if isinstance(angle, Degree) and isinstance(quantity, Quantity) and unit_size(quantity.unit) is not None:
            return Answer(False, "exact", f"degrees and {quantity.unit}")
    if isinstance(a, Degree) != isinstance(b, Degree) and not isinstance(a, Quantity) and not isinstance(b, Quantity):
        radians = same_expression(a, b, decimal_digits=0)
        if radians.same:
            return radians._replace(reason="degrees and radians")
    return same(a.x if isinstance(a, Quantity | Degree) else a, b.x if isinstance(b, Quantity | Degree) else b, rules)


def _based(a: Node, b: Node, rules: Rules) -> Answer | None:
    if isinstance(a, Based) and isinstance(b, Based):
        equal = a.base == b.base and a.digits.lower() == b.digits.lower()
        return Answer(equal, "exact", "" if equal else "different numerals or bases")
    if isinstance(a, Based) or isinstance(b, Based):
        for based, other in ((a, b), (b, a)):
            if isinstance(based, Based) and based.base == 10 and based.digits.isdigit():
                return same(Num(int(based.digits)), other, rules)
        digits = [x.digits if isinstance(x, Based) else words_of(x) or "" for x in (a, b)]
        equal = rules.policy.base == "optional" and isinstance(b, Based) and digits[0].lower() == digits[1].lower()
        return Answer(equal, "exact", "the base left out" if equal else "a numeral of another base")
    return None


def _ratios(a: Node, b: Node, rules: Rules) -> Answer | None:
    if not isinstance(a, Ratio) and not isinstance(b, Ratio):
        return None
    if isinstance(a, Ratio) and isinstance(b, Ratio):
        x, y = a.parts, b.parts
        if len(x) != len(y):
            shorter, longer = sorted((x, y), key=len)
            clock = len(longer) == len(shorter) + 1 and longer[-1] == Num(0) and len(shorter) >= 2
            return _pairwise(shorter, longer[:-1], rules) if clock else _NO
        plain = _pairwise(x, y, rules)
        if plain.same or Num(0) in x or Num(0) in y or (_is_clock(x) and _is_clock(y)):
            return plain
        products = [same(Mul((x[0], q)), Mul((y[0], p)), rules) for p, q in zip(x[1:], y[1:], strict=True)]
        return _all(products)
    ratio, other, swap = (a, b, False) if isinstance(a, Ratio) else (b, a, True)
    assert isinstance(ratio, Ratio)
    if len(ratio.parts) != 2 or isinstance(other, Seq | Matrix | SetOp):
        return _NO
    quotient = Div(*ratio.parts)
    return same(other, quotient, rules) if swap else same(quotient, other, rules)


def _is_clock(parts: tuple[Node, ...]) -> bool:
    """Could be a time of day: `1:20`."""
    numbers = [part.p if isinstance(part, Num) and part.q == 1 else -1 for part in parts]
    return len(numbers) == 2 and 0 <= numbers[0] <= 24 and 10 <= numbers[1] < 60


def _matrices(a: Node, b: Node, rules: Rules) -> Answer | None:
    a = a if isinstance(a, Seq) else fold_matrices(a)
    b = b if isinstance(b, Seq) else fold_matrices(b)
    if isinstance(a, Matrix) and isinstance(b, Matrix):
        if (len(a.rows), len(a.rows[0])) != (len(b.rows), len(b.rows[0])):
            return Answer(False, "exact", "matrices of different shapes")
        return _pairwise([c for row in a.rows for c in row], [c for row in b.rows for c in row], rules)
    if isinstance(a, Matrix) or isinstance(b, Matrix):
        x, y = _vector(a), _vector(b)
        if x is None or y is None:
            return Answer(False, "exact", "a matrix and something else")
        return _pairwise(x, y, rules)
    return None


def _vector(node: Node) -> Sequence[Node] | None:
    """The entries of a row, a column, or a bracketed list."""
    if isinstance(node, Matrix):
        if len(node.rows) == 1:
            return node.rows[0]
        return [row[0] for row in node.rows] if len(node.rows[0]) == 1 else None
    return node.items if isinstance(node, Seq) and node.left + node.right in ("()", "[]", "<>") else None


def _sequences(a: Node, b: Node, rules: Rules) -> Answer | None:
    if not isinstance(a, Seq) and not isinstance(b, Seq):
        return None
    if not isinstance(a, Seq) or not isinstance(b, Seq):
        listed, other = (a, b) if isinstance(a, Seq) else (b, a)
        assert isinstance(listed, Seq)
        if isinstance(other, SetOp) or listed.left not in ("", "{"):
            return Answer(False, "exact", "a list and something else")
        return _unordered(items_of(a), items_of(b), rules)
    x, y = a.left + a.right.replace("or", ""), b.left + b.right.replace("or", "")
    unordered = ("", "{}") if rules.policy.lists == "unordered" else ("{}",)
    if x in unordered and y in unordered:
        return _unordered(items_of(a), items_of(b), rules)
    if "{}" in (x, y) and x != y:
        return (
            _unordered(items_of(a), items_of(b), rules) if "" in (x, y) else Answer(False, "exact", "a set and a tuple")
        )
    if x != y:
        loose = rules.policy.brackets == "loose" and {x, y} <= {"()", "[]", ""}
        bare = rules.policy.bare_tuple and "" in (x, y) and ({x, y} & {"()", "<>"} or len(a.items) > 2)
        vectors = {x, y} == {"()", "<>"}
        if not (loose or bare or vectors):
            return Answer(False, "exact", f"brackets {x or 'none'} and {y or 'none'}")
    items = _bare_values(a.items, b.items)
    return _pairwise(items[0], items[1], rules)


def _set_operations(a: Node, b: Node, rules: Rules) -> Answer | None:
    if not isinstance(a, SetOp) and not isinstance(b, SetOp):
        return None
    if not isinstance(a, SetOp) or not isinstance(b, SetOp) or a.op != b.op or len(a.args) != len(b.args):
        return Answer(False, "exact", "different sets")
    if a.op == "difference":
        return _pairwise(a.args, b.args, rules)
    return _unordered(a.args, b.args, rules)
