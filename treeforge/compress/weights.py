"""The parts of values that merges move."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treeforge.evidence import Evidence, Floats, Levels, Truncated, leaf_share, outcomes, policy_values
from treeforge.forest import Rows
from treeforge.value import WeightedEstimator


@dataclass(frozen=True, kw_only=True, slots=True)
class Weights:
    """What each node's value is made of, per row of the original trees."""

    parent: Rows
    value: Floats
    evaluated: NDArray[np.bool_]
    total: Floats
    """The denominator of each node's value."""
    part: Floats
    """Each evaluated node's part of its parent's denominator."""
    own: Floats
    """Own rollouts that count."""

    @classmethod
    def of(cls, evidence: Evidence, levels: Levels, estimator: WeightedEstimator, truncated: Truncated) -> Weights:
        """Those of an estimator that divides evidence."""
        decided = outcomes(evidence, truncated=truncated, undecided="left out")
        if estimator == "policy_mean":
            value, total = policy_values(decided, levels, evidence.multiplicity)
            part = evidence.multiplicity
        else:
            share = leaf_share(decided, levels, evidence.multiplicity)
            value, total, part = share.value, share.weight, share.weight
        return cls(
            parent=evidence.parent.astype(np.intp),
            value=value,
            evaluated=~np.isnan(value),
            total=total,
            part=part,
            own=decided.own,
        )

    @classmethod
    def none(cls, evidence: Evidence, known: Floats) -> Weights:
        """Of values that came from elsewhere: beside an infinite denominator no child's part moves its parent's."""
        n = len(known)
        return cls(
            parent=evidence.parent.astype(np.intp),
            value=np.nan_to_num(known),
            evaluated=~np.isnan(known),
            total=np.full(n, np.inf),
            part=np.ones(n),
            own=np.zeros(n),
        )

    def shift(self, x: Rows) -> Floats:
        """S' - S of x's parent when x leaves it: t_x / (T - t_x) · (S - S_x)."""
        p = self.parent[x]
        return self.part[x] / (self.total[p] - self.part[x]) * (self.value[p] - self.value[x])
