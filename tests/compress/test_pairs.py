"""Training rows: single steps, pair windows, and which rows of a compressed tree are new."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hand_drawn import A1, A2, A3, A4, B1, B2, B3, B4, A, B, C, D, G, P, hand_drawn
from support.strategies import trees

from treeforge.compress import Windows, compress, new_rows, pair_windows, single_steps
from treeforge.config import CompressConfig
from treeforge.tree import Tree, TreeBuilder
from treeforge.value import estimate

FIRST_CHILD = CompressConfig(probability=1.0, rule="paper")


def rows_of(windows: Windows, mask: np.ndarray[Any, Any]) -> set[int]:
    return set(windows.node[mask].tolist())


def test_single_steps_and_pair_windows_by_hand() -> None:
    tree = hand_drawn()
    singles, pairs = single_steps(tree), pair_windows(tree)
    assert singles.node.tolist() == singles.start.tolist() == list(range(1, 15))
    assert pairs.node.tolist() == list(range(2, 15))
    assert dict(zip(pairs.node.tolist(), pairs.start.tolist(), strict=True)) == (
        {P: G}
        | dict.fromkeys((A, B, C, D), P)
        | dict.fromkeys((A1, A2, A3, A4), A)
        | dict.fromkeys((B1, B2, B3, B4), B)
    )
    assert pairs.current(tree)[:3] == ["g\np\n", "p\na\n", "p\nb\n"]
    assert pair_windows(tree, 4).node.tolist() == [A1, A2, A3, A4, B1, B2, B3, B4]
    assert set(pair_windows(tree, 4).start.tolist()) == {G}


def test_a_window_holds_the_observation_between_its_steps() -> None:
    builder = TreeBuilder()
    call = builder.add(0, "call\n", observation="result\n")
    builder.add(call, "answer\n", observation="done\n")
    assert pair_windows(builder.freeze()).current(builder.freeze()) == ["call\nresult\nanswer\n"]


def test_span_must_be_positive() -> None:
    with pytest.raises(ValueError, match="at least 1"):
        pair_windows(hand_drawn(), 0)


def test_new_rows_by_hand() -> None:
    """p has merged with a, b with b1; p and b are shifted (see the drawing in `test_hnc.test_golden_tree`)."""
    tree = hand_drawn()
    compressed = compress(tree, FIRST_CHILD, key="golden")
    new = new_rows(tree, compressed.tree, compressed.shifted)
    singles, pairs = single_steps(compressed.tree), pair_windows(compressed.tree)
    assert rows_of(singles, new[1]) == {P, B}, "p+a and b+b1 alone are pair windows of the original tree"
    assert rows_of(pairs, new[2]) == {P, B} | {A, B1} | {A1, A2, A3, A4}
    texts = dict(zip(pairs.node.tolist(), pairs.current(compressed.tree), strict=True))
    assert (texts[A], texts[A1], texts[B1]) == ("g\np\na\n", "p\na\na1\n", "p\nb\nb1\n")

    assert rows_of(singles, new_rows(tree, compressed.tree, compressed.shifted, spans=(1,))[1]) == {P, B, A, B1}, (
        "without pair windows"
    )
    three = new_rows(tree, compressed.tree, compressed.shifted, spans=(1, 2, 3))
    assert rows_of(pairs, three[2]) == {P, B}, "with windows of three steps, the merged pairs are known too"


@settings(deadline=None)
@given(tree=trees(), spans=st.sampled_from([(1,), (1, 2), (2,), (1, 2, 3)]), min_children=st.sampled_from([2, 4]))
def test_new_rows_are_those_whose_texts_or_value_are_new(tree: Tree, spans: tuple[int, ...], min_children: int) -> None:
    """The rule against the rows themselves: (last node, previous, current, value) of both trees, compared as sets."""
    compressed = compress(tree, CompressConfig(probability=0.8, min_children=min_children), key="k")

    def rows(of: Tree, span: int) -> list[tuple[Any, ...]]:
        value = estimate(of).value
        windows = pair_windows(of, span)
        return [
            (node, of.prefix(int(of.parent[start])), current, "" if np.isnan(value[node]) else round(value[node], 9))
            for node, start, current in zip(
                windows.node.tolist(), windows.start.tolist(), windows.current(of), strict=True
            )
        ]

    known = {row for span in spans for row in rows(tree, span)}
    for span, mask in new_rows(tree, compressed.tree, compressed.shifted, spans).items():
        assert [row not in known for row in rows(compressed.tree, span)] == mask.tolist()
