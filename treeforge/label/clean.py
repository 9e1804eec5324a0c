"""An answer's text before it is parsed: delimiters and remarks off, digit groups joined, units and times marked."""

from __future__ import annotations

import re

from treeforge.label.vocabulary import ascii_math

_DOUBLED = re.compile(r"(?<!\\)\\\\(?=[a-zA-Z]{2,}|[{}$%()\[\]!,])")
_LATEX_GROUPS = re.compile(r"(?<=\d)\s*(?:\{\s*,\s*\}|,?\s*\\!\s*|\\[,;: ]|~)\s*(?=\d{3}(?!\d))")
_THOUSANDS = re.compile(r"(?<![\d.,])[1-9]\d{0,2}(?:,\d{3})+(?![\d,]|\.\d+,)")
_MERIDIEM = re.compile(r"(\d)[\s~]*(?:\\(?:text|mbox)\{\s*)?([AaPp])\.?\s?[Mm]\b\.?\s*\}?")
_WHOLE_TEXT = re.compile(r"\\(?:text|mbox|textbf|mathrm|mathbf|textrm|textit)\s*\{([^{}\\]*)\}")
_FOREIGN = re.compile(r"[^\W\d_]*[^\x00-\x7f]+(?:[^\W\d_]|[^\x00-\x7f])*")
_WRAPPED = (("$$", "$$"), ("$", "$"), ("\\(", "\\)"), ("\\[", "\\]"), ("**", "**"), ("`", "`"), ('"', '"'))
_NOISE = re.compile(r"\\(?:left|right|mleft|mright|!|displaystyle|big[lr]?|Big[lr]?)(?![a-zA-Z])|[$]")
_GAP = re.compile(r"\s+|\\[,;: ]|\\q?quad(?![a-zA-Z])|~")
_TRAILING = re.compile(r"(?:\s|~|\\[,;:! ]|(?<!\\)[.,;:])+$")
_REMARK = re.compile(r"(?<=[\d}%])\s+\((?:[A-Za-z]+(?: [A-Za-z]+)+|(?:or|i\.e\.) [^()]*)\)$")
_FOR_ALL = re.compile(r"^(?:\\text\{\s*(?:for\s+)?all\s*\}|(?:for\s+)?all\s+(?=[a-z]\s*[<>=\\]))\s*")
_SYSTEM = re.compile(r"\\left\s*\\\{\s*\\begin\{array\}(?:\{[^{}]*\})?(.*?)\\end\{array\}\s*\\right\s*\.?", re.DOTALL)
_PER_CENT = re.compile(r"(?i)\bper cent\b")
_COMPOUND_UNIT = re.compile(
    r"(?<=[\d}])\s+((?:km|cm|mm|m|kg|g|mi|ft|L|J|N|W)\s*/\s*(?:s|h|hr|min|day|kg|mol|m|L)(?:\^?\{?[23]\}?)?|m\s*\^\s*\{?[23]\}?)$"
)
_LEADING = re.compile(
    r"^(?:\\(?:therefore|approx|sim|simeq|implies|Rightarrow|Longrightarrow|to)(?![a-zA-Z])|=(?!=)|:)\s*"
)
_CURRENCY = re.compile(r"(?i)^(?:rs\.?|usd|us\$|inr|eur)\s*(?=\d)")
_DOTTED = re.compile(r"(\d{1,3}(?:\.\d{3}){2,}|\d{1,3}(?:\.\d{3})+(?=,\d))(?:,(\d+))?")
_MARKED_THOUSANDS = re.compile(r"\d{1,3}(?:_\d{3})+|\d{1,3}(?:'\d{3})+")
_CROSS = re.compile(r"(?<=\d) x (?=\d)")
_MINUS = re.compile(r"(?i)^(?:negative|minus)\s+(?=[\d\\$.])")
_ORDINAL = re.compile(r"(?<=\d)(?:\^?\{?\\text\{(?:th|st|nd|rd)\}\}?|(?:th|st|nd|rd)\b)")
_OUT_OF = re.compile(r"(\d+)\s+out of\s+(\d+)")
_MONEY = re.compile(r"(-?)\s*\\?\$\s*(-?(?:\d[\d,]*(?:\.\d+)?|\.\d+))|(-?(?:\d[\d,]*(?:\.\d+)?|\.\d+))\s*\\?\$")
_ABOUT = re.compile(r"(?i)^(?:about|approximately|approx\.?|roughly|around|nearly|exactly|only|just)\s+(?=[-$\\\d.])")
_SPACES = re.compile(r" {2,}")
_FRACTION = re.compile(r"\\[dtc]frac(?![a-zA-Z])")
_PUNCTUATION = frozenset(".,;:! \n~")
_CLOSERS = frozenset('$)]*`"')
_EDGES = re.compile(r"(?<![A-Za-z0-9]) | (?![A-Za-z0-9])")
_BOX = re.compile(r"\\(?:boxed|fbox)\s*\{")
_DIGIT = re.compile(r"\d")


