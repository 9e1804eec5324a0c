"""Every strategy against policies that misbehave: a recorded status each, with its reason, and no endless run."""

from __future__ import annotations

import asyncio
import time

import pytest
from support.driving import TextPolicy, drive
from support.runs import EqualStringJudge, NoLog, problems

from treeforge.config import BudgetConfig, Machine, Recipe, SearchConfig
from treeforge.errors import ConfigError, RequestFailedError
from treeforge.policy import SCRIPTED_STEPS
from treeforge.sample import Sample
from treeforge.search.scheduler import Forest
from treeforge.search.strategies import STRATEGIES

ONE_TEXT = "a\nb\nc\nThe answer is 0."
POLICIES = {
    "always one text": lambda request, i: ONE_TEXT[len(request.prefix) :],
    "never answers": lambda request, i: f"{i}\nstill thinking\n",
    "writes nothing": lambda request, i: "",
    "answers at once": lambda request, i: f"The answer is {i}.",
    "all right": lambda request, i: f"step {i}\nThe answer is 0.",
    "all wrong": lambda request, i: f"step {i}\nThe answer is 1.",
    "loops": lambda request, i: "round and round\n" * 200,
    "never stops": lambda request, i: "on and on " * 50 + "…",
    "long steps": lambda request, i: "x" * 50_000 + f"{i}\n" + ONE_TEXT,
    "blank lines": lambda request, i: "\n\n\n",
}


@pytest.mark.parametrize("screen", [0, 3])
@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_ends_with_a_status(strategy, name, screen):
    budget = BudgetConfig(simulations=12)
    tree, waves, (status, reason) = drive(
        budget, policy=TextPolicy(POLICIES[name]), strategy=strategy, screen=screen, max_steps=20, levels=3
    )
    assert status == "done"
    assert reason
    assert 1 <= sum(map(len, waves)) < 400
    tree.builder.freeze()
    assert max(tree.builder.depth) <= 20
    if screen and name not in ("answers at once",):
        right = 3 if name in ("always one text", "all right") else 0
        assert reason == f"screened out: {right} of 3 right"


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("budget", [{"nodes": 1}, {"rollouts": 1}, {"tokens": 1}, {"simulations": 1}])
def test_the_smallest_budgets_end_at_the_first_boundary(strategy, budget):
    _, waves, (status, reason) = drive(BudgetConfig(**{"simulations": 100} | budget), strategy=strategy, wave=1)
    assert len(waves) <= (400 if "simulations" in budget else 2)
    if status != "done":
        assert (status, reason) == ("exhausted", f"budget: 1 {next(iter(budget))}")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("screen", [0, 4])
def test_a_policy_that_only_fails_is_a_failed_problem(strategy, screen):
    class Failing:
        def __init__(self):
            self.identity = {"backend": "failing"}

        async def sample(self, request):
            raise RequestFailedError("HTTP 400: no", retryable=False)

    records = {}
    recipe = Recipe(steps=SCRIPTED_STEPS, search=SearchConfig(strategy=strategy, screen=screen))
    forest = Forest(
        recipe, Machine(), Failing(), EqualStringJudge(), NoLog(), records.__setitem__, clock=time.monotonic
    )
    asyncio.run(forest.grow(iter(enumerate(problems(2)))))
    for number in (0, 1):
        assert (records[number].status, records[number].reason) == ("failed", "every request failed: HTTP 400: no")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_requests_that_fail_now_and_then_count_nowhere(strategy):
    class Flaky(TextPolicy):
        def sample_now(self, request):
            if request.seed % 3 == 0:
                return (Sample("HTTP 500", "error"),) * request.n
            return super().sample_now(request)

    def write(request, i):
        return f"{i % 3}\nThe answer is {i % 2}."

    for problem in range(4):
        tree, _, (status, _) = drive(
            BudgetConfig(simulations=20), policy=Flaky(write), problem=problem, strategy=strategy, children=6, wave=2
        )
        assert status == "done"
        frozen = tree.builder.freeze()
        errors = sum(rollout.finish == 4 for rollout in tree.rollouts)
        assert errors == len(tree.errors)
        assert frozen.visits[0] <= tree.samples - errors


@pytest.mark.parametrize(
    "search",
    [
        {"beam": {"width": 0}}, {"omega": {"alpha": 0}}, {"omega": {"beta": 1.5}},
        {"omega": {"length": 0}}, {"widening": -1}, {"widening_power": 1.0}, {"widening_power": 0.0},
        {"prior_temperature": 0}, {"screen": -1}, {"solutions": -3}, {"strategy": "greedy"},
    ],
)  # fmt: skip
def test_impossible_options_are_refused(search):
    with pytest.raises(ConfigError, match=next(iter(search))):
        drive(**search)
