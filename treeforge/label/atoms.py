"""The atoms of mathematics: numerals, names, words, and functions with their arguments."""

from __future__ import annotations

from treeforge.label.build import number, product, repeating
from treeforge.label.structures import Structures
from treeforge.label.syntax import (
    EMPTY_SET,
    EULER,
    IMAGINARY,
    Based,
    Call,
    Const,
    Mul,
    Neg,
    Node,
    Num,
    Pow,
    Seq,
    Sym,
    Text,
)
from treeforge.label.tokens import ReadError

_BARE_ARGUMENT = frozenset(("num", "sym", "const", "macro", "{", "|", "repeating", "angle"))
_APPLIED = frozenset("fghFGHW")
"""Letters that, with a bracket right after them, are functions and not factors."""
_INVERTIBLE = {name: f"arc{name}" for name in ("sin", "cos", "tan", "cot", "sec", "csc", "sinh", "cosh", "tanh")}
_VARIADIC = frozenset(("max", "min", "gcd", "lcm"))
_ARITIES = {"log": (1, 2), "binom": (2,), "mod": (2,)}


class Atoms(Structures):
    """The part of the parser below exponents and subscripts."""

    __slots__ = ()

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
            if token.value in _APPLIED and self.applies(Sym(token.value)):
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
            return self.bracket()
        if kind == "func":
            return self._function()
        if kind == "macro":
            return self.structure()
        if kind == "|":
            self.advance()
            self.bars += 1
            inner = self.sequence()
            self.bars -= 1
            self.expect("|")
            return Call("abs", (inner,))
        if kind == "begin":
            return self.environment()
        if kind in ("text", "word"):
            return self._words()
        return self._rare()

    def applies(self, name: Node) -> bool:
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
        if not isinstance(name, Sym) or not self.applies(name):
            return name
        braced = self.token.kind == "{"
        if braced:
            self.advance()
        node = Call(name.name, self._arguments())
        if braced:
            self.expect("}")
        return node

    def _arguments(self) -> tuple[Node, ...]:
        """`(a, b)` after a function's name."""
        inner = self.bracket()
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
                if len(self.token.value.partition(".")[0]) != 3 or not value.isdigit():
                    break
                value += self.advance().value
        digit = self.token
        if digit.kind == "sym" and digit.value in "ABCDEF" and not digit.spaced and self.peek().kind == "_":
            value += self.advance().value
        if self.token.kind == "_":
            self.advance()
            base = self.raw_argument()
            if not base.isdecimal() or len(base) > 3:
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
            inner = self.bracket()
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
