"""Untrusted text on a terminal: what a model wrote must not move the cursor, change colours or reorder lines."""

from __future__ import annotations

import io
import re
import sys
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

_JOINERS = "\u200c\u200d"
"""Invisible, and needed: Persian and Indic spelling, and emoji made of several."""
_UNSAFE = re.compile(r"[^ -~]")
_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\s*\n\s*")
_NEWLINE_MARK = " ↵ "
_CHARACTERS_PER_CELL = 4
"""More characters than this to a terminal cell are a flood of combining marks, not writing."""


def printable(text: str) -> str:
    """`text` with line breaks kept and every other control or invisible character made visible.

    C0 controls become their control pictures (ESC is ␛), the rest of Unicode's non-printing characters (C1, bidi
    overrides and isolates, zero-width and tag characters, lone surrogates, private use) `<U+202E>`. CRLF is a line
    break, tabs and all other spaces become plain spaces. What a terminal would obey is thereby text.
    """
    if text.isascii() and text.isprintable():
        return text
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def one_line(text: str, cells: int | None = None) -> str:
    """`printable` text in one line: runs of spaces become one, inner line breaks `↵`, and blank ends go.

    With `cells` it is shortened to that width on a terminal, with an ellipsis, in no more time for a long text.
    """
    text = text.strip()
    most = len(text) if cells is None else (cells + 1) * _CHARACTERS_PER_CELL
    line = _LINES.sub(_NEWLINE_MARK, _SPACES.sub(" ", printable(text[:most]).strip()))
    if len(text) > most:
        line += "…"
    return line if cells is None else shorten(line, cells)


def shorten(line: str, cells: int) -> str:
    """`line`, cut with an ellipsis where it is wider than `cells` cells of a terminal."""
    if line.isascii():
        return line if len(line) <= cells else line[: max(cells - 1, 0)] + "…"[:cells]
    from rich.cells import cell_len, set_cell_size

    if cell_len(line) <= cells and len(line) <= cells * _CHARACTERS_PER_CELL:
        return line
    return set_cell_size(line[: cells * _CHARACTERS_PER_CELL], max(cells - 1, 0)).rstrip() + "…"[:cells]


def _visible(match: re.Match[str]) -> str:
    character = match.group()
    if character.isprintable() or character == "\n" or character in _JOINERS:
        return character
    if character.isspace() and character not in "\x0b\x0c\r\x1c\x1d\x1e\x1f\x85\u2028\u2029":
        return " "
    code = ord(character)
    if code < 0x20:
        return chr(0x2400 + code)
    return "␡" if code == 0x7F else f"<U+{code:04X}>"


def stdout_console() -> Console:
    """A console on stdout: colours on a terminal only, 80 columns elsewhere, and no markup in anything printed.

    A character that stdout's encoding lacks is printed as `?`, not raised.
    """
    from rich.console import Console

    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    return Console(highlight=False, markup=False, emoji=False)


def print_lines(console: Console, lines: Iterable[Text]) -> None:
    """Print lines as they are, not wrapped or cropped.

    Styled ones go through rich some hundreds at a time (four times as fast as one by one), plain ones around it.
    """
    from rich.text import Text

    if console.color_system is None:
        for line in lines:
            console.file.write(f"{line.plain}\n")
        return
    remaining = iter(lines)
    while some := list(islice(remaining, 256)):
        console.print(Text("\n").join(some), soft_wrap=True)


def counted(number: int, noun: str) -> str:
    """A number with its noun, as in "1 problem", "2,000 problems"."""
    return f"{number:,} {noun}" + ("" if number == 1 else "s")
