"""`beam`: beam search over steps, with any scorer. A baseline."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.errors import ScorerError
from treeforge.problem import Problem
from treeforge.sample import Sample
from treeforge.search.base import Strategy, spent_budget
from treeforge.search.growing import GrowingTree
from treeforge.search.selection import share_priors


class Scorer(Protocol):
    """How good a partial solution is, higher is better: a reward model, or any function."""

    def __call__(self, problem: Problem, steps: Sequence[str], /) -> float:
        """The score of `steps` as the first steps of a solution. The same for the same arguments, else a run that is
        resumed would go another way. NaN counts as worst. Called in a thread of its own, one call at a time."""
        ...


class BatchScorer(Scorer, Protocol):
    """A scorer that is better asked for many at once: `beam` asks it for all candidates of a depth."""

    def score_many(self, problem: Problem, candidates: Sequence[Sequence[str]], /) -> Sequence[float]:
        """The score of each, as one by one."""
        ...


def beam(
    tree: GrowingTree,
    config: SearchConfig,
    budget: BudgetConfig,
    screening: Sequence[Sample] = (),
    *,
    scorer: Scorer | None = None,
) -> Strategy:
    """Beam search: at every depth each kept solution is continued by `children` single steps, and the best
    `beam.width` of all candidates, ended ones among them, are kept; the first found where scores are equal.

    The score is `scorer`'s or, without one, that of `beam.scorer`. A wave is a depth (two with `rollouts`);
    `simulations` does not limit it. The screening's solutions are own rollouts of the root.
    """
    builder = tree.builder
    tree.absorb(0, screening, as_rollouts=True)
    kept, scores = [0], {0: 0.0}
    while growing := [row for row in kept if builder.finish[row] == 0 and builder.depth[row] < config.max_depth]:
        if tree.samples and (reason := spent_budget(tree, budget)):
            return "exhausted", reason
        replies = yield [tree.request(row, "step", config.children, 0) for row in growing]
        new: list[int] = []
        for row, samples in zip(growing, replies, strict=True):
            new += tree.absorb(row, samples)[2]
            share_priors(builder, row)
        if scorer is not None:
            scores |= zip(new, _scored(scorer, tree.problem, [_steps(tree, row) for row in new]), strict=True)
        elif config.beam.scorer == "logprob":
            scores |= {row: _mean_logprob(tree, row) for row in new}
        else:
            unknown = [row for row in new if builder.finish[row] == 0 and builder.depth[row] < config.max_steps]
            if unknown and (reason := spent_budget(tree, budget)):
                return "exhausted", reason
            if unknown:
                replies = yield [tree.request(row, "rollout", config.beam.rollouts, 0) for row in unknown]
                for row, samples in zip(unknown, replies, strict=True):
                    judged, correct, _ = tree.absorb(row, samples, as_rollouts=True)
                    scores[row] = correct / judged if judged else -math.inf
            scores |= {row: float(builder.value_sum[row] > 0) for row in new if row not in scores}
        candidates = [row for row in kept if row not in growing] + new
        kept = sorted(candidates, key=lambda row: -scores[row])[: config.beam.width]
    ended = sum(builder.finish[row] != 0 for row in kept)
    return "done", f"{ended} of {len(kept)} beams ended at depth {max((builder.depth[row] for row in kept), default=0)}"


def _steps(tree: GrowingTree, node: int) -> list[str]:
    builder = tree.builder
    steps: list[str] = []
    while node > 0:
        steps.append(builder.text[node])
        node = builder.parent[node]
    return steps[::-1]


def _mean_logprob(tree: GrowingTree, node: int) -> float:
    builder = tree.builder
    logprob, tokens = 0.0, 0
    while node > 0:
        logprob += builder.logprob[node]
        tokens += builder.token_count[node]
        node = builder.parent[node]
    return _number(logprob / max(tokens, 1))


def _scored(scorer: Scorer | BatchScorer, problem: Problem, candidates: list[list[str]]) -> list[float]:
    """What the caller's own code says, which may be anything."""
    try:
        many = getattr(scorer, "score_many", None)
        found = [scorer(problem, steps) for steps in candidates] if many is None else many(problem, candidates)
        if len(found) != len(candidates):
            raise ValueError(f"score_many gave {len(found)} scores for {len(candidates)} candidates")
        return [_number(float(score)) for score in found]
    except Exception as error:
        name = getattr(scorer, "__qualname__", type(scorer).__qualname__)
        what = f"the scorer {name} failed on problem {problem.problem_id}: {type(error).__name__}: {error}"
        raise ScorerError(f"{what}. Mend it and resume") from error


def _number(score: float) -> float:
    """A score that sorts: NaN is the worst."""
    return -math.inf if math.isnan(score) else float(score)
