"""How often problems are solved: pass@k."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeforge.stats.summary import PassAt

_Counts = NDArray[np.integer[Any]]


def pass_at(correct: _Counts, wrong: _Counts) -> tuple[PassAt, ...]:
    """pass@k for k = 1, 2, 4, … from the completions of each problem (int[problems])."""
    # Few pairs are different, however many problems there are.
    pairs, problems = np.unique(np.stack([correct + wrong, correct]), axis=1, return_counts=True)
    found: list[PassAt] = []
    k = 1
    while (enough := pairs[0] >= k).any():
        n, c = pairs[:, enough]
        weights = problems[enough]
        found.append(PassAt(k, float(np.average(some_right(n, c, k), weights=weights)), int(weights.sum())))
        k *= 2
    return tuple(found)


def some_right(n: _Counts, c: _Counts, k: int) -> NDArray[np.float64]:
    """float64[problems]: 1 - C(n - c, k) / C(n, k), the chance that k of n completions, c of them right, hold a right
    one. As the product of 1 - k / i over i in n - c + 1 … n, in logarithms: it neither overflows nor cancels.
    """
    upto = np.concatenate([[0.0], np.cumsum(np.log1p(-k / np.arange(k + 1, n.max(initial=k) + 1)))])
    wrong = np.maximum(n - c, k)  # with fewer wrong ones than k, none of these is missed
    missed = upto[n - k] - upto[wrong - k]
    found: NDArray[np.float64] = np.where(n - c < k, 1.0, -np.expm1(missed))
    return found
