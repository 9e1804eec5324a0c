"""`omega`: binary search for first errors, what stands in the tree afterwards, and how it ends."""

from __future__ import annotations

import numpy as np
import pytest
from support.driving import TextPolicy, drive
from support.runs import problems

from treeforge.config import BudgetConfig, LabelConfig
from treeforge.label.steps import NO_ERROR, first_errors, label_nodes
from treeforge.policy import ScriptedPolicy, World
from treeforge.tree import Finish
from treeforge.value import estimate

STEPS = 9
RIGHT, WRONG = "The answer is 0.", "The answer is 1."


def line_with_error_at(error: int | None) -> str:
    """A solution of nine steps; the one at index `error` is wrong, and the answer after it."""
    steps = [f"step {i}{'x' if i == error else ''}\n" for i in range(STEPS - 1)]
    return "".join(steps) + (RIGHT if error is None else WRONG)


def world_with_error_at(error: int) -> TextPolicy:
    """Every second solution goes wrong at the same step; what follows a wrong step is wrong, all else is right."""

    def write(request, i):
        whole = line_with_error_at(error if (not request.prefix and i % 2) or "x" in request.prefix else None)
        return whole[len(request.prefix) :]

    return TextPolicy(write)


@pytest.mark.parametrize("error", range(STEPS))
@pytest.mark.parametrize("wave", [1, 4])
def test_the_first_error_is_found_wherever_it_is(error, wave):
    tree, waves, ended = drive(
        BudgetConfig(simulations=0), policy=world_with_error_at(error), strategy="omega", wave=wave
    )
    assert ended == ("done", "4 wrong rollouts searched, none is left")
    probed = [request.prefix.count("\n") for wave in waves for request in wave][1:]
    assert probed == bisection(error), "each half once; the other three rollouts have the same text and cost nothing"
    frozen = tree.builder.freeze()
    hard = label_nodes(frozen, estimate(frozen), LabelConfig(threshold=0.0)).hard
    found = first_errors(frozen, hard)
    wrong = [row for row in range(frozen.size) if hard[row] == 0]
    assert wrong
    assert frozen.text[min(wrong, key=lambda row: frozen.depth[row])] in (f"step {error}x\n", WRONG)
    assert {int(found[row]) for row in wrong} == {error}
    assert all(found[row] == NO_ERROR for row in range(frozen.size) if hard[row] == 1)


def bisection(error: int) -> list[int]:
    low, high, out = 0, STEPS, []
    while high - low > 1:
        middle = (low + high) // 2
        out.append(middle)
        low, high = (low, middle) if middle > error else (middle, high)
    return out


def test_every_completion_is_kept_once_and_cut_ones_count_where_they_started():
    tree, waves, _ = drive(BudgetConfig(simulations=30), world=World(depth=10), strategy="omega", children=6)
    frozen = tree.builder.freeze()
    assert tree.samples == 6 * sum(map(len, waves)) == int(frozen.rollouts.sum()) == len(tree.rollouts)
    assert sum(rollout.tokens for rollout in tree.rollouts) == tree.tokens
    assert not frozen.multiplicity[1:].any(), "no prefix stands for a sample beside the rollout that it was cut from"
    probed = frozen.rollouts > 0
    assert probed.sum() == sum(map(len, waves)), "no prefix is probed twice"
    values = estimate(frozen)
    np.testing.assert_array_equal(
        values.value[probed], (frozen.rollouts_correct / np.maximum(frozen.rollouts, 1))[probed]
    )
    between = ~probed & (frozen.finish == Finish.OPEN)
    assert between.any()
    assert np.isnan(values.value[between]).all(), "a step between two probes has no evidence of its own"


def test_a_wave_is_one_probe_of_each_rollout_under_search():
    _, waves, _ = drive(BudgetConfig(simulations=40), world=World(depth=16, error_rate=0.06), strategy="omega", wave=3)
    assert len(waves[0]) == 1
    assert max(map(len, waves)) == 3
    for wave in waves:
        assert len({request.digest for request in wave}) == len(wave)


def test_simulations_count_probes():
    _, waves, ended = drive(BudgetConfig(simulations=7), world=World(depth=16, error_rate=0.06), strategy="omega")
    assert sum(map(len, waves)) == 7
    assert ended == ("done", "7 simulations")


@pytest.mark.parametrize(("answer", "right"), [("0", 8), ("1", 0)])
def test_a_root_that_is_all_right_or_all_wrong_has_no_error_to_look_for(answer, right):
    policy = TextPolicy(lambda request, i: f"a\nThe answer is {answer}.")
    tree, _, ended = drive(policy=policy, strategy="omega")
    assert ended == ("done", f"{right} of 8 right at the root: no first error to look for")
    assert tree.builder.size == 1


def test_a_stop_after_a_whole_step_may_be_the_error():
    """The model stops without an answer half of the time after two steps that are right."""

    def write(request, i):
        whole = "a\nb\n" + (RIGHT if i % 2 else "")
        return whole[len(request.prefix) :]

    tree, _, ended = drive(policy=TextPolicy(write), strategy="omega")
    assert ended[0] == "done"
    frozen = tree.builder.freeze()
    assert frozen.text == ("", "a\n", "b\n")
    assert estimate(frozen).value[1:].tolist() == [0.5, 0.5]


def test_values_of_probed_prefixes_and_the_root_are_unbiased():
    world = World(depth=6, error_rate=0.2, recovery_rate=0.05)
    policy = ScriptedPolicy(world)
    at_root, below = [], []
    for number in range(150):
        tree, _, _ = drive(BudgetConfig(simulations=8), world=world, problem=number, strategy="omega", children=4)
        values, problem = estimate(tree.builder.freeze()), problems(number + 1)[number]
        errors = [
            values.value[row] - policy.true_value(problem, tree.builder.prefix(row))
            for row in range(tree.builder.size)
            if tree.builder.rollouts[row]
        ]
        at_root.append(errors[0])
        below += [float(np.mean(errors[1:]))] if errors[1:] else []
    for errors in (at_root, below):
        assert abs(np.mean(errors)) < 4 * np.std(errors) / len(errors) ** 0.5
