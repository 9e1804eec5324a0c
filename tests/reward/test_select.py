"""Choosing among N of n samples, against every subset of them."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treeforge.errors import ConfigError
from treeforge.reward.select import (
    NO_ANSWER,
    best_of_n,
    draw,
    majority_vote,
    oracle,
    random_pick,
    weighted_vote,
)

samples = st.lists(
    st.tuples(
        st.sampled_from([0.0, 0.25, 0.5, 0.75, 1.0]),  # few scores, so that some are equal
        st.sampled_from([NO_ANSWER, 0, 1, 2, 3]),
    ),
    min_size=1,
    max_size=7,
).map(lambda rows: tuple(np.array(column) for column in zip(*rows, strict=True)))
"""(scores, answers) of n samples; answer 0 is the right one."""


def right(answers):
    return (answers == 0).astype(np.float64)


def every_subset(n, size):
    return [list(chosen) for chosen in combinations(range(n), size)]


def winner_of_votes(votes, answers):
    """The chance that the right answer wins: votes of one subset, a weight each."""
    sums = {}
    for weight, answer in zip(votes, answers, strict=True):
        if answer != NO_ANSWER:
            sums[answer] = sums.get(answer, 0.0) + weight
    if not sums:
        return 0.0
    best = max(sums.values())
    winners = [answer for answer, total in sums.items() if abs(total - best) < 1e-9]
    return float(0 in winners) / len(winners)


@settings(max_examples=50)
@given(samples)
def test_best_of_n_is_the_mean_over_all_subsets(drawn):
    scores, answers = drawn
    correct = right(answers)
    for size in range(1, len(scores) + 1):
        of_each = []
        for chosen in every_subset(len(scores), size):
            best = [at for at in chosen if scores[at] == scores[chosen].max()]
            of_each.append(correct[best].mean())
        assert best_of_n(scores, correct, size) == pytest.approx(np.mean(of_each))


@settings(max_examples=50)
@given(samples)
def test_the_oracle_is_pass_at_n(drawn):
    _, answers = drawn
    correct = right(answers)
    for size in range(1, len(answers) + 1):
        found = [correct[chosen].max() for chosen in every_subset(len(answers), size)]
        assert oracle(correct, size) == pytest.approx(np.mean(found))


@settings(max_examples=50)
@given(samples)
def test_the_majority_vote_is_the_mean_over_all_subsets(drawn):
    _, answers = drawn
    for size in range(1, len(answers) + 1):
        found = [winner_of_votes(np.ones(size), answers[chosen]) for chosen in every_subset(len(answers), size)]
        assert majority_vote(answers, right(answers), size) == pytest.approx(np.mean(found), abs=1e-9)


@settings(max_examples=50)
@given(samples)
def test_a_vote_is_weighted_by_the_scores(drawn):
    scores, answers = drawn
    sizes = range(1, len(scores) + 1)
    for size, subsets in zip(sizes, draw(len(scores), sizes, 100, np.random.default_rng(0)), strict=True):
        assert sorted(map(tuple, subsets)) == sorted(
            tuple(at in chosen for at in range(len(scores))) for chosen in every_subset(len(scores), size)
        )
        found = [winner_of_votes(scores[chosen], answers[chosen]) for chosen in every_subset(len(scores), size)]
        assert weighted_vote(scores, answers, right(answers), subsets) == pytest.approx(np.mean(found))


@settings(max_examples=50)
@given(samples)
def test_what_always_holds(drawn):
    scores, answers = drawn
    correct, n = right(answers), len(scores)
    assert best_of_n(scores, correct, 1) == pytest.approx(correct.mean())
    assert oracle(correct, 1) == pytest.approx(correct.mean())
    assert majority_vote(answers, correct, 1) == pytest.approx(correct.mean())
    assert best_of_n(scores, correct, n) == pytest.approx(correct[scores == scores.max()].mean())
    for size in range(1, n + 1):
        best = oracle(correct, size) + 1e-9
        assert random_pick(correct, size) == pytest.approx(correct.mean())
        assert best_of_n(scores, correct, size) <= best
        assert majority_vote(answers, correct, size) <= best
        # A perfect score chooses as the oracle does, a useless one blindly.
        assert best_of_n(correct, correct, size) == pytest.approx(oracle(correct, size))
        assert best_of_n(np.zeros(n), correct, size) == pytest.approx(correct.mean())


@settings(max_examples=50)
@given(samples, st.randoms(use_true_random=False))
def test_the_order_of_the_samples_is_nothing(drawn, chance):
    scores, answers = drawn
    order = list(range(len(scores)))
    chance.shuffle(order)
    for size in range(1, len(scores) + 1):
        moved = scores[order], answers[order]
        assert best_of_n(moved[0], right(moved[1]), size) == pytest.approx(best_of_n(scores, right(answers), size))
        assert majority_vote(moved[1], right(moved[1]), size) == pytest.approx(
            majority_vote(answers, right(answers), size), abs=1e-9
        )


def test_more_samples_than_there_are_say_nothing():
    scores, answers = np.array([0.1, 0.9]), np.array([0, 1])
    for size in (0, 3):
        assert np.isnan(best_of_n(scores, right(answers), size))
        assert np.isnan(majority_vote(answers, right(answers), size))
        assert np.isnan(oracle(right(answers), size))
        assert np.isnan(random_pick(right(answers), size))
    (none,) = draw(2, [3], 10, np.random.default_rng(0))
    assert np.isnan(weighted_vote(scores, answers, right(answers), none))


def test_two_votes_beat_one_and_silence_beats_nobody():
    answers = np.array([0, 1, 1, NO_ANSWER, NO_ANSWER, NO_ANSWER])
    assert majority_vote(answers, right(answers), 6) == 0
    assert majority_vote(np.array([NO_ANSWER, NO_ANSWER, 0]), np.array([0, 0, 1.0]), 3) == 1
    assert majority_vote(np.full(3, NO_ANSWER), np.zeros(3), 2) == 0
    subsets = np.ones((1, 6), dtype=bool)
    assert weighted_vote(np.array([0.9, 0.4, 0.4, 1, 1, 1]), answers, right(answers), subsets) == 1
    assert weighted_vote(np.ones(3), np.full(3, NO_ANSWER), np.zeros(3), np.ones((1, 3), dtype=bool)) == 0


def test_votes_without_any_weight_are_tied():
    answers = np.array([0, 1])
    assert weighted_vote(np.zeros(2), answers, right(answers), np.ones((1, 2), dtype=bool)) == 0.5


def test_hundreds_of_samples_stay_exact():
    answers = np.repeat([0, 1, 2, NO_ANSWER], [150, 140, 50, 60])
    correct = right(answers)
    found = majority_vote(answers, correct, 100)
    (subsets,) = draw(400, [100], 4000, np.random.default_rng(0))
    assert (subsets.sum(axis=1) == 100).all()
    # 4,000 subsets have a standard error of 0.8%.
    assert weighted_vote(np.ones(400), answers, correct, subsets) == pytest.approx(found, abs=0.03)
    assert 0.6 < found < 0.9
    assert majority_vote(answers, correct, 399) == pytest.approx(1)
    assert best_of_n(np.arange(400.0), correct, 399) == pytest.approx(0)
    assert best_of_n(-np.arange(400.0), correct, 2) == pytest.approx(1 - (250 * 249) / (400 * 399))


def test_larger_subsets_hold_the_smaller_ones():
    few, more, other = draw(40, [4, 8, 1], 50, np.random.default_rng(1))
    assert (few <= more).all()
    assert len(few) == 50
    assert len(other) == 40  # there are no more


def test_a_score_that_is_no_number():
    scores, answers = np.array([0.5, float("nan")]), np.array([0, 1])
    with pytest.raises(ConfigError, match="NaN"):
        best_of_n(scores, right(answers), 1)
    with pytest.raises(ConfigError, match="NaN"):
        weighted_vote(scores, answers, right(answers), np.ones((1, 2), dtype=bool))
