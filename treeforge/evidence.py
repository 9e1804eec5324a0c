"""What values are made of, and the estimators on plain arrays: one pass up the levels, no loop over nodes.

Everything here works on one tree or on many trees concatenated (`Evidence.of(*trees)`), with the same result, bit for
bit.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from treeforge.forest import Forest
from treeforge.tree import Finish, Tree
from treeforge.verdict import NO_VERDICT, Verdict

Floats = NDArray[np.float64]
Truncated = Literal["wrong", "skip"]
"""Truncated trajectories count as wrong (value = ends correct within the budget) or are left out."""

SINGLE_DRAW = 1 + 1e-9
"""Fewer draws than this are one draw; HNC's split multiplicities add up to whole numbers only within rounding."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """The counted columns of a tree, or of several trees concatenated (several rows with parent -1).

    Fields mean what they mean in `treeforge.tree.Tree`; all are arrays of n rows.
    """

    parent: NDArray[np.int32]
    depth: NDArray[np.int16]
    multiplicity: Floats
    finish: NDArray[np.int8]
    verdict: NDArray[np.int8]
    rollouts: NDArray[np.int32]
    rollouts_correct: NDArray[np.int32]
    rollouts_undecided: NDArray[np.int32]
    rollouts_truncated: NDArray[np.int32]
    visits: NDArray[np.int32]
    value_sum: Floats

    @classmethod
    def of(cls, *trees: Tree | Forest) -> Evidence:
        """The evidence of `trees`, one after another: a row stands at its number plus the sizes of the trees before."""
        if len(trees) == 1:
            return cls(**{spec.name: getattr(trees[0], spec.name) for spec in fields(cls)})
        columns: dict[str, Any] = {
            spec.name: np.concatenate([getattr(tree, spec.name) for tree in trees]) for spec in fields(cls)
        }
        sizes = [tree.size for tree in trees]
        offsets = np.repeat(np.cumsum([0, *sizes[:-1]]), sizes)
        parent = columns["parent"]
        columns["parent"] = np.where(parent >= 0, parent + offsets, -1).astype(np.int32)
        return cls(**columns)


@dataclass(frozen=True, kw_only=True, slots=True)
class Outcomes:
    """The outcomes at each node itself, after the options on truncated and undecided ones were applied."""

    ended: NDArray[np.bool_]
    """bool[n]: the node ends a trajectory with an outcome that counts."""
    right: Floats
    """float64[n]: that outcome, 1 correct, 0 wrong; 0 where not `ended`."""
    own: Floats
    """float64[n]: r, own rollouts that count; 0 at ended nodes and engine errors."""
    own_correct: Floats
    """float64[n]: c, of these, correct."""


def outcomes(evidence: Evidence, *, truncated: Truncated, undecided: Literal["left out", "wrong", "right"]) -> Outcomes:
    """Sort the completions at each node into those that count and those that do not.

    `no_answer` and `unparsable` are wrong; an engine error counts nowhere. `undecided` completions are left out for a
    value, and counted as wrong or as right for the two ends of its interval.
    """
    trajectory = evidence.verdict != NO_VERDICT
    if truncated == "skip":
        trajectory &= evidence.finish != Finish.TRUNCATED
    open_question = evidence.verdict == Verdict.UNDECIDED
    right = evidence.verdict == Verdict.CORRECT
    ended = trajectory if undecided != "left out" else trajectory & ~open_question
    if undecided == "right":
        right = right | open_question

    starts_rollouts = _starts_rollouts(evidence)
    own = evidence.rollouts.astype(np.float64)
    own_correct = evidence.rollouts_correct.astype(np.float64)
    if undecided == "left out":
        own -= evidence.rollouts_undecided
    elif undecided == "right":
        own_correct += evidence.rollouts_undecided
    if truncated == "skip":
        own -= evidence.rollouts_truncated
    return Outcomes(
        ended=ended,
        right=(ended & right).astype(np.float64),
        own=np.where(starts_rollouts, own, 0.0),
        own_correct=np.where(starts_rollouts, own_correct, 0.0),
    )


def undecided_outcomes(evidence: Evidence, *, truncated: Truncated) -> Floats:
    """float64[n]: undecided completions at each node itself, duplicates counted."""
    ended = evidence.verdict == Verdict.UNDECIDED
    if truncated == "skip":
        ended &= evidence.finish != Finish.TRUNCATED
    own = np.where(_starts_rollouts(evidence), evidence.rollouts_undecided, 0)
    return np.where(ended, whole(evidence.multiplicity), own)


def _starts_rollouts(evidence: Evidence) -> NDArray[np.bool_]:
    starts: NDArray[np.bool_] = (evidence.verdict == NO_VERDICT) & (evidence.finish != Finish.ERROR)
    return starts


def whole(multiplicity: Floats) -> Floats:
    """Multiplicities as counts of completions: rounded, and at least 1 where there is one, for HNC splits them."""
    return np.where(multiplicity > 0, np.maximum(np.rint(multiplicity), 1.0), 0.0)


@dataclass(frozen=True, kw_only=True, slots=True)
class Levels:
    """The rows of a forest sorted by depth, so that each level is a slice. Columns in this order are called sorted."""

    order: NDArray[np.intp]
    """intp[n]: the row at each sorted position."""
    parent: NDArray[np.intp]
    """intp[n]: the sorted position of each sorted node's parent; -1 at roots."""
    starts: NDArray[np.intp]
    """intp[depths + 2]: where each level starts; the last two are n, so that the deepest level has children (none)."""

    @classmethod
    def of(cls, evidence: Evidence) -> Levels:
        """Sort by depth, rows of one depth in row order."""
        n = len(evidence.parent)
        order = np.argsort(evidence.depth, kind="stable")
        position = np.empty(n, dtype=np.intp)
        position[order] = np.arange(n)
        above = evidence.parent[order]
        parent = np.where(above >= 0, position[above], -1)
        sizes = np.bincount(evidence.depth)
        starts = np.concatenate(([0], np.cumsum(sizes), [n])).astype(np.intp)
        return cls(order=order, parent=parent, starts=starts)

    def upwards(self) -> Iterator[tuple[slice, slice, NDArray[np.intp]]]:
        """(level, its children's level, each child's parent as an index into the level), the deepest level first."""
        starts = self.starts.tolist()
        for depth in range(len(starts) - 3, -1, -1):
            level, below = slice(starts[depth], starts[depth + 1]), slice(starts[depth + 1], starts[depth + 2])
            yield level, below, self.parent[below] - starts[depth]

    def unsort(self, column: Floats) -> Floats:
        """A sorted column, back in row order."""
        out = np.empty_like(column)
        out[self.order] = column
        return out


