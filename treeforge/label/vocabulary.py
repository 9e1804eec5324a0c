"""The words of mathematics: functions, macros, units of text, and Unicode characters as LaTeX. Tables only."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


FUNCTIONS = _words("""
    sin cos tan cot sec csc arcsin arccos arctan arccot arcsec arccsc sinh cosh tanh coth sech csch arcsinh
    arccosh arctanh ln log lg exp sqrt cbrt abs floor ceil gcd lcm max min binom det sgn Re Im
""")
"""Canonical names of the functions that are known."""
FUNCTION_NAMES = {
    "tg": "tan",
    "ctg": "cot",
    "arctg": "arctan",
    "cosec": "csc",
    "ceiling": "ceil",
    "trace": "tr",
    "hcf": "gcd",
    "cis": "cis",
    "sign": "sgn",
    "asin": "arcsin",
    "acos": "arccos",
    "atan": "arctan",
    "asinh": "arcsinh",
    "acosh": "arccosh",
    "atanh": "arctanh",
    "arsinh": "arcsinh",
    "arcosh": "arccosh",
    "artanh": "arctanh",
    "Abs": "abs",
    "Max": "max",
    "Min": "min",
    "Sqrt": "sqrt",
    "Sin": "sin",
    "Cos": "cos",
    "Tan": "tan",
    "Log": "log",
    "Ln": "ln",
    "Exp": "exp",
    "binomial": "binom",
    "factorial": "factorial",
} | {name: name for name in FUNCTIONS}
"""Every spelling of a function -> its canonical name."""

GREEK = _words("""
    alpha beta gamma delta epsilon varepsilon zeta eta theta vartheta iota kappa lambda mu nu xi rho varrho
    sigma tau upsilon phi varphi chi psi omega Gamma Delta Theta Lambda Xi Pi Sigma Upsilon Phi Psi Omega
    ell hbar aleph nabla partial star ast
""")
WORD_CONSTANTS = {"pi": "pi", "inf": "inf", "infinity": "inf", "infty": "inf", "oo": "inf"}

MACROS: dict[str, tuple[str, str]] = {
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
    "mid": ("mid", "|"),
    "to": ("rel", "to"),
    "rightarrow": ("rel", "to"),
    "longrightarrow": ("rel", "to"),
    "bmod": ("op", "mod"),
    "mod": ("op", "mod"),
    "pmod": ("pmod", "mod"),
    "sim": ("rel", "approx"),
    "colon": ("op", ":"),
    "ldots": ("dots", "..."),
    "dots": ("dots", "..."),
    "cdots": ("dots", "..."),
    "dotsc": ("dots", "..."),
    "choose": ("infix", "choose"),
    "over": ("infix", "over"),
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
STRUCTURES = frozenset(("sqrt", "sum", "prod", "int", "lim"))
FRACTIONS = frozenset(("dfrac", "tfrac", "cfrac", "frac", "nicefrac", "sfrac", "flatfrac"))
BINOMIALS = frozenset(("dbinom", "tbinom", "binom"))
IGNORED = _words("""
    left right mleft mright middle big Big bigg Bigg bigl bigr Bigl Bigr biggl biggr Biggl Biggr
    displaystyle textstyle scriptstyle limits nolimits nonumber hfill noindent rm bf it thinspace medspace
    thickspace negthinspace allowbreak boldmath quad qquad Large large small normalsize protect relax
