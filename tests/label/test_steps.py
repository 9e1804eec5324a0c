"""Values -> hard and soft labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import given, settings
from support.strategies import trees

from treeforge.config import LabelConfig
from treeforge.label.steps import NO_LABEL, label_nodes
from treeforge.tree import Finish, Tree, TreeBuilder
from treeforge.value import estimate
from treeforge.verdict import Verdict


def labelled(rollouts: list[tuple[int, int]]) -> Tree:
    """A root whose children have (rollouts, correct)."""
    builder = TreeBuilder()
    for i, (n, correct) in enumerate(rollouts):
        row = builder.add(0, f"step {i}\n")
        builder.rollouts[row], builder.rollouts_correct[row] = n, correct
    builder.add(0, "", finish=Finish.ERROR)
    builder.add(0, "?\n", finish=Finish.ANSWERED, verdict=Verdict.UNDECIDED)
    return builder.freeze()


def test_threshold_is_strict_and_the_rest_has_no_label() -> None:
    tree = labelled([(4, 2), (4, 3), (0, 0), (1, 1)])
    labels = label_nodes(tree, estimate(tree), LabelConfig(threshold=0.5))
    assert labels.hard.dtype == np.int8
    assert labels.hard.tolist() == [NO_LABEL, 0, 1, NO_LABEL, 1, NO_LABEL, NO_LABEL]
    np.testing.assert_array_equal(labels.soft, [np.nan, 0.5, 0.75, np.nan, 1.0, np.nan, np.nan])


def test_threshold_zero_is_any_correct() -> None:
    tree = labelled([(4, 0), (4, 1)])
    assert label_nodes(tree, estimate(tree), LabelConfig(threshold=0.0)).hard[1:3].tolist() == [0, 1]


def test_imported_values_do_not_label_errors_and_the_root() -> None:
    tree = labelled([(1, 1)])
    n = tree.size
    known = replace(estimate(tree), value=np.ones(n), rollouts=np.ones(n, dtype=np.int64), estimator="imported")
    assert label_nodes(tree, known, LabelConfig()).hard.tolist() == [NO_LABEL, 1, NO_LABEL, 1]


def test_min_rollouts() -> None:
    tree = labelled([(3, 2), (4, 3)])
    labels = label_nodes(tree, estimate(tree), LabelConfig(min_rollouts=4))
    assert labels.hard[1:3].tolist() == [NO_LABEL, 1]
    assert np.isnan(labels.soft[1])


@settings(deadline=None)
@given(tree=trees())
def test_a_label_is_there_where_a_value_is(tree: Tree) -> None:
    values = estimate(tree)
    labels = label_nodes(tree, values, LabelConfig())
    has = labels.hard != NO_LABEL
    assert not has[0]
    assert (has[1:] == ~np.isnan(values.value[1:])).all()
    assert (has == ~np.isnan(labels.soft)).all()
    assert not has[tree.finish == Finish.ERROR].any()
