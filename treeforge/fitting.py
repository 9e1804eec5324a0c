"""A prior for `treeforge.posterior` that is fitted to a run's own outcomes (empirical Bayes).

The fixed prior takes all values to be equally likely where a solution starts or jumps. A small model's are mostly near
0 or 1, and then it pulls labels towards the middle. Expectation maximisation over the run's trees (Baum & Welch) learns
where values start, where jumps end and how often there is one: a deterministic function of trees, with a few pseudo
counts of the uniform prior, so that a run of few steps stays near it. Cells are narrow at 0 and 1, where a model's
values are.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from treeforge.evidence import Evidence, Floats, Levels, Truncated, outcomes, subtree_sums
from treeforge.forest import Forest
from treeforge.posterior import CELLS, JUMP, Level, Prior, completions_from, infer, levels, uniform

ROUNDS = 15
PSEUDO_CELLS = 4.0
"""Starts, and jumps, that are taken to have been seen before, uniform."""
PSEUDO_STEPS = 20.0
"""Steps that are taken to have been seen before, jumps among them as often as by the fixed prior."""
MOST_NODES = 50_000
"""More nodes than this tell nothing new; every second, fourth … block is looked at."""

EDGES: Floats = np.sin(np.arange(CELLS + 1) * np.pi / (2 * CELLS)) ** 2


def fit_prior(blocks: Iterable[Forest], truncated: Truncated = "wrong") -> Prior:
    """The prior that fits the outcomes in these trees best, a few pseudo counts besides."""
    kept: list[Forest] = []
    every = 1
    for number, forest in enumerate(blocks):
        if number % every == 0:
            kept.append(forest)
            while len(kept) > 1 and sum(each.size for each in kept) > MOST_NODES:
                kept, every = kept[::2], 2 * every
    if not kept:
        return uniform(EDGES)
    evidence = Evidence.of(*kept)
    decided = outcomes(evidence, truncated=truncated, undecided="left out")
    draws, right = completions_from(evidence, decided)
    told = (subtree_sums(Levels.of(evidence), draws) > 0) & ~decided.ended
    return fit(levels(evidence.parent, evidence.depth), np.flatnonzero(evidence.parent < 0), told, draws, right)


def fit(shape: list[Level], roots: NDArray[np.intp], told: NDArray[np.bool_], draws: Floats, right: Floats) -> Prior:
    """`fit_prior` on plain arrays, as `treeforge.posterior.infer` has them.

    `told`, bool[n]: nodes with an outcome at or below them; the others teach nothing. `roots`: the roots' rows.
    """
    start = prior = uniform(EDGES)
    for _ in range(ROUNDS):
        found = infer(shape, draws, right, prior)
        landings, steps = np.zeros(CELLS), 0
        for level in shape:
            rows = level.rows[told[level.rows]]
            below, outside = found.below[rows], found.outside[rows]
            chance = np.einsum("nv,vz,nz->n", outside, prior.kernel, below, optimize=False)
            jumped = prior.jump * prior.landing * below / chance[:, None]
            landings += jumped.sum(axis=0)
            steps += len(rows)
        jumps = landings.sum()
        starts = found.belief[roots[told[roots]]].sum(axis=0)
        prior = Prior(
            edges=EDGES,
            root=(starts + PSEUDO_CELLS * start.root) / (starts.sum() + PSEUDO_CELLS),
            landing=(landings + PSEUDO_CELLS * start.landing) / (jumps + PSEUDO_CELLS),
            jump=float((jumps + PSEUDO_STEPS * JUMP) / (steps + PSEUDO_STEPS)),
        )
    return prior
