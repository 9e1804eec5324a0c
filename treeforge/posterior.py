"""What all outcomes together say of every value: a posterior over the tree, and what further rollouts would tell.

A step mostly leaves the chance of success as it was, and now and then changes it altogether, at an error or a recovery.
So neighbouring steps inform each other. The model is a hidden Markov model on the tree whose hidden state at a node is
its value v, on a grid of `CELLS` cells:

- the root's value is uniform;
- a child's value is the parent's, moved by a normal with standard deviation `SPREAD`, with chance 1 - `JUMP`, and
  uniform with chance `JUMP`;
- every completion from a node is right with chance v: its own rollouts, and the samples that ended right below it.

Forward-backward over the tree (Pearl 1988) gives each node's distribution given all outcomes, exactly. It needs no
fitting: the two constants are the same for all problems, and the study in `docs/label_efficiency.md` shows what they
are worth. How many rollouts a node got may depend on the outcomes before; the posterior is the same either way.
`treeforge.fitting` makes another `Prior` of a run's own outcomes: other cells, and what is uniform here is learned.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeforge.evidence import Evidence, Floats, Outcomes

Rows = NDArray[np.intp]

CELLS = 16
JUMP = 0.15
SPREAD = 0.1


@dataclass(frozen=True, kw_only=True, eq=False)
class Prior:
    """What is taken to be so before any outcome: the cells, and how values start and move."""

    edges: Floats
    """float64[CELLS + 1]: the bounds of the cells, from 0 to 1."""
    root: Floats
    """float64[CELLS]: chance that a root's value is in each cell."""
    landing: Floats
    """float64[CELLS]: where a jump ends."""
    jump: float
    """Chance that a child's value is another one altogether."""

    @cached_property
    def widths(self) -> Floats:
        """float64[CELLS]: the cells' widths."""
        return np.diff(self.edges)

    @cached_property
    def grid(self) -> Floats:
        """float64[CELLS]: the cells' middles."""
        middles: Floats = (self.edges[1:] + self.edges[:-1]) / 2
        return middles

    @cached_property
    def logs(self) -> tuple[Floats, Floats]:
        """float64[CELLS] twice: log-chances of a right and of a wrong completion."""
        return np.log(self.grid), np.log1p(-self.grid)

    @cached_property
    def kernel(self) -> Floats:
        """float64[CELLS, CELLS]: chance that a child's value is in a cell (column), given its parent's (row)."""
        drift = np.exp(-0.5 * ((self.grid[:, None] - self.grid) / SPREAD) ** 2) * self.widths
        drift /= drift.sum(axis=1, keepdims=True)
        return (1 - self.jump) * drift + self.jump * self.landing


def uniform(edges: Floats) -> Prior:
    """The prior on these cells (float64[CELLS + 1]) under which roots and jumps are uniform."""
    return Prior(edges=edges, root=np.diff(edges), landing=np.diff(edges), jump=JUMP)


FIXED = uniform(np.arange(CELLS + 1) / CELLS)
"""The prior that nothing was fitted for, on cells of equal width."""
GRID = FIXED.grid


@dataclass(frozen=True, slots=True)
class Level:
    """The nodes of one depth below the roots."""

    rows: Rows
    parents: Rows
    """intp[len(rows)]: each row's parent."""
    alone: bool
    """No two of them have the same parent."""

    def add_to_parents(self, target: Floats, values: Floats) -> None:
        """Add `values`, one entry a row of this level, to the parents' entries of `target`."""
        if self.alone:
            target[self.parents] += values
        else:
            np.add.at(target, self.parents, values)


def levels(parent: NDArray[np.integer[Any]], depth: NDArray[np.integer[Any]]) -> list[Level]:
    """The depths of a tree (or of several) from 1 on; `parent` and `depth` as in `treeforge.tree.Tree`."""
    found = []
    for d in range(1, int(depth.max(initial=0)) + 1):
        rows = np.flatnonzero(depth == d)
        parents = parent[rows].astype(np.intp)
        found.append(Level(rows, parents, len(np.unique(parents)) == len(parents)))
    return found


@dataclass(frozen=True, slots=True)
class Branch:
    """A child of the root with all that is below it."""

    rows: Rows
    """Its rows in the tree; the first is the root's child."""
    levels: list[Level]
    """Its depths, from its second on, in its own numbering."""


