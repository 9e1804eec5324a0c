"""Given solutions in the search: the nodes they become, what is asked of them, and what their values mean."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from msgspec.structs import replace as changed
from support.driving import TextPolicy, drive
from support.runs import problems

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.given import make_given
from treeforge.heldout import held_out
from treeforge.label import AnswerChecker
from treeforge.policy import SCRIPTED_STEPS, ScriptedPolicy, World
from treeforge.sample import Request
from treeforge.search.adaptive import MAX_GIVEN_STEPS
from treeforge.tree import Finish, Tree
from treeforge.value import estimate
from treeforge.verdict import Verdict

RIGHT, WRONG = "The answer is 0.", "The answer is 1."
STRATEGIES = ("step-rollouts", "omega", "adaptive")


def right_after(text: str) -> TextPolicy:
    """Every completion is right where the prefix ends in `text`, else wrong."""
    return TextPolicy(lambda request, i: RIGHT if request.prefix.endswith(text) else WRONG)


def written_by(world: World, problem: int, count: int = 3, seed: int = 5):
    """Solutions of another policy, as lists of steps without delimiters."""
    question = problems(problem + 1)[problem]
    request = Request(problem=question, prefix="", n=count, mode="rollout", seed=seed + problem, digest=b"", tree=0)
    return [make_given(sample.text.split("\n")) for sample in ScriptedPolicy(world).sample_now(request)]


# Nodes ----------------------------------------------------------------------------------------------------------------


def test_steps_become_nodes_that_stand_for_no_sample():
    given = [make_given(["a", "b\n", RIGHT]), make_given(["a\n", "c", WRONG]), make_given(["a", "b", RIGHT])]
    tree, waves, ended = drive(policy=right_after("b\n"), strategy="step-rollouts", children=2, given=given)
    frozen = tree.builder.freeze()
    assert frozen.text == ("", "a\n", "b\n", RIGHT, "c\n", WRONG), "first parts that are the same are one path"
    assert frozen.multiplicity.tolist() == [1, 0, 0, 0, 0, 0]
    assert frozen.verdict[[3, 5]].tolist() == [Verdict.CORRECT, Verdict.INCORRECT]
    assert frozen.answer[3] == "0"
    assert [request.prefix for wave in waves for request in wave] == ["a\n", "a\nb\n", "a\nc\n"]
    assert frozen.rollouts.tolist() == [0, 2, 2, 0, 2, 0]
    assert frozen.rollouts_correct.tolist() == [0, 0, 2, 0, 0, 0]
    assert np.isnan(frozen.prior[1:]).all()
    assert ended == ("done", "3 given solutions, 3 steps completed")


def test_a_delimiter_at_the_beginning_of_the_next_step_is_moved_not_doubled():
    given = [make_given(["a", "\nb", "\n" + RIGHT])]
    tree, _, _ = drive(policy=right_after(""), strategy="step-rollouts", given=given)
    assert tree.builder.text == ["", "a\n", "b\n", RIGHT]


def test_boundaries_stay_where_the_file_has_them():
    """A step may hold the delimiter, or only begin with what another one is."""
    given = [make_given(["a\nb", "c\n\n", RIGHT]), make_given(["a", "b", RIGHT])]
    tree, waves, _ = drive(policy=right_after(""), strategy="step-rollouts", given=given)
    assert tree.builder.text == ["", "a\nb\n", "c\n\n", RIGHT, "a\n", "b\n", RIGHT]
    # The same prefix is the same request of the model only where the steps are the same.
    assert len({request.digest for wave in waves for request in wave}) == 4


def test_a_last_step_without_an_answer_is_completed_like_the_others():
    tree, waves, _ = drive(policy=right_after("b\n"), strategy="step-rollouts", given=[make_given(["a", "b"])])
    assert [request.prefix for wave in waves for request in wave] == ["a\n", "a\nb\n"]
    assert tree.builder.finish == [0, 0, 0]
    assert estimate(tree.builder.freeze()).value[1:].tolist() == [0, 1]


def test_a_closing_remark_is_no_wrong_answer():
    """The real judge takes short last words for an answer. A bare number that is right ends the solution, though."""
    judge = AnswerChecker(markers=SCRIPTED_STEPS.answer_markers)
    for last, ends in (("I hope it is right.", False), ("Then 3 * 4 = 12.", False), ("So 2 - 2 = 0.", True)):
        tree, _, _ = drive(
            policy=right_after(""), judge=judge, strategy="step-rollouts", given=[make_given(["a", last])]
        )
        assert (tree.builder.finish[2] == Finish.ANSWERED) is ends, last
        assert tree.builder.verdict[2] == (Verdict.CORRECT if ends else -1)


def test_only_steps_that_may_end_it_are_shown_to_the_judge():
    given = [make_given([RIGHT, "b", WRONG], ends=())]
    tree, _, _ = drive(policy=right_after(""), strategy="step-rollouts", given=given)
    assert tree.builder.finish == [0, 0, 0, 0]
    assert tree.builder.text[3] == WRONG + "\n"


def test_a_tree_of_steps_keeps_its_shape():
    given = [make_given(["a", "b", "c", RIGHT], parents=[-1, 0, 0, 2])]
    tree, _, _ = drive(policy=right_after(""), strategy="step-rollouts", given=given)
    assert tree.builder.parent == [-1, 0, 1, 1, 3]
    assert tree.builder.finish == [0, 0, 0, 0, Finish.ANSWERED]


def test_where_duplicates_are_kept_apart_each_solution_has_its_own_path():
    given = [make_given(["a", RIGHT]), make_given(["a", RIGHT])]
    tree, waves, _ = drive(policy=right_after(""), strategy="step-rollouts", merge_duplicates=False, given=given)
    assert tree.builder.parent == [-1, 0, 1, 0, 3]
    assert len({request.seed for wave in waves for request in wave}) == 2


def test_sentences_need_white_space_only():
    steps = changed(SCRIPTED_STEPS, split="sentence")
    given = [make_given(["One and one is two. ", "Twice that is four.", RIGHT])]
    tree, _, _ = drive(policy=right_after(""), strategy="step-rollouts", steps=steps, given=given)
    assert tree.builder.text[1:3] == ["One and one is two. ", "Twice that is four.\n"]


def test_an_answer_inside_a_thinking_section_is_not_final():
    given = [make_given(["<think>\n", RIGHT]), make_given(["<think>\n", "</think>\n", RIGHT])]
    tree, _, _ = drive(policy=right_after(""), strategy="step-rollouts", given=given)
    assert tree.builder.finish == [0, 0, 0, 0, Finish.ANSWERED]
    assert tree.builder.text[2] == RIGHT + "\n"


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_an_answer_at_once_leaves_nothing_to_ask(strategy):
    tree, waves, ended = drive(policy=right_after(""), strategy=strategy, given=[make_given([RIGHT])])
    assert (waves, ended[0]) == ([], "done")
    assert estimate(tree.builder.freeze()).value.tolist()[1:] == [1]


# What their values mean -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_value_is_the_share_of_right_ones_among_a_steps_own_completions(strategy):
    world = World(error_rate=0.2, branching=8)
    tree, _, _ = drive(world=world, problem=3, strategy=strategy, children=8, given=written_by(world, 3))
    frozen = tree.builder.freeze()
    values = estimate(frozen)
    asked = frozen.rollouts > 0
    assert asked.sum() >= 5
    np.testing.assert_array_equal(
        values.value[asked], (frozen.rollouts_correct / np.maximum(frozen.rollouts, 1))[asked]
    )
    np.testing.assert_array_equal(values.rollouts[asked], frozen.rollouts[asked])
    ends = np.flatnonzero(frozen.finish == Finish.ANSWERED)
    assert values.rollouts[ends].tolist() == [1] * len(ends)
    silent = ~asked & (frozen.finish == Finish.OPEN)
    assert np.isnan(values.value[silent]).all()
    assert not values.rollouts[silent].any()
    assert silent[0], "the root is nobody's step"


def flipped(tree: Tree) -> Tree:
    """The tree with every given solution's verdict turned round."""
    right, wrong = (tree.verdict == verdict for verdict in (Verdict.CORRECT, Verdict.INCORRECT))
    verdict = np.where(right, Verdict.INCORRECT, np.where(wrong, Verdict.CORRECT, tree.verdict)).astype(np.int8)
    return replace(tree, verdict=verdict)


