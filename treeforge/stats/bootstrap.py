"""Intervals by the bootstrap over problems, since what is measured on one problem is not independent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

RESAMPLES = 1000
CONFIDENCE = 0.9

Floats = NDArray[np.float64]


class Figure(msgspec.Struct, frozen=True):
    """A share or a score with its interval; None where it is not defined."""

    value: float | None
    low: float | None
    high: float | None

    def text(self) -> str:
        """`0.812 (0.790–0.830)`."""
        if self.value is None or self.low is None or self.high is None:
            return "–"
        return f"{self.value:.3f} ({self.low:.3f}–{self.high:.3f})"


UNDEFINED = Figure(None, None, None)


class Resampler:
    """Bootstrap over problems: the same resamples for every figure of a comparison, so that differences are paired."""

    def __init__(self, problems: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        even = np.full(problems, 1 / problems)
        self._weights = rng.multinomial(problems, even, size=RESAMPLES).astype(np.uint16)

    def figure(self, counts: Floats, measure: Callable[[Floats], Floats]) -> Figure:
        """A measure of sums over problems: float64[problems, k] counts, float64[rows, k] sums -> float64[rows].

        The interval is that of the resamples in which the measure is defined.
        """
        value = float(measure(counts.sum(axis=0, keepdims=True))[0])
        if np.isnan(value):
            return UNDEFINED
        totals = np.concatenate([part @ counts for part in np.array_split(self._weights, 20)])
        return _figure(value, measure(totals))

    def mean(self, values: Floats) -> Figure:
        """The mean over problems of float64[problems]."""
        counts = np.stack([values, np.ones(len(values))], axis=1)
        return self.figure(counts, lambda sums: sums[:, 0] / sums[:, 1])

    def weighted(self, measure: Callable[[NDArray[Any]], float]) -> Figure:
        """A measure that is no function of sums, from how often each problem counts: [problems] -> a number or NaN."""
        value = measure(np.ones(self._weights.shape[1], dtype=self._weights.dtype))
        if np.isnan(value):
            return UNDEFINED
        return _figure(value, np.array([measure(row) for row in self._weights]))


def _figure(value: float, values: Floats) -> Figure:
    tail = 100 * (1 - CONFIDENCE) / 2
    low, high = np.nanpercentile(values, [tail, 100 - tail])
    return Figure(value, float(low), float(high))
