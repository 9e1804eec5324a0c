import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console
from rich.text import Text

from treeforge.printable import one_line, print_lines, printable, shorten

ANY_TEXT = st.text(st.characters(), max_size=40)
"""Lone surrogates too."""


def obeyed(character):
    """A terminal (or the bidi algorithm) does something with it, or nobody can see it."""
    return (
        unicodedata.category(character) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")
        and character not in "\u200c\u200d"
    )


@given(ANY_TEXT)
def test_nothing_that_is_obeyed_is_left(text):
    assert not any(obeyed(c) for c in printable(text) if c != "\n")
    assert not any(obeyed(c) for c in one_line(text))
    assert not any(obeyed(c) for c in one_line(text, 12))


@given(st.text(st.characters(categories=["L", "N", "P", "S", "M"])))
def test_writing_of_any_script_is_kept(text):
    assert printable(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[31mred\x1b[0m", "␛[31mred␛[0m"),
        ("\x1b]0;title\x07", "␛]0;title␇"),
        ("a\r\nb\tc\rd", "a\nb c␍d"),
        ("\x9b2J\x7f", "<U+009B>2J␡"),
        ("\u202eabc\u2066", "<U+202E>abc<U+2066>"),
        ("zero\u200bwidth\U000e0041", "zero<U+200B>width<U+E0041>"),
        ("\ud800 \u2028 \u00a0\u3000|", "<U+D800> <U+2028>   |"),
        ("שלום 👩‍👩‍👧 می‌خواهم", "שלום 👩‍👩‍👧 می‌خواهم"),
        ("[red]markup[/red] :smile:", "[red]markup[/red] :smile:"),
    ],
)
def test_what_is_shown_instead(text, shown):
    assert printable(text) == shown


@given(ANY_TEXT, st.integers(1, 20))
def test_one_line_is_one_line_and_fits(text, cells):
    line = one_line(text, cells)
    assert "\n" not in line
    assert cell_len(line) <= cells
    assert len(line) <= 4 * cells + 1


def test_lines_are_joined_and_shortened_visibly():
    assert one_line("  a \n\n  b\tc\n") == "a ↵ b c"
    assert one_line("abcdef", 4) == "abc…"
    assert one_line("数学数学", 5) == "数学…"
    assert one_line("a" + " " * 1000 + "b", 4) == "a…"
    assert len(one_line("e" + "\u0301" * 10_000, 10)) <= 41
    assert shorten("abc", 3) == "abc"


@pytest.mark.parametrize("colour", [True, False])
def test_lines_are_printed_as_they_are(tmp_path, colour):
    file = tmp_path / "out"
    with file.open("w") as stream:
        console = Console(file=stream, width=10, force_terminal=colour, color_system="standard" if colour else None)
        print_lines(console, [Text("[red]no markup[/red], no wrap", "green"), *[Text(str(n)) for n in range(600)]])
    lines = file.read_text().splitlines()
    assert "[red]no markup[/red], no wrap" in lines[0]
    assert ("\x1b[32m" in lines[0]) is colour
    assert lines[1:] == [str(n) for n in range(600)]
