"""Hierarchical Node Compression (HRM paper, arXiv 2503.13551, Section 3.3): merge a node with one of its children.

Where node p merges with its child x, x's text becomes p's text + x's text and x, with its subtree, hangs under p's
parent at p's depth:

    g                         g
    └── p                     ├── p
        ├── x        =>       │   ├── y
        │   └── …             │   └── z
        ├── y                 └── p+x
        └── z                     └── …

Every node keeps its row (x's new parent stands before p, which stands before x), so rollouts and labels that name
rows still fit. p alone changes its value: it lost x's part of its evidence. Merges do not disturb each other: what a
merge does to p's value can be said before any merge is made.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treeforge.compress.report import CompressReport
from treeforge.config import CompressConfig
from treeforge.errors import TreeError
from treeforge.evidence import Evidence, Floats, Levels, Truncated, leaf_share, outcomes, policy_values
from treeforge.hashing import derive_seed, digest, encode_text
from treeforge.tree import Tree
from treeforge.value import TreeEstimator

Rows = NDArray[np.intp]

_ROUNDING = 1e-12


@dataclass(frozen=True, kw_only=True, slots=True)
class Compressed:
    """A compressed tree. Row i is the same node as row i of the original tree."""

    tree: Tree
    """A valid `Tree`; `merged_from` is (p, x) at a merged x. Its search statistics are 0, 0 and NaN."""
    shifted: NDArray[np.bool_]
    """bool[n]: nodes whose value differs from the original tree's (merged p's, where S' != S)."""
    report: CompressReport


@dataclass(frozen=True, kw_only=True, slots=True)
class _Weights:
    """The parts of the values that merges move, per row of the original tree."""

    parent: Rows
    value: Floats
    evaluated: NDArray[np.bool_]
    total: Floats
    """The denominator of each node's value."""
    part: Floats
    """Each evaluated node's part of its parent's denominator."""
    own: Floats
    """Own rollouts that count."""

    def shift(self, x: Rows) -> Floats:
        """S' - S of x's parent when x leaves it: t_x / (T - t_x) · (S - S_x)."""
        p = self.parent[x]
        return self.part[x] / (self.total[p] - self.part[x]) * (self.value[p] - self.value[x])


