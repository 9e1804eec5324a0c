"""Mathematics in a text as trees of MathML elements, for a page to build one by one: never markup, never HTML.

Only elements and attributes of the lists below get through, whatever a model wrote or the converter made of it. What
does not convert stays text.
"""

from __future__ import annotations

import html
import re
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from treeforge.printable import printable

if TYPE_CHECKING:
    from xml.etree.ElementTree import Element

MAX_FORMULA = 1_500
"""Characters of a formula; a longer one stays text."""
MAX_FORMULAS = 300
"""Formulas of a text that are converted; what follows stays text."""
_MAX_DEPTH, _MAX_ELEMENTS = 60, 2_000

_MATHS = re.compile(
    r"\$\$(?P<display>.{1,1500}?)\$\$"
    r"|\\\[(?P<bracket>.{1,1500}?)\\\]"
    r"|\\\((?P<inline>.{1,1500}?)\\\)"
    # As pandoc has it: no space inside the dollars and no digit after, so that prices stay prices.
    r"|(?<![\\$])\$(?![\s$])(?P<dollar>[^$\n]{0,1499}[^$\s\\])\$(?![\d$])"
    r"|(?P<environment>\\begin\{(?P<name>(?:align|aligned|equation|gather|cases|[pbvBV]?matrix)\*?)\}"
    r".{1,1500}?\\end\{(?P=name)\})"
    r"|(?P<boxed>\\boxed\{(?:[^{}]|\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\})*\})",
    re.DOTALL,
)
_DISPLAYED = ("display", "bracket", "environment")
_ALIGNED = re.compile(r"\\(begin|end)\{(?:aligned|align|gathered|gather|equation|split)\*?\}")

_ELEMENTS = frozenset(
    (
        "math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "ms", "mfrac", "msqrt", "mroot", "mstyle", "merror",
        "mpadded", "mphantom", "msub", "msup", "msubsup", "munder", "mover", "munderover", "mmultiscripts",
        "mprescripts", "none", "mtable", "mtr", "mtd", "menclose",
    )
)  # fmt: skip
_ATTRIBUTES = frozenset(
    (
        "display", "mathvariant", "stretchy", "fence", "separator", "form", "accent", "accentunder", "displaystyle",
        "scriptlevel", "linethickness", "lspace", "rspace", "minsize", "maxsize", "movablelimits", "notation",
        "width",
    )
)  # fmt: skip
_LENGTHS = ("width", "lspace", "rspace", "minsize", "maxsize", "linethickness")
_VALUE = re.compile(r"[A-Za-z0-9.+ -]{1,24}")
_LENGTH = re.compile(r"[+-]?\d{0,2}(\.\d{0,4})?(em|ex|px|pt|mu|%)?")
_TEXT_ELEMENTS = frozenset(("mi", "mn", "mo", "mtext", "ms"))

Parts = list[Any]
"""Pieces of a text in order: a `str`, or a formula `{"tex", "ml"}`, where `tex` is the text as written and
`ml` is `[tag, attributes, child or text, …]`."""


def parts(text: str, *, flat: bool = False) -> Parts:
    """`text`, made printable, with its formulas as MathML trees; the texts and `tex` joined give it back.

    `flat` sets displayed formulas in the line, and leaves matrices as text.
    """
    text = printable(text)
    found: Parts = []
    start = formulas = 0
    for match in _MATHS.finditer(text):
        kind = match.lastgroup if match.lastgroup != "name" else "environment"
        assert kind is not None
        if flat and "\\begin" in match.group():
            continue  # A matrix is no part of a line.
        display = kind in _DISPLAYED and not flat
        tree = formula(match.group(kind), display)
        if tree is None:
            continue
        if match.start() > start:
            found.append(text[start : match.start()])
        found.append({"tex": match.group(), "ml": tree})
        start, formulas = match.end(), formulas + 1
        if formulas == MAX_FORMULAS:
            break
    if start < len(text):
        found.append(text[start:])
    return found


def answer_parts(text: str) -> Parts:
    """As `parts`, flat; an answer in LaTeX needs no delimiters to be a formula."""
    found = parts(text, flat=True)
    if "\\" in text and all(isinstance(part, str) for part in found) and (tree := formula(printable(text))):
        return [{"tex": printable(text), "ml": tree}]
    return found


@lru_cache(maxsize=4096)
def formula(tex: str, display: bool = False) -> list[Any] | None:
    """LaTeX as a MathML tree; None for what does not convert, wholly or in part, or is too long or too deep."""
    from latex2mathml.converter import convert_to_element

    if len(tex) > MAX_FORMULA or not tex.strip():
        return None
    aligned = _ALIGNED.search(tex) is not None
    # The converter knows no alignment; a matrix has the same rows and cells.
    plain = _ALIGNED.sub(r"\\\1{matrix}", tex)
    try:
        root = convert_to_element(plain, display="block" if display else "inline")
        return _plain(root, aligned, 0, [0])
    except _Unfit:
        return None
    except Exception:  # noqa: BLE001 - of its many errors, and of what it never expected, all mean: no formula
        return None


class _Unfit(Exception):
    """This tree is not shown as mathematics."""


def _plain(element: Element, aligned: bool, depth: int, count: list[int]) -> list[Any]:
    count[0] += 1
    tag = element.tag.rpartition("}")[2]
    if tag not in _ELEMENTS or depth > _MAX_DEPTH or count[0] > _MAX_ELEMENTS:
        raise _Unfit
    attributes = {
        name: value
        for name, value in element.attrib.items()
        if name in _ATTRIBUTES and (_LENGTH if name in _LENGTHS else _VALUE).fullmatch(value)
    }
    if tag == "mtable" and aligned:
        attributes["aligned"] = "true"
    made: list[Any] = [tag, attributes]
    text = html.unescape(element.text or "")
    if tag in _TEXT_ELEMENTS:
        # A command that the converter does not know comes out as its name, a column mark as itself.
        if "\\" in text or (tag != "mtext" and text in ("&", "$")):
            raise _Unfit
        made.append(text)
    made.extend(_plain(child, aligned, depth + 1, count) for child in element)
    return made
