"""Answers as tokens: one table for LaTeX, plain text and Unicode, one pass, linear time."""

from __future__ import annotations

import re
from typing import NamedTuple

from treeforge.label.vocabulary import (
    ALPHABETS,
    BINOMIALS,
    FONTS,
    FRACTIONS,
    FUNCTION_NAMES,
    GREEK,
    IGNORED,
    MACROS,
    SHORT_WORDS,
    STRUCTURES,
    TEXTS,
    WORD_CONSTANTS,
    WRAPPERS,
)

MAX_CHARS = 2_000
"""A longer answer is not read (route `limit`)."""
MAX_TOKENS = 600
"""An answer of more tokens is not read (route `limit`)."""
MAX_DIGITS = 400
"""A numeral of more digits is not read (route `limit`)."""


class LimitError(Exception):
    """A limit was reached before anything costly was done. Never leaves the room."""


class ReadError(Exception):
    """The text is no mathematics that this parser reads. Never leaves the room."""


class Token(NamedTuple):
    """One token. `spaced`: white space stood before it."""

    kind: str
    """num, sym, func, const, op, rel, set, open, close, text, word, macro, sep, row, end, or the character itself."""
    value: str
    spaced: bool = False


_SCAN = re.compile(
    r"""(?P<num>(?:\d+(?:\.(?![.])\d*)?|\.\d+)(?:(?:E[+-]?|e-?|e\+(?=\d\d))\d+(?![\d.A-Za-z\\(]))?)
    |(?P<letters>[A-Za-z]+)
    |(?P<space>(?:\s|~|\\[ ,;:!>])+)
    |(?P<row>\\\\(?:\[[^\]]*\])?)
    |(?P<macro>\\[A-Za-z]+)
    |(?P<escape>\\[{}|%$\#&_'])
    |(?P<rel><=|>=|!=|==|=<|=>|<>|=|<|>)
    |(?P<dots>\.\.+)
    |(?P<op>\*\*|[-+*/:])
    |(?P<open>[(\[])|(?P<close>[)\]])
    |(?P<char>[{}^_|!%',;&$"?.])
    """,
    re.VERBOSE | re.ASCII,
)
_BRACED = re.compile(r"\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_ONE = re.compile(r"\s*([A-Za-z0-9])")
_BOUND = {
    "<=": "<=",
    ">=": ">=",
    "=<": "<=",
    "=>": ">=",
    "!=": "!=",
    "<>": "!=",
    "==": "=",
    "=": "=",
    "<": "<",
    ">": ">",
}
_REPEATING = re.compile(r"(\d*)\.(\d*)\s*\\(?:overline|bar|dot)\s*(?:\{\s*(\d+)\s*\}|(\d))")
_INNER_MARKUP = re.compile(r"\\(?:text|mathrm|mbox|textbf|,|;|!| )\s*|[~$]")
_LETTER_UNITS = frozenset("mgsLlhNJWVAKC")
_UNIT_VECTORS = {"i": "bold i", "j": "j", "k": "k", "\\imath": "bold i", "\\jmath": "j"}
_GLUED = re.compile(r"(or|and)([A-Z])$")
_ACCENTS = {"overrightarrow": "vec", "widehat": "hat", "Bbb": "mathbb"}
_GLUED_MACRO = re.compile(r"(q?quad|cdot|times|pi|infty|cup|cap|leq?|geq?|neq?|pm|circ|in|ldots|dots)([A-Za-z]{1,3})$")
_PREFIXED = re.compile(r"(arcsin|arccos|arctan|sinh|cosh|tanh|sin|cos|tan|cot|sec|csc|log|ln|sqrt|pi)([A-Za-z]{1,2})$")


def tokenize(text: str) -> list[Token]:
    """Tokens of an answer, closed by an `end` token. Raises `ReadError` or `LimitError`."""
    if len(text) > MAX_CHARS:
        raise LimitError(f"longer than {MAX_CHARS} characters")
    tokens: list[Token] = []
    append = tokens.append
    match = _SCAN.match
    position, length, spaced = 0, len(text), False
    while position < length:
        found = match(text, position)
        if found is None:
            raise ReadError(f"unexpected character {text[position]!r}")
        kind, value = found.lastgroup, found.group()
        start, position = position, found.end()
        if kind == "space":
            spaced = True
            continue
        if kind == "num":
            if len(value) > MAX_DIGITS:
                raise LimitError(f"a numeral of more than {MAX_DIGITS} digits")
            if "\\" in text:
                repeating = _REPEATING.match(text, start)
                if repeating:
                    append(Token("repeating", repeating.group(), spaced))
                    position, spaced = repeating.end(), False
                    continue
            append(Token("num", value, spaced))
        elif kind == "letters":
            _letters(value, spaced, tokens)
        elif kind == "macro":
            position = _macro(value[1:], text, position, spaced, tokens)
        elif kind == "rel":
            append(Token("rel", _BOUND[value], spaced))
        elif kind == "escape":
            char = value[1]
            if char in "{}":
                append(Token("open" if char == "{" else "close", char, spaced))
            elif char == "|":
                append(Token("|", "||", spaced))
            elif char != "$":
                append(Token(char, char, spaced))
        elif kind == "char":
            if value in ",;":
                append(Token("sep", value, spaced))
            elif value == "'":
                append(Token("prime", value, spaced))
            elif value != "$":
                append(Token(value, value, spaced))
        elif kind == "op":
            append(Token("^", "^", spaced) if value == "**" else Token("op", value, spaced))
        else:
            append(Token(kind or "", value, spaced))
        spaced = False
        if len(tokens) > MAX_TOKENS:
            raise LimitError(f"more than {MAX_TOKENS} tokens")
    append(Token("end", ""))
    if "U" in text:
        _unions(tokens)
    return tokens


def _unions(tokens: list[Token]) -> None:
    """`(a, b) U (c, d)`: a lone U between brackets joins sets."""
    for i in range(1, len(tokens) - 1):
        if tokens[i].value == "U" and (tokens[i - 1].kind, tokens[i + 1].kind) == ("close", "open"):
            tokens[i] = Token("set", "union", tokens[i].spaced)


def _letters(run: str, spaced: bool, tokens: list[Token]) -> None:
    """Letters without a backslash: a function, a constant, a conjunction, a word, or a product of variables."""
    if len(run) == 1:
        tokens.append(Token("const", "e", spaced) if run == "e" else Token("sym", run, spaced))
        return
    name = FUNCTION_NAMES.get(run)
    if name is not None:
        tokens.append(Token("func", name, spaced))
    elif run == "mod":
        tokens.append(Token("op", "mod", spaced))
    elif run in WORD_CONSTANTS:
        tokens.append(Token("const", WORD_CONSTANTS[run], spaced))
    elif run.lower() in ("and", "or"):
        tokens.append(Token("sep", run.lower(), spaced))
    elif run in GREEK:
        tokens.append(Token("sym", run, spaced))
    elif run in ("U", "union"):
        tokens.append(Token("set", "union", spaced))
    elif run.lower() in SHORT_WORDS:
        tokens.append(Token("word", run, spaced))
    elif (found := _PREFIXED.match(run)) is not None or (tokens and (found := _GLUED.match(run)) is not None):
        _letters(found.group(1), spaced, tokens)
        _letters(found.group(2), False, tokens)
    elif len(run) > 3:
        tokens.append(Token("word", run, spaced))
    else:
        for letter in run:
            _letters(letter, spaced, tokens)
            spaced = False


def _macro(name: str, text: str, position: int, spaced: bool, tokens: list[Token]) -> int:
    """A LaTeX macro; returns the position after what it took."""
    known = MACROS.get(name)
    if known is not None:
        tokens.append(Token(known[0], known[1], spaced))
    elif name in IGNORED:
        if name in ("left", "right", "mleft", "mright") and position < len(text) and text[position] == ".":
            position += 1
    elif name in FRACTIONS:
        tokens.append(Token("macro", "frac", spaced))
    elif name in BINOMIALS:
        tokens.append(Token("macro", "binom", spaced))
    elif name in STRUCTURES:
        tokens.append(Token("macro", name, spaced))
    elif name in FUNCTION_NAMES:
        tokens.append(Token("func", FUNCTION_NAMES[name], spaced))
    elif name in GREEK:
        tokens.append(Token("sym", name, spaced))
    elif name in TEXTS or name in FONTS or name in ALPHABETS:
        return _styled(name, text, position, spaced, tokens)
    elif name in WRAPPERS:
        pass
    elif name in ("begin", "end"):
        found = _BRACED.match(text, position)
        if found is None:
            raise ReadError(f"\\{name} without an environment")
        position = found.end()
        environment = found.group(1).rstrip("*")
        if name == "begin" and environment == "array":
            columns = _BRACED.match(text, position)
            position = columns.end() if columns else position
        tokens.append(Token(name, environment, spaced))
    elif name in ("hspace", "vspace", "color", "textcolor", "colorbox", "tag", "label", "kern", "phantom"):
        found = _BRACED.match(text, position)
        position = found.end() if found else position
    elif name == "not":
        tokens.append(Token("not", "", spaced))
    elif (glued := _GLUED_MACRO.match(name) or _PREFIXED.match(name)) is not None:
        _macro(glued.group(1), text, position, spaced, tokens)
        _letters(glued.group(2), False, tokens)
    else:
        raise ReadError(f"unknown macro \\{name}")
    return position


def _applies(text: str, position: int) -> bool:
    """Whether an argument follows `\\text{lcm}`, so that it is a function and no word."""
    return text[position : position + 1] in ("(", "{", "\\", "_")


def _styled(name: str, text: str, position: int, spaced: bool, tokens: list[Token]) -> int:
    """`\\text{…}`, fonts and accents: words, or letters with a style."""
    found = _BRACED.match(text, position)
    if found is None:
        single = _ONE.match(text, position)
        if single is None:
            raise ReadError(f"\\{name} without an argument")
        content, position = single.group(1), single.end()
    else:
        content, position = found.group(1), found.end()
    apart = content[:1] in " ~" or (tokens and tokens[-1].kind == "num" and text[position - 1] == "}" and spaced)
    content = _INNER_MARKUP.sub(" ", content).replace("{", "").replace("}", "")
    content = " ".join(content.split())
    if name == "overline" and len(content) > 1 and content.isalpha():
        _letters(content, spaced, tokens)
    elif name in FONTS and apart and content in _LETTER_UNITS:  # 25 \\mathrm{~m}
        tokens.append(Token("text", content, spaced))
    elif name in ("hat", "vec", "widehat") and content in _UNIT_VECTORS:
        tokens.append(Token("sym", _UNIT_VECTORS[content], spaced))
    elif name in FONTS and content.isdecimal() and content.isascii():
        tokens.append(Token("num", content, spaced))
    elif name in ALPHABETS:
        tokens.append(Token("sym", f"{_ACCENTS.get(name, name)} {content}", spaced))
    elif content == "mod":
        tokens.append(Token("op", "mod", spaced))
    elif content.lower() in ("and", "or", ",", "and,", "or,", ", and", ", or"):
        tokens.append(Token("sep", "or" if "or" in content else "and", spaced))
    elif (name == "mathrm" and len(content) == 1) or (
        content in FUNCTION_NAMES and (name in FONTS or _applies(text, position))
    ):
        _letters(content, spaced, tokens)
    elif name in FONTS and name != "textbf" and len(content) == 1:
        tokens.append(Token("sym", f"bold {content}" if content in "eiI" else content, spaced))
    elif content:
        tokens.append(Token("text", content, spaced))
    return position
