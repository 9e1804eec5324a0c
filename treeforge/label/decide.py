"""Are two readings the same answer? By type of node, under a `CheckPolicy`. Nothing here reads text."""

from __future__ import annotations

import re
from collections.abc import Sequence

from treeforge.label.names import bare_values
from treeforge.label.numeric import Answer, constant_difference, infinite_sign, same_expression, surely_differ
from treeforge.label.relations import same_real_sets, same_relations
from treeforge.label.rewrite import expand_divisors, fold_matrices, items_of, without_degrees
from treeforge.label.rules import NO, YES, Rules, all_same, ask_sympy, pairwise, unordered
from treeforge.label.sets import is_set_like
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

_EXPRESSIONS = frozenset((Num, Sym, Const, Add, Neg, Mul, Div, Pow, Call, Big, PlusMinus))
_CONSTANTS = frozenset("CcKk")
_ARTICLES = ("a", "an", "the")
_ALNUM = re.compile(r"[^\w]+")


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
        return unordered(items_of(a), items_of(b), rules)
    if left.matrices or right.matrices or left.lists or right.lists:
        sets = same_real_sets(a, b) if is_set_like(a) or is_set_like(b) else None
        if sets is not None:
            return sets
        a, b = fold_matrices(a), fold_matrices(b)
        answer = _matrices(a, b, rules)
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


# One rule a type: None where it does not apply


def _texts(a: Node, b: Node, rules: Rules) -> Answer | None:
    if not isinstance(a, Text) and not isinstance(b, Text):
        return None
    x, y = _word_list(a), _word_list(b)
    if x is None or y is None:
        return Answer(False, "string", "words and mathematics")
    if rules.policy.text_case == "fold":
        x, y = [word.casefold() for word in x], [word.casefold() for word in y]
    equal = "".join(x) == "".join(y) or _concludes(x, y)
    if not equal and rules.policy.lists == "unordered" and all(len(word) == 1 for word in (*x, *y)):
        equal = sorted(x) == sorted(y)  # the letters of several options
    return Answer(equal, "string", "" if equal else "different words")


def _concludes(prediction: list[str], gold: list[str]) -> bool:
    """A statement that ends in the gold answer, `so it is Tuesday`, or begins with it, `no, it is not`."""
    before = prediction[: -len(gold)] if gold and prediction[-len(gold) :] == gold else []
    if before and before[-1] in _ARTICLES:
        before = before[:-1]
    if before and before[-1] in ("is", "are", "be", "was"):
        return True
    return len(gold) == 1 and gold[0] in ("yes", "no") and prediction[0] == gold[0] and len(prediction) > 2


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
    a, b = _in_24_hours(a), _in_24_hours(b)
    if isinstance(a, Quantity) and isinstance(b, Quantity):
        x, y = unit_size(a.unit), unit_size(b.unit)
        if x is None or y is None:
            words = _ALNUM.sub("", a.unit).casefold() == _ALNUM.sub("", b.unit).casefold()
            return same(a.x, b.x, rules) if words or rules.policy.units == "optional" else NO
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


def _in_24_hours(node: Node) -> Node:
    """`15:30` as 3:30 pm."""
    if not isinstance(node, Ratio) or len(node.parts) != 2:
        return node
    hour, minute = node.parts
    if not isinstance(hour, Num) or hour.q != 1 or not 12 < hour.p < 24 or not isinstance(minute, Num):
        return node
    return Quantity(Ratio((Num(hour.p - 12), minute)) if minute.p else Num(hour.p - 12), "pm")


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
            return pairwise(shorter, longer[:-1], rules) if clock else NO
        plain = pairwise(x, y, rules)
        if plain.same or Num(0) in x or Num(0) in y or (_is_clock(x) and _is_clock(y)):
            return plain
        products = [same(Mul((x[0], q)), Mul((y[0], p)), rules) for p, q in zip(x[1:], y[1:], strict=True)]
        return all_same(products)
    ratio, other, swap = (a, b, False) if isinstance(a, Ratio) else (b, a, True)
    assert isinstance(ratio, Ratio)
    if len(ratio.parts) != 2 or isinstance(other, Seq | Matrix | SetOp):
        return NO
    quotient = Div(*ratio.parts)
    return same(other, quotient, rules) if swap else same(quotient, other, rules)


