"""The posterior: against enumeration of all values, by hand, and against simulation."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import trees

from treeforge.evidence import Evidence, outcomes
from treeforge.posterior import CELLS, FIXED, GRID, above, branches, completions_from, expected_gain, infer, levels
from treeforge.tree import Finish, Tree, TreeBuilder
from treeforge.value import estimate
from treeforge.verdict import Verdict

FORK = np.array([-1, 0, 1, 1])
"""A root, its child, and two grandchildren."""
DEPTH = np.array([0, 1, 2, 2])


def enumerated(draws: np.ndarray, right: np.ndarray) -> np.ndarray:
    """float64[CELLS, CELLS, CELLS, CELLS]: the joint posterior of the fork's four values, by brute force."""
    root, child, left, other = GRID ** right[:, None] * (1 - GRID) ** (draws - right)[:, None]
    move = FIXED.kernel
    joint = np.ones((CELLS,) * 4)
    joint *= root[:, None, None, None] * move[:, :, None, None] * child[None, :, None, None]
    joint *= (move * left)[None, :, :, None]
    joint *= (move * other)[None, :, None, :]
    return joint / joint.sum()


@pytest.fixture(scope="module")
def fork():
    draws, right = np.array([2.0, 0.0, 3.0, 4.0]), np.array([1.0, 0.0, 0.0, 3.0])
    return draws, right, enumerated(draws, right)


