"""`adaptive`: completions where they decide most, by the posterior over all steps of a problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.evidence import Evidence, Floats, outcomes
from treeforge.posterior import (
    GRID,
    Branch,
    Posterior,
    above,
    branches,
    completions_from,
    expected_gain,
    infer,
    levels,
)
from treeforge.sample import Sample
from treeforge.search.base import Strategy, Wave, spent_budget
from treeforge.search.growing import GrowingTree
from treeforge.search.solutions import sample_solutions
from treeforge.tree import Finish, Rollout, Tree
from treeforge.verdict import NO_VERDICT, Verdict

MAX_GIVEN_STEPS = 1000
"""Given steps below one first step, at most: each completion is weighed for each label, in memory for all pairs."""
_LEAST_PRICE = 0.05
"""Of a completion, as a share of a whole solution's tokens: the prompt and the request have a price too."""


def adaptive(
    tree: GrowingTree, config: SearchConfig, budget: BudgetConfig, screening: Sequence[Sample] = ()
) -> Strategy:
    """`solutions` solutions as `step-rollouts` has them, then completions of the steps that promise most a token.

    A request asks `children` completions of one step. Its worth is what the posterior of `treeforge.posterior` expects
    them to take away from the uncertainty of *all* labels of the solution; its price is the tokens that the solution
    took from there, as a share of the whole. The best `wave` requests are asked together, each chosen as if those
    before it had come out as expected. The tree is done where no request is worth `adaptive.min_gain`, the same for
    every problem: so tokens go to the problems and steps where they decide most, without any tree knowing of another.
    `simulations` does not limit it. With `given` the solutions are the given ones.
    """
    settings = config.adaptive
    if reason := (yield from sample_solutions(tree, config, budget, screening)):
        return "exhausted", reason
    evidence = _Evidence(tree.builder.freeze(), config)
    if not len(evidence.steps):
        return "done", "no solution has a step to ask about"
    if config.given and evidence.largest > MAX_GIVEN_STEPS:
        return "failed", (
            f"{evidence.largest} given steps begin alike; adaptive weighs all of them against each other, "
            f"{MAX_GIVEN_STEPS} at most: use step-rollouts or omega"
        )
    while True:
        if reason := spent_budget(tree, budget):
            return "exhausted", reason
        nodes = evidence.choose()
        if not nodes:
            return "done", f"no further completion is worth its tokens after {tree.samples} samples"
        wave: Wave = []
        for node in nodes:
            wave.append(tree.request(node, "rollout", config.children, evidence.asked[node]))
            evidence.asked[node] += 1
        replies = yield wave
        for node, samples in zip(nodes, replies, strict=True):
            before = len(tree.rollouts)
            tree.absorb(node, samples, as_rollouts=True)
            evidence.learn(node, tree.rollouts[before :: 2 if settings.split else 1])


class _Evidence:
    """What the search has seen of a tree whose steps stand, and what it would ask next."""

    def __init__(self, tree: Tree, config: SearchConfig) -> None:
        settings = config.adaptive
        evidence = Evidence.of(tree)
        self.steps = np.flatnonzero((tree.parent >= 0) & (tree.finish == Finish.OPEN) & (tree.depth < config.max_steps))
        """The rows that are labelled, and may be asked."""
        self.asked = dict.fromkeys(self.steps.tolist(), 0)
        """Requests of each so far."""
        self._config = config
        self._draws, self._right = completions_from(
            evidence, outcomes(evidence, truncated="wrong", undecided="left out")
        )
        self._statistic = above(settings.threshold) if settings.target == "hard" else GRID
        self._seen = config.children // 2 if settings.split else config.children
        self._price = np.full(tree.size, np.inf)
        tokens = np.array([len(text) for text in tree.text]) if config.given else tree.token_count
        self._price[self.steps] = _shares_left(tree, tokens)[self.steps] * config.children
        self._levels = levels(tree.parent, tree.depth)
        self._branches = branches(tree.parent, tree.depth)
        self.largest = max((len(branch.rows) for branch in self._branches), default=0)
        """Steps of the largest branch."""
        self._branch_of = {row: branch for branch in self._branches for row in branch.rows.tolist()}

    def choose(self) -> list[int]:
        """The steps to ask next, the best first; none where none is worth it."""
        draws, right = self._draws.copy(), self._right.copy()
        posterior = infer(self._levels, draws, right)
        gain = np.zeros(len(draws), dtype=np.float32)
        for branch in self._branches:
            self._update(gain, posterior, branch)
        nodes: list[int] = []
        while len(nodes) < self._config.wave:
            best = int(np.argmax(gain))
            if gain[best] <= 0 or gain[best] < self._config.adaptive.min_gain:
                break
            nodes.append(best)
            draws[best] += self._seen
            right[best] += self._seen * posterior.mean()[best]
            posterior = infer(self._levels, draws, right)
            self._update(gain, posterior, self._branch_of[best])
        return nodes

    def _update(self, gain: NDArray[np.float32], posterior: Posterior, branch: Branch) -> None:
        """Set the gain that a solution's tokens buy at a branch's steps; what they tell of other branches is left out.

        In single precision, so that the last bits of a machine's arithmetic choose no step.
        """
        targets = np.flatnonzero(np.isin(branch.rows, self.steps))
        found = expected_gain(posterior.at(branch), targets, self._statistic, self._seen)
        gain[branch.rows] = found / self._price[branch.rows]

    def learn(self, node: int, rollouts: Sequence[Rollout]) -> None:
        """Take in what came of a request of `node`."""
        judged = [r.verdict for r in rollouts if r.verdict not in (NO_VERDICT, Verdict.UNDECIDED)]
        self._draws[node] += len(judged)
        self._right[node] += judged.count(Verdict.CORRECT)
        if not judged:
            self._price[node] = np.inf  # the same would come of it again


def _shares_left(tree: Tree, tokens: NDArray[np.integer[Any]]) -> Floats:
    """float64[n]: tokens from each node to the ends below it, on average, as a share of a whole solution's.

    `tokens`: integer[n], of each step; of given solutions nobody counted them, and characters stand for them.
    """
    tokens = np.maximum(tokens, 1).astype(np.float64)  # a policy may not count them
    tokens[0] = 0.0
    samples = np.where(tree.is_leaf, np.maximum(tree.multiplicity, 1.0), 0.0)
    left = np.zeros(tree.size)
    for row in range(tree.size - 1, 0, -1):  # children stand after their parents
        above_it = tree.parent[row]
        left[above_it] += left[row] + samples[row] * tokens[row]
        samples[above_it] += samples[row]
    left /= np.maximum(samples, 1.0)
    shares: Floats = np.maximum(left / max(left[0], 1.0), _LEAST_PRICE)
    return shares