""")
TEXTS = _words("text mbox textrm textup textnormal hbox textsf texttt textit textsc textmd")
FONTS = _words("mathrm operatorname mathbf textbf mathit mathsf mathtt boldsymbol bm pmb bold mathup symbf")
ALPHABETS = _words("mathbb mathcal mathfrak mathscr Bbb vec hat widehat bar tilde overline overrightarrow dot ddot")
WRAPPERS = _words("boxed fbox framebox displaylines underline ensuremath cancel substack")

_UNICODE = {
    "−": "-", "–": "-", "—": "-", "‐": "-", "‑": "-", "﹣": "-", "－": "-", "＋": "+", "×": "*", "✕": "*", "⋅": "*",
    "·": "*", "∙": "*", "•": "*", "∗": "*", "＊": "*", "÷": "/", "∕": "/", "⁄": "/", "／": "/", "＝": "=", "≠": "!=",
    "≤": "<=", "≥": ">=", "⩽": "<=", "⩾": ">=", "≦": "<=", "≧": ">=", "＜": "<", "＞": ">", "≈": "\\approx ",
    "≃": "\\approx ", "≅": "\\equiv ", "≡": "\\equiv ", "∈": "\\in ", "∪": "\\cup ", "∩": "\\cap ",
    "∖": "\\setminus ", "∅": "\\emptyset ", "∞": "\\infty ", "π": "\\pi ", "𝜋": "\\pi ", "√": "\\sqrt ",
    "∛": "\\sqrt[3] ", "∜": "\\sqrt[4] ", "±": "\\pm ", "∓": "\\mp ", "°": "^\\circ ", "º": "^\\circ ", "′": "'",
    "’": "'", "‘": "'", "″": "''", "∑": "\\sum ", "∏": "\\prod ", "∫": "\\int ", "⌊": "\\lfloor ", "⌋": "\\rfloor ",
    "⌈": "\\lceil ", "⌉": "\\rceil ", "∧": "\\land ", "∨": "\\lor ", "∠": "\\angle ", "△": "\\triangle ",
    "…": "...", "⋯": "...", "∣": "|", "｜": "|", "∶": ":", "：": ":", "，": ",", "、": ",", "；": ";", "（": "(",
    "）": ")", "［": "[", "］": "]", "｛": "{", "｝": "}", "％": "%", "．": ".", "。": ".", "“": '"', "”": '"',
    "\u00a0": " ", "\u2009": " ", "\u202f": " ", "\u2007": " ", "\u3000": " ", "\u200b": "", "\ufeff": "",
    "ℝ": "\\mathbb{R}", "ℤ": "\\mathbb{Z}", "ℕ": "\\mathbb{N}", "ℚ": "\\mathbb{Q}", "ℂ": "\\mathbb{C}",
    "或": " or ", "和": " and ", "€": "\\$", "£": "\\$", "¥": "\\$", "￥": "\\$", "₹": "\\$",
}  # fmt: skip
_VULGAR = "½12 ⅓13 ⅔23 ¼14 ¾34 ⅕15 ⅖25 ⅗35 ⅘45 ⅙16 ⅚56 ⅛18 ⅜38 ⅝58 ⅞78 ⅐17 ⅑19"
_GREEK_LETTERS = "αβγδεζηθικλμνξρστυφχψω"
_GREEK_NAMES = (
    "alpha beta gamma delta epsilon zeta eta theta iota kappa lambda mu nu xi rho sigma tau upsilon phi chi psi omega"
)
_UNICODE |= {item[0]: f"\\frac{{{item[1]}}}{{{item[2]}}}" for item in _VULGAR.split()}
_UNICODE |= {letter: f"\\{name} " for letter, name in zip(_GREEK_LETTERS, _GREEK_NAMES.split(" "), strict=True)}
for zero in (0xFF10, 0x0660, 0x06F0, 0x0966):  # full-width, Arabic, Persian and Devanagari digits
    _UNICODE |= {chr(zero + digit): str(digit) for digit in range(10)}
_TRANSLATION = str.maketrans(_UNICODE)
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ", "0123456789-+n")
_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉", "0123456789")
_RAISED = re.compile("[⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺ⁿ]+")
_LOWERED = re.compile("[₀₁₂₃₄₅₆₇₈₉]+")


MULTIPLIERS = {"dozen": 12, "hundred": 100, "thousand": 10**3, "million": 10**6, "billion": 10**9, "trillion": 10**12}
"""Words after a number that multiply it."""
SHORT_UNITS = _words("""
    cm km mm kg mg ml ft yd in lb oz mi mph kph sec min hr hrs day days pct am pm cup cups dm gm gal rad deg usd eur gbp
    inr rmb kgs lbs secs mins yr yrs kms gms
""")
"""Units of two or three letters."""
SHORT_WORDS = SHORT_UNITS | _words("""
    men the for not all yes has are was is of to no odd even east west
    per sq cu
""")
"""Words of two or three letters that are never products of variables."""


def ascii_math(text: str) -> str:
    """Write Unicode mathematics (`√2`, `x²`, `½`, full-width and non-Latin digits) as LaTeX."""
    if text.isascii():
        return text
    text = _RAISED.sub(lambda m: "^{" + m.group().translate(_SUPERSCRIPTS) + "}", text)
    text = _LOWERED.sub(lambda m: "_{" + m.group().translate(_SUBSCRIPTS) + "}", text)
    return text.translate(_TRANSLATION)