def compress(
    tree: Tree,
    config: CompressConfig,
    *,
    key: str,
    estimator: TreeEstimator = "policy_mean",
    truncated: Truncated = "wrong",
    threshold: float = 0.5,
) -> Compressed:
    """Compress one tree. The input is not changed; the same tree, config and key always give the same result.

    A node p is **eligible** where it is not the root, was not itself moved, has at least `min_children` children
    (evaluated or not), no observation, an evaluated child, and evidence left without it. Eligible nodes are visited
    breadth first, over the children of the original tree, and two random numbers a row, seeded by (`config.seed`,
    `key`), decide:

    - `rule="uniform"`: with chance `probability`, p merges with one of its evaluated children, each equally likely.
    - `rule="paper"`: p's evaluated children are visited in row order, a coin is tossed for each, and the first to come
      up (chance q = `probability`) is merged. So child j of K is chosen with chance q (1 - q)^(j - 1), and p merges
      with chance 1 - (1 - q)^K, more often than with chance q.
    - `max_label_shift`: a chosen merge that would move p's value further is refused; no other child is tried.
    - `target_noise` > 0 replaces p's chance to merge: eligible nodes in random order merge with a child that the rule
      chooses among those in no merge yet (`paper`: the tosses go round until one comes up), until the mean |S' - S|
      over all evaluated nodes but the root reaches the target. It is passed by less than the last merge's |S' - S|
      over the number of those nodes; `report.target_missed` is 1 where the allowed merges ran out before.

    `estimator` and `truncated` are those of the values that the tree is labelled with. Under `policy_mean` x takes
    m_p m_x / (r + Σm) of p's multiplicity along and p keeps the rest; under `leaf_share` multiplicities stay. Either
    way no node but p changes its value. `threshold` is the hard label's, for the report.

    Raises `TreeError` for a tree that was compressed before: rows of the uncompressed tree could not be named.
    """
    if any(tree.merged_from):
        raise TreeError("the tree was compressed before; compress the original tree")
    evidence = Evidence.of(tree)
    levels = Levels.of(evidence)
    weights = _weigh(evidence, levels, estimator, truncated)
    candidates = _find_candidates(tree, weights, config.min_children)
    rng = np.random.default_rng(derive_seed(config.seed, digest(encode_text(key)), "hnc", 0))
    coin, pick = rng.random((2, tree.size))
    evaluated = int(np.count_nonzero(weights.evaluated & (tree.parent >= 0)))

    refused, missed = 0, False
    if config.target_noise > 0:
        needed = config.target_noise * evaluated
        x, refused, missed = _toward_target(weights, candidates, config, needed, coin, pick)
    else:
        x, refused = _by_chance(tree.depth, weights, candidates, config, coin, pick)

    p = weights.parent[x]
    before, shift = weights.value[p], weights.shift(x)
    changed = np.abs(shift) > _ROUNDING
    crossed = changed & ((before > threshold) != (before + shift > threshold))
    shifted, moved = np.zeros(tree.size, dtype=np.bool_), np.zeros(tree.size, dtype=np.bool_)
    shifted[p[changed]] = True
    moved[x] = True
    report = CompressReport(
        trees=1,
        nodes=tree.size,
        evaluated=evaluated,
        eligible=int(np.count_nonzero(candidates.can_merge & ~moved)),
        merges=len(x),
        refused=refused,
        changed=int(np.count_nonzero(changed)),
        hard_flips=int(np.count_nonzero(crossed)),
        shift_sum=float(np.abs(shift).sum()),
        shift_max=float(np.abs(shift).max(initial=0.0)),
        target_missed=int(missed),
    )
    split = weights if estimator == "policy_mean" else None
    return Compressed(tree=_merge(tree, levels, x, split), shifted=shifted, report=report)


