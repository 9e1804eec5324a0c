"""Which nodes merge with which of their children: the candidates, and the choice among them, seeded per tree."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treeforge.compress.weights import Weights
from treeforge.config import CompressConfig
from treeforge.evidence import Floats
from treeforge.forest import Forest, Rows
from treeforge.hashing import derive_seed

ROUNDING = 1e-12
"""A move of a value by less is none."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """The merges of one pass."""

    x: Rows
    """The children that merge with their parents, in row order."""
    new: NDArray[np.bool_]
    """bool[trees]: as in `Pass`."""
    refused: int
    missed: int


_DRAWS = 8
"""Random draws for one tree in one pass, until its merges are not those of an earlier pass."""


def choose(
    forest: Forest,
    weights: Weights,
    candidates: Candidates,
    config: CompressConfig,
    keys: Sequence[bytes],
    number: int,
    seen: list[set[bytes]],
) -> Choice:
    """The merges of pass `number`; `seen` holds the merges of each tree's earlier passes and takes up the new ones."""
    n, starts = forest.size, forest.starts
    coin, pick = np.empty(n), np.empty(n)
    left = list(range(len(keys)))
    new = np.zeros(len(keys), dtype=np.bool_)
    parts: list[Rows] = [np.empty(0, dtype=np.intp)] * len(keys)
    refused = np.zeros(len(keys), dtype=np.int64)
    missed = np.zeros(len(keys), dtype=np.bool_)
    for draw in range(_DRAWS if config.passes > 1 else 1):
        for tree in left:
            rows = slice(starts[tree], starts[tree + 1])
            seed = derive_seed(config.seed, keys[tree], "hnc", number - 1 + draw * 1000)
            coin[rows], pick[rows] = np.random.default_rng(seed).random((2, rows.stop - rows.start))
        if config.target_noise > 0:
            x, refusals, short = _toward_targets(forest, weights, candidates, config, coin, pick)
        else:
            x, refusals = _by_chance(forest.depth, weights, candidates, config, coin, pick)
            short = np.zeros(len(keys), dtype=np.bool_)
        bounds = np.searchsorted(x, starts)
        refused_at = np.searchsorted(refusals, starts)
        again = []
        for tree in left:
            part = x[bounds[tree] : bounds[tree + 1]]
            mark = (part - starts[tree]).tobytes()
            refused[tree] = refused_at[tree + 1] - refused_at[tree]
            missed[tree] = short[tree]
            if mark not in seen[tree]:
                seen[tree].add(mark)
                parts[tree], new[tree] = part, True
            elif candidates.can_merge[starts[tree] : starts[tree + 1]].any():
                again.append(tree)
        left = again
        if not left:
            break
    return Choice(x=np.concatenate(parts), new=new, refused=int(refused.sum()), missed=int(np.count_nonzero(missed)))


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidates:
    """Which nodes may merge, and with which children."""

    can_merge: NDArray[np.bool_]
    """bool[n]: p's rules hold, but for having been moved."""
    children: Rows
    """Evaluated children, grouped by parent, in row order."""
    first: Rows
    """intp[n]: where each node's group starts in `children`."""
    count: Rows
    """intp[n]: its size."""


def find_candidates(forest: Forest, weights: Weights, min_children: int) -> Candidates:
    """The candidates of all trees."""
    n, below = forest.size, forest.parent >= 0
    # A child without weight stands for no sample of its own (`omega`): nothing would leave p with it.
    children = np.flatnonzero(weights.evaluated & (weights.part > 0) & below)
    children = children[np.argsort(weights.parent[children], kind="stable")]
    count = np.bincount(weights.parent[children], minlength=n)
    can_merge = (
        below
        & (np.bincount(weights.parent[below], minlength=n) >= min_children)
        & ~forest.observed
        & ((count > 1) | ((count == 1) & (weights.own > 0)))
    )
    return Candidates(can_merge=can_merge, children=children, first=np.cumsum(count) - count, count=count)


def _by_chance(
    depth: NDArray[np.int16],
    weights: Weights,
    candidates: Candidates,
    config: CompressConfig,
    coin: Floats,
    pick: Floats,
) -> tuple[Rows, Rows]:
    """The children that merge with their parents, and those whose merges were refused; both in row order."""
    p = np.flatnonzero(candidates.can_merge)
    count = candidates.count[p]
    if config.rule == "paper":
        nth = _tails(pick[p], config.probability)
        chosen = nth < count
    else:
        nth = np.floor(pick[p] * count)
        chosen = coin[p] < config.probability
    p, nth = p[chosen], nth[chosen].astype(np.intp)
    x = candidates.children[candidates.first[p] + nth]
    allowed = np.abs(weights.shift(x)) <= config.max_label_shift + ROUNDING

    moved = np.zeros(len(depth), dtype=np.bool_)
    stays = np.zeros(len(p), dtype=np.bool_)
    breadth_first = np.argsort(depth[p], kind="stable")
    for level in np.split(breadth_first, np.flatnonzero(np.diff(depth[p[breadth_first]])) + 1):
        stays[level] = ~moved[p[level]]
        moved[x[level[stays[level] & allowed[level]]]] = True
    return np.sort(x[stays & allowed]), np.sort(x[stays & ~allowed])


def _toward_targets(
    forest: Forest, weights: Weights, candidates: Candidates, config: CompressConfig, coin: Floats, pick: Floats
) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Merge in each tree until its Σ |S' - S| is enough: the children, the refused ones, trees that fell short."""
    tails = _tails(pick, config.probability)
    counted = weights.evaluated & (forest.parent >= 0)
    chosen: list[int] = []
    refused: list[int] = []
    short = np.zeros(len(forest.starts) - 1, dtype=np.bool_)
    for tree, (start, stop) in enumerate(pairwise(forest.starts.tolist())):
        needed = config.target_noise * int(np.count_nonzero(counted[start:stop]))
        p = start + np.flatnonzero(candidates.can_merge[start:stop])
        merging: set[int] = set()
        reached = 0.0
        for row in p[np.argsort(coin[p], kind="stable")].tolist():
            if reached >= needed:
                break
            first = int(candidates.first[row])
            children = candidates.children[first : first + int(candidates.count[row])].tolist()
            free = [x for x in children if x not in merging]
            if row in merging or not free or (config.rule == "paper" and config.probability == 0):
                continue
            nth = int(tails[row] % len(free)) if config.rule == "paper" else int(pick[row] * len(free))
            shift = abs(float(weights.shift(np.array([free[nth]]))[0]))
            if shift > config.max_label_shift + ROUNDING:
                refused.append(free[nth])
                continue
            reached += shift
            merging |= {row, free[nth]}
            chosen.append(free[nth])
        short[tree] = reached < needed
    return np.sort(np.array(chosen, dtype=np.intp)), np.sort(np.array(refused, dtype=np.intp)), short


def _tails(uniform: Floats, probability: float) -> Floats:
    """How often a coin fails to come up before it does: a geometric variable made of a uniform one."""
    if probability >= 1:
        return np.zeros_like(uniform)
    if probability <= 0:
        return np.full_like(uniform, np.inf)
    tails: Floats = np.floor(np.log1p(-uniform) / np.log1p(-probability))
    return tails
