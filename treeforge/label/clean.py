"""An answer's text before it is parsed: delimiters and remarks off, digit groups joined, units and times marked."""

from __future__ import annotations

import re

from treeforge.answers import boxed
from treeforge.label.vocabulary import ascii_math

_DOUBLED = re.compile(r"(?<!\\)\\\\(?=[a-zA-Z]{2,}|[{}$%()\[\]!,])")
_LATEX_GROUPS = re.compile(r"(?<=\d)\s*(?:\{\s*,\s*\}|,?\s*\\!\s*|\\[,;: ]|~)\s*(?=\d{3}(?!\d))")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?!\d|,(?! )|\.\d+,(?! ))")
_MERIDIEM = re.compile(r"(\d)[\s~]*(?:\\(?:text|mbox)\{\s*)?([AaPp])\.?\s?[Mm]\b\.?\s*\}?")
_WHOLE_TEXT = re.compile(r"\\(?:text|mbox|textbf|mathrm|mathbf|textrm|textit)\s*\{((?:[^{}\\]|\\[%$])*)\}")
_FOREIGN = re.compile(r"[^\W\d_]*[^\x00-\x7f]+(?:[^\W\d_]|[^\x00-\x7f])*")
_WRAPPED = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"))
_EMPHASIS = (("*", "*"), ("__", "__"), ("_", "_"), ('"', '"'), ("'", "'"))
_NOISE = re.compile(r"\\(?:left|right|mleft|mright|!|displaystyle|big[lr]?|Big[lr]?)(?![a-zA-Z])|[$]")
_GAP = re.compile(r"\s+|\\[,;: ]|\\q?quad(?![a-zA-Z])|~")
_TRAILING = re.compile(r"(?:\s|~|\\[,;:! ]|(?<!\\)[.,;:])+$")
_REMARK = re.compile(
    r"(?<=[\d}%$])\s+\((?:[a-z]{3,}|\d+(?:\.\d+)?\s*\\?%|[A-Za-z]+(?: [A-Za-z]+)+"
    r"|(?:or |i\.e\. |\\approx|\\sim)[^()]*)\)$"
)
_FOR_ALL = re.compile(r"^(?:\\text\{\s*(?:for\s+)?all\s*\}|(?:for\s+)?all\s+(?=[a-z]\s*[<>=\\]))\s*")
_SYSTEM = re.compile(r"\\left\s*\\\{\s*\\begin\{array\}(?:\{[^{}]*\})?(.*?)\\end\{array\}\s*\\right\s*\.?", re.DOTALL)
_PER_CENT = re.compile(r"(?i)\bper cent\b")
_COMPOUND_UNIT = re.compile(
    r"(?<=[\d}])\s+((?:km|cm|mm|m|kg|g|mi|ft|L|J|N|W)\s*/\s*(?:s|h|hr|min|day|kg|mol|m|L)(?:\^?\{?[23]\}?)?|m\s*\^\s*\{?[23]\}?)$"
)
_LEADING = re.compile(
    r"^(?:\\(?:therefore|approx|sim|simeq|implies|Rightarrow|Longrightarrow|to)(?![a-zA-Z])|[-=]+>|=(?!=)|:)\s*"
)
_CURRENCY = re.compile(r"(?i)^(?:\\text\{\s*)?(?:rs\.?|usd|us\$|inr|eur)\s*\}?\s*(?=\d)")
_DOTTED = re.compile(r"(\d{1,3}(?:\.\d{3}){2,}|\d{1,3}(?:\.\d{3})+(?=,\d))(?:,(\d+))?")
_MARKED_THOUSANDS = re.compile(r"\d{1,3}(?:_\d{3})+|\d{1,3}(?:'\d{3})+")
_GROUPED = re.compile(r"\d{1,2}(?:,\d\d)+,\d{3}|(\d{1,3}(?: \d{3})+),(\d+)")
_REPEATED = re.compile(r"(\d*\.\d{0,20}?)(\d{1,12}?)\2+(?:\.\.\.+|\\[lc]?dots)|(-?\d*\.\d*)\((\d+)\)")
_BARE_POINT = re.compile(r"(?<!\d)\.(?=\\(?:overline|bar|dot)(?![a-z]))")
_MEASURED = re.compile(
    r"(?:\\Pr|\\mathbb\s*\{?[EP]\}?|\\(?:text|mathrm|operatorname)\s*\{[A-Z]\w*\}|[PE])\s*(?:\\left)?[(\[]"
    r"[^=<>]*[)\]]\s*=(?=[^=<>]*$)"
)
_TRUNCATED = re.compile(r"(?<=\d)(\.\d+)(?:\.\.\.+|\\[lc]?dots)")
_FRACTION_OF_UNITS = re.compile(r"\\frac\{\\(?:text|mathrm)\{([^{}]*)\}\}\{\\(?:text|mathrm)\{([^{}]*)\}\}")
_INDEX = r"(?:\{(\d{1,3})\}|(\d{1,3}))"
_COMBINATIONS = re.compile(
    rf"(?:\\(?:mathrm|text)\{{C\}}|C)_{_INDEX}\^{_INDEX}|"
    rf"(?:\{{\}})?[_^]{_INDEX}\s*(?:\\(?:mathrm|text)\{{([CP])\}}|([CP]))_{_INDEX}"
)
_CHOSEN = re.compile(r"(\d{1,3})([CP])(\d{1,3})")
_NEUTRAL = re.compile(r"\\(?:[dt]?frac|cdot|times|mathrm|text|left|right)(?![a-z])")
_OTHER_LETTERS = re.compile(r"[ABD-OQ-Za-z]")
_ORDERED = re.compile(r"[<>]|\\[lg](?:eq?|t)(?![a-z])")
_WHOLE_NUMBERS = re.compile(
    r"(?<=.)(?:\s*,\s*|\s*(?:\\left\s*)?\()\s*(?:\\text\s*\{\s*where\s*\}|where)?\s*[a-z]\s*\\in\s*"
    r"\\(?:mathbb|mathbf|Bbb|mathrm)\s*\{?\s*[NZ]\s*\}?(?:[\^_]\s*\{?[*+\d]\}?)?\s*(?:(?:\\right\s*)?\))?$"
)
_RATIO = re.compile(r"(\d+)\s*(?:to|\\text\s*\{\s*to\s*\})\s*(\d+)")
_EXCEPT = re.compile(
    r"(?i)(?:the\s+set\s+of\s+)?(?:all\s+)?(?:real(?:s|\s+numbers|\s+values)?(?:\s+of\s+\w)?|(?-i:R)|\\mathbb\s*\{?R\}?)\s*"
    r"(?:\$?\s*\w\s*\$?\s*)?except(?:\s+for)?\s+(?:\$?\s*[a-z]\s*=\s*)?(.*)"
)
_POINT = re.compile(r"([A-Z](?:'|_\{?\d\}?)?)\s*(\(.*,.*\))")
_ROOT_OF = re.compile(r"\\root\s*\{?(\d+)\}?\s*\\of(?![a-zA-Z])")
_FULL_HOUR = re.compile(r"^(\d{1,2}):00(?=\s*(?:\\text\s*\{\s*)?(?:[ap]\.?m|noon|midnight)\b)", re.IGNORECASE)
_DEGREE = re.compile(r"(?<=\d)\s*\^\s*(?:o|\{o\}|\{\\(?:text|mathrm)\{o\}\})(?![a-zA-Z])")
_CROSS = re.compile(r"(?<=\d) x (?=\d)")
_MINUS = re.compile(r"(?i)^(?:negative|minus)\s+(?=[\d\\$.])")
_ORDINAL = re.compile(r"(?<=\d)(?:\^?\{?\\text\{(?:th|st|nd|rd)\}\}?|\^?\{?(?:th|st|nd|rd)\b\}?)")
_OUT_OF = re.compile(r"(\d+)\s+out of\s+(\d+)")
_MONEY = re.compile(r"(-?)\s*\\?\$\s*(-?(?:\d[\d,]*(?:\.\d+)?|\.\d+))|(-?(?:\d[\d,]*(?:\.\d+)?|\.\d+))\s*\\?\$")
_ABOUT = re.compile(
    r"(?i)^(?:\\text\s*\{\s*)?(?:about|approximately|approx\.?|roughly|around|nearly|exactly|only|just)"
    r"(?:\s*\}\s*|\s+)(?=[-$\\\d.])"
)
_THEREFORE = re.compile(r"(?i)^(?:so|thus|hence|therefore|then|finally)\b,?\s+(?=.)")
_ARTICLE = re.compile(
    r"^(?:an?|the|An?|The)\s+(?!and\b|half\b|third\b|quarter\b|fourth\b|fifth\b|dozen\b|hundred\b|thousand\b|million\b)"
    r"(?=[a-z]{3,}|\d+(?:st|nd|rd|th)\b)"
)
_COUNTED = re.compile(r"[A-Za-z-]{3,20}\s+\((\d+)\)")
_SPACES = re.compile(r" {2,}")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_PUNCTUATION = frozenset(".,;:! \n~")
_CLOSERS = frozenset("$)]*`\"_'")
_EDGES = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])")
_DIGIT = re.compile(r"\d")