def subtree_sums(levels: Levels, own: Floats, through: NDArray[np.bool_] | None = None) -> Floats:
    """float64[n]: for every node the sum of `own` (float64[n], in row order) over the node and all nodes below it.

    With `through`, bool[n], a node's sum goes into its parent's only where it is true.
    """
    total = own[levels.order]
    passes = None if through is None else through[levels.order]
    for level, below, parent in levels.upwards():
        sums = total[below] if passes is None else np.where(passes[below], total[below], 0.0)
        total[level] += np.bincount(parent, sums, level.stop - level.start)
    return levels.unsort(total)


@dataclass(frozen=True, kw_only=True, slots=True)
class Means:
    """An estimator's result, in row order."""

    value: Floats
    """float64[n]: NaN where there is no evidence."""
    weight: Floats
    """float64[n]: the value's denominator. `policy_mean`: M, draws from the node (0 where the node itself ended a
    trajectory); `leaf_share`: T, completions that ended at or below it."""
    variance: Floats
    """float64[n]: estimated variance of `value`; 0 at ended trajectories, NaN where `value` is."""
    effective: Floats
    """float64[n]: effective sample size, the n of the binomial with the same uncertainty; 0 where no evidence."""


def policy_mean(outcome: Outcomes, levels: Levels, multiplicity: Floats) -> Means:
    """V = (c + Σ m_k V_k) / M with M = r + Σ m_k, over own rollouts and evaluated children: what the policy sampled.

    **Variance.** The policy was asked M times at this node. Draw i fell on child k(i), whose true value is z_i, and
    the estimate uses V_k = z_i + e_k; an own rollout is a draw of its own with e = 0. So V = Σ (z_i + e_k(i)) / M, and
    given the draws' children, with w_k = m_k / M and σ² = Var z,

        Var V = σ² / M + Σ w_k² Var_k,

    since all m_k draws of one child share one e_k. The spread that is seen, s² = Σ m_k (V_k - V)² / (M - 1), holds
    both kinds: E s² = σ² + M/(M - 1) Σ w_k (1 - w_k) Var_k. Putting σ² from here into Var V gives the unbiased

        Var V = s² / M + M/(M - 1) Σ w_k (w_k - 1/M) Var_k = Σ m_k [(V_k - V)² + (m_k - 1) Var_k] / (M (M - 1)).

    Where no draws coincide this is s²/M: the spread between the draws says it all. A multiplicity below 1 (HNC) adds
    no second term. One draw shows no spread; V (1 - V), the most it can be, stands for it.

    **Effective size.** V (1 - V) + Var estimates the variance of one outcome without bias, so
    n_eff = 1 + V (1 - V) / Var = 1 + (M² - M) / u, where u = M (M - 1) Var / (V (1 - V)) is how many of the draws are
    as unlike as single outcomes are: M for own rollouts, 0 where all draws agree. But a few draws that agree do not
    show that all would. So one more draw is added that is as unlike as can be: n_eff = 1 + (M² - 1) / (u + 1), which
    is r for r own rollouts, 1 for a single draw, and M² at most. Kish's size 1 / Σ (leaf weight)², what unequal
    weights leave even if no draw differed from another, is the other bound.
    """
    value, draws = _policy_values(outcome, levels, multiplicity)
    ended = outcome.ended[levels.order]
    own, own_correct = outcome.own[levels.order], outcome.own_correct[levels.order]
    evaluated = ended | (draws > 0)
    m = np.where(evaluated, multiplicity[levels.order], 0.0)

    several = draws > SINGLE_DRAW
    per_pair = np.divide(1.0, draws * (draws - 1), out=np.zeros_like(draws), where=several)
    alone = np.where(several, 0.0, value * (1 - value))
    seen = own_correct * (1 - value) ** 2 + (own - own_correct) * value**2
    between = m * (value - value[levels.parent]) ** 2  # of no meaning at roots, and not used there
    shared = m * np.maximum(m - 1, 0.0)
    # Kish: m samples that ended alike are m leaves; samples that went on share the leaves below their common child.
    per_square = np.divide(1.0, draws**2, out=np.zeros_like(draws), where=draws > 0)
    leaves, inner = np.where(ended, m, 0.0), np.where(ended, 0.0, m * m)
    variance, squares = np.zeros_like(value), np.zeros_like(value)
    for level, below, parent in levels.upwards():
        size = level.stop - level.start
        spread = seen[level] + np.bincount(parent, between[below] + shared[below] * variance[below], size)
        variance[level] = spread * per_pair[level] + alone[level]
        weights = own[level] + np.bincount(parent, leaves[below] + inner[below] * squares[below], size)
        squares[level] = weights * per_square[level]

    kish = np.divide(1.0, squares, out=np.ones_like(squares), where=squares > 0)
    binomial, pairs = value * (1 - value), np.maximum(draws * draws - 1, 0.0)
    unlike = np.divide(draws * (draws - 1) * variance, binomial, out=np.zeros_like(value), where=binomial > 0)
    effective = np.minimum(kish, 1 + pairs / (1 + unlike))
    return Means(
        value=levels.unsort(np.where(evaluated, value, np.nan)),
        weight=levels.unsort(draws),
        variance=levels.unsort(np.where(evaluated, variance, np.nan)),
        effective=levels.unsort(np.where(evaluated, effective, 0.0)),
    )


