"""What was read, written out, is read as the same again; and what `explain` tells a person."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from treeforge.label import check, explain
from treeforge.label.exact import rational
from treeforge.label.notation import notation
from treeforge.label.parse import parse
from treeforge.label.syntax import Add, Call, Div, Mul, Neg, Node, Num, Pow, Sym
from treeforge.verdict import Verdict

VALUES = {"x": (1789, 997), "y": (-2311, 1409)}
LEAVES: st.SearchStrategy[Node] = st.one_of(st.builds(Num, st.integers(0, 99)), st.sampled_from([Sym("x"), Sym("y")]))


def grown(children: st.SearchStrategy[Node]) -> st.SearchStrategy[Node]:
    pairs = st.tuples(children, children)
    return st.one_of(
        st.builds(Add, pairs),
        st.builds(Mul, pairs),
        st.builds(Neg, children),
        st.builds(Div, children, children),
        st.builds(Pow, children, st.integers(0, 3).map(Num)),
        st.builds(lambda x: Call("abs", (x,)), children),
        st.builds(lambda x: Call("floor", (x,)), children),
    )


EXPRESSIONS = st.recursive(LEAVES, grown, max_leaves=12)


@settings(max_examples=300, deadline=None)
@given(EXPRESSIONS)
def test_an_expression_written_out_reads_as_the_same_value(node: Node) -> None:
    try:
        p, q = rational(node, VALUES)
    except ZeroDivisionError:
        return
    r, s = rational(parse(notation(node)), VALUES)
    assert p * s == r * q


@settings(max_examples=200, deadline=None)
@given(EXPRESSIONS, st.integers(1, 9))
def test_an_expression_equals_its_rewriting_and_not_its_neighbour(node: Node, step: int) -> None:
    text, more = notation(node), notation(Add((node, Num(step))))
    twice = notation(Div(Mul((node, Num(step))), Num(step)))
    try:
        rational(node, VALUES)
    except ZeroDivisionError:
        return
    assert check(twice, text, symbolic=False).verdict in (Verdict.CORRECT, Verdict.UNDECIDED)
    assert check(more, text, symbolic=False).verdict in (Verdict.INCORRECT, Verdict.UNDECIDED)


def test_explain_shows_both_readings_the_route_and_the_reason() -> None:
    assert explain("The answer is 52_8.", "52_9").splitlines() == [
        "answer   '52_8'",
        "read as  52 (base 8)",
        "gold     '52_9'",
        "read as  52 (base 9)",
        "verdict  incorrect, route exact",
        "reason   different numerals or bases",
    ]
    assert "read as  x < 3" in explain("x<3", "(-\\infty, 3)")
    assert "nothing" in explain("\\frac{1", "3")
    assert "; or list: 1, 234" in explain("1,234", "5")
