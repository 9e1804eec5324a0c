"""Mathematics as trees of elements: what converts, what stays text, and that nothing else gets through."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.printable import printable
from treeforge.view import mathml
from treeforge.view.mathml import MAX_FORMULA, MAX_FORMULAS, answer_parts, formula, parts

ELEMENTS = mathml._ELEMENTS
ATTRIBUTES = mathml._ATTRIBUTES | {"aligned"}
PIECES = (
    "\\frac|{|}|1|x|^|_|\\sqrt|\\text{<b>}|\\left(|\\right)|$|$$|\\(|\\)|\\[|\\]|\\boxed{|\\href{javascript:x}{y}|"
    "\\style{a:b}{c}|\\class{a}{b}|\\foo|&|\\\\|\\begin{matrix}|\\end{matrix}|\\color{red}|\\hspace{99999em}|"
    "\\id{a}{b}| |<script>|\u202e"
)
LATEX = st.lists(st.sampled_from(PIECES.split("|")), max_size=25).map("".join)


def joined(pieces):
    return "".join(piece if isinstance(piece, str) else piece["tex"] for piece in pieces)


def trees(pieces):
    return [piece["ml"] for piece in pieces if not isinstance(piece, str)]


def words(tree):
    _, _, *children = tree
    return "".join(child if isinstance(child, str) else words(child) for child in children)


def check(tree):
    tag, attributes, *children = tree
    assert tag not in ("script", "annotation-xml", "semantics", "a")
    assert tag in ELEMENTS
    assert set(attributes) <= ATTRIBUTES
    assert all(len(value) <= 24 and "<" not in value and ":" not in value for value in attributes.values())
    for child in children:
        if not isinstance(child, str):
            check(child)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("so $x^2$ is", ["x2"]),
        (r"\(a<b\) and \[c\]", ["a<b", "c"]),
        (r"$$\frac{1}{2}$$", ["12"]),
        (r"The answer is \boxed{\frac{7}{2}}.", ["72"]),
        (r"\begin{pmatrix}1&2\\3&4\end{pmatrix}", ["(1234)"]),
        (r"$\begin{aligned}a&=b\\c&=d\end{aligned}$", ["a=bc=d"]),
        (r"$5! \cdot 3$", ["5!⋅3"]),
    ],
)
def test_formulas_are_found_and_converted(text, shown):
    found = parts(text)
    assert [words(tree).replace("·", "⋅") for tree in trees(found)] == shown
    assert joined(found) == text


@pytest.mark.parametrize(
    "text",
    ["costs $5 and $6", "$ x $", r"\$5 + \$6", "a $", "$$", r"$\foo x$", r"\(", "50% & more", ""],
)
def test_what_is_no_formula_stays_text(text):
    found = parts(text)
    assert trees(found) == []
    assert joined(found) == text


def test_markup_in_a_formula_is_text():
    (tree,) = trees(parts(r"$\text{<script>alert(1)</script>}$"))
    assert words(tree) == "<script>alert(1)</script>"
    check(tree)


def test_lengths_that_would_break_the_page_are_dropped():
    assert formula(r"\hspace{9999em}x") == [
        "math",
        {"display": "inline"},
        ["mrow", {}, ["mspace", {}], ["mi", {}, "x"]],
    ]


def test_display_and_flat():
    ((_, attributes, *_),) = trees(parts(r"\[x\]"))
    assert attributes == {"display": "block"}
    ((_, attributes, *_),) = trees(parts(r"\[x\]", flat=True))
    assert attributes == {"display": "inline"}
    assert trees(parts(r"$$\begin{pmatrix}1\end{pmatrix}$$", flat=True)) == []


def test_answers_need_no_delimiters():
    assert words(answer_parts(r"\frac{1}{2}")[0]["ml"]) == "12"
    assert answer_parts("x^2") == ["x^2"]
    assert answer_parts(r"a \foo b") == [r"a \foo b"]


def test_limits():
    assert formula("x" * (MAX_FORMULA + 1)) is None
    assert formula("{" * 400 + "x" + "}" * 400) is None
    assert len(trees(parts("$x$ " * (MAX_FORMULAS + 50)))) == MAX_FORMULAS


@given(LATEX)
def test_nothing_but_listed_elements_whatever_is_written(text):
    found = parts(text)
    assert joined(found) == printable(text)
    for tree in trees(found):
        check(tree)
