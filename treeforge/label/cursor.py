"""A position in an answer's tokens, with the state that a parser carries along."""

from __future__ import annotations

from treeforge.label.tokens import LimitError, ReadError, Token

MAX_DEPTH = 40
"""Brackets, fractions and powers nested deeper are not read (route `limit`)."""


class Cursor:
    """One answer's tokens and a position in them."""

    __slots__ = ("at", "bars", "bound", "depth", "in_set", "integrals", "token", "tokens")

    def __init__(self, tokens: list[Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.token = tokens[0]
        self.depth = 0
        self.bars = 0
        self.bound: list[str] = []
        self.in_set = False
        self.integrals = 0

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

    def descend(self) -> None:
        """One level deeper; `LimitError` below `MAX_DEPTH`."""
        self.depth += 1
        if self.depth > MAX_DEPTH:
            raise LimitError(f"nested deeper than {MAX_DEPTH}")

    def ascend(self) -> None:
        """Back up one level."""
        self.depth -= 1
