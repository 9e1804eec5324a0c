"""Answers as tokens: one table for LaTeX, plain text and Unicode, one pass, linear time."""

from __future__ import annotations

import re
from typing import NamedTuple

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


FUNCTIONS = frozenset(
    """sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh arccosh
    arctanh asinh acosh atanh asin acos atan arsinh arcosh artanh ln log lg exp sqrt cbrt abs floor ceil gcd lcm max min
    binom det sgn sign Re Im deg arg mod""".split()
)
_FUNCTION_NAMES = {"tg": "tan", "ctg": "cot", "arctg": "arctan", "cosec": "csc", "ceiling": "ceil", "hcf": "gcd"} | {
    name: name for name in FUNCTIONS
}
_INVERSES = {"asinh": "arcsinh", "acosh": "arccosh", "atanh": "arctanh", "asin": "arcsin", "acos": "arccos"}
_INVERSES |= {"atan": "arctan", "arsinh": "arcsinh", "arcosh": "arccosh", "artanh": "arctanh", "sign": "sgn"}

GREEK = frozenset(
    """alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho sigma tau
    upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega ell hbar aleph nabla
    partial star ast""".split()
)
_WORD_CONSTANTS = {"pi": "pi", "inf": "inf", "infinity": "inf", "infty": "inf", "oo": "inf"}