def branches(parent: NDArray[np.integer[Any]], depth: NDArray[np.integer[Any]]) -> list[Branch]:
    """The branches of a tree; `parent` and `depth` as in `treeforge.tree.Tree`."""
    top = np.arange(len(parent))
    for row in np.flatnonzero(depth > 1).tolist():  # a parent stands before its children
        top[row] = top[parent[row]]
    own = np.zeros(len(parent), dtype=np.intp)
    found = []
    for child in np.flatnonzero(depth == 1).tolist():
        rows = np.flatnonzero(top == child)
        own[rows] = np.arange(len(rows))
        found.append(Branch(rows, levels(own[parent[rows]], depth[rows] - 1)))
    return found


@dataclass(frozen=True, kw_only=True, slots=True)
class Posterior:
    """The distribution of every node's value, and the messages that made it. Arrays have n rows, one a node."""

    prior: Prior
    belief: Floats
    """float64[n, CELLS]: the posterior; rows sum to 1."""
    levels: list[Level]
    below: Floats
    """float64[n, CELLS]: likelihood of all outcomes at and below the node, up to a factor a row."""
    outside: Floats
    """float64[n, CELLS]: distribution of the *parent's* value by all outcomes that are not at or below the node; of no
    meaning at roots."""

    def at(self, branch: Branch) -> Posterior:
        """The same of a branch alone; what stands outside of it has had its say."""
        rows = branch.rows
        return Posterior(
            prior=self.prior,
            belief=self.belief[rows],
            levels=branch.levels,
            below=self.below[rows],
            outside=self.outside[rows],
        )

    def above(self, threshold: float) -> Floats:
        """float64[n]: chance that the value is greater than `threshold`, cells in part by their share above it."""
        return _expected(self.belief, above(threshold, self.prior))

    def mean(self) -> Floats:
        """float64[n]: the posterior mean."""
        return _expected(self.belief, self.prior.grid)

    def deviation(self) -> Floats:
        """float64[n]: the posterior standard deviation, the width of a cell included."""
        squares = self.prior.grid**2 + self.prior.widths**2 / 12
        spread: Floats = np.sqrt(np.maximum(_expected(self.belief, squares) - self.mean() ** 2, 0.0))
        return spread

    def quantile(self, share: float) -> Floats:
        """float64[n]: the value that lies above `share` of the posterior; cells count as uniform."""
        upto = np.cumsum(self.belief, axis=1)
        cell = np.minimum((upto < share).sum(axis=1), CELLS - 1)
        rows = np.arange(len(cell))
        before = upto[rows, cell] - self.belief[rows, cell]
        inside = (share - before) / np.maximum(self.belief[rows, cell], 1e-300)
        found: Floats = self.prior.edges[cell] + np.clip(inside, 0.0, 1.0) * self.prior.widths[cell]
        return found

    def interval(self, confidence: float) -> tuple[Floats, Floats]:
        """float64[n] twice: the interval that leaves out as much below as above.

        An end within 1 / `CELLS` of 0 or 1 is 0 or 1: real models hardly ever, or nearly always, get right from many
        steps, and a chance of exactly 0 lies between no two inner quantiles.
        """
        tail = (1 - confidence) / 2
        low, high = self.quantile(tail), self.quantile(1 - tail)
        return np.where(low < 1 / CELLS, 0.0, low), np.where(high > 1 - 1 / CELLS, 1.0, high)


def above(threshold: float, prior: Prior = FIXED) -> Floats:
    """float64[CELLS]: the share of each cell above `threshold`."""
    return np.clip((prior.edges[1:] - threshold) / prior.widths, 0.0, 1.0)


def completions_from(evidence: Evidence, decided: Outcomes) -> tuple[Floats, Floats]:
    """float64[n] twice: completions from each node that count, and the right ones among them.

    Own rollouts, and the samples that ended right below the node. A sample whose next steps became nodes is counted
    where it ended.
    """
    draws, right = decided.own.copy(), decided.own_correct.copy()
    ended = np.flatnonzero(decided.ended & (evidence.parent >= 0))
    np.add.at(draws, evidence.parent[ended], evidence.multiplicity[ended])
    np.add.at(right, evidence.parent[ended], evidence.multiplicity[ended] * decided.right[ended])
    return draws, right


