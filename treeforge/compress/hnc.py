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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from treeforge.compress.merges import ROUNDING, Candidates, Choice, choose, find_candidates
from treeforge.compress.report import CompressReport, DepthReport
from treeforge.compress.weights import Weights
from treeforge.config import CompressConfig
from treeforge.errors import TreeError
from treeforge.evidence import Evidence, Floats, Levels, Truncated
from treeforge.forest import Forest, Rows
from treeforge.hashing import digest, encode_text
from treeforge.tree import Tree
from treeforge.value import WeightedEstimator


@dataclass(frozen=True, kw_only=True, slots=True)
class Compressed:
    """A compressed tree. Row i is the same node as row i of the original tree."""

    tree: Tree
    """A valid `Tree`; `merged_from` is (p, x) at a merged x. Its search statistics are 0, 0 and NaN."""
    shifted: NDArray[np.bool_]
    """bool[n]: nodes whose value differs from the original tree's (merged p's, where S' != S)."""
    report: CompressReport


def compress(
    tree: Tree,
    config: CompressConfig,
    *,
    key: str,
    estimator: WeightedEstimator = "policy_mean",
    truncated: Truncated = "wrong",
    threshold: float = 0.5,
    known: Floats | None = None,
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

    `known` (float64[n], NaN for none) are values that came from elsewhere, people's or another engine's: there is no
    evidence to take from p, so that merges join steps and move no value.

    Raises `TreeError` for a tree that was compressed before: rows of the uncompressed tree could not be named.
    """
    made = next(
        compress_passes(
            Forest.of((tree,)),
            config,
            keys=(key,),
            estimator=estimator,
            truncated=truncated,
            threshold=threshold,
            known=known,
        )
    )
    return Compressed(tree=made.trees([tree])[0], shifted=made.shifted, report=made.report)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """What one pass made of several trees. Rows are those of the original trees, one after another."""

    number: int
    """From 1."""
    forest: Forest
    """The compressed trees; also those that the pass left as they were."""
    p: Rows
    """intp[merges]: the nodes that merged with a child, each x's own …"""
    x: Rows
    """… intp[merges]: and these children, in row order: x's text is p's and its own, its `merged_from` (p, x)."""
    new: NDArray[np.bool_]
    """bool[trees]: those that something merged in, and not the same as in an earlier pass."""
    shifted: NDArray[np.bool_]
    """bool[n]: as in `Compressed`."""
    report: CompressReport

    def trees(self, originals: Sequence[Tree]) -> list[Tree]:
        """The compressed trees, each by itself; `originals` are those that the pass was made of."""
        forest, made = self.forest, []
        bounds = np.searchsorted(self.x, forest.starts).tolist()
        for tree, rows, (first, last) in zip(originals, forest.rows(), pairwise(bounds), strict=True):
            start, parent = rows.start, forest.parent[rows]
            text, merged_from = list(tree.text), list(tree.merged_from)
            merges = np.stack([self.p[first:last], self.x[first:last]], axis=1) - start
            for above, row in merges.tolist():
                text[row] = tree.text[above] + tree.text[row]
                merged_from[row] = (above, row)
            made.append(
                replace(
                    tree,
                    parent=np.where(parent >= 0, parent - start, -1),
                    text=tuple(text),
                    merged_from=tuple(merged_from),
                    **{name: getattr(forest, name)[rows] for name in _CHANGED},
                )
            )
        return made


_CHANGED = ("depth", "token_count", "logprob", "multiplicity", "visits", "value_sum", "prior")
"""The columns beside `parent`, texts and `merged_from` that a merge changes."""


def compress_passes(
    forest: Forest,
    config: CompressConfig,
    *,
    keys: Sequence[str],
    estimator: WeightedEstimator = "policy_mean",
    truncated: Truncated = "wrong",
    threshold: float = 0.5,
    known: Floats | None = None,
) -> Iterator[Pass]:
    """`compress` of several trees at once, each with its own key, once for each of `config.passes`.

    Each pass starts from the original trees with further random numbers; the first is what `compress` gives. A pass
    that would merge in a tree just what an earlier one did draws again, a few times, and then leaves the tree alone.
    `known` are the values of all trees, one tree's after another's.
    """
    if forest.merged.any():
        raise TreeError("the tree was compressed before; compress the original tree")
    evidence = Evidence.of(forest)
    levels = Levels.of(evidence)
    weights = Weights.none(evidence, known) if known is not None else Weights.of(evidence, levels, estimator, truncated)
    candidates = find_candidates(forest, weights, config.min_children)
    split = weights if estimator == "policy_mean" and known is None else None
    keyed = [digest(encode_text(key)) for key in keys]
    seen: list[set[bytes]] = [{b""} for _ in keys]
    for number in range(1, config.passes + 1):
        chosen = choose(forest, weights, candidates, config, keyed, number, seen)
        merged = _merge(forest, levels, chosen.x, split)
        compressed = Evidence.of(merged)
        after = weights if known is not None else Weights.of(compressed, Levels.of(compressed), estimator, truncated)
        shifted, report = _report(forest, weights, after, candidates, chosen, threshold)
        yield Pass(
            number=number,
            forest=merged,
            p=weights.parent[chosen.x],
            x=chosen.x,
            new=chosen.new,
            shifted=shifted,
            report=report,
        )


def _report(
    forest: Forest,
    weights: Weights,
    after: Weights,
    candidates: Candidates,
    chosen: Choice,
    threshold: float,
) -> tuple[NDArray[np.bool_], CompressReport]:
    """Which nodes' values moved, and the numbers of one pass."""
    x = chosen.x
    p = weights.parent[x]
    before, shift = weights.value[p], weights.shift(x)
    size = np.abs(shift)
    changed = size > ROUNDING
    crossed = changed & ((before > threshold) != (before + shift > threshold))
    shifted, moved = np.zeros(forest.size, dtype=np.bool_), np.zeros(forest.size, dtype=np.bool_)
    shifted[p[changed]] = True
    moved[x] = True
    eligible = candidates.can_merge & ~moved
    counted = weights.evaluated & (forest.parent >= 0)
    observed = np.abs(after.value - weights.value)[counted]
    depths: dict[int, DepthReport] = {}
    for depth in np.unique(forest.depth[eligible]).tolist():
        here = forest.depth[p] == depth
        depths[depth] = DepthReport(
            eligible=int(np.count_nonzero(forest.depth[eligible] == depth)),
            merges=int(np.count_nonzero(here)),
            changed=int(np.count_nonzero(changed & here)),
            hard_flips=int(np.count_nonzero(crossed & here)),
            shift_sum=float(size[here].sum()),
            shift_max=float(size[here].max(initial=0.0)),
        )
    return shifted, CompressReport(
        trees=len(chosen.new),
        nodes=forest.size,
        evaluated=int(np.count_nonzero(counted)),
        eligible=int(np.count_nonzero(eligible)),
        merges=len(x),
        refused=chosen.refused,
        changed=int(np.count_nonzero(changed)),
        hard_flips=int(np.count_nonzero(crossed)),
        shift_sum=float(size.sum()),
        shift_max=float(size.max(initial=0.0)),
        target_missed=chosen.missed,
        alike=int(np.count_nonzero(~chosen.new)),
        observed_sum=float(observed.sum()),
        observed_max=float(observed.max(initial=0.0)),
        by_depth=depths,
    )


def _merge(forest: Forest, levels: Levels, x: Rows, split: Weights | None) -> Forest:
    """Merge each of `x` with its parent; with `split`, divide the parent's multiplicity as `policy_mean` needs it."""
    n, p = forest.size, forest.parent[x].astype(np.intp)
    parent, multiplicity = forest.parent.copy(), forest.multiplicity.copy()
    token_count, logprob = forest.token_count.copy(), forest.logprob.copy()
    merged = forest.merged.copy()
    parent[x] = forest.parent[p]
    token_count[x] += token_count[p]
    logprob[x] += logprob[p]
    merged[x] = True
    if split is not None:
        taken = multiplicity[p] * split.part[x] / split.total[p]
        multiplicity[x] = taken
        multiplicity[p] -= taken

    lifted = np.zeros(n, dtype=np.int16)
    lifted[x] = 1
    starts = levels.starts.tolist()
    for start, end in pairwise(starts[1:-1]):
        rows = levels.order[start:end]
        lifted[rows] += lifted[forest.parent[rows]]
    return forest.changed(
        parent=parent,
        depth=forest.depth - lifted,
        token_count=token_count,
        logprob=logprob,
        multiplicity=multiplicity,
        visits=np.zeros(n, dtype=np.int32),
        value_sum=np.zeros(n),
        prior=np.full(n, np.nan, dtype=np.float32),
        merged=merged,
    )
