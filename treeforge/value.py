"""Values of steps: types, `estimate` and intervals. Pure numpy; the estimators themselves are in `treeforge.evidence`.

A value is the chance that the policy, continuing from a step, ends correct (within its budget).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.errors import ConfigError
from treeforge.evidence import (
    Evidence,
    Floats,
    Levels,
    Means,
    Truncated,
    leaf_share,
    outcomes,
    policy_mean,
    subtree_sums,
    undecided_outcomes,
    whole,
)
from treeforge.tree import Tree

Estimator = Literal["policy_mean", "leaf_share", "human", "imported"]
"""How a value came about; the last two are labels from elsewhere."""

TreeEstimator = Literal["policy_mean", "leaf_share"]
"""The estimators that compute values from a tree's own counts."""


class StepValue(msgspec.Struct, frozen=True):
    """The estimated value of one step."""

    value: float
    """In [0, 1]; NaN where there is no evidence."""
    rollouts: int
    """Decided outcomes at or below the step (own rollouts and trajectory ends, with their multiplicity)."""
    low: float
    """Lower end of the interval; undecided outcomes count as wrong here."""
    high: float
    """Upper end; undecided outcomes count as right here."""
    estimator: Estimator


class StepLabel(msgspec.Struct, frozen=True):
    """The label of one training row."""

    hard: bool
    soft: float
    span: int
    """1 for a single step, 2 for two consecutive ones."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Values:
    """Values of all n nodes of a tree (or of several trees in one array), one entry a node."""

    value: NDArray[np.float64]
    """float64[n] in [0, 1]; NaN where nothing below the node was decided."""
    rollouts: NDArray[np.int64]
    """int64[n]: decided outcomes at or below the node."""
    undecided: NDArray[np.int64]
    """int64[n]: undecided outcomes at or below the node."""
    stderr: NDArray[np.float64]
    """float64[n]: standard error of `value`; two-stage for `policy_mean`; NaN where `value` is.

    0 where all outcomes agree, however few they are: to see how little is known, read the interval.
    """
    low: NDArray[np.float64]
    """float64[n]: lower end of the interval, undecided outcomes counted as wrong; 0 where `value` is NaN."""
    high: NDArray[np.float64]
    """float64[n]: upper end, undecided outcomes counted as right; 1 where `value` is NaN."""
    estimator: Estimator

    def at(self, node: int) -> StepValue:
        """One node's value."""
        return StepValue(
            float(self.value[node]),
            int(self.rollouts[node]),
            float(self.low[node]),
            float(self.high[node]),
            self.estimator,
        )


def estimate(
    tree: Tree | Evidence,
    estimator: TreeEstimator = "policy_mean",
    *,
    truncated: Truncated = "wrong",
    confidence: float = 0.9,
) -> Values:
    """Estimate the value of every node of a tree, or of several trees at once (`Evidence.of(*trees)`).

    `policy_mean` weighs what the policy sampled and `leaf_share` is the HRM paper's share of correct leaves; see
    `treeforge.evidence` for both and for their variance. `truncated="skip"` leaves truncated trajectories out instead
    of counting them as wrong. The interval at level `confidence` is Wilson's with the estimator's effective sample
    size; a node that itself ends a trajectory has its verdict exactly (low = value = high).

    Raises `ConfigError` for another estimator or option, or a confidence outside (0, 1).
    """
    if estimator not in ("policy_mean", "leaf_share"):
        raise ConfigError(f"estimator must be policy_mean or leaf_share, not {estimator!r}")
    if truncated not in ("wrong", "skip"):
        raise ConfigError(f"truncated must be wrong or skip, not {truncated!r}")
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must be in (0, 1), not {confidence!r}")
    evidence = tree if isinstance(tree, Evidence) else Evidence.of(tree)
    levels = Levels.of(evidence)
    average = policy_mean if estimator == "policy_mean" else leaf_share
    decided = outcomes(evidence, truncated=truncated, undecided="left out")
    means = average(decided, levels, evidence.multiplicity)
    undecided = undecided_outcomes(evidence, truncated=truncated)

    pessimist = optimist = means
    if undecided.any():
        wrong, right = (outcomes(evidence, truncated=truncated, undecided=verdict) for verdict in ("wrong", "right"))
        pessimist = average(wrong, levels, evidence.multiplicity)
        optimist = average(right, levels, evidence.multiplicity)
        undecided = subtree_sums(levels, undecided)
    known = ~np.isnan(means.value)
    low, high = _interval(pessimist, optimist, confidence)
    low, high = np.where(known, low, 0.0), np.where(known, high, 1.0)
    completions = subtree_sums(levels, decided.own + np.where(decided.ended, whole(evidence.multiplicity), 0.0))
    return Values(
        value=means.value,
        rollouts=completions.astype(np.int64),
        undecided=undecided.astype(np.int64),
        stderr=np.sqrt(means.variance),
        low=np.where(decided.ended, means.value, np.fmin(low, means.value)),
        high=np.where(decided.ended, means.value, np.fmax(high, means.value)),
        estimator=estimator,
    )


def wilson(value: Floats, size: Floats, confidence: float) -> tuple[Floats, Floats]:
    """Wilson's score interval (1927) of a share `value` (float64[n]) with sample sizes `size` > 0, two-sided.

    Unlike the Wald interval it has a width at 0 and at 1, and never leaves [0, 1].
    """
    z = NormalDist().inv_cdf((1 + confidence) / 2)
    shrink = 1 / (1 + z * z / size)
    centre = shrink * (value + z * z / (2 * size))
    half = shrink * z * np.sqrt(value * (1 - value) / size + (z / (2 * size)) ** 2)
    return np.clip(centre - half, 0.0, 1.0), np.clip(centre + half, 0.0, 1.0)


def _interval(pessimist: Means, optimist: Means, confidence: float) -> tuple[Floats, Floats]:
    """Low of the lower estimate, high of the higher; anything where neither is known."""
    low, _ = wilson(pessimist.value, np.where(pessimist.effective > 0, pessimist.effective, 1.0), confidence)
    _, high = wilson(optimist.value, np.where(optimist.effective > 0, optimist.effective, 1.0), confidence)
    return low, high
