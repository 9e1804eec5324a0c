"""Screening: what is searched, and where the screening's samples go."""

from __future__ import annotations

import numpy as np
import pytest
from support.driving import TextPolicy, drive

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.policy import World
from treeforge.verdict import Judgement, Verdict


def some_right(right):
    return TextPolicy(lambda request, i: f"a\nThe answer is {0 if i < right else 1}."[len(request.prefix) :])


@pytest.mark.parametrize(
    ("right", "keep", "searched"),
    [
        (0, "0.1..0.9", False), (1, "0.1..0.9", True), (7, "0.1..0.9", True), (8, "0.1..0.9", False),
        (0, "0..0.5", True), (4, "0..0.5", True), (5, "0..0.5", False), (8, "1..1", True),
    ],
)  # fmt: skip
def test_only_problems_within_the_range_are_searched(right, keep, searched):
    tree, waves, ended = drive(policy=some_right(right), screen=8, keep=keep)
    assert [request.n for request in waves[0]] == [8]
    if searched:
        assert not ended[1].startswith("screened out")
        assert len(waves) > 1
    else:
        assert ended == ("done", f"screened out: {right} of 8 right")
        assert len(waves) == 1
        assert (tree.builder.size, tree.builder.rollouts, tree.builder.rollouts_correct) == (1, [8], [right])


@pytest.mark.parametrize("strategy", ["mcts", "exhaustive", "omega", "step-rollouts", "best-of-n", "beam"])
def test_the_screening_is_evidence_in_every_strategy(strategy):
    tree, waves, ended = drive(
        BudgetConfig(simulations=6),
        world=World(depth=6, error_rate=0.15),
        strategy=strategy,
        screen=8,
        levels=2,
        solutions=12,
    )
    assert not ended[1].startswith("screened out")
    frozen = tree.builder.freeze()
    assert tree.samples == sum(request.n for wave in waves for request in wave)
    kept = frozen.rollouts.sum() + frozen.multiplicity[frozen.verdict >= 0].sum()
    steps = sum(request.n for wave in waves for request in wave if request.mode == "step")
    assert kept >= tree.samples - steps, "every whole completion is a rollout or a path"
    assert len({request.seed for wave in waves for request in wave}) == sum(map(len, waves)), "no seed is used twice"


def test_solutions_and_the_roots_rollouts_are_not_sampled_again():
    _, waves, _ = drive(world=World(depth=6), strategy="best-of-n", solutions=8, screen=8)
    assert sum(request.n for wave in waves for request in wave) == 8
    tree, waves, _ = drive(world=World(depth=6), strategy="step-rollouts", solutions=2, screen=8)
    assert sum(request.n for wave in waves for request in wave if not request.prefix) == 8
    assert tree.builder.freeze().multiplicity[np.array(tree.builder.parent) == 0].sum() == 2
    assert tree.builder.rollouts[0] == 6, "what is more than the solutions asked for"
    _, waves, _ = drive(world=World(depth=6), strategy="omega", screen=8)
    assert [request.prefix for wave in waves for request in wave].count("") == 1


def test_mcts_goes_on_from_the_screenings_children():
    tree, waves, _ = drive(BudgetConfig(simulations=4), world=World(branching=50, duplicate_rate=0), screen=6)
    assert [request.prefix for request in waves[0]] == [""]
    assert all(request.prefix for wave in waves[1:] for request in wave)
    assert tree.builder.visits[0] == 6 + 4 * 4


class Undecided:
    def judge(self, problem, text):
        known = text.endswith("is 0.")
        return Judgement(Verdict.CORRECT if known else Verdict.UNDECIDED, "", "limit")


def test_undecided_answers_may_be_right_or_wrong():
    assert drive(policy=some_right(0), screen=8, judge=Undecided())[2] != ("done", "screened out: 0 of 8 right")
    ended = drive(policy=some_right(7), screen=8, keep="0..0.5", judge=Undecided())[2]
    assert ended == ("done", "screened out: 7 of 8 right, 1 undecided")


@pytest.mark.parametrize("keep", ["0.9..0.1", "0.1", "..", "0.1..1.5", "a..b", "-0.1..0.5", "nan..nan"])
def test_a_range_that_is_none_is_refused(keep):
    with pytest.raises(ValueError, match=r"LOW\.\.HIGH"):
        SearchConfig(screen=8, keep=keep)