_MACROS: dict[str, tuple[str, str]] = {
    "cdot": ("op", "*"),
    "times": ("op", "*"),
    "bullet": ("op", "*"),
    "div": ("op", "/"),
    "pm": ("op", "pm"),
    "mp": ("op", "mp"),
    "lt": ("rel", "<"),
    "gt": ("rel", ">"),
    "le": ("rel", "<="),
    "leq": ("rel", "<="),
    "leqslant": ("rel", "<="),
    "ge": ("rel", ">="),
    "geq": ("rel", ">="),
    "geqslant": ("rel", ">="),
    "ne": ("rel", "!="),
    "neq": ("rel", "!="),
    "in": ("rel", "in"),
    "approx": ("rel", "approx"),
    "simeq": ("rel", "approx"),
    "doteq": ("rel", "approx"),
    "equiv": ("rel", "equiv"),
    "cong": ("rel", "equiv"),
    "cup": ("set", "union"),
    "bigcup": ("set", "union"),
    "cap": ("set", "intersection"),
    "setminus": ("set", "difference"),
    "backslash": ("set", "difference"),
    "infty": ("const", "inf"),
    "pi": ("const", "pi"),
    "exponentialE": ("const", "e"),
    "imaginaryI": ("const", "i"),
    "emptyset": ("empty", ""),
    "varnothing": ("empty", ""),
    "lbrace": ("open", "{"),
    "rbrace": ("close", "}"),
    "lbrack": ("open", "["),
    "rbrack": ("close", "]"),
    "lgroup": ("open", "("),
    "rgroup": ("close", ")"),
    "lparen": ("open", "("),
    "rparen": ("close", ")"),
    "langle": ("open", "<"),
    "rangle": ("close", ">"),
    "lfloor": ("open", "floor"),
    "rfloor": ("close", "floor"),
    "llcorner": ("open", "floor"),
    "lrcorner": ("close", "floor"),
    "lceil": ("open", "ceil"),
    "rceil": ("close", "ceil"),
    "ulcorner": ("open", "ceil"),
    "urcorner": ("close", "ceil"),
    "lvert": ("open", "abs"),
    "rvert": ("close", "abs"),
    "vert": ("|", "|"),
    "mid": ("|", "|"),
    "colon": ("op", ":"),
    "ldots": ("dots", "..."),
    "dots": ("dots", "..."),
    "cdots": ("dots", "..."),
    "dotsc": ("dots", "..."),
    "choose": ("choose", ""),
    "circ": ("degree", ""),
    "degree": ("degree", ""),
    "prime": ("prime", "'"),
    "land": ("sep", "and"),
    "wedge": ("sep", "and"),
    "lor": ("sep", "or"),
    "vee": ("sep", "or"),
    "angle": ("angle", ""),
    "triangle": ("angle", ""),
}
_STRUCTURES = frozenset(("sqrt", "sum", "prod", "int", "pmod"))
_FRACTIONS = frozenset(("dfrac", "tfrac", "cfrac", "frac"))
_BINOMIALS = frozenset(("dbinom", "tbinom", "binom"))
_IGNORED = frozenset(
    """left right mleft mright middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr displaystyle textstyle
    scriptstyle limits nolimits nonumber hfill noindent rm bf it thinspace medspace thickspace negthinspace allowbreak
    boldmath quad qquad Large large small normalsize protect relax""".split()
)
_TEXTS = frozenset("text mbox textrm textup textnormal hbox textsf texttt textit textsc textmd".split())
_FONTS = frozenset("mathrm operatorname mathbf textbf mathit mathsf mathtt boldsymbol bm pmb bold mathup symbf".split())
_ALPHABETS = frozenset("mathbb mathcal mathfrak mathscr Bbb vec hat widehat bar tilde overline overrightarrow dot ddot".split())
_WRAPPERS = frozenset("boxed fbox displaylines underline ensuremath phantom".split())

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-", "＋": "+", "×": "*", "✕": "*", "⋅": "*",
    "·": "*", "∙": "*", "•": "*", "∗": "*", "＊": "*", "÷": "/", "∕": "/", "⁄": "/", "／": "/", "＝": "=", "≠": "!=",
    "≤": "<=", "≥": ">=", "⩽": "<=", "⩾": ">=", "≦": "<=", "≧": ">=", "＜": "<", "＞": ">", "≈": "\\approx ",
    "≃": "\\approx ", "≅": "\\equiv ", "≡": "\\equiv ", "∈": "\\in ", "∪": "\\cup ", "∩": "\\cap ", "∖": "\\setminus ",
    "∅": "\\emptyset ", "∞": "\\infty ", "π": "\\pi ", "𝜋": "\\pi ", "√": "\\sqrt ", "∛": "\\sqrt[3] ", "∜": "\\sqrt[4] ",
    "±": "\\pm ", "∓": "\\mp ", "°": "^\\circ ", "º": "^\\circ ", "′": "'", "’": "'", "‘": "'", "″": "''", "∑": "\\sum ",
    "∏": "\\prod ", "∫": "\\int ", "⌊": "\\lfloor ", "⌋": "\\rfloor ", "⌈": "\\lceil ", "⌉": "\\rceil ", "∧": "\\land ",
    "∨": "\\lor ", "∠": "\\angle ", "△": "\\triangle ", "…": "...", "⋯": "...", "∣": "|", "｜": "|", "∶": ":", "：": ":",
    "，": ",", "、": ",", "；": ";", "（": "(", "）": ")", "［": "[", "］": "]", "｛": "{", "｝": "}", "％": "%", "．": ".",
    "。": ".", "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2007": " ", "\u3000": " ", "\u200b": "", "\ufeff": "",
    "“": '"', "”": '"', "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}", "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}",
    "€": "\\$", "£": "\\$", "¥": "\\$", "￥": "\\$", "₹": "\\$",
}  # fmt: skip
_UNICODE |= {chr(0xFF10 + d): str(d) for d in range(10)} | {chr(0x0660 + d): str(d) for d in range(10)}
_UNICODE |= {chr(0x0966 + d): str(d) for d in range(10)}
_UNICODE |= {
    glyph: f"\\frac{{{p}}}{{{q}}}"
    for glyph, p, q in (
        ("½", 1, 2), ("⅓", 1, 3), ("⅔", 2, 3), ("¼", 1, 4), ("¾", 3, 4), ("⅕", 1, 5), ("⅖", 2, 5), ("⅗", 3, 5), ("⅘", 4, 5),
        ("⅙", 1, 6), ("⅚", 5, 6), ("⅛", 1, 8), ("⅜", 3, 8), ("⅝", 5, 8), ("⅞", 7, 8), ("⅐", 1, 7), ("⅑", 1, 9), ("⅒", 1, 10),
    )
}  # fmt: skip
_GREEK_LETTERS = dict(zip("αβγδεζηθικλμνξρστυφχψω", """alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu
    nu xi rho sigma tau upsilon phi chi psi omega""".split(), strict=True))  # fmt: skip
_UNICODE |= {letter: f"\\{name} " for letter, name in _GREEK_LETTERS.items()}
_TRANSLATION = str.maketrans(_UNICODE)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")


def ascii_math(text: str) -> str:
    """Write Unicode mathematics (`√2`, `x²`, `½`, full-width and non-Latin digits) as LaTeX."""
    if text.isascii():
        return text
    text = _RAISED.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + m.group().translate(_SUBSCRIPTS) + "}", text)
    return text.translate(_TRANSLATION)


