"""`step-rollouts` and `best-of-n`: solutions as paths of nodes, and what their values mean."""

from __future__ import annotations

import numpy as np
import pytest
from support.driving import TextPolicy, drive
from support.runs import problems

from treeforge.config import BudgetConfig, LabelConfig
from treeforge.label.steps import label_nodes
from treeforge.policy import ScriptedPolicy, World
from treeforge.tree import Finish
from treeforge.value import estimate
from treeforge.verdict import Verdict

SOLUTIONS = ["a\nb\nThe answer is 0.", "a\nc\nThe answer is 1.", "a\nb\nThe answer is 0.", "a\n"]


def four_solutions(request, i):
    return SOLUTIONS[i] if not request.prefix else ("b\nThe answer is 0." if i else "The answer is 5.")


def test_solutions_become_paths_and_equal_first_parts_one():
    tree, waves, ended = drive(policy=TextPolicy(four_solutions), strategy="best-of-n", solutions=4)
    assert ended == ("done", "4 solutions")
    assert [[request.n for request in wave] for wave in waves] == [[4]]
    frozen = tree.builder.freeze()
    assert frozen.text == ("", "a\n", "b\n", "The answer is 0.", "c\n", "The answer is 1.")
    assert frozen.multiplicity.tolist() == [1, 4, 2, 2, 1, 1]
    assert frozen.rollouts.tolist() == [0, 1, 0, 0, 0, 0], "the one that stopped after its first step"
    assert frozen.finish.tolist() == [0, 0, 0, Finish.ANSWERED, 0, Finish.ANSWERED]
    assert frozen.visits.tolist() == [4, 4, 2, 2, 1, 1]
    assert frozen.value_sum.tolist() == [2, 2, 2, 2, 0, 0]
    assert estimate(frozen).value.tolist() == [0.5, 0.5, 1, 1, 0, 0]


def test_every_step_of_the_solutions_is_completed_once():
    tree, waves, ended = drive(policy=TextPolicy(four_solutions), strategy="step-rollouts", children=4, wave=2)
    assert ended == ("done", "4 solutions, 3 steps completed")
    assert [[request.prefix for request in wave] for wave in waves] == [[""], ["a\n", "a\nb\n"], ["a\nc\n"]]
    frozen = tree.builder.freeze()
    assert frozen.rollouts[[1, 2, 4]].tolist() == [1 + 4, 4, 4]
    assert frozen.rollouts_correct[[1, 2, 4]].tolist() == [3, 3, 3]
    assert frozen.size == 6, "completions are not turned into nodes"
    any_correct = label_nodes(frozen, estimate(frozen), LabelConfig(threshold=0.0))
    assert any_correct.hard[1:].tolist() == [1, 1, 1, 1, 0], "Math-Shepherd's hard label"


def test_solutions_are_sampled_by_requests_of_their_own_seeds():
    tree, waves, _ = drive(world=World(branching=50), strategy="best-of-n", solutions=30, children=8, wave=3)
    requests = [request for wave in waves for request in wave]
    assert [request.n for request in requests] == [8, 8, 8, 6]
    assert len({request.seed for request in requests}) == 4
    assert [len(wave) for wave in waves] == [3, 1]
    assert tree.samples == 30


@pytest.mark.parametrize("merge", [True, False])
def test_costs_add_up(merge):
    tree, _, _ = drive(world=World(branching=1, duplicate_rate=0.9), strategy="step-rollouts", merge_duplicates=merge)
    frozen = tree.builder.freeze()
    nodes = (frozen.multiplicity * frozen.token_count)[1:].sum()
    assert nodes + sum(rollout.tokens for rollout in tree.rollouts) == tree.tokens
    ended = frozen.multiplicity[frozen.verdict >= 0].sum()
    assert ended + frozen.rollouts.sum() == tree.samples


def test_answers_and_truncation_stand_where_the_solution_ended():
    policy = TextPolicy(lambda request, i: ["The answer is 0.", "a\nb…", ""][i % 3])
    tree, _, _ = drive(policy=policy, strategy="best-of-n", solutions=3)
    frozen = tree.builder.freeze()
    assert frozen.text == ("", "The answer is 0.", "a\n", "b")
    assert frozen.verdict.tolist() == [-1, Verdict.CORRECT, -1, Verdict.NO_ANSWER]
    assert frozen.finish.tolist() == [0, Finish.ANSWERED, 0, Finish.TRUNCATED]
    assert frozen.rollouts[0] == 1, "an empty solution is a wrong rollout of the root"


@pytest.mark.parametrize("budget", [{"rollouts": 20}, {"tokens": 900}, {"nodes": 12}])
def test_budgets_end_it_between_waves(budget):
    tree, _, (status, reason) = drive(
        BudgetConfig(**budget), world=World(depth=20, branching=50), strategy="step-rollouts", wave=1
    )
    assert status == "exhausted"
    assert str(next(iter(budget.values()))) in reason
    assert tree.samples < 8 * 20


def test_values_are_unbiased_at_every_depth():
    """Nothing is chosen by its outcome, so that a step's own solutions and completions are all honest samples."""
    world = World(depth=5, error_rate=0.2, branching=3)
    policy = ScriptedPolicy(world)
    errors: dict[int, list[float]] = {}
    for number in range(150):
        tree, _, _ = drive(world=world, problem=number, strategy="step-rollouts", solutions=2, children=2)
        values, problem = estimate(tree.builder.freeze()), problems(number + 1)[number]
        for row in range(tree.builder.size):
            error = values.value[row] - policy.true_value(problem, tree.builder.prefix(row))
            errors.setdefault(tree.builder.depth[row], []).append(float(error))
    assert sorted(errors) == list(range(6))
    for depth in range(5):
        found = np.array(errors[depth])
        assert abs(found.mean()) < 4 * found.std() / len(found) ** 0.5
