"""`adaptive`, driven by hand in worlds whose true values are known."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections import Counter
from dataclasses import fields
from pathlib import Path

import msgspec
import numpy as np
import pytest
from support.runs import EqualStringJudge, problems, scripted_config, table_bytes

import treeforge as tf
from treeforge.config import AdaptiveConfig, BudgetConfig, LabelConfig, Machine, Recipe, SearchConfig
from treeforge.errors import ConfigError, RunError
from treeforge.heldout import held_out
from treeforge.policy import SCRIPTED_STEPS, ScriptedPolicy, World
from treeforge.sample import Sample
from treeforge.search.growing import GrowingTree, request_base
from treeforge.search.strategies import start
from treeforge.store.run import RunFolder
from treeforge.store.tables import VALUES, values_from_table
from treeforge.store.views import read_view
from treeforge.tree import Finish, TreeRecord
from treeforge.value import estimate

UNLIKE = World(branching=64, duplicate_rate=0.05)


def drive(world=UNLIKE, problem=0, budget=None, answer=None, adaptive=None, **search):
    """Grow one tree; returns (record, waves)."""
    config = SearchConfig(strategy="adaptive", adaptive=AdaptiveConfig(**(adaptive or {})), **search)
    recipe = Recipe(steps=SCRIPTED_STEPS, search=config, budget=budget or BudgetConfig())
    policy = ScriptedPolicy(world)
    question = problems(problem + 1)[problem]
    tree = GrowingTree(0, question, recipe, EqualStringJudge(), request_base(recipe, policy.identity))
    strategy = start(tree, recipe.search, recipe.budget)
    waves, replies = [], None
    while True:
        try:
            wave = strategy.send(replies)
        except StopIteration as stop:
            return TreeRecord(question.problem_id, tree.builder.freeze(), tuple(tree.rollouts), *stop.value), waves
        waves.append(wave)
        replies = [answer(request) if answer else policy.sample_now(request) for request in wave]


def wrong_labels(record, world, problem, estimator="smoothed"):
    """(wrong hard labels, labels) of the steps that do not end a trajectory."""
    policy, question, tree = ScriptedPolicy(world), problems(problem + 1)[problem], record.tree
    value = estimate(tree, estimator).value
    rows = [row for row in range(1, tree.size) if tree.finish[row] == Finish.OPEN]
    truth = [policy.true_value(question, tree.prefix(row)) for row in rows]
    return sum((value[row] > 0.5) != (true > 0.5) for row, true in zip(rows, truth, strict=True)), len(rows)


def test_it_samples_solutions_and_then_asks_their_steps_in_waves():
    record, waves = drive(wave=3)
    assert sum(request.n for wave in waves[:1] for request in wave) == 4
    assert all(request.prefix == "" for request in waves[0])
    tree = record.tree
    prefixes = {tree.prefix(row) for row in range(1, tree.size) if tree.finish[row] == Finish.OPEN}
    for wave in waves[1:]:
        assert 1 <= len(wave) <= 3
        assert all(request.prefix in prefixes and request.n == 4 for request in wave)
    assert len({request.digest for wave in waves for request in wave}) == sum(map(len, waves))
    assert record.status == "done"
    assert int(tree.rollouts.sum()) == len(record.rollouts) == sum(r.n for wave in waves[1:] for r in wave)


def test_the_same_samples_give_the_same_requests():
    first, second = (drive(problem=3) for _ in range(2))
    assert [[r.digest for r in wave] for wave in first[1]] == [[r.digest for r in wave] for wave in second[1]]
    for spec in fields(first[0].tree):
        assert np.array_equal(getattr(first[0].tree, spec.name), getattr(second[0].tree, spec.name))


def test_completions_go_where_the_label_is_open():
    """Steps at which all completions agree are left alone, those at which they differ are asked again."""

    def answer(request):
        depth = request.prefix.count("\n")
        rest = "".join(f"Step {d}: we get {d}.\n" for d in range(depth + 1, 5))
        ends = ["The answer is 0.", "The answer is -1."] if depth == 4 else ["The answer is 0."] * 2
        return tuple(Sample(rest + ends[i % 2], "stop", 10) for i in range(request.n))

    # The judge says that the answer 0 is right: all are, but one of any two after the fourth step.
    _, waves = drive(answer=answer, problem=0, solutions=1)
    asked = Counter(request.prefix.count("\n") for wave in waves[1:] for request in wave)
    assert asked[4] > 2 * max(asked[1], asked[2], asked[3])


@pytest.mark.slow
def test_a_smaller_gain_buys_truer_labels_with_more_tokens():
    tokens, wrong = [], []
    for gain in (0.2, 0.02, 0.003):
        errors = spent = 0
        for problem in range(12):
            record, _ = drive(problem=problem, adaptive={"min_gain": gain})
            errors += wrong_labels(record, UNLIKE, problem)[0]
            spent += sum(rollout.tokens for rollout in record.rollouts)
        tokens.append(spent)
        wrong.append(errors)
    assert tokens[0] < tokens[1] < tokens[2]
    assert wrong[0] > wrong[1] > wrong[2]


def test_easy_problems_get_fewer_completions_than_hard_ones():
    easy, hard = (
        sum(len(drive(world, problem)[0].rollouts) for problem in range(6))
        for world in (
            World(error_rate=0.01, branching=64, duplicate_rate=0.05),
            World(error_rate=0.15, recovery_rate=0.2, branching=64, duplicate_rate=0.05),
        )
    )
    assert 3 * easy < hard


@pytest.mark.parametrize("limit", [{"tokens": 1000}, {"rollouts": 40}])
def test_a_budget_ends_it(limit):
    record, waves = drive(budget=BudgetConfig(**limit), adaptive={"min_gain": 0.0})
    assert record.status == "exhausted"
    assert record.reason.startswith("budget: ")
    asked = sum(request.n for wave in waves for request in wave)
    if "rollouts" in limit:
        assert 40 <= asked < 40 + 4 * 4


def test_the_soft_target_narrows_the_widest():
    """It asks steps of a high value too, with which the hard target is done early."""
    world = World(error_rate=0.05, branching=64, duplicate_rate=0.05)
    budget = BudgetConfig(tokens=4000)
    width = {}
    for target in ("hard", "soft"):
        total = 0.0
        for problem in range(6):
            record, _ = drive(world, problem, budget, adaptive={"min_gain": 0.0, "target": target})
            values = estimate(record.tree, "smoothed")
            total += float(np.nansum(values.stderr**2))
        width[target] = total
    assert width["soft"] < width["hard"]


def test_engine_errors_count_nowhere_and_end_nothing():
    policy = ScriptedPolicy(UNLIKE)

    def answer(request):
        samples = policy.sample_now(request)
        return (Sample("down", "error"), *samples[1:])

    record, _ = drive(answer=answer)
    assert record.status == "done"
    tree = record.tree
    assert int(tree.rollouts.sum()) == sum(rollout.verdict >= 0 for rollout in record.rollouts)


def test_where_every_request_fails_it_ends():
    record, waves = drive(answer=lambda request: (Sample("down", "error"),) * request.n)
    assert record.status == "done"
    assert record.reason == "no solution has a step to ask about"
    assert len(waves) == 1


def test_answers_at_once_leave_nothing_to_ask():
    record, waves = drive(answer=lambda request: (Sample("The answer is 0.", "stop", 5),) * request.n)
    assert record.status == "done"
    assert len(waves) == 1


def test_a_policy_that_always_fails_at_a_step_is_not_asked_for_ever():
    policy = ScriptedPolicy(UNLIKE)

    def answer(request):
        return policy.sample_now(request) if not request.prefix else (Sample("down", "error"),) * request.n

    record, waves = drive(answer=answer)
    assert record.status == "done"
    asked = Counter(request.prefix for wave in waves[1:] for request in wave)
    assert max(asked.values()) <= 4  # as often as one wave holds


def test_settings_that_cannot_be_are_refused():
    with pytest.raises(msgspec.ValidationError, match="threshold"):
        msgspec.convert({"threshold": 1.5}, AdaptiveConfig)
    with pytest.raises(ValueError, match="min_gain"):
        AdaptiveConfig(min_gain=-1)
    with pytest.raises(ValueError, match="children must be even"):
        SearchConfig(strategy="adaptive", children=3, adaptive=AdaptiveConfig(split=True))


def test_with_split_the_search_looks_at_the_first_half_only():
    """The held out completions may say what they will: the requests stay the same."""
    policy = ScriptedPolicy(UNLIKE)

    def turned(request):
        samples = list(policy.sample_now(request))
        if request.prefix:
            samples[1::2] = [msgspec.structs.replace(s, text="The answer is nothing.") for s in samples[1::2]]
        return tuple(samples)

    plain, changed = (drive(answer=a, adaptive={"split": True}) for a in (policy.sample_now, turned))
    assert [[r.digest for r in wave] for wave in plain[1]] == [[r.digest for r in wave] for wave in changed[1]]
    tree = held_out(changed[0].tree, changed[0].rollouts)
    assert int(tree.rollouts_correct.sum()) == 0
    assert int(tree.rollouts.sum()) * 2 == len(changed[0].rollouts)
    values = estimate(tree)
    asked = tree.rollouts > 0
    assert (values.value[asked] == 0).all()
    assert np.isnan(values.value[~asked & (tree.finish == Finish.OPEN)]).all()


@pytest.mark.slow
def test_held_out_values_are_unbiased_and_the_others_are_not_that_far_off():
    world = World(error_rate=0.25, branching=64, duplicate_rate=0.05)
    policy = ScriptedPolicy(world)
    errors = []
    for problem in range(150):
        record, _ = drive(world, problem, adaptive={"split": True, "min_gain": 0.03})
        tree, question = record.tree, problems(problem + 1)[problem]
        value = estimate(held_out(record.tree, record.rollouts)).value
        rows = np.flatnonzero((tree.finish == Finish.OPEN) & (tree.parent >= 0) & ~np.isnan(value)).tolist()
        errors.append((len(rows), sum(value[row] - policy.true_value(question, tree.prefix(row)) for row in rows)))
    labels, error = np.array(errors).T
    mean = error.sum() / labels.sum()
    stderr = math.sqrt(((error - mean * labels) ** 2).sum()) / labels.sum()
    assert abs(mean) < 3 * stderr
    assert stderr < 0.01


@pytest.fixture(scope="module")
def split_run(tmp_path_factory):
    run = tmp_path_factory.mktemp("adaptive") / "run"
    config = scripted_config(
        world={"branching": 64}, strategy="adaptive", adaptive=AdaptiveConfig(split=True, min_gain=0.05)
    )
    tf.run(problems(3), run, config)
    return run


@pytest.mark.parametrize("estimator", ["smoothed", "held_out", "policy_mean"])
def test_a_run_is_labelled_by_any_estimator(split_run, estimator):
    counts = tf.pipeline.label(split_run, LabelConfig(estimator=estimator))
    assert counts["positive"] + counts["negative"] > 20
    [(_, values, _, _), *_] = values_from_table(read_view(RunFolder.open(split_run), "labels", "values", VALUES, 0))
    assert values.estimator == estimator
    tf.pipeline.export(split_run)
    if estimator != "policy_mean":
        with pytest.raises(ConfigError, match="not defined on compressed trees"):
            tf.pipeline.compress(split_run)


def test_held_out_is_for_runs_that_held_something_out(tmp_path):
    tf.run(problems(1), tmp_path / "run", scripted_config())
    with pytest.raises(RunError, match="did not look at"):
        tf.pipeline.label(tmp_path / "run", LabelConfig(estimator="held_out"))


@pytest.mark.slow
def test_concurrency_and_replay_leave_no_trace(tmp_path):
    for name, concurrency in (("one", 1), ("many", 64)):
        machine = Machine(concurrency=concurrency)
        world = {"branching": 64, "latency": 0.001, "latency_sigma": 1.0, "failure_rate": 0.1}
        config = scripted_config(
            world=world, machine=machine, strategy="adaptive", adaptive=AdaptiveConfig(min_gain=0.1)
        )
        tf.run(problems(4), tmp_path / name, config)
    assert table_bytes(tmp_path / "one") == table_bytes(tmp_path / "many")


def test_no_gain_is_too_small_only_within_a_budget():
    search = SearchConfig(strategy="adaptive", adaptive=AdaptiveConfig(min_gain=0))
    with pytest.raises(ValueError, match="needs a budget"):
        Recipe(search=search)
    Recipe(search=search, budget=BudgetConfig(tokens=1000))


@pytest.mark.slow
def test_the_study_of_label_efficiency_runs(tmp_path):
    script = Path(__file__).parents[2] / "benchmarks" / "label_efficiency.py"
    command = [sys.executable, str(script), "--quick", "--problems", "3", "--json", str(tmp_path / "points.json")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "Tokens a label at the same share of wrong hard labels" in done.stdout
    points = json.loads((tmp_path / "points.json").read_bytes())
    assert len({point["world"] for point in points}) == 6
    strategies = {"adaptive", "adaptive, soft", "adaptive, split", "mcts", "omega", "step-rollouts"}
    assert {point["strategy"] for point in points} == strategies
    assert all(0 <= point["wrong"] <= 1 and point["tokens_per_label"] > 0 for point in points)
