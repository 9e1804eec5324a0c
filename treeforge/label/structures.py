"""LaTeX structures: fractions, roots, binomials, sums, limits, integrals, matrices and systems."""

from __future__ import annotations

from treeforge.label.build import factors_of, product
from treeforge.label.groups import Groups
from treeforge.label.syntax import IMAGINARY, Add, Big, Call, Div, Matrix, Node, Num, Relation, Seq, Sym
from treeforge.label.tokens import ReadError

_DIFFERENTIALS = (Sym("d"), Sym("partial"))
_MATRICES = frozenset(("matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix", "smallmatrix", "array"))
_SYSTEMS = frozenset(("cases", "dcases", "rcases", "aligned", "align", "gathered", "split", "gather", "equation"))


class Structures(Groups):
    """The part of the parser for macros with arguments, operators with bounds, and environments."""

    __slots__ = ()

    def structure(self) -> Node:
        """`\\frac`, `\\sqrt`, `\\binom`, `\\sum`, `\\int` and what they take."""
        name = self.advance().value
        self.descend()
        node: Node
        if name in ("frac", "binom"):
            a = self.argument(whole_number=False)
            b = self.argument(whole_number=False)
            derivative = _derivative(a, b) if name == "frac" else None
            if derivative is not None:
                function, of = derivative
                node = Call(f"d/d{of}", (self.term() if function is None else function,))
            else:
                node = Div(a, b) if name == "frac" else Call("binom", (a, b))
        elif name == "sqrt":
            index: Node = Num(2)
            if self.token.kind == "open" and self.token.value == "[":
                self.advance()
                index = self.sequence()
                self.expect("close")
            node = Call("root", (self.argument(whole_number=True), index))
        else:
            node = self._big(name)
        self.ascend()
        return node

    def _big(self, name: str) -> Node:
        """A sum, product or integral with its bounds and body."""
        var, low, high = "", None, None
        while self.token.kind in ("_", "^"):
            if self.advance().kind == "^":
                high = self.argument(whole_number=True)
                continue
            inner = self.argument(whole_number=True)
            if isinstance(inner, Relation) and inner.ops == ("=",):
                index, low = inner.operands
                var = "i" if index == IMAGINARY else index.name if isinstance(index, Sym) else ""
            else:
                low = inner
        if name == "int":
            return self._integral(low, high)
        if name == "lim":
            if not isinstance(low, Relation) or not isinstance(low.operands[0], Sym):
                raise ReadError("a limit without its variable")
            return Big(name, low.operands[0].name, low.operands[1], None, self.term())
        self.bound.append(var)
        body = self.term()
        self.bound.pop()
        return Big(name, var, low, high, body)

    def _integral(self, low: Node | None, high: Node | None) -> Node:
        self.integrals += 1
        body = self.sum()
        self.integrals -= 1
        while isinstance(body, Seq) and len(body.items) == 1:
            body = body.items[0]
        terms: list[Node] = list(body.terms) if isinstance(body, Add) else [body]
        terms[-1], var = _without_differential(terms[-1])
        return Big("int", var, low, high, terms[0] if len(terms) == 1 else Add(tuple(terms)))

    def modulus(self) -> Node:
        """`\\pmod n` or `(mod n)`."""
        if self.advance().kind == "pmod":
            return self.argument(whole_number=True)
        self.advance()
        modulus = self.power()
        self.expect("close")
        return modulus

    def environment(self) -> Node:
        """Matrices and arrays; `cases` and aligned rows are bare lists."""
        environment = self.advance().value
        if environment not in _MATRICES and environment not in _SYSTEMS:
            raise ReadError(f"environment {environment}")
        if environment in _SYSTEMS:
            self._drop_alignment()
        rows: list[tuple[Node, ...]] = []
        cells: list[Node] = []
        while self.token.kind != "end":
            if self.token.kind == "&":
                self.advance()
                continue
            if self.token.kind == "row":
                self.advance()
                if cells:
                    rows.append(tuple(cells))
                cells = []
                continue
            if self.token.kind == "sep":
                self.advance()
                continue
            cells.append(self.item())
        if cells:
            rows.append(tuple(cells))
        self.expect("end")
        if not rows:
            raise ReadError("an environment without rows")
        if environment in _SYSTEMS and all(len(row) == 1 for row in rows):
            return Seq("", "", tuple(row[0] for row in rows))
        if any(len(row) != len(rows[0]) for row in rows):
            raise ReadError("rows of different lengths")
        if environment == "array" and len(rows) == len(rows[0]) == 1:
            return rows[0][0]
        matrix = Matrix(tuple(rows))
        return Call("det", (matrix,)) if environment in ("vmatrix", "Vmatrix") else matrix

    def _drop_alignment(self) -> None:
        """`&` beside a relation only aligns it."""
        rest = self.tokens[self.at :]
        kept = [
            token
            for i, token in enumerate(rest)
            if token.kind != "&" or "rel" not in (rest[i - 1].kind, rest[min(i + 1, len(rest) - 1)].kind)
        ]
        self.tokens[self.at :] = kept
        self.token = self.tokens[self.at]


def _derivative(a: Node, b: Node) -> tuple[Node | None, str] | None:
    """(y, x) of the fraction `dy / dx`, (None, x) of the operator `d / dx`; None for other fractions."""
    below = factors_of(b)
    if len(below) != 2 or below[0] not in _DIFFERENTIALS or not isinstance(below[1], Sym):
        return None
    above = factors_of(a)
    if above[0] != below[0]:
        return None
    return (product(above[1:]) if len(above) > 1 else None), below[1].name


def _without_differential(node: Node) -> tuple[Node, str]:
    """The integrand and its variable: `x dx`, `\\frac{3 dz}{z}`; the variable is '' where there is none."""
    factors = factors_of(node)
    if len(factors) > 1 and factors[-2] == Sym("d") and isinstance(factors[-1], Sym):
        return product(factors[:-2]) if len(factors) > 2 else Num(1), factors[-1].name
    if isinstance(node, Div):
        numerator, var = _without_differential(node.a)
        return Div(numerator, node.b), var
    return node, ""
