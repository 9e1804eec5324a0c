"""What choosing among N of a problem's n sampled solutions comes to, over all or many N-subsets of them.

Best-of-N and the majority vote are exact expectations over every N-subset, ties shared evenly, so that neither the
order of the samples nor luck is left in them. Everything is NaN where N > n: a problem with fewer samples says nothing
about N.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeforge.errors import ConfigError
from treeforge.stats.accuracy import some_right

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Masks = NDArray[np.bool_]
"""bool[subsets, n]: which samples each subset holds."""

NO_ANSWER = -1
"""In `answers`: the sample has no answer and votes for nothing."""
_TIED = 1e-12
"""Sums of the same scores in another order differ by less, relative to the sum."""


def best_of_n(scores: Floats, correct: Floats, size: int) -> float:
    """The chance that the best-scored of `size` of n samples is right.

    `scores`, float64[n]; `correct`, float64[n] of 0 and 1. Raises `ConfigError` for a NaN score.
    """
    n = len(scores)
    if not 1 <= size <= n:
        return math.nan
    if np.isnan(scores).any():
        raise ConfigError("a score is not a number (NaN), so that no solution is the best one")
    _, group, count = np.unique(-scores, return_inverse=True, return_counts=True)
    right = np.bincount(group, correct, len(count)) / count
    missed = _missed(n, size)
    below = np.cumsum(count)
    return float((missed[below - count] - missed[below]) @ right)


def _missed(n: int, size: int) -> Floats:
    """float64[n + 1]: C(n - j, size) / C(n, size), the chance that a `size`-subset holds none of j named samples."""
    left = n - np.arange(n)
    return np.concatenate([[1.0], np.cumprod(np.maximum(left - size, 0) / left)])


def random_pick(correct: Floats, size: int) -> float:
    """The chance that a sample picked blindly is right, whatever `size` is."""
    return float(correct.mean()) if 1 <= size <= len(correct) else math.nan


def oracle(correct: Floats, size: int) -> float:
    """The chance that a right one is among them (pass@N): what a perfect choice would reach."""
    if not 1 <= size <= len(correct):
        return math.nan
    return float(some_right(np.array([len(correct)]), np.array([round(correct.sum())]), size)[0])


def majority_vote(answers: Ints, correct: Floats, size: int) -> float:
    """The chance that the most frequent answer among `size` of n samples is right; with several such, one by lot.

    `answers`, int64[n]: equal numbers are equal answers, `NO_ANSWER` votes for nothing (and where no sample of a subset
    has an answer, nothing is chosen).

    The counts of the answers in a subset are independent binomials, given that all add up to `size`. So for an answer
    that wins with m votes, the others' generating functions in z, cut off at m, are multiplied, and the coefficient is
    read off at roots of unity. With t others tied it wins with chance 1 / (t + 1) = ∫ x^t dx over [0, 1]: each tie has
    a factor x, and Gauss's quadrature of enough nodes is exact.
    """
    n = len(answers)
    if not 1 <= size <= n:
        return math.nan
    counts, right = _answers(answers, correct)
    if not len(counts):
        return 0.0
    if size == n:
        return float(right[counts == counts.max()].mean())
    z = np.exp(2j * np.pi * np.arange(n + 1) / (n + 1))
    rate = size / n
    kinds, many = np.unique(counts, return_counts=True)  # answers given equally often win equally often
    pmf = {kind: _binomial(kind, rate) for kind in kinds.tolist()}
    terms = {kind: chances[:, None] * z ** np.arange(kind + 1)[:, None] for kind, chances in pmf.items()}
    below = {kind: np.cumsum(term, axis=0) for kind, term in terms.items()}
    silent = (1 - rate + rate * z) ** (n - int(counts.sum()))
    total = 0.0
    for kind in kinds.tolist():
        share = float(right[counts == kind].sum())
        for votes in range(1, min(kind, size) + 1 if share else 1):
            others = dict(zip(kinds.tolist(), many.tolist(), strict=True))
            others[kind] -= 1
            x, weights = _quadrature(min(len(counts), size // votes) - 1)
            product = np.broadcast_to(silent, (len(x), n + 1))
            for other, number in others.items():
                if not number:
                    continue
                factor = np.broadcast_to(below[other][min(votes - 1, other)], product.shape)
                if votes <= other:
                    factor = factor + x[:, None] * terms[other][votes]
                product = product * factor**number
            coefficient = (product @ z ** (votes - size)).real / (n + 1)
            total += share * pmf[kind][votes] * float(weights @ coefficient)
    return min(max(total / float(_binomial(n, rate)[size]), 0.0), 1.0)


def _answers(answers: Ints, correct: Floats) -> tuple[Ints, Floats]:
    """How many samples gave each answer, and the share of them that is right."""
    given = answers != NO_ANSWER
    _, group, counts = np.unique(answers[given], return_inverse=True, return_counts=True)
    return counts, np.bincount(group, correct[given], len(counts)) / np.maximum(counts, 1)


def _binomial(n: int, rate: float) -> Floats:
    """float64[n + 1]: the chances of 0 … n successes; `rate` in (0, 1)."""
    logs = np.concatenate([[0.0], np.cumsum(np.log(np.arange(1, n + 1)))])
    k = np.arange(n + 1)
    found: Floats = np.exp(logs[n] - logs - logs[::-1] + k * math.log(rate) + (n - k) * math.log1p(-rate))
    return found


@lru_cache(maxsize=1024)
def _quadrature(degree: int) -> tuple[Floats, Floats]:
    """Nodes and weights on [0, 1], exact for polynomials up to `degree`."""
    nodes, weights = np.polynomial.legendre.leggauss(max(degree, 0) // 2 + 1)
    return (nodes + 1) / 2, weights / 2


def draw(n: int, sizes: Sequence[int], most: int, rng: np.random.Generator) -> Iterator[Masks]:
    """Subsets of n samples for each size: all of them where there are at most `most`, else so many at random.

    The random ones of a larger size hold those of a smaller one, so that curves over sizes are smooth.
    """
    ranks = rng.random((most, n)).argsort(axis=1).argsort(axis=1)
    for size in sizes:
        if math.comb(n, size) > most:
            yield ranks < size
            continue
        listed = np.array(list(combinations(range(n), size)), dtype=np.intp).reshape(-1, size)
        masks = np.zeros((len(listed), n), dtype=np.bool_)
        np.put_along_axis(masks, listed, values=True, axis=1)
        yield masks


def weighted_vote(scores: Floats, answers: Ints, correct: Floats, subsets: Masks) -> float:
    """The share of `subsets` in which the answer with the greatest sum of scores is right; of tied ones, one by lot.

    Scores are not negative. There is no closed form; see `draw`. NaN without a subset. Raises `ConfigError` for a NaN
    score.
    """
    if np.isnan(scores).any():
        raise ConfigError("a score is not a number (NaN), so that no vote can be weighted by it")
    if not len(subsets):
        return math.nan
    given = answers != NO_ANSWER
    names, group = np.unique(answers[given], return_inverse=True)
    if not len(names):
        return 0.0
    _, right = _answers(answers, correct)
    member = np.zeros((int(given.sum()), len(names)))
    member[np.arange(len(member)), group] = 1.0
    chosen = subsets[:, given].astype(np.float64)
    present = chosen @ member > 0
    weight: Any = np.where(present, chosen @ (member * scores[given][:, None]), -1.0)
    most = weight.max(axis=1, keepdims=True)
    winning = present & (weight >= most - _TIED * np.maximum(most, 0.0))
    winners = winning.sum(axis=1)
    shares = np.divide(winning @ right, winners, out=np.zeros(len(subsets)), where=winners > 0)
    return float(shares.mean())
