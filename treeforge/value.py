"""Values of steps: types, `estimate` and intervals. Pure numpy; the estimators themselves are in `treeforge.evidence`.

A value is the chance that the policy, continuing from a step, ends correct (within its budget).
"""

from __future__ import annotations

from dataclasses import dataclass
from statistics import NormalDist
from typing import Literal, get_args

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
    visit_mean,
    whole,
)
from treeforge.posterior import FIXED, Posterior, Prior, completions_from, infer
from treeforge.posterior import levels as tree_levels
from treeforge.tree import Tree

Estimator = Literal["policy_mean", "leaf_share", "visit_mean", "smoothed", "held_out", "human", "imported"]
"""How a value came about; the last two are labels from elsewhere."""

FROM_ELSEWHERE = ("human", "imported")
"""The estimators of labels that came from elsewhere: nothing is known of outcomes behind them."""

TreeEstimator = Literal["policy_mean", "leaf_share", "visit_mean", "smoothed"]
"""The estimators that compute values from a tree's own counts. Intervals are Wilson's (`wilson`), but those of
`smoothed`, which are the posterior's."""

WeightedEstimator = Literal["policy_mean", "leaf_share"]
"""Those of them that are defined on compressed trees too, which have no visits."""


NOT_COMPRESSED = ("visit_mean", "smoothed", "held_out")
"""Estimators that need what compressed trees do not have: visits, steps as they were sampled, single rollouts."""

_UNDECIDED_AS: tuple[Literal["wrong", "right"], ...] = ("wrong", "right")
"""What undecided outcomes count as at the lower and at the upper end of an interval."""


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
    """int64[n]: decided outcomes at or below the node; `visit_mean`: N, those that the search backed up; `policy_mean`:
    without those below steps that stand for no sample (multiplicity 0), which are in no value above."""
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
    prior: Prior = FIXED,
) -> Values:
    """Estimate the value of every node of a tree, or of several trees at once (`Evidence.of(*trees)`).

    `policy_mean` weighs what the policy sampled, `leaf_share` is the HRM paper's share of correct leaves and
    `visit_mean` is the search's W/N; see `treeforge.evidence` for them and for their variance. `truncated="skip"`
    leaves truncated trajectories out instead of counting them as wrong (not under `visit_mean`). The interval at level
    `confidence` is Wilson's with the estimator's effective sample size; a node that itself ends a trajectory has its
    verdict exactly (low = value = high).

    `smoothed` lets neighbouring steps inform each other (`treeforge.posterior`): the value is the posterior's median,
    so that the hard label is the more probable one at any threshold, the interval its central part, `stderr` its
    standard deviation. `prior` is what it starts from (`treeforge.fitting`).

    Raises `ConfigError` for another estimator or option, or a confidence outside (0, 1).
    """
    if estimator not in get_args(TreeEstimator):
        raise ConfigError(f"estimator must be policy_mean, leaf_share, visit_mean or smoothed, not {estimator!r}")
    if truncated not in ("wrong", "skip"):
        raise ConfigError(f"truncated must be wrong or skip, not {truncated!r}")
    if not 0 < confidence < 1:
        raise ConfigError(f"confidence must be in (0, 1), not {confidence!r}")
    evidence = tree if isinstance(tree, Evidence) else Evidence.of(tree)
    levels = Levels.of(evidence)
    decided = outcomes(evidence, truncated=truncated, undecided="left out")
    undecided = undecided_outcomes(evidence, truncated=truncated)
    # What lies below a step that stands for no sample is in no value above it, and so in no count.
    counted = evidence.multiplicity > 0 if estimator == "policy_mean" else None
    if undecided.any():
        undecided = subtree_sums(levels, undecided, counted)
    if estimator == "visit_mean":
        completions = evidence.visits.astype(np.float64)
        means, pessimist, optimist = (
            visit_mean(decided, completions + n, evidence.value_sum + right)
            for n, right in ((0.0, 0.0), (undecided, 0.0), (undecided, undecided))
        )
    elif estimator == "smoothed":
        return _smoothed(evidence, levels, truncated, confidence, prior)
    else:
        average = policy_mean if estimator == "policy_mean" else leaf_share
        means = pessimist = optimist = average(decided, levels, evidence.multiplicity)
        if undecided.any():
            pessimist, optimist = (
                average(outcomes(evidence, truncated=truncated, undecided=as_if), levels, evidence.multiplicity)
                for as_if in _UNDECIDED_AS
            )
        ended = np.where(decided.ended, whole(evidence.multiplicity), 0.0)
        completions = subtree_sums(levels, decided.own + ended, counted)
    known = ~np.isnan(means.value)
    low, high = _interval(pessimist, optimist, confidence)
    low, high = np.where(known, low, 0.0), np.where(known, high, 1.0)
    return Values(
        value=means.value,
        # A node that ends a trajectory and stands for no sample of its own is known by that one outcome.
        rollouts=np.where(decided.ended, np.maximum(completions, 1.0), completions).astype(np.int64),
        undecided=undecided.astype(np.int64),
        stderr=np.sqrt(means.variance),
        low=np.where(decided.ended, means.value, np.fmin(low, means.value)),
        high=np.where(decided.ended, means.value, np.fmax(high, means.value)),
        estimator=estimator,
    )


def _smoothed(evidence: Evidence, levels: Levels, truncated: Truncated, confidence: float, prior: Prior) -> Values:
    """`estimate` by the posterior; the interval's ends are those with undecided outcomes counted as wrong and right."""
    shape = tree_levels(evidence.parent, evidence.depth)

    def posterior(undecided_as: Literal["left out", "wrong", "right"]) -> Posterior:
        counted = outcomes(evidence, truncated=truncated, undecided=undecided_as)
        return infer(shape, *completions_from(evidence, counted), prior)

    decided = outcomes(evidence, truncated=truncated, undecided="left out")
    undecided = undecided_outcomes(evidence, truncated=truncated)
    found = pessimist = optimist = posterior("left out")
    if undecided.any():
        undecided = subtree_sums(levels, undecided)
        pessimist, optimist = (posterior(as_if) for as_if in _UNDECIDED_AS)
    decided_below = subtree_sums(levels, decided.own + np.where(decided.ended, whole(evidence.multiplicity), 0.0))
    known = (decided_below > 0) | decided.ended
    value = found.quantile(0.5)

    def unless_ended(column: Floats, at_end: Floats, unknown: float) -> Floats:
        return np.where(decided.ended, at_end, np.where(known, column, unknown))

    return Values(
        value=unless_ended(value, decided.right, np.nan),
        rollouts=np.where(decided.ended, np.maximum(decided_below, 1.0), decided_below).astype(np.int64),
        undecided=undecided.astype(np.int64),
        stderr=unless_ended(found.deviation(), np.zeros_like(value), np.nan),
        low=unless_ended(np.minimum(pessimist.interval(confidence)[0], value), decided.right, 0.0),
        high=unless_ended(np.maximum(optimist.interval(confidence)[1], value), decided.right, 1.0),
        estimator="smoothed",
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
