"""Values -> hard and soft labels."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import trees

from treeforge.config import LabelConfig
from treeforge.label.steps import (
    NO_ERROR,
    NO_LABEL,
    UNKNOWN_ERROR,
    advantages,
    first_errors,
    label_nodes,
)
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


def test_the_abstain_band_leaves_only_a_soft_label() -> None:
    tree = labelled([(10, 3), (10, 4), (10, 5), (10, 6), (10, 7)])
    labels = label_nodes(tree, estimate(tree), LabelConfig(threshold=0.5, band=0.15))
    assert labels.hard[1:6].tolist() == [0, NO_LABEL, NO_LABEL, NO_LABEL, 1]
    np.testing.assert_allclose(labels.soft[1:6], [0.3, 0.4, 0.5, 0.6, 0.7])


def path(labels: list[int]) -> tuple[Tree, np.ndarray]:
    """A chain of steps with these hard labels."""
    builder = TreeBuilder()
    for i, _ in enumerate(labels):
        builder.add(i, f"{i}\n")
    return builder.freeze(), np.array([NO_LABEL, *labels], dtype=np.int8)


NONE, UNKNOWN = NO_ERROR, UNKNOWN_ERROR


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        ([1, 1, 0, 0], [NONE, NONE, 2, 2]),
        ([0, 1, 1], [0, 0, 0]),
        ([1, 1], [NONE, NONE]),
        ([-1, 1, 0], [UNKNOWN, NONE, 2]),
        ([1, -1, 0, 0], [NONE, UNKNOWN, UNKNOWN, UNKNOWN]),
        ([-1, 0, 1], [UNKNOWN, UNKNOWN, UNKNOWN]),
        ([1, -1, -1, 1, -1], [NONE, UNKNOWN, UNKNOWN, NONE, UNKNOWN]),
    ],
)
def test_first_errors(labels: list[int], found: list[int]) -> None:
    tree, hard = path(labels)
    assert first_errors(tree, hard).tolist() == [NONE, *found]


@settings(deadline=None)
@given(tree=trees(), threshold=st.sampled_from([0.0, 0.5]))
def test_first_errors_are_those_of_each_path(tree: Tree, threshold: float) -> None:
    hard = label_nodes(tree, estimate(tree), LabelConfig(threshold=threshold)).hard
    found = first_errors(tree, hard)
    for row in range(tree.size):
        labels = hard[tree.path(row)].tolist()
        before = labels[: labels.index(0)] if 0 in labels else labels
        if before[-1:] == [NO_LABEL]:
            assert found[row] == UNKNOWN_ERROR
        else:
            assert found[row] == (len(before) if 0 in labels else NO_ERROR)


def test_advantage_is_the_change_from_the_parent() -> None:
    tree = labelled([(4, 1), (4, 3), (0, 0)])
    change = advantages(tree, estimate(tree))
    root = estimate(tree).value[0]
    np.testing.assert_allclose(change[1:3], [0.25 - root, 0.75 - root])
    assert np.isnan(change[[0, 3]]).all()