@pytest.mark.parametrize("estimator", ["policy_mean", "leaf_share", "visit_mean", "smoothed"])
def test_how_a_given_solution_ends_moves_no_step_before_it(estimator):
    world = World(error_rate=0.2, branching=8)
    tree, _, _ = drive(world=world, strategy="step-rollouts", given=written_by(world, 0))
    frozen = tree.builder.freeze()
    inner = frozen.finish == Finish.OPEN
    before, after = (estimate(t, estimator).value for t in (frozen, flipped(frozen)))
    np.testing.assert_array_equal(before[inner], after[inner])
    assert (before[~inner] == 1 - after[~inner]).all()


@pytest.mark.parametrize("strategy", ["step-rollouts", "omega"])
def test_values_of_given_steps_are_unbiased(strategy):
    """Whoever wrote the solutions: here a world that errs far more often than the one that completes them."""
    world = World(depth=6, error_rate=0.15, recovery_rate=0.1)
    policy = ScriptedPolicy(world)
    errors = []
    for number in range(120):
        given = written_by(World(depth=6, error_rate=0.4, recovery_rate=0.1), number, count=2)
        tree, _, _ = drive(world=world, problem=number, strategy=strategy, children=4, given=given)
        values, problem = estimate(tree.builder.freeze()), problems(number + 1)[number]
        found = [
            values.value[row] - policy.true_value(problem, tree.builder.prefix(row))
            for row in range(1, tree.builder.size)
            if tree.builder.rollouts[row]
        ]
        errors += [float(np.mean(found))] if found else []
    assert len(errors) > 80
    assert abs(np.mean(errors)) < 4 * np.std(errors) / len(errors) ** 0.5


