"""What stands behind an atom: exponents, subscripts, primes, factorials, percent and degree signs."""

from __future__ import annotations

from treeforge.label.atoms import Atoms
from treeforge.label.build import primed
from treeforge.label.syntax import Call, Const, Degree, Node, Num, Percent, Pow, Quantity, Sym, Text
from treeforge.label.tokens import ReadError


class Suffixes(Atoms):
    """The part of the parser below products."""

    __slots__ = ()

    def power(self) -> Node:
        """A factor with its exponent, subscript, factorials, percent and degree signs."""
        return self.suffixed(self.atom())

    def suffixed(self, base: Node) -> Node:
        """A factor with what stands behind it."""
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
                braced = self.token.kind == "{" and self.peek().kind == "op" and self.peek(2).kind == "}"
                if braced or (self.token.kind == "op" and self.peek().kind in ("}", "close", "end", "rel")):
                    if braced:
                        self.advance()
                    sign = self.advance().value
                    if braced:
                        self.advance()
                    if isinstance(base, Sym):  # \mathbb{R}^+
                        base = Sym(f"{base.name}^{sign}")
                    continue  # the side of a limit, 3^+
                exponent = self.argument(whole_number=True)
                if self.token.kind == "^":
                    self.advance()
                    exponent = Pow(exponent, self.argument(whole_number=True))
                inverse = exponent == Num(-1) and isinstance(base, Sym) and self.applies(base)
                if isinstance(exponent, Text) or inverse:
                    base = self.applied(primed(base, Text("^-1") if inverse else exponent))
                else:
                    base = Pow(base, exponent)
            elif kind == "_":
                base = self.applied(self._subscript(base))
            elif kind == "!":
                self.advance()
                double = self.token.kind == "!" and self.peek().kind != "!" and isinstance(base, Num)
                if double:
                    self.advance()
                base = Call("factorial2" if double else "factorial", (base,))
            elif kind == "%":
                self.advance()
                base = Percent(base)
            elif kind == "degree":
                self.advance()
                base = Degree(base)
            elif kind == "prime":
                self.advance()
                base = self.applied(primed(base, Text("'")))
            else:
                return base

    def _runs(self) -> bool:
        """Whether the subscript that follows holds the running variable of a sum."""
        if self.token.kind != "{":
            return self.token.value in self.bound
        for token in self.tokens[self.at :]:
            if token.value in self.bound:
                return True
            if token.kind == "}":
                return False
        return False

    def _subscript(self, base: Node) -> Node:
        """A subscript is part of a variable's name, also after its exponent; of a numeral it is the base."""
        self.advance()
        if isinstance(base, Sym) and self.bound and self._runs():
            return Call(f"{base.name}_", (self.argument(whole_number=True),))
        name = self.raw_argument()
        if isinstance(base, Sym):
            return Sym(f"{base.name}_{name}")
        if isinstance(base, Const):
            return Sym(f"{base.name}_{name}")
        if isinstance(base, Pow) and isinstance(base.base, Sym):
            return Pow(Sym(f"{base.base.name}_{name}"), base.exponent)
        raise ReadError("a subscript on an expression")
