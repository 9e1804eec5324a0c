"""Tokens to a syntax tree: a precedence parser for LaTeX and plain mathematics, our own. Nothing is evaluated here."""

from __future__ import annotations

from treeforge.label.syntax import (
    EMPTY_SET,
    EULER,
    IMAGINARY,
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
from treeforge.label.tokens import LimitError, ReadError, Token, tokenize

MAX_DEPTH = 40
"""Brackets, fractions and powers nested deeper are not read (route `limit`)."""

_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">", "floor": "floor", "ceil": "ceil", "abs": "abs"}
_BARE_ARGUMENT = frozenset(("num", "sym", "const", "macro", "{", "|", "repeating", "angle"))
_FACTOR_START = _BARE_ARGUMENT | {"func", "open", "empty", "dots", "begin"}
_APPLIED = frozenset("fghFGHW")
"""Letters that, with a bracket right after them, are functions and not factors."""
_ENDS = frozenset(("end", "close", "}"))
_PERCENT_WORDS = frozenset(("percent", "pct", "percentage", "per cent"))
_DEGREE_WORDS = frozenset(("degree", "degrees", "deg"))
_INVERTIBLE = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}
_MATRICES = frozenset(("matrix", "pmatrix", "bmatrix", "Bmatrix", "vmatrix", "Vmatrix", "smallmatrix", "array"))
_SYSTEMS = frozenset(("cases", "dcases", "rcases", "aligned", "align", "gathered", "split", "gather", "equation"))


def parse(text: str) -> Node:
    """The syntax tree of an answer. Raises `ReadError` or `LimitError`."""
    parser = _Parser(tokenize(text))
    node = parser.sequence()
    if parser.token.kind != "end":
        raise ReadError(f"unexpected '{parser.token.value or parser.token.kind}'")
    return node