def test_the_posterior_is_that_of_all_values_enumerated(fork):
    draws, right, joint = fork
    found = infer(levels(FORK, DEPTH), draws, right)
    for node in range(4):
        others = tuple(n for n in range(4) if n != node)
        assert found.belief[node] == pytest.approx(joint.sum(axis=others), abs=1e-12)
    assert found.above(0.5) == pytest.approx(found.belief[:, CELLS // 2 :].sum(axis=1))


def test_the_expected_gain_is_what_enumeration_gives(fork):
    draws, right, joint = fork
    targets = np.array([1, 2, 3])
    statistic = above(0.5)

    def uncertainty(weights: np.ndarray) -> float:
        total = 0.0
        for node in targets.tolist():
            chance = weights.sum(axis=tuple(n for n in range(4) if n != node)) @ statistic
            total += chance * (1 - chance)
        return total

    found = expected_gain(infer(levels(FORK, DEPTH), draws, right), targets, statistic, 2)
    for node in range(4):
        shape = [1] * 4
        shape[node] = CELLS
        expected = uncertainty(joint)
        for ways, c in ((1, 0), (2, 1), (1, 2)):
            weighted = joint * (ways * GRID**c * (1 - GRID) ** (2 - c)).reshape(shape)
            expected -= weighted.sum() * uncertainty(weighted / weighted.sum())
        assert found[node] == pytest.approx(expected, abs=1e-12)


def test_a_branch_alone_gives_the_gains_of_its_own_steps(fork):
    draws, right, _ = fork
    found = infer(levels(FORK, DEPTH), draws, right)
    (branch,) = branches(FORK, DEPTH)
    assert branch.rows.tolist() == [1, 2, 3]
    alone = expected_gain(found.at(branch), np.array([0, 2]), above(0.5), 3)
    assert alone == pytest.approx(expected_gain(found, np.array([1, 3]), above(0.5), 3)[1:], abs=1e-12)


def test_further_completions_gain_more_and_never_nothing():
    posterior = infer(levels(FORK, DEPTH), np.array([0.0, 5.0, 0.0, 1.0]), np.array([0.0, 2.0, 0.0, 1.0]))
    one, four = (expected_gain(posterior, np.array([1, 2, 3]), above(0.5), draws) for draws in (1, 4))
    assert (one > 0).all()
    assert (four > one).all()
    assert one[1:].min() > one[0]  # the root is no target, and knows of the targets at second hand only


def test_above_shares_the_cell_that_the_threshold_cuts():
    assert above(0.5).tolist() == [0.0] * 8 + [1.0] * 8
    assert above(0.5 + 0.25 / CELLS)[8] == pytest.approx(0.75)
    assert above(0.0).tolist() == [1.0] * CELLS


def test_quantiles_of_a_node_that_nothing_is_known_of():
    alone = infer(levels(np.array([-1]), np.array([0])), np.zeros(1), np.zeros(1))
    for share in (0.05, 0.5, 0.95):
        assert alone.quantile(share)[0] == pytest.approx(share)
    assert alone.mean()[0] == pytest.approx(0.5)
    assert alone.deviation()[0] == pytest.approx(np.sqrt(1 / 12))


@pytest.mark.parametrize("right", [0, 16])
def test_an_interval_reaches_chances_of_0_and_1(right):
    found = infer(levels(np.array([-1]), np.array([0])), np.array([16.0]), np.array([float(right)]))
    low, high = (float(end[0]) for end in found.interval(0.9))
    if right:
        low, high = 1 - high, 1 - low
    assert low == 0.0
    assert 1 / CELLS < high < 0.25
    within = infer(levels(np.array([-1]), np.array([0])), np.array([16.0]), np.array([8.0]))
    ends = [float(end[0]) for end in within.interval(0.9)]
    assert ends == pytest.approx([float(within.quantile(share)[0]) for share in (0.05, 0.95)])


def chain(outcomes_at: list[tuple[int, int]], verdict: Verdict) -> Tree:
    """A solution whose steps have (rollouts, correct) each, and end in a verdict."""
    builder, row = TreeBuilder(), 0
    for number, (rollouts, correct) in enumerate(outcomes_at):
        row = builder.add(row, f"{number}\n")
        builder.rollouts[row], builder.rollouts_correct[row] = rollouts, correct
    builder.add(row, "end", finish=Finish.ANSWERED, verdict=verdict)
    return builder.freeze()


def test_the_end_of_a_solution_is_one_completion_of_its_last_step():
    evidence = Evidence.of(chain([(4, 3), (2, 0)], Verdict.CORRECT))
    draws, right = completions_from(evidence, outcomes(evidence, truncated="wrong", undecided="left out"))
    assert draws.tolist() == [0, 4, 3, 0]
    assert right.tolist() == [0, 3, 1, 0]


def test_a_step_without_completions_is_valued_by_its_neighbours():
    values = estimate(chain([(8, 8), (0, 0), (8, 8)], Verdict.CORRECT), "smoothed")
    assert values.value[2] > 0.8
    assert values.estimator == "smoothed"
    lonely = estimate(chain([(0, 0), (0, 0), (8, 8)], Verdict.CORRECT), "smoothed")
    assert lonely.high[1] - lonely.low[1] > values.high[2] - values.low[2]
    dropped = estimate(chain([(8, 8), (0, 0), (8, 0)], Verdict.INCORRECT), "smoothed")
    assert 0.05 < dropped.value[2] < 0.95  # on one side of the error or on the other
    assert dropped.high[2] - dropped.low[2] > 0.5


def test_ended_steps_have_their_verdict_and_steps_that_nothing_is_known_of_no_value():
    values = estimate(chain([(1, 1)], Verdict.CORRECT), "smoothed")
    assert values.value[2] == values.low[2] == values.high[2] == 1.0
    assert values.stderr[2] == 0.0
    builder = TreeBuilder()
    builder.add(0, "a\n")
    empty = estimate(builder.freeze(), "smoothed")
    assert np.isnan(empty.value).all()
    assert (empty.low == 0).all()
    assert (empty.high == 1).all()


def test_undecided_outcomes_widen_the_interval_on_both_sides():
    tree = chain([(6, 3)], Verdict.CORRECT)
    builder = TreeBuilder()
    row = builder.add(0, "0\n")
    builder.rollouts[row], builder.rollouts_correct[row], builder.rollouts_undecided[row] = 12, 3, 6
    builder.add(row, "end", finish=Finish.ANSWERED, verdict=Verdict.CORRECT)
    decided, undecided = estimate(tree, "smoothed"), estimate(builder.freeze(), "smoothed")
    assert undecided.value[1] == decided.value[1]
    assert undecided.low[1] < decided.low[1]
    assert undecided.high[1] > decided.high[1]
    assert undecided.undecided[1] == 6


@settings(max_examples=60, deadline=None)
@given(st.lists(trees(max_nodes=20), min_size=1, max_size=3))
def test_trees_together_give_what_each_gives_alone(forest):
    together = estimate(Evidence.of(*forest), "smoothed")
    alone = [estimate(tree, "smoothed") for tree in forest]
    for name in ("value", "rollouts", "undecided", "stderr", "low", "high"):
        assert np.array_equal(
            getattr(together, name), np.concatenate([getattr(v, name) for v in alone]), equal_nan=True
        )


@settings(max_examples=60, deadline=None)
@given(trees())
def test_values_stand_within_their_intervals(tree):
    values = estimate(tree, "smoothed")
    known = ~np.isnan(values.value)
    raw = estimate(tree)
    assert np.array_equal(values.rollouts, raw.rollouts)
    assert (values.low[known] <= values.value[known]).all()
    assert (values.value[known] <= values.high[known]).all()
    assert ((values.low >= 0) & (values.high <= 1)).all()