def clean(text: str) -> str:
    """The answer without delimiters, emphasis, a closing full stop and doubled backslashes; Unicode as LaTeX."""
    text = text.strip()
    if not text.isascii():
        text = ascii_math(text).removeprefix("约")
    if text[-1:] == ")" and (counted := _COUNTED.fullmatch(text)):
        text = counted.group(1)
    if text[:1].isalpha() or text.startswith("\\text"):
        text = text.replace("\\text{\\$}", "\\$")
        text = _ARTICLE.sub("", _ABOUT.sub("", _THEREFORE.sub("", text)))
    if "\\\\" in text and "\\begin" not in text:
        text = _DOUBLED.sub(lambda _: "\\", text)
    before = ""
    while text != before:
        before = text
        text = _unwrapped(text.strip())
    if text.startswith("\\") and (whole := _WHOLE_TEXT.fullmatch(text)) and _DIGIT.search(whole.group(1)):
        text = whole.group(1).strip()
    if not text.isascii():
        text = _FOREIGN.sub(lambda m: "\\text{" + m.group() + "}", text)
    return text


def _unwrapped(text: str) -> str:
    """The text with one layer off: what leads to it, punctuation, a remark, delimiters, a box."""
    if text[:1] in ("\\", "=", ":", "-"):
        text = _LEADING.sub("", text)
    last = text[-1:]
    if last == "\\" and text.endswith("\\\\"):
        return text[:-2]
    if last == "\\":
        return text[:-1]
    if last in _PUNCTUATION and not text.endswith("..."):
        text = _TRAILING.sub("", text)
    elif last == ")":
        text = _REMARK.sub("", text)
    if text[-1:] in _CLOSERS:
        for opening, closing in (*_WRAPPED, *_EMPHASIS):
            if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
                inner = text[len(opening) : -len(closing)]
                if opening not in inner or (opening == "$" and inner.count("$") == inner.count("\\$")):
                    text = inner
    elif text[-1:] == "}" and (boxes := boxed(text)) and boxes[0][:2] == (0, len(text)):
        text = boxes[0][2]
    return text


