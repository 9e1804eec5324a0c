"""Sums over the labels of grown trees against known values: one point of a curve. Used by label_efficiency*.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np

from treeforge.config import BudgetConfig, LabelConfig, Recipe, SearchConfig, StepsConfig
from treeforge.fitting import fit_prior
from treeforge.forest import Forest
from treeforge.given import GivenSolution
from treeforge.heldout import held_out
from treeforge.label.steps import label_nodes
from treeforge.posterior import Prior
from treeforge.problem import Problem
from treeforge.sample import Request, Sample
from treeforge.search.growing import GrowingTree, request_base
from treeforge.search.strategies import start
from treeforge.tree import Finish, Tree, TreeRecord
from treeforge.value import Values, estimate
from treeforge.verdict import Judge

CONFIDENCE = 0.9
DISTANCES = np.array([0.05, 0.1, 0.2, 0.3])
"""Bounds of the classes of |true value - threshold|, by which steps are hard or easy to label."""
MANY = 24
"""Outcomes at or below a step from which it counts as well known."""


class Known(Protocol):
    """A policy whose true values are known."""

    @property
    def identity(self) -> dict[str, Any]: ...

    def sample_now(self, request: Request) -> tuple[Sample, ...] | None: ...

    def true_value(self, problem: Problem, prefix: str) -> float: ...


class Source(NamedTuple):
    """What trees are grown with."""

    policy: Known
    steps: StepsConfig
    judge: Judge
    prompt_tokens: Callable[[str], int]
    """Tokens of a prefix, which a request reads where nothing is cached."""
    sees: float = 1.0
    """Share of the right answers that the judge takes for right."""


class Setting(NamedTuple):
    """A strategy with what it may spend."""

    name: str
    """The curve it is a point of."""
    spend: float
    search: SearchConfig
    simulations: int = 0


class Costs(NamedTuple):
    """Tokens of one tree."""

    sampled: int
    uncached: int
    """With the prefixes that were read, each as often as it was asked for."""


class Grown(NamedTuple):
    """A tree that was grown."""

    source: Source
    problem: Problem
    record: TreeRecord
    costs: Costs


def grow(problem: Problem, source: Source, setting: Setting, given: Sequence[GivenSolution] = ()) -> Grown:
    """Grow one tree as the scheduler would."""
    recipe = Recipe(steps=source.steps, search=setting.search, budget=BudgetConfig(simulations=setting.simulations))
    tree = GrowingTree(0, problem, recipe, source.judge, request_base(recipe, source.policy.identity), given)
    strategy = start(tree, recipe.search, recipe.budget)
    replies, read = None, 0
    while True:
        try:
            wave = strategy.send(replies)  # type: ignore[arg-type]
        except StopIteration as stop:
            record = TreeRecord(problem.problem_id, tree.builder.freeze(), tuple(tree.rollouts), *stop.value)
            return Grown(source, problem, record, Costs(tree.tokens, tree.tokens + read))
        read += sum(source.prompt_tokens(request.prefix) * request.n for request in wave)
        replies = [source.policy.sample_now(request) for request in wave]


def estimates(record: TreeRecord, setting: Setting, fitted: Prior) -> dict[str, Values]:
    """The values of a tree by every estimator that the study looks at; `fitted` is `smoothed` by that prior."""
    names: Sequence[Any] = ("policy_mean", "leaf_share", "smoothed")
    found = {name: estimate(record.tree, name, confidence=CONFIDENCE) for name in names}
    found["fitted"] = estimate(record.tree, "smoothed", confidence=CONFIDENCE, prior=fitted)
    if setting.search.adaptive.split and setting.search.strategy == "adaptive":
        found = {"held_out": estimate(held_out(record.tree, record.rollouts), confidence=CONFIDENCE)} | found
    return found


def measure(record: TreeRecord, values: Values, source: Source, problem: Problem) -> dict[str, Any]:
    """Sums over one tree's labels, against its true values."""
    tree = record.tree
    labels = label_nodes(tree, values, LabelConfig())
    labelled = np.flatnonzero((labels.hard >= 0) & (tree.finish == Finish.OPEN))
    truth = np.full(tree.size, np.nan)
    truth[labelled] = [source.policy.true_value(problem, tree.prefix(row)) for row in labelled.tolist()]
    seen = truth * source.sees
    at = labelled
    error = values.value[at] - seen[at]
    wrong = labels.hard[at] != (truth[at] > 0.5)
    distance = np.digitize(np.abs(truth[at] - 0.5), DISTANCES)
    firsts, right = first_errors(tree, labels.hard, truth)
    return {
        "labels": len(at),
        "wrong": float(wrong.sum()),
        "by_distance": np.bincount(distance, minlength=len(DISTANCES) + 1),
        "wrong_by_distance": np.bincount(distance, wrong, len(DISTANCES) + 1),
        "absolute": float(np.abs(error).sum()),
        "error": float(error.sum()),
        "covered": float(np.sum((values.low[at] <= seen[at]) & (seen[at] <= values.high[at]))),
        "width": float(np.sum(values.high[at] - values.low[at])),
        "many": float(np.sum(values.rollouts[at] >= MANY)),
        "many_error": float(error[values.rollouts[at] >= MANY].sum()),
        "firsts": firsts,
        "first_right": right,
    }