def clean(text: str) -> str:
    """The answer without delimiters, emphasis, a closing full stop and doubled backslashes; Unicode as LaTeX."""
    text = text.strip()
    if not text.isascii():
        text = ascii_math(text)
    if text[:1].isalpha():
        text = _ABOUT.sub("", text)
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
    if text[:1] in ("\\", "=", ":"):
        text = _LEADING.sub("", text)
    last = text[-1:]
    if last == "\\" and text.endswith("\\\\"):
        return text[:-2]
    if last in _PUNCTUATION and not text.endswith("..."):
        text = _TRAILING.sub("", text)
    elif last == ")":
        text = _REMARK.sub("", text)
    if text[-1:] in _CLOSERS:
        for opening, closing in _WRAPPED:
            if len(text) > len(opening) + len(closing) and text.startswith(opening) and text.endswith(closing):
                inner = text[len(opening) : -len(closing)]
                if opening not in inner or (opening == "$" and inner.count("$") == inner.count("\\$")):
                    text = inner
    elif text[-1:] == "}" and (box := _BOX.match(text)) and _closes_last(text, box.end() - 1):
        text = text[box.end() : -1]
    return text


def _closes_last(text: str, opening: int) -> bool:
    depth = 0
    for i in range(opening, len(text)):
        depth += (text[i] == "{") - (text[i] == "}")
        if depth == 0:
            return i == len(text) - 1
    return False


def normal_form(text: str) -> str:
    """The text with all that never matters left out; equal normal forms are the same answer under every policy."""
    if "\\" in text or "$" in text:
        text = _FRACTION.sub(lambda _: "\\frac", _NOISE.sub("", text))
    text = _SPACES.sub(" ", _GAP.sub(" ", text)).strip()
    return _EDGES.sub("", text) if " " in text else text


def prepare(text: str) -> str:
    """Digit groups joined, times of day marked."""
    if "," in text or "\\" in text or "~" in text:
        text = _LATEX_GROUPS.sub("", text)
        if "," in text:
            text = _join_thousands(text)
    if text[:1].isalpha() or text.startswith("\\text"):
        text = _FOR_ALL.sub("", _CURRENCY.sub("", text))
    if "$" in text and (money := _MONEY.fullmatch(text)):
        text = f"{money.group(1) or ''}{money.group(2) or money.group(3)}\\text{{ dollars}}"
    if text[:1] in "nmNM":
        text = _MINUS.sub("-", text)
    if "t" in text or "d" in text:
        text = _ORDINAL.sub("", text)
        if found := _OUT_OF.fullmatch(text):
            text = f"{found.group(1)}/{found.group(2)}"
    if "array" in text:
        text = _SYSTEM.sub(r"\\begin{cases}\1\\end{cases}", text)
    if " " in text:
        text = _CROSS.sub(" * ", text)
        text = _COMPOUND_UNIT.sub(lambda m: f"\\text{{ {m.group(1)} }}", _PER_CENT.sub("percent", text))
    if "." in text and (dotted := _DOTTED.fullmatch(text)):
        text = dotted.group(1).replace(".", "") + (f".{dotted.group(2)}" if dotted.group(2) else "")
    elif ("_" in text or "'" in text) and _MARKED_THOUSANDS.fullmatch(text):
        text = text.replace("_", "").replace("'", "")
    if text[:1] == "]":  # ]a, b[
        text = f"({text[1:]}"
    if text[-1:] == "[":
        text = f"{text[:-1]})"
    if ("m" in text or "M" in text) and _MERIDIEM.search(text):
        text = _MERIDIEM.sub(lambda m: f"{m.group(1)} \\text{{{m.group(2).lower()}m}}", text)
    return text


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
