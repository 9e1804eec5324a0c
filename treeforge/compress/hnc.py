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
rows still fit. p alone changes its value: it lost x's part of its evidence. Merges do not disturb each other: what a merge
does to p's value can be said before any merge is made.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import reduce

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.config import CompressConfig
from treeforge.errors import TreeError
from treeforge.evidence import Evidence, Floats, Levels, Truncated, leaf_share, outcomes, policy_mean
from treeforge.hashing import derive_seed, digest, encode_text
from treeforge.tree import Tree
from treeforge.value import TreeEstimator

Rows = NDArray[np.intp]

_ROUNDING = 1e-12


class CompressReport(msgspec.Struct, frozen=True, kw_only=True):
    """What compression did to one tree; reports of several trees add up (`a + b`, `total(reports)`)."""

    trees: int = 0
    nodes: int = 0
    """Nodes, the roots included."""
    evaluated: int = 0
    """Nodes with a value, the roots not counted."""
    eligible: int = 0
    """Nodes that could have merged: all rules but chance, `max_label_shift` and `target_noise` allow it."""
    merges: int = 0
    refused: int = 0
    """Merges that chance had chosen and `max_label_shift` refused."""
    changed: int = 0
    """Nodes whose value changed (S' != S); at most one a merge."""
    hard_flips: int = 0
    """Of these, nodes whose value crossed the threshold of the hard label."""
    shift_sum: float = 0.0
    """Σ |S' - S|."""
    shift_max: float = 0.0
    """max |S' - S|."""
    target_missed: int = 0
    """Trees in which no allowed merge was left before the mean shift reached `target_noise`."""

    @property
    def mean_shift(self) -> float:
        """Mean |S' - S| over the merges; 0 without any."""
        return self.shift_sum / self.merges if self.merges else 0.0

    @property
    def noise(self) -> float:
        """Mean |S' - S| over all evaluated nodes: the label noise of the compressed trees."""
        return self.shift_sum / self.evaluated if self.evaluated else 0.0

    def __add__(self, other: CompressReport) -> CompressReport:
        both = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return CompressReport(**both | {"shift_max": max(self.shift_max, other.shift_max)})


def total(reports: Iterable[CompressReport]) -> CompressReport:
    """One report of many trees."""
    return reduce(CompressReport.__add__, reports, CompressReport())


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
    """What a merge moves, per row of the original tree."""

    parent: Rows
    value: Floats
    total: Floats
    """The denominator of each node's value."""
    part: Floats
    """Each node's part of its parent's denominator."""

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
    """Compress one tree. The input is not changed; the same (config, key) always gives the same result.

    A node p is **eligible** where it is not the root, was not itself moved, has at least `min_children` children
    (evaluated or not), no observation, an evaluated child, and evidence without it. Eligible nodes are visited breadth first,
    over the children of the original tree, and an engine-independent pair of random numbers a row, seeded by
    (`config.seed`, `key`), decides:

    - `rule="uniform"`: with chance `probability`, p merges with one of its evaluated children, each equally likely.
    - `rule="paper"`: p's evaluated children are visited in row order, a coin is tossed for each, and the first to come
      up (chance `probability`) is merged. So child j of K is chosen with chance q (1 - q)^(j - 1), and p merges with
      chance 1 - (1 - q)^K, more often than with chance q.
    - `max_label_shift`: a chosen merge that would move p's value further is refused; no other child is tried.
    - `target_noise` > 0 replaces the chance of p: eligible nodes in random order merge with a child chosen by the
      rule (`paper`: the tosses go round until one comes up), until the mean |S' - S| over all evaluated nodes but
      the root reaches the target. It is passed by less than the last merge's share. `report.target_missed` is 1 where
      the allowed merges ran out before.

    `estimator` and `truncated` are those of the values that the tree is labelled with. Under `policy_mean` x takes
    m_p m_x / (r + Σm) of p's multiplicity along and p keeps the rest; under `leaf_share` multiplicities stay. Either
    way no node but p changes its value. `threshold` is the hard label's, for the report.

    Raises `TreeError` for a tree that was compressed before: its rows of origin would be lost.
    """
    if any(tree.merged_from):
        raise TreeError("the tree was compressed before; compress the original tree")
    weights = _weights(tree, estimator, truncated)
    candidates = _candidates(tree, weights, config.min_children)
    coin, pick = np.random.default_rng(derive_seed(config.seed, digest(encode_text(key)), "hnc", 0)).random((2, tree.size))
    if config.target_noise > 0:
        x, eligible, refused, missed = _toward_target(tree, weights, candidates, config, coin, pick)
    else:
        x, eligible, refused = _by_chance(tree, weights, candidates, config, coin, pick)
        missed = 0

    p = weights.parent[x]
    shift = weights.shift(x)
    before, after = weights.value[p], weights.value[p] + shift
    changed = np.abs(shift) > _ROUNDING
    shifted = np.zeros(tree.size, dtype=np.bool_)
    shifted[p[changed]] = True
    report = CompressReport(
        trees=1,
        nodes=tree.size,
        evaluated=_evaluated(weights),
        eligible=eligible,
        merges=len(x),
        refused=refused,
        changed=int(changed.sum()),
        hard_flips=int(((before > threshold) != (after > threshold))[changed].sum()),
        shift_sum=float(np.abs(shift).sum()),
        shift_max=float(np.abs(shift).max(initial=0.0)),
        target_missed=missed,
    )
    return Compressed(tree=_merge(tree, weights, x, estimator), shifted=shifted, report=report)