def policy_values(outcome: Outcomes, levels: Levels, multiplicity: Floats) -> tuple[Floats, Floats]:
    """Value and weight of `policy_mean`, in row order, without its variance."""
    value, draws = (levels.unsort(column) for column in _policy_values(outcome, levels, multiplicity))
    return np.where(outcome.ended | (draws > 0), value, np.nan), draws


def _policy_values(outcome: Outcomes, levels: Levels, multiplicity: Floats) -> tuple[Floats, Floats]:
    """Sorted (V, M); V is 0 where there is no evidence, M is 0 there and at ended trajectories."""
    ended, value = outcome.ended[levels.order], outcome.right[levels.order]
    draws, correct = outcome.own[levels.order], outcome.own_correct[levels.order]
    multiplicity = multiplicity[levels.order]
    m = np.where(ended, multiplicity, 0.0)
    for level, below, parent in levels.upwards():
        size = level.stop - level.start
        draws[level] += np.bincount(parent, m[below], size)
        correct[level] += np.bincount(parent, m[below] * value[below], size)
        evaluated = draws[level] > 0
        np.divide(correct[level], draws[level], out=value[level], where=evaluated)
        np.copyto(m[level], multiplicity[level], where=evaluated)
    return np.minimum(value, 1.0), draws


def leaf_share(outcome: Outcomes, levels: Levels, multiplicity: Floats) -> Means:
    """V = C / T over the completions that ended at or below a node, each counted once (HRM paper, arXiv 2503.13551).

    T counts own rollouts and ended leaves with their multiplicity (not the multiplicity of the path to them). Where
    duplicate siblings are not merged, this is exactly the paper's share of correct leaves. The variance is
    binomial with n = T, as if all leaves were independent; that they are not is `policy_mean`'s concern.
    """
    leaves = np.where(outcome.ended, multiplicity, 0.0)
    total = subtree_sums(levels, outcome.own + leaves)
    correct = subtree_sums(levels, outcome.own_correct + leaves * outcome.right)
    return _share(correct, total, outcome)


def visit_mean(outcome: Outcomes, visits: Floats, value_sum: Floats) -> Means:
    """V = W / N, the share of right ones among the completions that the search backed up through a node.

    It is what the search acted on, by the verdicts of its own judge: neither a recheck nor the option on truncated
    completions changes it. The variance is binomial with n = N, as if all completions were independent.
    """
    return _share(value_sum, visits, outcome)


def _share(correct: Floats, total: Floats, outcome: Outcomes) -> Means:
    """correct / total; the verdict itself where a node ends a trajectory (0 of 0 where that stands for no sample)."""
    evaluated = (total > 0) | outcome.ended
    some = np.where(total > 0, total, 1.0)
    value = np.where(total > 0, np.minimum(correct / some, 1.0), np.where(outcome.ended, outcome.right, np.nan))
    variance = np.where(outcome.ended, 0.0, value * (1 - value) / some)
    return Means(value=value, weight=total, variance=variance, effective=np.where(evaluated, total, 0.0))