class _Parser:
    """One answer's tokens and a position in them."""

    __slots__ = ("at", "bars", "bound", "depth", "in_set", "token", "tokens")

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.token = tokens[0]
        self.depth = 0
        self.bars = 0
        self.bound: list[str] = []
        self.in_set = False

    def advance(self) -> Token:
        """The current token; moves on to the next one."""
        token = self.token
        if self.at < len(self.tokens) - 1:
            self.at += 1
        self.token = self.tokens[self.at]
        return token

    def peek(self, ahead: int = 1) -> Token:
        """A token further on."""
        return self.tokens[min(self.at + ahead, len(self.tokens) - 1)]

    def expect(self, kind: str) -> Token:
        """The current token, which must be of this kind."""
        if self.token.kind != kind:
            raise ReadError(f"expected '{kind}', found '{self.token.value or self.token.kind}'")
        return self.advance()

    # Lists and relations

    def sequence(self) -> Node:
        """Items up to what is no separator: one item is itself, more are a bare list; `;` separates lists of lists."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitError(f"nested deeper than {MAX_DEPTH}")
        groups: list[list[Node]] = [[]]
        separators: set[str] = set()
        while self.token.kind == "sep":
            self.advance()
        while self.token.kind not in _ENDS:
            groups[-1].append(self.item())
            if self.token.kind in (".", "?") and self.peek().kind in _ENDS:
                self.advance()
            if self.token.kind != "sep":
                break
            found = set()
            while self.token.kind == "sep":
                found.add(self.advance().value)
            separators |= found
            if ";" in found and self.token.kind not in _ENDS:
                groups.append([])
        self.depth -= 1
        right = "or" if separators == {"or"} else ""
        if "," in separators and len(groups) > 1:
            return Seq("", "", tuple(group[0] if len(group) == 1 else Seq("", "", tuple(group)) for group in groups))
        items = [item for group in groups for item in group]
        if not items:
            raise ReadError("nothing to read")
        return items[0] if len(items) == 1 else Seq("", right, tuple(items))

    def item(self) -> Node:
        """An expression, a ratio, a set, or a chain of relations between them."""
        left = self.ratio()
        if self.token.kind != "rel" and not self._word_in():
            return left
        ops: list[str] = []
        operands = [left]
        while self.token.kind == "rel" or self._word_in():
            ops.append(self.advance().value)
            operands.append(self.ratio())
        return Relation(tuple(ops), tuple(operands))

    def _word_in(self) -> bool:
        token = self.token
        return token.kind == "word" and token.value == "in" and self.peek().kind in ("open", "{")

    def ratio(self) -> Node:
        """Set expressions separated by `:`."""
        left = self.sets()
        if self.token.value != ":" or self.in_set:
            return left
        parts = [left]
        while self.token.value == ":":
            self.advance()
            parts.append(self.sets())
        last = parts[-1]
        if isinstance(last, Quantity):
            return Quantity(Ratio((*parts[:-1], last.x)), last.unit)
        return Ratio(tuple(parts))

    def sets(self) -> Node:
        """Unions, intersections and differences, from left to right."""
        left = self.sum()
        while self.token.kind == "set":
            op = self.advance().value
            right = self.sum()
            if isinstance(left, SetOp) and left.op == op != "difference":
                left = SetOp(op, (*left.args, right))
            else:
                left = SetOp(op, (left, right))
        return left

    # Expressions

    def sum(self) -> Node:
        """Terms joined by `+`, `-` and `±`."""
        terms = [self.signed()]
        while self.token.kind == "op" and self.token.value in ("+", "-", "pm", "mp"):
            terms.append(self.signed())
        return terms[0] if len(terms) == 1 else Add(tuple(terms))

    def signed(self) -> Node:
        """A term with any signs before it."""
        sign, plus_minus = 1, 0
        signs = 0
        while self.token.kind == "op" and self.token.value in ("+", "-", "pm", "mp"):
            value = self.advance().value
            signs += 1
            if signs > 8:
                raise ReadError("more than eight signs in a row")
            if value == "-":
                sign = -sign
            elif value in ("pm", "mp"):
                plus_minus = 1 if value == "pm" else -1
        term = self.term()
        if sign < 0:
            term = _negated(term)
        return PlusMinus(plus_minus, term) if plus_minus else term

    def term(self) -> Node:
        """Factors multiplied, divided, or standing side by side, with the unit after them."""
        factors = [self.power()]
        if isinstance(factors[0], Num) and factors[0].q == 1 and self.token.value == "frac":
            factors = self._mixed(factors[0])
        while True:
            token = self.token
            kind = token.kind
            if kind == "op" and token.value in ("*", "/"):
                self.advance()
                sign = 1
                while self.token.kind == "op" and self.token.value in ("+", "-"):
                    sign = -sign if self.advance().value == "-" else sign
                factor = self.power()
                factor = factor if sign > 0 else Neg(factor)
                if token.value == "*":
                    factors.append(factor)
                else:
                    factors = [Div(_product(factors), factor)]
            elif kind in ("word", "text") and not self._word_in():
                return self._with_unit(_product(factors))
            elif kind in _FACTOR_START and not (kind == "|" and self.bars):
                if kind == "num" and isinstance(factors[-1], Num):
                    raise ReadError("two numbers side by side")
                factors.append(self.power())
            else:
                return _product(factors)

    def _mixed(self, whole: Num) -> list[Node]:
        """`1\\frac{1}{2}` is a mixed number where the fraction is a proper one of integers, else a product."""
        fraction = self.power()
        if isinstance(fraction, Div) and isinstance(fraction.a, Num) and isinstance(fraction.b, Num):
            a, b = fraction.a, fraction.b
            if a.q == b.q == 1 and not whole.digits and a.p < b.p:
                return [Num(whole.p * b.p + a.p, b.p)]
        return [whole, fraction]

    def _with_unit(self, value: Node) -> Node:
        """The words after a number: percent, degrees, a unit, or just words."""
        words: list[str] = []
        while self.token.kind in ("word", "text", "sym", "const", "^", "num", "{", "}", "op", "func", "prime"):
            if self.token.kind == "op" and self.token.value not in ("/", "*"):
                break
            if self.token.kind == "}" and "{" not in words:
                break
            words.append(self.advance().value)
        unit = " ".join(words)
        lowered = unit.lower()
        if lowered in _PERCENT_WORDS:
            return Percent(value)
        if lowered in _DEGREE_WORDS:
            return Degree(value)
        return Quantity(value, unit)

    def power(self) -> Node:
        """A factor with its exponent, subscript, factorials, percent and degree signs."""
        base = self.atom()
        while True:
            kind = self.token.kind
            if kind == "^":
                self.advance()
                if self.token.kind == "degree" or (self.token.kind == "{" and self.peek().kind == "degree"):
                    braced = self.advance().kind == "{"
                    if braced:
                        self.advance()
                        self.expect("}")
                    base = Degree(base)
                    if self.token.kind == "sym" and self.token.value in "CF":
                        base = Quantity(base.x, "°" + self.advance().value)
                    continue
                exponent = self.argument(whole_number=True)
                if self.token.kind == "^":
                    self.advance()
                    exponent = Pow(exponent, self.argument(whole_number=True))
                base = _primed(base, exponent) if isinstance(exponent, Text) else Pow(base, exponent)
            elif kind == "_":
                base = self._subscript(base)
            elif kind == "!":
                self.advance()
                base = Call("factorial", (base,))
            elif kind == "%":
                self.advance()
                base = Percent(base)
            elif kind == "degree":
                self.advance()
                base = Degree(base)
            elif kind == "prime":
                self.advance()
                base = _primed(base, Text("'"))
            else:
                return base

    def _subscript(self, base: Node) -> Node:
        """A subscript is part of a variable's name, also after its exponent; of a numeral it is the base."""
        self.advance()
        name = self._raw_argument()
        if isinstance(base, Sym):
            return Sym(f"{base.name}_{name}")
        if isinstance(base, Const):
            return Sym(f"{base.name}_{name}")
        if isinstance(base, Pow) and isinstance(base.base, Sym):
            return Pow(Sym(f"{base.base.name}_{name}"), base.exponent)
        if isinstance(base, Mul) and all(isinstance(factor, Num | Sym | Const) for factor in base.factors):
            # a numeral with letter digits: 3A_{12}
            digits = "".join(str(f.p) if isinstance(f, Num) else f.name for f in base.factors)  # type: ignore[union-attr]
            return Based(digits, int(name)) if name.isdigit() and len(name) < 4 else base
        raise ReadError("a subscript on an expression")

    def _raw_argument(self) -> str:
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
            if whole_number or len(token.value) == 1:
                self.advance()
                return _number(token.value)
            self.tokens[self.at] = self.token = Token("num", token.value[1:])
            return _number(token.value[0])
        if token.kind == "op" and token.value in ("-", "+"):
            self.advance()
            inner = self.argument(whole_number=whole_number)
            return _negated(inner) if token.value == "-" else inner
        return self.atom()

    def group(self) -> Node:
        """`{…}`: LaTeX grouping; several items are a bare list, `{n \\choose k}` is a binomial coefficient."""
        self.expect("{")
        if self.token.kind == "}":
            self.advance()
            return EMPTY_SET
        bars, self.bars = self.bars, 0
        inner = self.sequence()
        if self.token.kind == "choose":
            self.advance()
            inner = Call("binom", (inner, self.sequence()))
        self.bars = bars
        self.expect("}")
        return inner

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
            if following.kind == "open" and following.value == "(" and not following.spaced:
                if token.value in _APPLIED or self._names_a_function():
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

    def _rare(self) -> Node:
        token = self.advance()
        if token.kind == "repeating":
            return _repeating(token.value)
        if token.kind == "empty":
            return EMPTY_SET
        if token.kind == "dots":
            return Sym("...")
        if token.kind == "angle":
            name = ""
            while self.token.kind in ("sym", "const") and len(name) < 8:
                name += self.advance().value
            return Sym(f"angle {name}")
        if token.kind == "close" and token.value == "]":  # ]a, b[
            inner = self.sequence()
            closing = self.advance()
            items = inner.items if isinstance(inner, Seq) and not inner.left else (inner,)
            return Seq("(", ")" if closing.kind == "open" else closing.value, items)
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
        if self.token.kind == "_":
            self.advance()
            base = self._raw_argument()
            if not base.isdigit() or len(base) > 3:
                raise ReadError("a subscript on a number")
            return Based(value, int(base))
        return _number(value)

    def _words(self) -> Node:
        """Words where an expression is expected."""
        words = []
        while self.token.kind in ("text", "word", "sym", "num", "const", "func", "op", "prime"):
            words.append(self.advance().value)
        content = " ".join(words)
        if content.replace(".", "", 1).isdigit():
            return _number(content)
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
        if left == "{" and (self.token.kind == "|" or self.token.value == ":"):
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
        node: Node = Call(name, args)
        return node if exponent is None else Pow(node, exponent)

    def _bare_argument(self, *, single: bool) -> Node:
        """The factors after `\\sin` or `\\log`, up to the next sign, operator, function or bracket."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitError(f"nested deeper than {MAX_DEPTH}")
        sign = 1
        while self.token.kind == "op" and self.token.value == "-":
            self.advance()
            sign = -sign
        factors = [self.power()]
        while not single and self.token.kind in _BARE_ARGUMENT and not (self.token.kind == "|" and self.bars):
            factors.append(self.power())
        self.depth -= 1
        product = _product(factors)
        return product if sign > 0 else Neg(product)

    def _structure(self) -> Node:
        """`\\frac`, `\\sqrt`, `\\binom`, `\\sum`, `\\int` and what they take."""
        name = self.advance().value
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitError(f"nested deeper than {MAX_DEPTH}")
        node: Node
        if name in ("frac", "binom"):
            a = self.argument(whole_number=False)
            b = self.argument(whole_number=False)
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
        self.depth -= 1
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
        self.bound.append(var)
        body = self.term()
        self.bound.pop()
        return Big(name, var, low, high, body)

    def _integral(self, low: Node | None, high: Node | None) -> Node:
        body = self.sum()
        while isinstance(body, Seq) and len(body.items) == 1:
            body = body.items[0]
        terms = list(body.terms) if isinstance(body, Add) else [body]
        factors = _factors(terms[-1])
        if len(factors) < 2 or factors[-2] != Sym("d") or not isinstance(factors[-1], Sym):
            raise ReadError("an integral without its differential")
        var = factors[-1].name
        terms[-1] = _product(factors[:-2]) if len(factors) > 2 else Num(1)
        return Big("int", var, low, high, terms[0] if len(terms) == 1 else Add(tuple(terms)))

    def _environment(self) -> Node:
        """Matrices and arrays; `cases` and aligned rows are bare lists."""
        environment = self.advance().value
        if environment not in _MATRICES and environment not in _SYSTEMS:
            raise ReadError(f"environment {environment}")
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
        if environment in _SYSTEMS and all(len(row) == 1 for row in rows):
            return Seq("", "", tuple(row[0] for row in rows))
        if not rows or any(len(row) != len(rows[0]) for row in rows):
            raise ReadError("rows of different lengths")
        return Matrix(tuple(rows))


def _number(text: str) -> Num:
    """A numeral's exact value, with the digits that were given where it is a decimal."""
    mantissa, _, exponent = text.lower().partition("e")
    whole, point, fraction = mantissa.partition(".")
    if not point and not exponent:
        return Num(int(whole))
    p, q = int(whole + fraction or "0"), 10 ** len(fraction)
    digits = len((whole + fraction).lstrip("0")) if fraction else 0
    if exponent:
        shift = int(exponent)
        if abs(shift) > 400:
            raise LimitError("an exponent beyond 400")
        return Num(p * 10**shift, q) if shift >= 0 else Num(p, q * 10**-shift, digits)
    return Num(p, q, digits)