def _is_clock(parts: tuple[Node, ...]) -> bool:
    """Could be a time of day: `1:20`."""
    numbers = [part.p if isinstance(part, Num) and part.q == 1 else -1 for part in parts]
    return len(numbers) == 2 and 0 <= numbers[0] <= 24 and 10 <= numbers[1] < 60


def _matrices(a: Node, b: Node, rules: Rules) -> Answer | None:
    if isinstance(a, Matrix) or isinstance(b, Matrix):
        a, b = _from_rows(a), _from_rows(b)
    a = a if isinstance(a, Seq) else fold_matrices(a)
    b = b if isinstance(b, Seq) else fold_matrices(b)
    if isinstance(a, Matrix) and isinstance(b, Matrix):
        if (len(a.rows), len(a.rows[0])) != (len(b.rows), len(b.rows[0])):
            return Answer(False, "exact", "matrices of different shapes")
        return pairwise([c for row in a.rows for c in row], [c for row in b.rows for c in row], rules)
    if isinstance(a, Matrix) or isinstance(b, Matrix):
        x, y = _vector(a), _vector(b)
        if x is None or y is None:
            return Answer(False, "exact", "a matrix and something else")
        return pairwise(x, y, rules)
    return None


def _from_rows(node: Node) -> Node:
    """`[[1, 2], [3, 4]]` as a matrix."""
    if not isinstance(node, Seq) or node.left + node.right != "[]":
        return node
    rows = [item.items for item in node.items if isinstance(item, Seq) and item.left + item.right == "[]"]
    if len(rows) != len(node.items) or len({len(row) for row in rows}) != 1:
        return node
    return Matrix(tuple(rows))


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
        return unordered(items_of(a), items_of(b), rules)
    x, y = a.left + a.right.replace("or", ""), b.left + b.right.replace("or", "")
    orderless = ("", "{}") if rules.policy.lists == "unordered" else ("{}",)
    if x in orderless and y in orderless:
        return unordered(items_of(a), _elements(b), rules)
    for left, right in ((a, b), (b, a)):
        if left.left == "{" and right.left == "(" and len(left.items) == 1 and isinstance(left.items[0], Seq):
            return same(left.items[0], right, rules)
    if "{}" in (x, y) and x != y:
        return (
            unordered(items_of(a), _elements(b), rules) if "" in (x, y) else Answer(False, "exact", "a set and a tuple")
        )
    if x != y:
        loose = rules.policy.brackets == "loose" and {x, y} <= {"()", "[]", ""}
        bare = rules.policy.bare_tuple and "" in (x, y) and ({x, y} & {"()", "<>"} or len(a.items) > 2)
        vectors = {x, y} == {"()", "<>"}
        if not (loose or bare or vectors):
            return Answer(False, "exact", f"brackets {x or 'none'} and {y or 'none'}")
    items = bare_values(a.items, b.items)
    return pairwise(items[0], items[1], rules)


def _elements(node: Seq) -> tuple[Node, ...]:
    """The items of a list; the elements of a set without repetition."""
    items = items_of(node)
    if node.left != "{":
        return items
    found: list[Node] = []
    for item in items:
        if item not in found:
            found.append(item)
    return tuple(found)


def _set_operations(a: Node, b: Node, rules: Rules) -> Answer | None:
    if not isinstance(a, SetOp) and not isinstance(b, SetOp):
        return None
    if not isinstance(a, SetOp) or not isinstance(b, SetOp) or a.op != b.op or len(a.args) != len(b.args):
        return Answer(False, "exact", "different sets")
    if a.op == "difference":
        return pairwise(a.args, b.args, rules)
    return unordered(a.args, b.args, rules)