def infer(shape: list[Level], draws: Floats, right: Floats, prior: Prior = FIXED) -> Posterior:
    """The posterior of a tree, or of several, from `draws[i]` completions of node i, `right[i]` of them right.

    `shape` is that of `levels`; counts need not be whole. Two trees at once give what each gives alone, bit for bit.
    """
    transition, (log_right, log_wrong) = prior.kernel, prior.logs
    log_below = right[:, None] * log_right + (draws - right)[:, None] * log_wrong
    log_up = np.zeros_like(log_below)
    for level in reversed(shape):
        up = np.log(_rows_times(_scaled(log_below[level.rows]), transition.T))
        log_up[level.rows] = up
        level.add_to_parents(log_below, up)
    below = _scaled(log_below)
    down, outside = np.tile(prior.root, (len(log_below), 1)), np.zeros_like(log_below)
    for level in shape:
        others = _normalised(_scaled(log_below[level.parents] - log_up[level.rows]) * down[level.parents])
        outside[level.rows] = others
        down[level.rows] = _rows_times(others, transition)
    return Posterior(prior=prior, belief=_normalised(below * down), levels=shape, below=below, outside=outside)


def expected_gain(posterior: Posterior, targets: Rows, statistic: Floats, draws: int) -> Floats:
    """float64[n]: how much `draws` further completions of each node are expected to lower what is not known.

    That is Σ Var f(v_j) over the nodes j in `targets`, where `statistic` (float64[CELLS]) is f on the grid: with the
    indicator of v > threshold, Σ P(1 - P) over the hard labels (half the Gini impurity; the expected number of wrong
    labels is between it and its double); with f = v, the variances of soft labels. What completions of node i are
    expected to take away of it is the variance of E[f(v_j) | their outcome] (law of total variance).
    """
    n, transition, grid = len(posterior.belief), posterior.prior.kernel, posterior.prior.grid
    to_child = _normalised(transition * posterior.below[:, None, :])
    to_parent = _normalised(transition.T * (posterior.outside[:, None, :] + 1e-300))
    # given[i, v, j] = E[f(v_j) | v_i = v]: first for j at or below i, then for all j.
    given = np.zeros((n, CELLS, len(targets)))
    given[targets, :, np.arange(len(targets))] = statistic
    from_below = []
    for level in reversed(posterior.levels):
        seen = to_child[level.rows] @ given[level.rows]
        level.add_to_parents(given, seen)
        from_below.append(seen)
    for level, seen in zip(posterior.levels, reversed(from_below), strict=True):
        given[level.rows] += to_parent[level.rows] @ (given[level.parents] - seen)

    right = np.arange(draws + 1)[:, None]
    ways = np.array([[float(comb(draws, c))] for c in range(draws + 1)])
    likelihood = ways * grid**right * (1 - grid) ** (draws - right)
    joint = posterior.belief[:, None, :] * likelihood
    chance = joint.sum(axis=2)
    after = (joint @ given) / np.maximum(chance, 1e-300)[:, :, None]
    now = posterior.belief[:, None, :] @ given
    gain: Floats = (chance * ((after - now) ** 2).sum(axis=2)).sum(axis=1)
    return gain


def _rows_times(rows: Floats, matrix: Floats) -> Floats:
    """rows @ matrix. Not by BLAS, where the last bits of a row's product may depend on how many rows there are."""
    product: Floats = np.einsum("nv,vz->nz", rows, matrix)
    return product


def _expected(belief: Floats, statistic: Floats) -> Floats:
    """float64[n]: the mean of `statistic` (float64[CELLS]) by each row of `belief`."""
    return _rows_times(belief, statistic[:, None])[:, 0]


def _scaled(logs: Floats) -> Floats:
    """exp(logs), each row scaled to a greatest entry of 1."""
    scaled: Floats = np.exp(logs - logs.max(axis=-1, keepdims=True))
    return scaled


def _normalised(rows: Floats) -> Floats:
    total: Floats = rows / rows.sum(axis=-1, keepdims=True)
    return total
