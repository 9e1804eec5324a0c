"""Measures against their definitions, spelt out."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.reward.measures import first_error, first_error_f1, measure, paths_of

LABELLED = st.lists(st.tuples(st.booleans(), st.sampled_from([0, 0.1, 0.3, 0.5, 0.75, 1])), min_size=1, max_size=30)


def arrays(rows):
    return np.array([right for right, _ in rows], dtype=np.int8), np.array([chance for _, chance in rows])


@given(LABELLED)
def test_auc_is_the_chance_to_rank_a_right_row_higher(rows):
    labels, chances = arrays(rows)
    pairs = [(r > w) + (r == w) / 2 for r in chances[labels == 1] for w in chances[labels == 0]]
    found = measure(labels, chances).auc
    assert found == (pytest.approx(np.mean(pairs)) if pairs else None)


@given(LABELLED)
def test_bins_hold_every_row_once(rows):
    labels, chances = arrays(rows)
    bins = measure(labels, chances).reliability
    assert sum(bin_.rows for bin_ in bins) == len(rows)
    assert sum(bin_.rows * bin_.right for bin_ in bins) == pytest.approx(labels.sum())


def test_calibration_error():
    labels, chances = np.array([1, 1, 0, 0], dtype=np.int8), np.array([0.95, 0.95, 0.95, 0.05])
    assert measure(labels, chances).calibration_error == pytest.approx((3 * abs(0.95 - 2 / 3) + 0.05) / 4)


def test_no_rows_no_figures():
    found = measure(np.zeros(0, dtype=np.int8), np.zeros(0))
    assert (found.rows, found.auc, found.accuracy, found.reliability) == (0, None, None, ())


def test_one_class_has_no_auc():
    found = measure(np.ones(3, dtype=np.int8), np.array([0.2, 0.7, 0.9]))
    assert found.auc is None
    assert found.balanced_accuracy is None
    assert found.accuracy == pytest.approx(2 / 3)


def test_the_first_error():
    assert first_error([0.9, 0.4, 0.1]) == 1
    assert first_error([0.9, 0.5]) == -1


def test_first_error_f1_is_the_harmonic_mean():
    labels = np.array([1, 0, 1, 1, 1, 0], dtype=np.int8)
    chances = np.array([0.9, 0.1, 0.9, 0.9, 0.4, 0.1])
    # Paths: an error found at its place, a sound one, an error that is placed too early.
    assert first_error_f1(labels, chances, [[0, 1], [2, 3], [4, 5]]) == pytest.approx(2 * 0.5 * 1 / 1.5)
    assert first_error_f1(labels, chances, [[2, 3]]) is None


def test_paths_are_put_together_from_their_steps():
    previous = ["", "a", "a", "ab", "x"]
    current = ["a", "b", "c", "d", "y"]
    assert sorted(paths_of(previous, current, ["p"] * 5)) == [[0, 1, 3], [0, 2]]
    assert sorted(paths_of(["", "a"], ["a", "b"], ["p", "q"])) == [[0]]
