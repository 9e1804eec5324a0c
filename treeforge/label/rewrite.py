"""Rewritings of syntax trees before they are compared: signs chosen, matrices added up, gcd and lcm of expressions."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import gcd, lcm

from treeforge.label.exact import InexactError, rational
from treeforge.label.syntax import Add, Call, Degree, Div, Matrix, Mul, Neg, Node, Num, PlusMinus, Pow, Seq, Sym, Text
from treeforge.label.walk import traits


def rebuilt(node: Node, change: Callable[[Node], Node]) -> Node:
    """The same node with every node right below it changed; nodes that are no expressions stay as they are."""
    if isinstance(node, Add):
        return Add(tuple(map(change, node.terms)))
    if isinstance(node, Mul):
        return Mul(tuple(map(change, node.factors)))
    if isinstance(node, Neg):
        return Neg(change(node.x))
    if isinstance(node, Div):
        return Div(change(node.a), change(node.b))
    if isinstance(node, Pow):
        return Pow(change(node.base), change(node.exponent))
    if isinstance(node, Call):
        return Call(node.name, tuple(map(change, node.args)))
    return node


def renamed(node: Node, names: Mapping[str, str]) -> Node:
    """The expression with some of its variables renamed."""
    if isinstance(node, Sym):
        return Sym(names.get(node.name, node.name))
    return rebuilt(node, lambda inner: renamed(inner, names))


def alternatives(node: Node) -> tuple[Node, ...]:
    """The two values of an expression with `±`, all its signs chosen together; other nodes as they are."""
    if not traits(node).plus_minus:
        return (node,)
    return _choose(node, 1), _choose(node, -1)


def _choose(node: Node, sign: int) -> Node:
    if isinstance(node, PlusMinus):
        inner = _choose(node.x, sign)
        return inner if node.sign == sign else Neg(inner)
    return rebuilt(node, lambda inner: _choose(inner, sign))


def without_degrees(node: Node) -> Node:
    """Every `x°` as x."""
    return without_degrees(node.x) if isinstance(node, Degree) else rebuilt(node, without_degrees)


def fold_matrices(node: Node) -> Node:
    """Sums, products, small powers, transposes and determinants of matrices and vectors worked out.

    Other nodes stay as they are.
    """
    if isinstance(node, Seq) and node.left + node.right in ("()", "<>") and len(node.items) > 1:
        return Matrix((node.items,))
    if isinstance(node, Neg):
        inner = fold_matrices(node.x)
        return _scaled(Num(-1), inner) if isinstance(inner, Matrix) else node
    if isinstance(node, Mul):
        result: Node | None = None
        scalars: list[Node] = []
        for factor in map(fold_matrices, node.factors):
            if not isinstance(factor, Matrix):
                scalars.append(factor)
            elif isinstance(result, Matrix):
                result = _multiplied(result, factor)
                if result is None:
                    return node
            else:
                result = factor
        if not isinstance(result, Matrix):
            return node
        return _scaled(Mul(tuple(scalars)), result) if scalars else result
    if isinstance(node, Div):
        inner = fold_matrices(node.a)
        if isinstance(inner, Matrix):
            return Matrix(tuple(tuple(Div(cell, node.b) for cell in row) for row in inner.rows))
    if isinstance(node, Pow):
        return _matrix_power(node)
    if isinstance(node, Call) and node.name == "det" and isinstance(node.args[0], Matrix):
        rows = node.args[0].rows
        return _determinant(rows) if len(rows) == len(rows[0]) <= 4 else node
    if isinstance(node, Add):
        terms = [fold_matrices(term) for term in node.terms]
        matrices = [term for term in terms if isinstance(term, Matrix)]
        if len(matrices) == len(terms) and len({(len(m.rows), len(m.rows[0])) for m in matrices}) == 1:
            stacked = zip(*(m.rows for m in matrices), strict=True)
            return Matrix(tuple(tuple(Add(cells) for cells in zip(*row, strict=True)) for row in stacked))
        return Add(tuple(terms))
    return node


def _scaled(factor: Node, matrix: Matrix) -> Matrix:
    return Matrix(tuple(tuple(Mul((factor, cell)) for cell in row) for row in matrix.rows))


def _multiplied(a: Matrix, b: Matrix) -> Matrix | None:
    if len(a.rows[0]) != len(b.rows) or len(b.rows) > 5:
        return None
    columns = list(zip(*b.rows, strict=True))
    return Matrix(
        tuple(
            tuple(Add(tuple(Mul(pair) for pair in zip(row, column, strict=True))) for column in columns)
            for row in a.rows
        )
    )


def _matrix_power(node: Pow) -> Node:
    base = fold_matrices(node.base)
    if not isinstance(base, Matrix):
        return node
    if node.exponent in (Sym("T"), Text("T")):
        return Matrix(tuple(zip(*base.rows, strict=True)))
    if node.exponent == Num(-1) and len(base.rows) == len(base.rows[0]) == 2:
        (a, b), (c, d) = base.rows
        determinant = _determinant(base.rows)
        cells = ((d, Neg(b)), (Neg(c), a))
        return Matrix(tuple(tuple(Div(cell, determinant) for cell in row) for row in cells))
    if not isinstance(node.exponent, Num) or node.exponent.q != 1 or not 1 <= node.exponent.p <= 3:
        return node
    result: Matrix | None = base
    for _ in range(node.exponent.p - 1):
        result = _multiplied(result, base) if result is not None else None
    return result if result is not None else node


def _determinant(rows: tuple[tuple[Node, ...], ...]) -> Node:
    """Expanded along the first row; 4 x 4 at most."""
    if len(rows) == 1:
        return rows[0][0]
    minors = [
        Mul((cell, _determinant(tuple(row[:i] + row[i + 1 :] for row in rows[1:])))) for i, cell in enumerate(rows[0])
    ]
    return Add(tuple(Neg(minor) if i % 2 else minor for i, minor in enumerate(minors)))


def expand_divisors(node: Node) -> Node:
    """`gcd` and `lcm` of expressions with variables or roots, written out: of coefficients and of what they multiply.

    Expressions that are no multiples of each other count as coprime.
    """
    node = rebuilt(node, expand_divisors)
    return _divisor(node.name, node.args) if isinstance(node, Call) and node.name in ("gcd", "lcm") else node


def _divisor(name: str, args: tuple[Node, ...]) -> Node:
    try:
        return Num(*rational(Call(name, args), {}))
    except (InexactError, ZeroDivisionError):
        pass
    coefficients, rests = [], []
    for arg in args:
        coefficient, rest = _split(arg)
        coefficients.append(coefficient)
        if rest not in rests:
            rests.append(rest)
    whole = all(isinstance(c, int) for c in coefficients)
    integers = [c if isinstance(c, int) else 1 for c in coefficients]
    if name == "gcd":
        common = Num(gcd(*integers) if whole else 1)
        return Mul((common, *rests)) if len(rests) == 1 else common
    return Mul((Num(lcm(*integers)), *rests)) if whole else Mul(args)


def _split(node: Node) -> tuple[int | None, Node]:
    """Integer coefficient (None where it is no integer) and the rest of a product."""
    factors = node.factors if isinstance(node, Mul) else (node,)
    coefficient: int | None = 1
    rest: list[Node] = []
    for factor in factors:
        if isinstance(factor, Num):
            coefficient = coefficient * factor.p if coefficient is not None and factor.q == 1 else None
        else:
            rest.append(factor)
    return coefficient, rest[0] if len(rest) == 1 else Mul(tuple(rest)) if rest else Num(1)


def items_of(node: Node) -> tuple[Node, ...]:
    """The items of a bare list or set with every `±` written out."""
    items = node.items if isinstance(node, Seq) else (node,)
    return tuple(value for item in items for value in alternatives(item))