def _weigh(evidence: Evidence, levels: Levels, estimator: TreeEstimator, truncated: Truncated) -> _Weights:
    decided = outcomes(evidence, truncated=truncated, undecided="left out")
    if estimator == "policy_mean":
        value, total = policy_values(decided, levels, evidence.multiplicity)
        part = evidence.multiplicity
    else:
        share = leaf_share(decided, levels, evidence.multiplicity)
        value, total, part = share.value, share.weight, share.weight
    return _Weights(
        parent=evidence.parent.astype(np.intp),
        value=value,
        evaluated=~np.isnan(value),
        total=total,
        part=part,
        own=decided.own,
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Candidates:
    """Which nodes may merge, and with which children."""

    can_merge: NDArray[np.bool_]
    """bool[n]: p's rules hold, but for having been moved."""
    children: Rows
    """Evaluated children, grouped by parent, in row order."""
    first: Rows
    """intp[n]: where each node's group starts in `children`."""
    count: Rows
    """intp[n]: its size."""


def _find_candidates(tree: Tree, weights: _Weights, min_children: int) -> _Candidates:
    n = tree.size
    children = np.flatnonzero(weights.evaluated & (tree.parent >= 0))
    children = children[np.argsort(weights.parent[children], kind="stable")]
    count = np.bincount(weights.parent[children], minlength=n)
    observed = np.fromiter(map(bool, tree.observation), dtype=np.bool_, count=n)
    can_merge = (
        (tree.parent >= 0)
        & (np.bincount(weights.parent[1:], minlength=n) >= min_children)
        & ~observed
        & ((count > 1) | ((count == 1) & (weights.own > 0)))
    )
    return _Candidates(can_merge=can_merge, children=children, first=np.cumsum(count) - count, count=count)


def _by_chance(
    depth: NDArray[np.int16],
    weights: _Weights,
    candidates: _Candidates,
    config: CompressConfig,
    coin: Floats,
    pick: Floats,
) -> tuple[Rows, int]:
    """The children that merge with their parents, and how many merges were refused."""
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
    allowed = np.abs(weights.shift(x)) <= config.max_label_shift + _ROUNDING

    moved = np.zeros(len(depth), dtype=np.bool_)
    stays = np.zeros(len(p), dtype=np.bool_)
    breadth_first = np.argsort(depth[p], kind="stable")
    for level in np.split(breadth_first, np.flatnonzero(np.diff(depth[p[breadth_first]])) + 1):
        stays[level] = ~moved[p[level]]
        moved[x[level[stays[level] & allowed[level]]]] = True
    return x[stays & allowed], int(np.count_nonzero(stays & ~allowed))


def _toward_target(
    weights: _Weights, candidates: _Candidates, config: CompressConfig, needed: float, coin: Floats, pick: Floats
) -> tuple[Rows, int, bool]:
    """Merge until Σ |S' - S| is `needed`: the children, refused merges, and whether merges ran out before."""
    p = np.flatnonzero(candidates.can_merge)
    p = p[np.argsort(coin[p], kind="stable")]
    tails = _tails(pick, config.probability)
    merging: set[int] = set()
    chosen: list[int] = []
    refused, reached = 0, 0.0
    for row in p.tolist():
        if reached >= needed:
            break
        first = int(candidates.first[row])
        free = [x for x in candidates.children[first : first + int(candidates.count[row])].tolist() if x not in merging]
        if row in merging or not free or (config.rule == "paper" and config.probability == 0):
            continue
        nth = int(tails[row] % len(free)) if config.rule == "paper" else int(pick[row] * len(free))
        shift = abs(float(weights.shift(np.array([free[nth]]))[0]))
        if shift > config.max_label_shift + _ROUNDING:
            refused += 1
            continue
        reached += shift
        merging |= {row, free[nth]}
        chosen.append(free[nth])
    return np.sort(np.array(chosen, dtype=np.intp)), refused, reached < needed


def _tails(uniform: Floats, probability: float) -> Floats:
    """How often a coin fails to come up before it does: a geometric variable made of a uniform one."""
    if probability >= 1:
        return np.zeros_like(uniform)
    if probability <= 0:
        return np.full_like(uniform, np.inf)
    tails: Floats = np.floor(np.log1p(-uniform) / np.log1p(-probability))
    return tails


def _merge(tree: Tree, levels: Levels, x: Rows, split: _Weights | None) -> Tree:
    """Merge each of `x` with its parent; with `split`, divide the parent's multiplicity as `policy_mean` needs it."""
    p = tree.parent[x].astype(np.intp)
    parent, multiplicity = tree.parent.copy(), tree.multiplicity.copy()
    token_count, logprob = tree.token_count.copy(), tree.logprob.copy()
    parent[x] = tree.parent[p]
    token_count[x] += token_count[p]
    logprob[x] += logprob[p]
    if split is not None:
        taken = multiplicity[p] * split.part[x] / split.total[p]
        multiplicity[x] = taken
        multiplicity[p] -= taken

    lifted = np.zeros(tree.size, dtype=np.int16)
    lifted[x] = 1
    starts = levels.starts.tolist()
    for start, end in pairwise(starts[1:-1]):
        rows = levels.order[start:end]
        lifted[rows] += lifted[tree.parent[rows]]

    text, merged_from = list(tree.text), list(tree.merged_from)
    for above, row in zip(p.tolist(), x.tolist(), strict=True):
        text[row] = tree.text[above] + tree.text[row]
        merged_from[row] = (above, row)
    return replace(
        tree,
        parent=parent,
        depth=tree.depth - lifted,
        text=tuple(text),
        token_count=token_count,
        logprob=logprob,
        multiplicity=multiplicity,
        visits=np.zeros(tree.size, dtype=np.int32),
        value_sum=np.zeros(tree.size),
        prior=np.full(tree.size, np.nan, dtype=np.float32),
        merged_from=tuple(merged_from),
    )