def test_the_same_steps_cost_the_same_requests_as_if_they_had_been_sampled():
    world = World(error_rate=0.2, branching=8)
    sampled, waves, _ = drive(world=world, strategy="step-rollouts", solutions=2, children=4)
    texts = [frozen_path(sampled, row) for row in range(sampled.builder.size) if sampled.builder.verdict[row] >= 0]
    given, asked, _ = drive(world=world, strategy="step-rollouts", children=4, given=[make_given(t) for t in texts])
    before = {request.digest for wave in waves[1:] for request in wave}
    assert {request.digest for wave in asked for request in wave} == before
    assert given.builder.rollouts_correct[1:] == sampled.builder.rollouts_correct[1:]


def frozen_path(tree, row):
    steps = []
    while row:
        steps.append(tree.builder.text[row])
        row = tree.builder.parent[row]
    return steps[::-1]


# `omega` --------------------------------------------------------------------------------------------------------------

STEPS = 9


def given_with_error_at(error: int | None):
    steps = [f"step {i}{'x' if i == error else ''}" for i in range(STEPS - 1)]
    return make_given([*steps, RIGHT if error is None else WRONG])


def one_way() -> TextPolicy:
    """What follows a wrong step is wrong, all else is right."""
    return TextPolicy(lambda request, i: WRONG if "x" in request.prefix else RIGHT)


@pytest.mark.parametrize("error", range(STEPS))
def test_omega_finds_the_first_error_of_a_given_solution(error):
    tree, waves, ended = drive(policy=one_way(), strategy="omega", given=[given_with_error_at(error)])
    assert ended == ("done", "1 given solutions searched")
    asked = [request.prefix.count("\n") for wave in waves for request in wave]
    assert len(asked) <= 4
    assert 0 not in asked, "the root is not asked"
    values = estimate(tree.builder.freeze()).value
    if error > 0:
        assert values[error] == 1, "the last step before the error is known to be good"
    assert values[error + 1] == 0, "and the error to be one"


def test_omega_searches_a_shared_prefix_once_and_every_solution_whatever_simulations_says():
    given = [given_with_error_at(6), given_with_error_at(7), given_with_error_at(6)]
    _, waves, ended = drive(BudgetConfig(simulations=1), policy=one_way(), strategy="omega", given=given)
    prefixes = [request.prefix for wave in waves for request in wave]
    assert len(prefixes) == len(set(prefixes)) > 4
    assert ended == ("done", "2 given solutions searched")


def test_omega_leaves_right_solutions_unless_it_is_asked_to_search_them():
    given = [given_with_error_at(None)]
    _, waves, ended = drive(policy=one_way(), strategy="omega", given=given)
    assert (waves, ended) == ([], ("done", "0 given solutions searched, 1 left: not wrong"))
    tree, waves, _ = drive(policy=one_way(), strategy="omega", omega={"search_right": True}, given=given)
    assert 1 < sum(map(len, waves)) < STEPS
    values = estimate(tree.builder.freeze()).value
    assert set(values[~np.isnan(values)]) == {1.0}


def test_omega_searches_an_unfinished_solution_to_its_end():
    tree, waves, _ = drive(policy=one_way(), strategy="omega", given=[make_given(["a", "b", "c"])])
    assert [request.prefix for wave in waves for request in wave] == ["a\nb\n", "a\nb\nc\n"]
    assert tree.builder.finish == [0, 0, 0, 0]