_SCAN = re.compile(
    r"""(?P<num>\d+(?:\.(?![.])\d*)?(?:[eE][+-]?\d+(?![\d.]))?|\.\d+(?:[eE][+-]?\d+)?)
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
    re.VERBOSE,
)
_BRACED = re.compile(r"\s*\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}")
_ONE = re.compile(r"\s*([A-Za-z0-9])")
_BOUND = {"<=": "<=", ">=": ">=", "=<": "<=", "=>": ">=", "!=": "!=", "<>": "!=", "==": "=", "=": "=", "<": "<", ">": ">"}
_REPEATING = re.compile(r"(\d*)\.(\d*)\\(?:overline|bar|dot)\s*\{(\d+)\}")
_GLUED = re.compile(r"(or|and)([A-Z])$")
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
    return tokens


def _letters(run: str, spaced: bool, tokens: list[Token]) -> None:
    """Letters without a backslash: a function, a constant, a conjunction, a word, or a product of variables."""
    if len(run) == 1:
        tokens.append(Token("const", "e", spaced) if run == "e" else Token("sym", run, spaced))
        return
    name = _FUNCTION_NAMES.get(run)
    if name is not None:
        tokens.append(Token("func", _INVERSES.get(name, name), spaced))
    elif run in _WORD_CONSTANTS:
        tokens.append(Token("const", _WORD_CONSTANTS[run], spaced))
    elif run.lower() in ("and", "or"):
        tokens.append(Token("sep", run.lower(), spaced))
    elif run in GREEK:
        tokens.append(Token("sym", run, spaced))
    elif run in ("U", "union"):
        tokens.append(Token("set", "union", spaced))
    elif (found := _PREFIXED.match(run)) is not None or (tokens and (found := _GLUED.match(run)) is not None):
        _letters(found.group(1), spaced, tokens)
        _letters(found.group(2), False, tokens)
    elif len(run) > 3 or run.lower() in SHORT_WORDS:
        tokens.append(Token("word", run, spaced))
    else:
        for letter in run:
            _letters(letter, spaced, tokens)
            spaced = False


SHORT_WORDS = frozenset(
    """cm km mm kg mg ml ft yd in lb oz mi mph kph sec min hr hrs day days pct am pm cup cups dm gm gal rad deg men the for
    not all yes has are was is of to no odd even east west""".split()
)
"""Words of two or three letters that are never products of variables; in `Quantity` most of them are units."""


def _macro(name: str, text: str, position: int, spaced: bool, tokens: list[Token]) -> int:
    """A LaTeX macro; returns the position after what it took."""
    known = _MACROS.get(name)
    if known is not None:
        tokens.append(Token(known[0], known[1], spaced))
    elif name in _IGNORED:
        if name in ("left", "right", "mleft", "mright") and position < len(text) and text[position] == ".":
            position += 1
    elif name in _FRACTIONS:
        tokens.append(Token("macro", "frac", spaced))
    elif name in _BINOMIALS:
        tokens.append(Token("macro", "binom", spaced))
    elif name in _STRUCTURES:
        tokens.append(Token("macro", name, spaced))
    elif name in _FUNCTION_NAMES:
        canonical = _FUNCTION_NAMES[name]
        tokens.append(Token("func", _INVERSES.get(canonical, canonical), spaced))
    elif name in GREEK:
        tokens.append(Token("sym", name, spaced))
    elif name in _TEXTS or name in _FONTS or name in _ALPHABETS:
        return _styled(name, text, position, spaced, tokens)
    elif name in _WRAPPERS:
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
    elif name in ("hspace", "vspace", "color", "tag", "label", "kern"):
        found = _BRACED.match(text, position)
        position = found.end() if found else position
    elif name == "not":
        tokens.append(Token("not", "", spaced))
    else:
        raise ReadError(f"unknown macro \\{name}")
    return position


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
    content = re.sub(r"\\(?:text|mathrm|mbox|textbf|,|;|!| )\s*|[{}~$]", " ", content)
    content = " ".join(content.split())
    if name in _ALPHABETS:
        tokens.append(Token("sym", f"{name} {content}", spaced))
    elif content.lower() in ("and", "or", ",", "and,", "or,", ", and", ", or"):
        tokens.append(Token("sep", "or" if "or" in content else "and", spaced))
    elif name in _FONTS and content in _FUNCTION_NAMES:
        _letters(content, spaced, tokens)
    elif name == "mathrm" and len(content) == 1:
        _letters(content, spaced, tokens)
    elif name in _FONTS and name != "textbf" and len(content) == 1:
        tokens.append(Token("sym", f"bold {content}" if content in "eiI" else content, spaced))
    elif content:
        tokens.append(Token("text", content, spaced))
    return position