def normal_form(text: str) -> str:
    """The text with all that never matters left out; equal normal forms are the same answer under every policy."""
    if "\\" in text or "$" in text:
        text = _FRACTION.sub(lambda _: "\\frac", _NOISE.sub("", text))
    text = _SPACES.sub(" ", _GAP.sub(" ", text)).strip()
    return _EDGES.sub("", text) if " " in text else text


def prepare(text: str) -> str:
    """Digit groups joined, times of day marked, rare spellings written as usual ones."""
    if "," in text or "\\" in text or "~" in text:
        text = _LATEX_GROUPS.sub("", text)
        if "," in text:
            text = _in_one_number(text)
    if text[:1].isalpha() or text.startswith("\\text"):
        text = _from_words(text)
    if "=" in text and text[:1] in "PE\\":
        text = _MEASURED.sub("", text, count=1) if "|" in text or text[:1] == "\\" else text
    if "$" in text and (money := _MONEY.fullmatch(text)):
        text = f"{money.group(1) or ''}{money.group(2) or money.group(3)}\\text{{ dollars}}"
    if "t" in text or "d" in text:
        text = _ORDINAL.sub("", text)
        if found := _OUT_OF.fullmatch(text):
            text = f"{found.group(1)}/{found.group(2)}"
        elif found := _RATIO.fullmatch(text):
            text = f"{found.group(1)}:{found.group(2)}"
    if "\\" in text:
        text = _in_latex(text)
    if " " in text:
        text = _CROSS.sub(" * ", text)
        text = _COMPOUND_UNIT.sub(lambda m: f"\\text{{ {m.group(1)} }}", _PER_CENT.sub("percent", text))
    if "." in text:
        text = _in_decimals(text)
    elif ("_" in text or "'" in text) and _MARKED_THOUSANDS.fullmatch(text):
        text = text.replace("_", "").replace("'", "")
    text = _with_signs(text)
    if ("m" in text or "M" in text) and _MERIDIEM.search(text):
        text = _MERIDIEM.sub(lambda m: f"{m.group(1)} \\text{{{m.group(2).lower()}m}}", text)
    return text


