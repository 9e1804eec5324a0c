"""Tokens to a syntax tree: a precedence parser for LaTeX and plain mathematics. Nothing is evaluated here."""

from __future__ import annotations

import re

from treeforge.label.build import negated, product, spread_exclusions
from treeforge.label.suffixes import Suffixes
from treeforge.label.syntax import (
    Add,
    Call,
    Degree,
    Div,
    Neg,
    Node,
    Num,
    Percent,
    PlusMinus,
    Quantity,
    Ratio,
    Relation,
    Seq,
    SetOp,
)
from treeforge.label.tokens import ReadError, tokenize
from treeforge.label.vocabulary import MULTIPLIERS

_FACTOR_START = frozenset(
    ("num", "sym", "const", "macro", "{", "|", "repeating", "angle", "func", "open", "empty", "dots", "begin")
)
_ENDS = frozenset(("end", "close", "}"))
_PERCENT_WORDS = frozenset(("percent", "pct", "percentage", "per cent"))
_STRAY_DIGIT = re.compile(r"(?<![A-Za-z^{-])\d")
_VERBS = frozenset(("is", "are", "was", "were", "not", "isn", "equals"))
_OPERATIONS = frozenset(("squared", "cubed", "factorial", "times", "plus", "minus", "over", "divided"))
_DEGREE_WORDS = frozenset(("degree", "degrees", "deg"))


def parse(text: str) -> Node:
    """The syntax tree of an answer. Raises `ReadError` or `LimitError`."""
    parser = _Parser(tokenize(text))
    node = parser.infix(parser.sequence())
    if parser.token.kind != "end":
        raise ReadError(f"unexpected '{parser.token.value or parser.token.kind}'")
    return node


class _Parser(Suffixes):
    """Lists, relations, sets, sums and products, above factors with their suffixes."""

    __slots__ = ()

    # Lists and relations

    def sequence(self) -> Node:
        """Items up to what is no separator: one item is itself, more are a bare list; `;` separates lists of lists."""
        self.descend()
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
        self.ascend()
        right = "or" if separators == {"or"} else ""
        if "," in separators and len(groups) > 1:
            return Seq("", "", tuple(group[0] if len(group) == 1 else Seq("", "", tuple(group)) for group in groups))
        items = [item for group in groups for item in group]
        if items and type(items[0]) is Relation:
            items = spread_exclusions(items)
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

    def _minutes(self) -> bool:
        """`150 min`, where no argument of a function follows."""
        return self.token.value in ("min", "sec") and self.peek().kind in _ENDS

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
            term = negated(term)
        return PlusMinus(plus_minus, term) if plus_minus else term

    def term(self) -> Node:
        """Factors multiplied, divided, or standing side by side, with the unit after them."""
        factors = [self.power()]
        if isinstance(factors[0], Num) and factors[0].q == 1 and self.token.value == "frac":
            factors = self._mixed(factors[0])
        while True:
            token = self.token
            kind = token.kind
            if kind == "op" and token.value == "mod":
                self.advance()
                factors = [Call("mod", (product(factors), self.power()))]
            elif kind == "pmod" or (kind == "open" and self.peek().value == "mod"):
                factors = [Call("mod", (product(factors), self.modulus()))]
            elif kind == "op" and token.value in ("*", "/"):
                self.advance()
                sign = 1
                while self.token.kind == "op" and self.token.value in ("+", "-"):
                    sign = -sign if self.advance().value == "-" else sign
                factor = self.power()
                factor = factor if sign > 0 else Neg(factor)
                if token.value == "*":
                    factors.append(factor)
                else:
                    factors = [Div(product(factors), factor)]
            elif (kind in ("word", "text") and not self._word_in()) or (kind == "func" and self._minutes()):
                return self._with_unit(product(factors))
            elif kind in _FACTOR_START and not (kind == "|" and (self.bars or self.in_set)):
                if kind == "num" and isinstance(factors[-1], Num):
                    raise ReadError("two numbers side by side")
                factors.append(self.power())
            else:
                return product(factors)

    def _mixed(self, whole: Num) -> list[Node]:
        """`1\\frac{1}{2}` is a mixed number where the fraction is a proper one of integers, else a product."""
        fraction = self.atom()
        if isinstance(fraction, Div) and isinstance(fraction.a, Num) and isinstance(fraction.b, Num):
            a, b = fraction.a, fraction.b
            if a.q == b.q == 1 and not whole.digits and a.p < b.p:
                return [self.suffixed(Num(whole.p * b.p + a.p, b.p))]
        return [whole, self.suffixed(fraction)]

    def _with_unit(self, value: Node) -> Node:
        """The words after a number: percent, degrees, `million`, a unit, or just words; digits only as exponents."""
        words: list[str] = []
        while self.token.kind in ("word", "text", "sym", "const", "^", "num", "{", "}", "op", "func", "prime"):
            token = self.token
            if token.kind == "op" and token.value not in ("/", "*") and words[-1] not in ("^", "{"):
                break
            if token.kind == "}" and "{" not in words:
                break
            stray = token.kind == "num" and (token.spaced or token.value not in ("1", "2", "3"))
            if stray or (token.kind == "text" and _STRAY_DIGIT.search(token.value)):
                raise ReadError("a number among the words after a number")
            words.append(self.advance().value)
        unit = " ".join(words)
        lowered = unit.lower().split()
        if not lowered or lowered[0] in _OPERATIONS or not _VERBS.isdisjoint(lowered):
            raise ReadError("an operation or a statement in words")
        if lowered[0] in MULTIPLIERS:
            value = product([value, Num(MULTIPLIERS[lowered[0]])])
            unit = " ".join(words).partition(" ")[2]
            lowered = lowered[1:]
            if not lowered:
                return value
        if " ".join(lowered) in _PERCENT_WORDS:
            return Percent(value)
        if " ".join(lowered) in _DEGREE_WORDS:
            return Degree(value)
        return Quantity(value, unit)
