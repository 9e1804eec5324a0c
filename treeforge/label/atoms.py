"""The atoms of mathematics: numerals, names, brackets, functions, fractions, sums, matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod

from treeforge.label.build import factors_of, negated, number, product, repeating
from treeforge.label.cursor import Cursor
from treeforge.label.syntax import (
    EMPTY_SET,
    EULER,
    IMAGINARY,
    Add,
    Based,
    Big,
    Call,
    Const,
    Div,
    Matrix,
    Mul,
    Neg,
    Node,
    Num,
    Pow,
    Relation,
    Seq,
    Sym,
    Text,
)
from treeforge.label.tokens import ReadError, Token

_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">", "floor": "floor", "ceil": "ceil", "abs": "abs"}
_BARE_ARGUMENT = frozenset(("num", "sym", "const", "macro", "{", "|", "repeating", "angle"))
_APPLIED = frozenset("fghFGHW")
"""Letters that, with a bracket right after them, are functions and not factors."""
_DIFFERENTIALS = (Sym("d"), Sym("partial"))
_INVERTIBLE = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}
_VARIADIC = frozenset(("max", "min", "gcd", "lcm"))
_ARITIES = {"log": (1, 2), "binom": (2,), "mod": (2,)}
_MATRICES = frozenset(("matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix", "smallmatrix", "array"))
_SYSTEMS = frozenset(("cases", "dcases", "rcases", "aligned", "align", "gathered", "split", "gather", "equation"))


class Atoms(Cursor, ABC):
    """The part of the parser below powers. Lists, sums and powers come from the class that completes it."""

    __slots__ = ()

    @abstractmethod
    def sequence(self) -> Node:
        """A list of items, or one item."""

    @abstractmethod
    def item(self) -> Node:
        """An expression or a relation."""

    @abstractmethod
    def sum(self) -> Node:
        """A sum of terms."""

    @abstractmethod
    def term(self) -> Node:
        """A product of factors."""

    @abstractmethod
    def power(self) -> Node:
        """An atom with its exponents and signs."""

    def raw_argument(self) -> str:
        """The text of a braced group or of one token, for names."""
        if self.token.kind != "{":
            return self.advance().value
        depth, parts = 0, []
        while self.token.kind != "end":
            token = self.advance()
            depth += (token.kind == "{") - (token.kind == "}")
            if depth == 0:
                break
            parts.append(token.value)
        return "".join(parts[1:])

    def argument(self, *, whole_number: bool) -> Node:
        """What a macro or `^` takes: a group or one token; of a numeral one digit, or all of it."""
        token = self.token
        if token.kind == "{":
            return self.group()
        if token.kind == "prime":
            self.advance()
            return Text("'")
        if token.kind == "num":
            if whole_number or len(token.value) == 1 or not token.value.isdigit():
                self.advance()
                return number(token.value)
            self.tokens[self.at] = self.token = Token("num", token.value[1:])
            return number(token.value[0])
        if token.kind == "op" and token.value in ("-", "+"):
            self.advance()
            inner = self.argument(whole_number=whole_number)
            return negated(inner) if token.value == "-" else inner
        return self.atom()

    def group(self) -> Node:
        """`{…}`: LaTeX grouping; several items are a bare list, `{n \\choose k}` is a binomial coefficient."""
        self.expect("{")
        if self.token.kind == "}":
            self.advance()
            return EMPTY_SET
        bars, self.bars = self.bars, 0
        inner = self.sequence()
        inner = self.infix(inner)
        self.bars = bars
        self.expect("}")
        return inner

    def infix(self, left: Node) -> Node:
        """`n \\choose k` and `a \\over b`, which take all that stands on either side of them in their group."""
        if self.token.kind != "infix":
            return left
        choose = self.advance().value == "choose"
        right = self.sequence()
        return Call("binom", (left, right)) if choose else Div(left, right)

    def atom(self) -> Node:
        """A number, name, function, group or bracket."""
        token = self.token
        kind = token.kind
        if kind == "num":
            return self._numeral()
        if kind == "sym":
            self.advance()
            if token.value in ("i", "I") and token.value not in self.bound:
                return IMAGINARY
            following = self.token
            if token.value in _APPLIED and self._applies(Sym(token.value)):
                return self.applied(Sym(token.value))
            if following.kind == "open" and following.value == "(" and not following.spaced:
                if self._names_a_function():
                    return Call(token.value, self._arguments())
            elif following.kind == "num" and not following.spaced and following.value.isdigit():
                self.advance()
                return Sym(f"{token.value}_{following.value}")
            return Sym(token.value)
        if kind == "const":
            self.advance()
            return EULER if token.value == "e" else Const(token.value)
        if kind == "{":
            return self.group()
        if kind == "open":
            return self._bracket()
        if kind == "func":
            return self._function()
        if kind == "macro":
            return self._structure()
        if kind == "|":
            self.advance()
            self.bars += 1
            inner = self.sequence()
            self.bars -= 1
            self.expect("|")
            return Call("abs", (inner,))
        if kind == "begin":
            return self._environment()
        if kind in ("text", "word"):
            return self._words()
        return self._rare()

    def _applies(self, name: Node) -> bool:
        """Whether a bracket with the arguments of the function `name` follows."""
        following = self.peek() if self.token.kind == "{" else self.token  # sympy writes f{\\left(x\\right)}
        opened = following.kind == "open" and following.value == "(" and not following.spaced
        return (
            opened
            and isinstance(name, Sym)
            and name.name[0] in _APPLIED
            and (len(name.name) < 2 or name.name[1] in "_'^")
        )

    def applied(self, name: Node) -> Node:
        """`f'` or `f_1` with its arguments, where they follow."""
        if not isinstance(name, Sym) or not self._applies(name):
            return name
        braced = self.token.kind == "{"
        if braced:
            self.advance()
        node = Call(name.name, self._arguments())
        if braced:
            self.expect("}")
        return node

    def _rare(self) -> Node:
        token = self.advance()
        if token.kind == "repeating":
            return repeating(token.value)
        if token.kind == "empty":
            return EMPTY_SET
        if token.kind == "dots":
            return Sym("...")
        if token.kind == "angle":
            name = ""
            while self.token.kind in ("sym", "const") and len(name) < 8:
                name += self.advance().value
            return Sym(f"angle {name}")
        raise ReadError(f"unexpected '{token.value or token.kind}'")

    def _numeral(self) -> Node:
        """A numeral, joined with its groups of thousands (`1 000`), its fraction (`1 1/2`) or its base (`52_8`)."""
        value = self.advance().value
        if self.token.kind == "num" and self.token.spaced and value.isdigit():
            if self.peek().value == "/" and self.peek(2).kind == "num":
                p, q = self.token.value, self.peek(2).value
                if p.isdigit() and q.isdigit() and int(p) < int(q):
                    self.advance(), self.advance(), self.advance()
                    return Num(int(value) * int(q) + int(p), int(q))
            while len(value) <= 12 and self.token.kind == "num" and self.token.spaced:
                if len(self.token.value.partition(".")[0]) != 3 or not value.isdigit() or len(value) % 3 > 3:
                    break
                value += self.advance().value
        digit = self.token
        if digit.kind == "sym" and digit.value in "ABCDEF" and not digit.spaced and self.peek().kind == "_":
            value += self.advance().value
        if self.token.kind == "_":
            self.advance()
            base = self.raw_argument()
            if not base.isdigit() or len(base) > 3:
                raise ReadError("a subscript on a number")
            return Based(value, int(base))
        return number(value)

    def _words(self) -> Node:
        """Words where an expression is expected."""
        words = []
        while self.token.kind in ("text", "word", "sym", "num", "const", "func", "op", "prime"):
            words.append(self.advance().value)
        content = " ".join(words)
        if content.isascii() and content.replace(".", "", 1).isdigit():
            return number(content)
        return Text(content)

    def _bracket(self) -> Node:
        """Round, square and curly brackets, floors, ceilings and bars."""
        left = self.advance().value
        if left == "{" and self.token.kind == "close":
            self.advance()
            return EMPTY_SET
        bars, self.bars = self.bars, 0
        in_set, self.in_set = self.in_set, left == "{"
        inner = self.sequence()
        if left == "{" and (self.token.kind in ("|", "mid") or self.token.value == ":"):
            self.advance()
            self.in_set = False
            inner = self.sequence()
            left = ""
        self.bars, self.in_set = bars, in_set
        closing = self.advance()
        if closing.kind == "open" and closing.value == "[":
            right = ")"
        elif closing.kind == "close":
            right = closing.value
        else:
            raise ReadError("an unclosed bracket")
        if left == "":
            return inner
        if left in ("floor", "ceil", "abs"):
            if right != left:
                raise ReadError("brackets that do not match")
            return Call(left, (inner,))
        items = inner.items if isinstance(inner, Seq) and not inner.left else (inner,)
        if len(items) == 1 and left != "{":
            if right != _CLOSING[left]:
                raise ReadError("brackets that do not match")
            return inner
        if {left, right} <= {"(", ")", "[", "]"} or right == _CLOSING[left]:
            return Seq(left, right, items)
        raise ReadError("brackets that do not match")

    def _arguments(self) -> tuple[Node, ...]:
        """`(a, b)` after a function's name."""
        inner = self._bracket()
        return inner.items if isinstance(inner, Seq) and inner.left == "(" else (inner,)

    def _names_a_function(self) -> bool:
        """`P(x) = …`: the bracket closes right before an equals sign, and the name opens the answer."""
        if self.at > 1 and self.tokens[self.at - 2].kind not in ("sep", "open", "{"):
            return False
        depth = 0
        for index in range(self.at, len(self.tokens)):
            token = self.tokens[index]
            depth += (token.kind == "open") - (token.kind == "close")
            if depth == 0:
                return self.tokens[index + 1].value == "="
        return False

    def _function(self) -> Node:
        """`\\sin^2 x`, `\\log_2 8`, `sqrt(3)`: a function, its exponent, its base, its argument."""
        name = self.advance().value
        exponent: Node | None = None
        base: Node | None = None
        while self.token.kind in ("^", "_"):
            if self.advance().kind == "^":
                exponent = self.argument(whole_number=True)
            else:
                base = self.argument(whole_number=True)
        if exponent == Num(-1) and name in _INVERTIBLE:
            name, exponent = _INVERTIBLE[name], None
        if self.token.kind == "open" and self.token.value in ("(", "[", "{"):
            inner = self._bracket()
            args = inner.items if isinstance(inner, Seq) else (inner,)
        elif self.token.kind == "{":
            inner = self.group()
            args = inner.items if isinstance(inner, Seq) and inner.left in ("(", "") else (inner,)
        else:
            args = (self._bare_argument(single=name in ("sqrt", "cbrt")),)
        if base is not None:
            args = (*args, base)
        if name not in _VARIADIC and len(args) not in _ARITIES.get(name, (1,)):
            raise ReadError(f"{name} of {len(args)} arguments")
        if not args:
            raise ReadError(f"{name} of nothing")
        node: Node = Pow(EULER, Mul((IMAGINARY, args[0]))) if name == "cis" else Call(name, args)
        return node if exponent is None else Pow(node, exponent)

    def _bare_argument(self, *, single: bool) -> Node:
        """The factors after `\\sin` or `\\log`, up to the next sign, operator, function or bracket."""
        self.descend()
        sign = 1
        while self.token.kind == "op" and self.token.value == "-":
            self.advance()
            sign = -sign
        factors = [self.power()]
        while not single and self.token.kind in _BARE_ARGUMENT and not (self.token.kind == "|" and self.bars):
            if self.integrals and self.token.value == "d" and self.peek().kind == "sym":
                break  # dx
            factors.append(self.power())
        self.ascend()
        argument = product(factors)
        return argument if sign > 0 else Neg(argument)

    def _structure(self) -> Node:
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
        elif name == "pmod":
            raise ReadError("a residue class")
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

    def _environment(self) -> Node:
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