def test_omega_goes_on_with_the_policys_own_errors_only_if_asked():
    world = World(depth=10, error_rate=0.1)
    given = written_by(World(depth=10, error_rate=0.4), 1)
    plain, waves, ended = drive(world=world, problem=1, strategy="omega", given=given)
    assert "given solutions searched" in ended[1]
    further, more, ended = drive(
        BudgetConfig(simulations=12), world=world, problem=1, strategy="omega", omega={"further": True}, given=given
    )
    asked, all_ = ([r.digest for wave in w for r in wave] for w in (waves, more))
    assert all_[: len(asked)] == asked
    assert ended == ("done", "12 simulations")
    assert len(all_) == len(asked) + 12
    assert further.builder.size > plain.builder.size
    assert further.samples == int(further.builder.freeze().rollouts.sum())


def test_omega_probes_ten_thousand_steps_in_a_few_requests():
    steps = [f"step {i}" for i in range(9_999)]
    tree, waves, _ = drive(policy=one_way(), strategy="omega", max_steps=10_000, given=[make_given([*steps, WRONG])])
    assert sum(map(len, waves)) <= 14
    assert tree.builder.freeze().depth.max() == 10_000


# `adaptive` -----------------------------------------------------------------------------------------------------------


def test_adaptive_asks_the_given_steps_only_and_less_where_completions_agree():
    world = World(error_rate=0.2, branching=8)
    given = written_by(world, 2)
    tree, waves, ended = drive(world=world, problem=2, strategy="adaptive", given=given)
    frozen = tree.builder.freeze()
    prefixes = {frozen.prefix(row) for row in range(1, frozen.size) if frozen.finish[row] == Finish.OPEN}
    assert {request.prefix for wave in waves for request in wave} <= prefixes
    assert ended[1].startswith("no further completion is worth its tokens")
    everything = (frozen.finish == Finish.OPEN) & (frozen.parent >= 0)
    assert not np.isnan(estimate(frozen, "smoothed").value[everything]).any()
    cheap, _, _ = drive(policy=right_after(""), strategy="adaptive", given=given)
    assert cheap.samples < tree.samples


def test_adaptive_prices_given_steps_by_their_characters():
    """Nobody counted their tokens. A first step is asked less where a long step is still to come."""
    policy = TextPolicy(lambda request, i: RIGHT if i % 2 else WRONG)
    asked = []
    for first, second in (("a" * 5000, "b"), ("a", "b" * 5000)):
        given = [make_given([first, second, "c", WRONG])]
        tree, _, _ = drive(BudgetConfig(rollouts=60), policy=policy, strategy="adaptive", given=given)
        asked.append(tree.builder.rollouts[1])
    assert asked[1] < asked[0]


@pytest.mark.parametrize("limit", [{"tokens": 300}, {"rollouts": 12}])
@pytest.mark.parametrize("strategy", ["step-rollouts", "adaptive"])
def test_a_budget_ends_it(strategy, limit):
    world = World(error_rate=0.2, branching=8)
    _, waves, ended = drive(BudgetConfig(**limit), world=world, strategy=strategy, given=written_by(world, 0))
    assert ended[0] == "exhausted"
    assert waves


def test_adaptive_says_that_a_solution_is_too_long_for_it():
    steps = [f"step {i}" for i in range(MAX_GIVEN_STEPS + 1)]
    _, waves, ended = drive(
        policy=right_after(""), strategy="adaptive", max_steps=10_000, given=[make_given([*steps, WRONG])]
    )
    assert (waves, ended[0]) == ([], "failed")
    assert "use step-rollouts or omega" in ended[1]


def test_the_half_that_adaptive_did_not_look_at_is_each_steps_own():
    world = World(error_rate=0.2, branching=8)
    tree, _, _ = drive(world=world, strategy="adaptive", adaptive={"split": True}, given=written_by(world, 0))
    frozen = tree.builder.freeze()
    unseen = held_out(frozen, tree.rollouts)
    np.testing.assert_array_equal(unseen.rollouts * 2, frozen.rollouts)
    values = estimate(unseen)
    asked = frozen.rollouts > 0
    np.testing.assert_array_equal(values.rollouts[asked], unseen.rollouts[asked])


# Settings -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", ["mcts", "beam", "best-of-n", "exhaustive"])
def test_strategies_that_sample_their_own_are_refused(strategy):
    with pytest.raises(ValueError, match="step-rollouts, omega, adaptive"):
        SearchConfig(strategy=strategy, given=True)


def test_screening_is_refused():
    with pytest.raises(ValueError, match="screen"):
        SearchConfig(strategy="omega", given=True, screen=4)
