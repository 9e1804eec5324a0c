"""The tree's invariants, its builder, and networkx and back."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from support.hand_drawn import A1, A, G, P, hand_drawn
from support.strategies import same, trees

from treeforge.errors import TreeError
from treeforge.tree import TREE_FIELDS, Finish, Tree, TreeBuilder
from treeforge.verdict import NO_VERDICT, Verdict


def changed(column: np.ndarray[Any, Any], row: int, value: float) -> np.ndarray[Any, Any]:
    out = column.copy()
    out[row] = value
    return out


@settings(deadline=None)
@given(tree=trees())
def test_invariants_of_every_tree(tree: Tree) -> None:
    tree.check()
    rows = np.arange(1, tree.size)
    assert (tree.parent[rows] < rows).all()
    children = tree.children()
    assert sorted(row for below in children for row in below) == rows.tolist()
    assert tree.is_leaf.tolist() == [not below for below in children]
    for row in range(tree.size):
        path = tree.path(row)
        assert len(path) == tree.depth[row]
        assert tree.prefix(row) == "".join(tree.text[step] + tree.observation[step] for step in path)


@settings(deadline=None)
@given(tree=trees())
def test_networkx_and_back(tree: Tree) -> None:
    graph = tree.to_networkx()
    assert nx.is_arborescence(graph)
    assert dict(nx.shortest_path_length(graph, 0)) == dict(enumerate(tree.depth.tolist()))
    back = Tree.from_networkx(graph)
    assert all(same(getattr(back, name), getattr(tree, name)) for name in TREE_FIELDS)


def test_networkx_graphs_that_are_no_tree() -> None:
    graph = hand_drawn().to_networkx()
    graph.add_edge(G, A1)
    with pytest.raises(TreeError, match=f"row {A1} has two parents"):
        Tree.from_networkx(graph)
    graph = hand_drawn().to_networkx()
    del graph.nodes[A]["verdict"]
    with pytest.raises(TreeError, match="lacks the attribute 'verdict'"):
        Tree.from_networkx(graph)
    graph = hand_drawn().to_networkx()
    graph.remove_node(G)
    with pytest.raises(TreeError, match="rows 0 … 13"):
        Tree.from_networkx(graph)


@pytest.mark.parametrize(
    ("field", "row", "value", "message"),
    [
        ("parent", 0, 0, "row 0 must be the root"),
        ("parent", A, -1, f"parent at row {A}: only row 0 may be a root"),
        ("parent", P, A, f"parent at row {P}: a parent stands before its children"),
        ("depth", A, 7, f"depth at row {A}"),
        ("multiplicity", A, -1, f"multiplicity at row {A}"),
        ("token_count", A, -1, f"token_count at row {A}"),
        ("rollouts_correct", G, 3, f"rollouts at row {G}"),
        ("rollouts_undecided", G, 2, f"rollouts at row {G}"),
        ("finish", P, Finish.STOP, f"finish at row {P}: a node with children is OPEN"),
        ("verdict", P, Verdict.CORRECT, f"verdict at row {P}: an open node has none"),
        ("finish", A1, Finish.ERROR, f"verdict at row {A1}: an engine error has none"),
    ],
)
def test_a_broken_invariant_is_named_with_its_row(field: str, row: int, value: int, message: str) -> None:
    tree = hand_drawn()
    with pytest.raises(TreeError, match=message):
        replace(tree, **{field: changed(getattr(tree, field), row, value)}).check()


def test_columns_of_unequal_length_are_refused() -> None:
    with pytest.raises(TreeError, match="answer has 14 rows, parent has 15"):
        replace(hand_drawn(), answer=("",) * 14).check()


def test_a_tree_is_frozen() -> None:
    tree = hand_drawn()
    with pytest.raises(ValueError, match="read-only"):
        tree.verdict[A1] = 0
    column = np.zeros(tree.size, dtype=np.int32)
    frozen = replace(tree, visits=column)
    column[0] = 1
    assert frozen.visits[0] == 0, "a tree keeps its own copy of what it was made of"


def test_builder_finds_identical_siblings() -> None:
    builder = TreeBuilder()
    first = builder.add(0, "step\n", token_count=2, observation="seen\n")
    second = builder.add(0, "step\n")
    assert builder.child_of[0]["step\n"] == first != second
    below = builder.add(first, "next\n", finish=Finish.STOP, verdict=Verdict.NO_ANSWER)
    assert builder.prefix(below) == "step\nseen\nnext\n"
    tree = builder.freeze()
    assert tree.prefix(below) == builder.prefix(below)
    assert tree.children() == [[first, second], [below], [], []]
    assert (tree.token_count[first], tree.verdict[second]) == (2, NO_VERDICT)
