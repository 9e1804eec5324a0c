"""What a run will cost, from a pilot: a few of its problems, grown in earnest, and extrapolated with an interval."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.hashing import digest, encode_text
from treeforge.problem import Problem
from treeforge.store.journal import TreeCost

LEAST_PROBLEMS = 8
"""A pilot has so many problems at least, where there are as many."""
_RESAMPLES = 2_000


class Range(msgspec.Struct, frozen=True):
    """An estimate with its interval."""

    value: float
    low: float
    high: float


class Estimate(msgspec.Struct, frozen=True):
    """What the whole run would come to, the pilot included."""

    problems: int
    pilot_problems: int
    confidence: float
    """Level of all intervals, which are percentile bootstraps over the pilot's problems (Efron 1979)."""
    requests: Range
    completions: Range
    tokens: Range
    """Sampled tokens; prompts are not counted."""
    seconds: Range | None
    """At the pilot's speed in tokens a second, which had fewer trees to keep the model busy; None without tokens."""
    cost: Range | None
    """Price times tokens, where a price was given."""


def choose(problems: Sequence[Problem], share: float, seed: int) -> list[int]:
    """The numbers of the pilot's problems: that share, 8 at least, chosen by a digest of their ids and the run seed."""
    count = min(max(round(share * len(problems)), LEAST_PROBLEMS), len(problems))
    salt = seed.to_bytes(8, "little", signed=True)
    order = sorted(range(len(problems)), key=lambda i: digest(encode_text(problems[i].problem_id), salt))
    return sorted(order[:count])


def estimate(
    trees: Sequence[TreeCost],
    problems: int,
    *,
    seconds: float,
    sampled: int,
    price: float | None = None,
    confidence: float = 0.9,
) -> Estimate:
    """Extrapolate to `problems` problems. `sampled` tokens took the pilot `seconds` of wall time.

    The interval shrinks by sqrt(1 - n/N) where the n trees are a good part of the N problems.
    """
    costs = np.array([[tree.requests, tree.completions, tree.tokens] for tree in trees], dtype=np.float64)
    count = len(trees)
    mean = costs.mean(axis=0)
    chance = np.random.default_rng(0)
    means = costs[chance.integers(0, count, (_RESAMPLES, count))].mean(axis=1)
    spread: NDArray[np.float64] = (means - mean) * np.sqrt(1.0 - count / problems)
    if count > 1:
        spread *= np.sqrt(count / (count - 1))  # the bootstrap's variance is that of n, not of n - 1
    low, high = np.quantile(mean + spread, [(1 - confidence) / 2, (1 + confidence) / 2], axis=0)
    requests, completions, tokens = (
        Range(*(round(problems * float(x[i])) for x in (mean, low, high))) for i in range(3)
    )

    def scaled(factor: float) -> Range:
        return Range(tokens.value * factor, tokens.low * factor, tokens.high * factor)

    return Estimate(
        problems=problems,
        pilot_problems=count,
        confidence=confidence,
        requests=requests,
        completions=completions,
        tokens=tokens,
        seconds=scaled(seconds / sampled) if sampled else None,
        cost=None if price is None else scaled(price / 1e6),
    )
