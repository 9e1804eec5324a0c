"""Braces and brackets, and the arguments that stand in them: the lowest part of the parser."""

from __future__ import annotations

from abc import ABC, abstractmethod

from treeforge.label.build import negated, number
from treeforge.label.cursor import Cursor
from treeforge.label.syntax import EMPTY_SET, Call, Div, Node, Seq, Text
from treeforge.label.tokens import ReadError, Token

_CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">", "floor": "floor", "ceil": "ceil", "abs": "abs"}


class Groups(Cursor, ABC):
    """Groups and brackets. What stands in them is read by the classes that complete this one."""

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

    @abstractmethod
    def atom(self) -> Node:
        """A number, name, function, group or bracket."""

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

    def bracket(self) -> Node:
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
