"""pass@k against every subset of the completions."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.stats.accuracy import pass_at


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=4))
def test_it_is_the_share_of_subsets_with_a_right_one(outcomes):
    found = pass_at(np.array([c for c, _ in outcomes]), np.array([w for _, w in outcomes]))
    most = max(c + w for c, w in outcomes)
    assert [row.k for row in found] == [k for k in (1, 2, 4, 8) if k <= most]
    for row in found:
        solved = [
            np.mean([any(chosen) for chosen in combinations([True] * c + [False] * w, row.k)])
            for c, w in outcomes
            if c + w >= row.k
        ]
        assert row.problems == len(solved)
        assert row.share == pytest.approx(np.mean(solved))


def test_many_completions_neither_overflow_nor_cancel():
    found = {row.k: row.share for row in pass_at(np.array([1, 50_000]), np.array([99_999, 50_000]))}
    assert found[1] == pytest.approx((1e-5 + 0.5) / 2)
    assert found[65_536] == pytest.approx((0.65536 + 1) / 2)


def test_without_completions_there_is_nothing_to_say():
    assert pass_at(np.array([0, 0]), np.array([0, 0])) == ()
    assert pass_at(np.array([], dtype=int), np.array([], dtype=int)) == ()