def first_errors(tree: Tree, hard: Any, truth: Any) -> tuple[int, int]:
    """(solutions all of whose steps have a label, those of them whose first wrong step is the true one)."""
    known = right = 0
    for leaf in np.flatnonzero(tree.finish == Finish.ANSWERED).tolist():
        path = tree.path(leaf)[:-1]
        if path and all(hard[row] >= 0 for row in path):
            said = next((i for i, row in enumerate(path) if hard[row] == 0), len(path))
            true = next((i for i, row in enumerate(path) if truth[row] <= 0.5), len(path))
            known, right = known + 1, right + (said == true)
    return known, right


class Point(NamedTuple):
    """One setting in one world by one estimator: sums over problems, a row a problem."""

    world: str
    strategy: str
    spend: float
    estimator: str
    sampled: Any
    uncached: Any
    sums: dict[str, Any]

    @property
    def labels(self) -> float:
        return float(self.sums["labels"].sum())

    def per_label(self, name: str) -> float:
        """Mean over labels of a measure."""
        over = self.sums["firsts"] if name == "first_right" else self.sums["labels"]
        return float(self.sums[name].sum() / max(over.sum(), 1))

    def wrong_on(self, steps: Point) -> float:
        """Share of wrong labels on steps that are as hard to label as those of `steps`.

        A class of which this point has no label counts with the class next to it.
        """
        own, wrong = self.sums["by_distance"].sum(axis=0), self.sums["wrong_by_distance"].sum(axis=0)
        classes = np.flatnonzero(own)
        weights = np.zeros(len(own))
        for number, weight in enumerate(steps.sums["by_distance"].sum(axis=0)):
            weights[classes[np.argmin(np.abs(classes - number))]] += weight
        return float((weights[classes] * wrong[classes] / own[classes]).sum() / weights.sum())

    @property
    def price(self) -> float:
        """Tokens a label."""
        return float(self.sampled.sum() / max(self.labels, 1))

    @property
    def uncached_price(self) -> float:
        """Tokens a label with those of the prefixes, each read as often as it was asked from."""
        return float(self.uncached.sum() / max(self.labels, 1))

    @property
    def bias(self) -> tuple[float, float]:
        """Mean error and its standard error; the labels of one problem are one draw."""
        error, labels = self.sums["error"], self.sums["labels"]
        mean = error.sum() / labels.sum()
        return float(mean), float(np.sqrt(((error - mean * labels) ** 2).sum()) / labels.sum())


def points_of(world: str, setting: Setting, trees: Sequence[Grown]) -> list[Point]:
    """The points of one setting in one world, an estimator each. Trees of one problem are one draw.

    The fitted prior is that of all these trees, as if they were one run's.
    """
    fitted = fit_prior(Forest.of([tree.record.tree]) for tree in trees)
    problems = list(dict.fromkeys(tree.problem.problem_id for tree in trees))
    at = [problems.index(tree.problem.problem_id) for tree in trees]
    costs = np.zeros((len(problems), 2))
    np.add.at(costs, at, [tree.costs for tree in trees])
    sums: dict[str, dict[str, Any]] = {}
    for place, tree in zip(at, trees, strict=True):
        for estimator, values in estimates(tree.record, setting, fitted).items():
            found = sums.setdefault(estimator, {})
            for name, value in measure(tree.record, values, tree.source, tree.problem).items():
                total = found.setdefault(name, np.zeros((len(problems), *np.shape(value))))
                total[place] += value
    return [
        Point(world, setting.name, setting.spend, estimator, costs[:, 0], costs[:, 1], found)
        for estimator, found in sums.items()
    ]
