"""The symbolic judge: sympy on what exact arithmetic and intervals left open. Runs in a worker process (`workers`).

Sympy objects are built here from our own syntax trees, node by node; no text is ever parsed by sympy.
"""

from __future__ import annotations

from typing import Any

from treeforge.label.syntax import Add, Big, Call, Const, Degree, Div, Mul, Neg, Node, Num, Percent, Pow, Relation, Sym

_BIG_POWER = 10_000


_SAME_NAMES = "sin cos tan cot sec csc sinh cosh tanh coth sech csch exp log floor factorial gcd lcm sqrt cbrt"
_SYMPY_NAMES = {name: name for name in _SAME_NAMES.split(" ")} | {
    "abs": "Abs",
    "arcsin": "asin",
    "arccos": "acos",
    "arctan": "atan",
    "arccot": "acot",
    "arcsec": "asec",
    "arccsc": "acsc",
    "arcsinh": "asinh",
    "arccosh": "acosh",
    "arctanh": "atanh",
    "ceil": "ceiling",
    "ln": "log",
    "max": "Max",
    "min": "Min",
    "binom": "binomial",
    "mod": "Mod",
    "sgn": "sign",
    "Re": "re",
    "Im": "im",
    "conj": "conjugate",
}


class UnsupportedError(Exception):
    """There is no sympy object for this node."""


def symbolic_same(a: Node, b: Node) -> bool | None:
    """Whether two expressions, or two inequalities in one variable, are the same; None where sympy does not say."""
    try:
        if isinstance(a, Relation) and isinstance(b, Relation):
            left, right = _solution_set(a), _solution_set(b)
            return None if left is None or right is None else bool(left == right)
        return _same_expression(_build(a), _build(b))
    except (UnsupportedError, NotImplementedError, ValueError, TypeError, ArithmeticError, AttributeError):
        return None


def _same_expression(left: Any, right: Any) -> bool | None:
    import sympy

    difference = (left - right).doit()
    if difference == 0:
        return True
    simplified = sympy.simplify(difference)
    if simplified == 0:
        return True
    zero = simplified.equals(0)
    if zero is None or not simplified.is_number:
        return True if zero else None
    return bool(zero)


def _solution_set(relation: Relation) -> Any:
    """The real solutions of a chain in one variable, as a sympy set."""
    import sympy

    comparisons = {"<": sympy.Lt, "<=": sympy.Le, ">": sympy.Gt, ">=": sympy.Ge, "!=": sympy.Ne, "=": sympy.Eq}
    result: Any = sympy.S.Reals
    variables: set[Any] = set()
    for left, op, right in zip(relation.operands, relation.ops, relation.operands[1:], strict=False):
        if op not in comparisons:
            raise UnsupportedError
        condition = comparisons[op](_build(left), _build(right))
        if condition in (sympy.true, sympy.false):
            result = result if condition == sympy.true else sympy.S.EmptySet
            continue
        variables |= condition.free_symbols
        if len(variables) != 1:
            return None
        variable = next(iter(variables))
        if op == "=":
            step = sympy.solveset(condition, variable, sympy.S.Reals)
        else:
            step = sympy.solve_univariate_inequality(condition, variable, relational=False)
        result = result.intersect(step)
    return result


def _build(node: Node) -> Any:
    """The sympy expression of a syntax tree."""
    import sympy

    if isinstance(node, Num):
        return sympy.Rational(node.p, node.q)
    if isinstance(node, Sym):
        return sympy.Symbol(node.name, real=True)
    if isinstance(node, Const):
        return {"pi": sympy.pi, "e": sympy.E, "i": sympy.I, "inf": sympy.oo}[node.name]
    if isinstance(node, Add):
        return sympy.Add(*map(_build, node.terms))
    if isinstance(node, Mul):
        return sympy.Mul(*map(_build, node.factors))
    if isinstance(node, Neg):
        return -_build(node.x)
    if isinstance(node, Div):
        return _build(node.a) / _build(node.b)
    if isinstance(node, Percent):
        return _build(node.x) / 100
    if isinstance(node, Degree):
        return _build(node.x) * sympy.pi / 180
    if isinstance(node, Pow):
        base, exponent = _build(node.base), _build(node.exponent)
        if exponent.is_number and abs(exponent) > _BIG_POWER:
            raise UnsupportedError
        return base**exponent
    if isinstance(node, Call):
        return _call(node)
    if isinstance(node, Big):
        return _big(node)
    raise UnsupportedError


def _call(node: Call) -> Any:
    import sympy

    args = [_build(arg) for arg in node.args]
    if node.name == "root":
        return sympy.real_root(args[0], args[1]) if args[1] != 2 else sympy.sqrt(args[0])
    if node.name == "factorial" and args[0].is_number and abs(args[0]) > _BIG_POWER:
        raise UnsupportedError
    name = _SYMPY_NAMES.get(node.name)
    return getattr(sympy, name)(*args) if name else sympy.Function(node.name)(*args)


def _big(node: Big) -> Any:
    import sympy

    variable = sympy.Symbol(node.var, real=True, integer=True if node.op in ("sum", "prod") else None)
    body = _build(node.body).subs(sympy.Symbol(node.var, real=True), variable)
    if node.op == "lim":
        if node.low is None:
            raise UnsupportedError
        return sympy.limit(body, variable, _build(node.low))
    if node.low is None or node.high is None:
        raise UnsupportedError
    bounds = (variable, _build(node.low), _build(node.high))
    if node.op == "int":
        return sympy.Integral(body, bounds).doit()
    return (sympy.Sum if node.op == "sum" else sympy.Product)(body, bounds).doit()