def _in_one_number(text: str) -> str:
    """Groups of digits between commas: `1,234`, `12,34,567`, `1 234,5`."""
    if grouped := _GROUPED.fullmatch(text):
        return f"{grouped.group(1).replace(' ', '')}.{grouped.group(2)}" if grouped.group(1) else text.replace(",", "")
    return _join_thousands(text)


def _from_words(text: str) -> str:
    """What leads to an answer in words, and points with their names: `A(1, 2)`."""
    text = _FOR_ALL.sub("", _CURRENCY.sub("", text))
    if text[:1] in "nmNM":
        text = _MINUS.sub("-", text)
    if "xcept" in text and (found := _EXCEPT.fullmatch(text)):
        return f"\\mathbb{{R}}\\setminus\\{{{found.group(1).strip('$.{} ')}\\}}"
    if point := _POINT.fullmatch(text):
        return f"{point.group(1)} = {point.group(2)}"
    return text


def _in_latex(text: str) -> str:
    """Rare LaTeX spellings: systems in arrays, fractions of units, `\\root n \\of`."""
    if "\\in" in text and not _ORDERED.search(text):
        text = _WHOLE_NUMBERS.sub("", text)
    if "\\left\\lvert" in text and "rvert" not in text:
        text = text.replace("\\left\\lvert", "\\mid")
    if "array" in text:
        text = _SYSTEM.sub(r"\\begin{cases}\1\\end{cases}", text)
    if "frac{\\" in text:
        text = _FRACTION_OF_UNITS.sub(r"\\text{ \1/\2}", text)
    if "\\root" in text:
        text = _ROOT_OF.sub(r"\\sqrt[\1]", text)
    return text


def _in_decimals(text: str) -> str:
    """Dots as separators of thousands, and decimals that repeat: `0.333...`, `0.1(6)`."""
    if "\\" in text:
        text = _BARE_POINT.sub("0.", text)
    if dotted := _DOTTED.fullmatch(text):
        return dotted.group(1).replace(".", "") + (f".{dotted.group(2)}" if dotted.group(2) else "")
    if "..." in text or "dots" in text:
        text = _TRUNCATED.sub(r"\1", _REPEATED.sub(r"\1\\overline{\2}", text))
    elif text[-1:] == ")" and (found := _REPEATED.fullmatch(text)):
        text = f"{found.group(3)}\\overline{{{found.group(4)}}}"
    return text


def _with_signs(text: str) -> str:
    """Signs that have another usual spelling: `]a, b[`, `<a, b>`, `+/-`, `&`, `^o`, `C_n^k`."""
    first, last = text[:1], text[-1:]
    if first == "]":
        text = f"({text[1:]}"
    elif first == "<" and last == ">" and "," in text:
        text = f"\\langle {text[1:-1]}\\rangle"
    if last == "[":
        text = f"{text[:-1]})"
    if "+" in text:
        text = text.replace("+/-", "\\pm ")
        if text[:2] == "+-":
            text = f"\\pm {text[2:]}"
    if "&" in text and "\\begin" not in text:
        text = text.replace("\\&", ",").replace("&", ",")
    if ("^" in text or "_" in text) and ("C" in text or "P" in text or "o" in text):
        text = _DEGREE.sub(lambda _: "^\\circ ", text)
        if not _OTHER_LETTERS.search(_NEUTRAL.sub("", text)):  # C_1^2 among variables is a constant's square
            text = _COMBINATIONS.sub(_binomial, text)
    elif ("C" in text or "P" in text) and (found := _CHOSEN.fullmatch(text)):
        text = chosen(*found.groups())
    if ":00" in text:
        text = _FULL_HOUR.sub(r"\1", text)
    return text


def _binomial(found: re.Match[str]) -> str:
    groups = [group for group in found.groups() if group is not None]
    return chosen(groups[0], groups[1] if len(groups) == 3 else "C", groups[-1])


def chosen(n: str, letter: str, k: str) -> str:
    """`nCk` and `nPk` as LaTeX."""
    return f"\\binom{{{n}}}{{{k}}}" + (f"\\cdot {k}!" if letter == "P" else "")


def _join_thousands(text: str) -> str:
    """`1,234` as one number: outside brackets always, inside them where the separators of items look different."""

    def joined(found: re.Match[str]) -> str:
        before = text[: found.start()]
        depth = sum(before.count(c) for c in "([") - sum(before.count(c) for c in ")]")
        listed = re.search(r"(?:^|[^A-Za-z}^_\\])\\?\{[^{}]*$", before) is not None
        if (depth > 0 or listed) and ", " not in text and ";" not in text:
            return found.group()
        return found.group().replace(",", "")

    return _THOUSANDS.sub(joined, text)
