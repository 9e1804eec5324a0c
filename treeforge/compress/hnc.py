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

from treeforge.compress.forest import Forest
from treeforge.compress.report import CompressReport, DepthReport
from treeforge.config import CompressConfig
from treeforge.errors import TreeError
from treeforge.evidence import Evidence, Floats, Levels, Truncated, leaf_share, outcomes, policy_values
from treeforge.hashing import derive_seed, digest, encode_text
from treeforge.tree import Tree
from treeforge.value import WeightedEstimator

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
    return Compressed(tree=made.forest.tree, shifted=made.shifted, report=made.report)


@dataclass(frozen=True, kw_only=True, slots=True)
class Pass:
    """What one pass made of several trees. Rows are those of the original trees, one after another."""

    number: int
    """From 1."""
    forest: Forest
    """The compressed trees; also those that the pass left as they were."""
    new: NDArray[np.bool_]
    """bool[trees]: those that something merged in, and not the same as in an earlier pass."""
    shifted: NDArray[np.bool_]
    """bool[n]: as in `Compressed`."""
    report: CompressReport


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
    if any(forest.tree.merged_from):
        raise TreeError("the tree was compressed before; compress the original tree")
    evidence = Evidence.of(forest.tree)
    levels = Levels.of(evidence)
    weights = _weigh(evidence, levels, estimator, truncated) if known is None else _weightless(evidence, known)
    candidates = _find_candidates(forest.tree, weights, config.min_children)
    split = weights if estimator == "policy_mean" and known is None else None
    keyed = [digest(encode_text(key)) for key in keys]
    seen: list[set[bytes]] = [{b""} for _ in keys]
    for number in range(1, config.passes + 1):
        chosen = _choose(forest, weights, candidates, config, keyed, number, seen)
        merged = _merge(forest.tree, levels, chosen.x, split)
        compressed = Evidence.of(merged)
        after = weights if known is not None else _weigh(compressed, Levels.of(compressed), estimator, truncated)
        shifted, report = _report(forest, weights, after, candidates, chosen, threshold)
        yield Pass(
            number=number,
            forest=Forest(tree=merged, starts=forest.starts),
            new=chosen.new,
            shifted=shifted,
            report=report,
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class _Choice:
    """The merges of one pass."""

    x: Rows
    """The children that merge with their parents, in row order."""
    new: NDArray[np.bool_]
    """bool[trees]: as in `Pass`."""
    refused: int
    missed: int


_DRAWS = 8
"""Random draws for one tree in one pass, until its merges are not those of an earlier pass."""


def _choose(
    forest: Forest,
    weights: _Weights,
    candidates: _Candidates,
    config: CompressConfig,
    keys: Sequence[bytes],
    number: int,
    seen: list[set[bytes]],
) -> _Choice:
    """The merges of pass `number`; `seen` holds the merges of each tree's earlier passes and takes up the new ones."""
    n, starts = forest.tree.size, forest.starts
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
            x, refusals = _by_chance(forest.tree.depth, weights, candidates, config, coin, pick)
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
    return _Choice(x=np.concatenate(parts), new=new, refused=int(refused.sum()), missed=int(np.count_nonzero(missed)))


def _report(
    forest: Forest,
    weights: _Weights,
    after: _Weights,
    candidates: _Candidates,
    chosen: _Choice,
    threshold: float,
) -> tuple[NDArray[np.bool_], CompressReport]:
    """Which nodes' values moved, and the numbers of one pass."""
    tree, x = forest.tree, chosen.x
    p = weights.parent[x]
    before, shift = weights.value[p], weights.shift(x)
    size = np.abs(shift)
    changed = size > _ROUNDING
    crossed = changed & ((before > threshold) != (before + shift > threshold))
    shifted, moved = np.zeros(tree.size, dtype=np.bool_), np.zeros(tree.size, dtype=np.bool_)
    shifted[p[changed]] = True
    moved[x] = True
    eligible = candidates.can_merge & ~moved
    counted = weights.evaluated & (tree.parent >= 0)
    observed = np.abs(after.value - weights.value)[counted]
    depths: dict[int, DepthReport] = {}
    for depth in np.unique(tree.depth[eligible]).tolist():
        here = tree.depth[p] == depth
        depths[depth] = DepthReport(
            eligible=int(np.count_nonzero(tree.depth[eligible] == depth)),
            merges=int(np.count_nonzero(here)),
            changed=int(np.count_nonzero(changed & here)),
            hard_flips=int(np.count_nonzero(crossed & here)),
            shift_sum=float(size[here].sum()),
            shift_max=float(size[here].max(initial=0.0)),
        )
    return shifted, CompressReport(
        trees=len(chosen.new),
        nodes=tree.size,
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


def _weigh(evidence: Evidence, levels: Levels, estimator: WeightedEstimator, truncated: Truncated) -> _Weights:
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


def _weightless(evidence: Evidence, known: Floats) -> _Weights:
    """Of values that came from elsewhere: beside an infinite denominator no child's part moves its parent's value."""
    n = len(known)
    return _Weights(
        parent=evidence.parent.astype(np.intp),
        value=np.nan_to_num(known),
        evaluated=~np.isnan(known),
        total=np.full(n, np.inf),
        part=np.ones(n),
        own=np.zeros(n),
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
    # A child without weight stands for no sample of its own (`omega`): nothing would leave p with it.
    children = np.flatnonzero(weights.evaluated & (weights.part > 0) & (tree.parent >= 0))
    children = children[np.argsort(weights.parent[children], kind="stable")]
    count = np.bincount(weights.parent[children], minlength=n)
    observed = np.fromiter(map(bool, tree.observation), dtype=np.bool_, count=n)
    can_merge = (
        (tree.parent >= 0)
        & (np.bincount(weights.parent[tree.parent >= 0], minlength=n) >= min_children)
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
    allowed = np.abs(weights.shift(x)) <= config.max_label_shift + _ROUNDING

    moved = np.zeros(len(depth), dtype=np.bool_)
    stays = np.zeros(len(p), dtype=np.bool_)
    breadth_first = np.argsort(depth[p], kind="stable")
    for level in np.split(breadth_first, np.flatnonzero(np.diff(depth[p[breadth_first]])) + 1):
        stays[level] = ~moved[p[level]]
        moved[x[level[stays[level] & allowed[level]]]] = True
    return np.sort(x[stays & allowed]), np.sort(x[stays & ~allowed])


def _toward_targets(
    forest: Forest, weights: _Weights, candidates: _Candidates, config: CompressConfig, coin: Floats, pick: Floats
) -> tuple[Rows, Rows, NDArray[np.bool_]]:
    """Merge in each tree until its Σ |S' - S| is enough: the children, the refused ones, trees that fell short."""
    tails = _tails(pick, config.probability)
    counted = weights.evaluated & (forest.tree.parent >= 0)
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
            if shift > config.max_label_shift + _ROUNDING:
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
