"""Answers compared by their characters: words, letters of options, numerals with a base."""

from __future__ import annotations

import re

from treeforge.label.numeric import Answer
from treeforge.label.rules import Rules
from treeforge.label.syntax import Based, Const, Mul, Node, Num, Quantity, Seq, Sym, Text

_ARTICLES = ("a", "an", "the")
_PUNCTUATION = re.compile(r"[^\w]+")


def letters(text: str) -> str:
    """A text without punctuation and spaces."""
    return _PUNCTUATION.sub("", text)


def same_texts(a: Node, b: Node, rules: Rules) -> Answer | None:
    """Words with words; None where neither side is words."""
    if not isinstance(a, Text) and not isinstance(b, Text):
        return None
    x, y = _word_list(a), _word_list(b)
    if x is None or y is None:
        return Answer(False, "string", "words and mathematics")
    if rules.policy.text_case == "fold":
        x, y = [word.casefold() for word in x], [word.casefold() for word in y]
    equal = "".join(x) == "".join(y) or _concludes(x, y)
    if not equal and rules.policy.lists == "unordered" and all(len(word) == 1 for word in (*x, *y)):
        equal = sorted(x) == sorted(y)  # the letters of several options
    return Answer(equal, "string", "" if equal else "different words")


def _concludes(prediction: list[str], gold: list[str]) -> bool:
    """A statement that ends in the gold answer, `so it is Tuesday`, or begins with it, `no, it is not`."""
    before = prediction[: -len(gold)] if gold and prediction[-len(gold) :] == gold else []
    if before and before[-1] in _ARTICLES:
        before = before[:-1]
    if before and before[-1] in ("is", "are", "be", "was"):
        return True
    return len(gold) == 1 and gold[0] in ("yes", "no") and prediction[0] == gold[0] and len(prediction) > 2


def _word_list(node: Node) -> list[str] | None:
    """A node as words without punctuation and conjunctions; None for what is no words."""
    if isinstance(node, Text):
        return [word for word in _PUNCTUATION.split(node.content) if word and word.lower() not in ("and", "or")]
    if isinstance(node, Seq):
        parts = [_word_list(item) for item in node.items]
        return None if any(part is None for part in parts) else [word for part in parts for word in part or ()]
    words = _words_of(node)
    return None if words is None else [words]


def _words_of(node: Node) -> str | None:
    """A node as words, without punctuation and spaces: `(C)`, `VW`, `east`; None for what is no word."""
    if isinstance(node, Text):
        return letters(node.content)
    if isinstance(node, Sym):
        return letters(node.name)
    if isinstance(node, Num) and node.q == 1:
        return str(node.p)
    if isinstance(node, Mul | Seq):
        parts = [_words_of(x) for x in (node.factors if isinstance(node, Mul) else node.items)]
        return None if any(part is None for part in parts) else "".join(part or "" for part in parts)
    if isinstance(node, Const):
        return node.name
    if isinstance(node, Quantity):
        inner = _words_of(node.x)
        return None if inner is None else inner + letters(node.unit)
    return None


def same_numerals(a: Node, b: Node, rules: Rules) -> Answer | None:
    """Numerals with their bases, `52_8`; None where neither side has a base."""
    if isinstance(a, Based) and isinstance(b, Based):
        equal = a.base == b.base and a.digits.lower() == b.digits.lower()
        return Answer(equal, "exact", "" if equal else "different numerals or bases")
    if isinstance(a, Based) or isinstance(b, Based):
        for based, other in ((a, b), (b, a)):
            if isinstance(based, Based) and based.base == 10 and based.digits.isdigit():
                return rules.same(Num(int(based.digits)), other, rules)
        digits = [x.digits if isinstance(x, Based) else _words_of(x) or "" for x in (a, b)]
        equal = rules.policy.base == "optional" and isinstance(b, Based) and digits[0].lower() == digits[1].lower()
        return Answer(equal, "exact", "the base left out" if equal else "a numeral of another base")
    return None