def _repeating(text: str) -> Num:
    """`0.1\\overline{6}`: the exact rational."""
    head, _, block = text.partition("\\")
    block = block[block.index("{") + 1 : -1]
    whole, _, fixed = head.partition(".")
    scale, nines = 10 ** len(fixed), 10 ** len(block) - 1
    return Num(int(whole + fixed or "0") * nines + int(block), scale * nines)


def _negated(node: Node) -> Node:
    if isinstance(node, Num):
        return Num(-node.p, node.q, node.digits)
    if isinstance(node, Quantity):
        return Quantity(_negated(node.x), node.unit)
    if isinstance(node, Percent | Degree):
        return type(node)(_negated(node.x))
    return Neg(node)


def _factors(node: Node) -> list[Node]:
    """Factors of a product, of nested products too."""
    if isinstance(node, Seq) and len(node.items) == 1:
        return _factors(node.items[0])
    if not isinstance(node, Mul):
        return [node]
    return [inner for factor in node.factors for inner in _factors(factor)]


def _product(factors: list[Node]) -> Node:
    return factors[0] if len(factors) == 1 else Mul(tuple(map(_group, factors)))


def _group(node: Node) -> Node:
    """Braces around one factor of a product only group it."""
    return node.items[0] if isinstance(node, Seq) and len(node.items) == 1 else node


def _primed(base: Node, mark: Text | Node) -> Node:
    if isinstance(base, Sym) and isinstance(mark, Text):
        return Sym(base.name + mark.content)
    raise ReadError("a prime on an expression")
