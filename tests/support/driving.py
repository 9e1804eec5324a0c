"""Grow one tree by hand: no scheduler, no clock, and every wave at hand afterwards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from support.runs import EqualStringJudge, problems

from treeforge.config import BudgetConfig, Recipe, SearchConfig, StepsConfig
from treeforge.configuration import convert
from treeforge.given import GivenSolution
from treeforge.policy import SCRIPTED_STEPS, ScriptedPolicy, World
from treeforge.sample import Request, Sample
from treeforge.search.growing import GrowingTree, request_base
from treeforge.search.strategies import start


class TextPolicy:
    """Writes what a function of (request, number of the sample) says; '…' at the end stands for a token limit."""

    def __init__(self, write: Callable[[Request, int], str]) -> None:
        self.write = write
        self.identity: dict[str, Any] = {"backend": "text"}

    def sample_now(self, request: Request) -> tuple[Sample, ...]:
        return tuple(self._sample(request, self.write(request, i)) for i in range(request.n))

    def _sample(self, request: Request, text: str) -> Sample:
        if text.endswith("…"):
            return Sample(text[:-1], "length", len(text))
        if request.mode == "step" and "\n" in text:
            return Sample(text.partition("\n")[0], "delimiter", len(text))
        return Sample(text, "stop", len(text))


def drive(
    budget: BudgetConfig | None = None,
    world: World | None = None,
    problem: int = 0,
    policy: Any = None,
    judge: Any = None,
    scorer: Any = None,
    given: Sequence[GivenSolution] = (),
    steps: StepsConfig = SCRIPTED_STEPS,
    **search: Any,
) -> tuple[GrowingTree, list[list[Request]], tuple[str, str]]:
    """Grow one tree, from `given` solutions where there are some; returns (growing tree, waves, (status, reason))."""
    settings = convert(search | ({"given": True} if given else {}), SearchConfig)
    recipe = Recipe(steps=steps, search=settings, budget=budget or BudgetConfig())
    policy = policy or ScriptedPolicy(world or World())
    tree = GrowingTree(
        0,
        problems(problem + 1)[problem],
        recipe,
        judge or EqualStringJudge(),
        request_base(recipe, policy.identity),
        given,
    )
    strategy = start(tree, recipe.search, recipe.budget, scorer)
    waves: list[list[Request]] = []
    replies: Any = None
    while True:
        try:
            wave = strategy.send(replies)
        except StopIteration as stop:
            return tree, waves, stop.value
        waves.append(wave)
        replies = [policy.sample_now(request) for request in wave]
