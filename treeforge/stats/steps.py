"""What the nodes of a run add up to: the shape of the trees, and the labels of their steps."""

from __future__ import annotations

from collections import Counter
from statistics import NormalDist
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeforge.evidence import Evidence, Floats, outcomes, whole
from treeforge.label.steps import NO_LABEL, UNKNOWN_ERROR, first_errors
from treeforge.stats.blocks import BlockNodes
from treeforge.stats.summary import EFFECTIVE_BINS, HISTOGRAM_BINS, LabelCounts, LabelsAtDepth

_LABELS = ("unlabelled", "negative", "positive")
"""The names of hard labels -1, 0 and 1."""
_ODD = np.uint64(0x9E3779B97F4A7C15)
"""Spreads parents over 64 bits, so that parent and text make one key."""


class Shape:
    """Sums over the families of the trees: a node and its children. Blocks are added one by one."""

    def __init__(self) -> None:
        self.expanded = 0
        """Nodes with children."""
        self.distinct = 0
        """Children, those of one text under one node counted once."""
        self.max_branching = 0
        self.leaf_depth = 0
        """Σ depth of the nodes without children."""

    def add(self, nodes: BlockNodes) -> None:
        """Add the trees of a block. Without texts all children count as distinct."""
        parent, depth = nodes.evidence.parent, nodes.evidence.depth
        steps = nodes.is_step
        children = np.bincount(parent[steps], minlength=len(parent))
        self.expanded += int(np.count_nonzero(children))
        self.max_branching = max(self.max_branching, int(children.max(initial=0)))
        self.leaf_depth += int(depth[children == 0].sum(dtype=np.int64))
        if nodes.text is None:
            self.distinct += int(np.count_nonzero(steps))
        else:
            mixed = nodes.text[steps] + parent[steps].astype(np.uint64) * _ODD
            self.distinct += len(np.unique(mixed))


class Labels:
    """Sums over the labels of all steps. Blocks are added one by one."""

    def __init__(self, state: dict[str, Any]) -> None:
        """`state`: of the view `labels`, as `view_state` gives it."""
        self._state = state
        config = state["config"]["label"]
        self._truncated = config.get("truncated", "wrong")
        self._confidence = float(config.get("confidence", 0.9))
        self._by_depth = Counter[tuple[int, int]]()
        self._values, self._intervals = _zeros(HISTOGRAM_BINS), _zeros(HISTOGRAM_BINS)
        self._sizes = _zeros(len(EFFECTIVE_BINS))
        self._edges = [0, 0]
        self._width = self._size = 0.0
        self._errors = Counter[int]()
        self._pairs = _zeros(9)

    def add(self, nodes: BlockNodes) -> None:
        """Add the labels of a block."""
        shown = nodes.listed & nodes.is_step
        self._add_depths(nodes, shown)
        self._add_values(nodes, shown)
        self._add_errors(nodes)
        later = np.flatnonzero(shown & (nodes.evidence.depth >= 2))
        earlier = nodes.evidence.parent[later]
        self._pairs += np.bincount(3 * (nodes.hard[earlier] + 1) + nodes.hard[later] + 1, minlength=9)

    def _add_depths(self, nodes: BlockNodes, shown: NDArray[np.bool_]) -> None:
        key = 3 * nodes.evidence.depth[shown].astype(np.int64) + nodes.hard[shown] + 1
        for code, count in enumerate(np.bincount(key).tolist()):
            if count:
                self._by_depth[code // 3, code % 3 - 1] += count

    def _add_values(self, nodes: BlockNodes, shown: NDArray[np.bool_]) -> None:
        known = shown & ~np.isnan(nodes.value)
        value = nodes.value[known]
        self._values += _histogram(value)
        self._edges[0] += int(np.count_nonzero(value == 0))
        self._edges[1] += int(np.count_nonzero(value == 1))
        with np.errstate(invalid="ignore"):  # imported values have no intervals
            open_ = known & (nodes.high > nodes.low)
        width = nodes.high[open_] - nodes.low[open_]
        self._intervals += _histogram(width)
        self._width += float(width.sum())
        size = effective_size(nodes.value[open_], width, self._confidence)
        self._sizes += np.bincount(np.searchsorted(EFFECTIVE_BINS, size, side="right") - 1, minlength=len(self._sizes))
        self._size += float(size.sum())

    def _add_errors(self, nodes: BlockNodes) -> None:
        """Wrong completions by the place of their first negative step.

        A leaf and an own rollout have the path to their node; what comes after it, of a rollout, has no labels.
        """
        wrong = _wrong_completions(nodes.evidence, self._truncated)
        wrong[~nodes.listed] = 0
        rows = np.flatnonzero(wrong)
        first = first_errors(nodes.evidence, nodes.hard)[rows]
        for code, count in enumerate(np.bincount(first - UNKNOWN_ERROR, wrong[rows]).tolist()):
            if count:
                self._errors[code + UNKNOWN_ERROR] += round(count)

    def counts(self) -> LabelCounts:
        """The sums as a section of the summary."""
        state, total, intervals = self._state, Counter[int](), int(self._intervals.sum())
        for (_, hard), steps in self._by_depth.items():
            total[hard] += steps
        decided = total[0] + total[1]
        last = max(self._errors, default=-1)
        return LabelCounts(
            config=state["config"]["label"],
            recheck=state["config"].get("recheck"),
            stale=state["stale"],
            positive=total[1],
            negative=total[0],
            unlabelled=total[NO_LABEL],
            positive_share=total[1] / decided if decided else None,
            by_depth=tuple(
                LabelsAtDepth(
                    depth=depth,
                    positive=self._by_depth[depth, 1],
                    negative=self._by_depth[depth, 0],
                    unlabelled=self._by_depth[depth, NO_LABEL],
                )
                for depth in sorted({depth for depth, _ in self._by_depth})
            ),
            value_histogram=tuple(self._values.tolist()),
            always_wrong=self._edges[0],
            always_right=self._edges[1],
            interval_histogram=tuple(self._intervals.tolist()),
            interval_width=self._width / intervals if intervals else None,
            effective_histogram=tuple(self._sizes.tolist()),
            effective_size=self._size / intervals if intervals else None,
            first_errors=tuple(self._errors[place] for place in range(last + 1)),
            first_error_later=self._errors[-1],
            first_error_unknown=self._errors[UNKNOWN_ERROR],
            pairs={
                f"{_LABELS[code // 3]}_{_LABELS[code % 3]}": count
                for code, count in enumerate(self._pairs.tolist())
                if count
            },
        )


def effective_size(value: Floats, width: Floats, confidence: float) -> Floats:
    """float64[n]: how many independent outcomes would give a share of `value` an interval (Wilson's) of this width.

    Widths are in (0, 1]. The width w is 2 z √(v (1 - v) n + z²/4) / (n + z²); solved for n.
    """
    z2 = NormalDist().inv_cdf((1 + confidence) / 2) ** 2
    a = width**2 / 4
    b = z2 * (width**2 / 2 - value * (1 - value))
    c = z2 * z2 * (width**2 - 1) / 4
    size: Floats = np.maximum((np.sqrt(np.maximum(b * b - 4 * a * c, 0.0)) - b) / (2 * a), 0.0)
    return np.round(size, 6)  # so that one outcome is 1, not a little less


def _wrong_completions(evidence: Evidence, truncated: Any) -> Floats:
    counted = outcomes(evidence, truncated=truncated, undecided="left out")
    ended = whole(evidence.multiplicity) * counted.ended * (1 - counted.right)
    return ended + counted.own - counted.own_correct


def _histogram(shares: Floats) -> NDArray[np.int64]:
    """int64[HISTOGRAM_BINS]: counts of numbers in [0, 1] by bins of equal width; 1 is in the last."""
    places = np.clip((shares * HISTOGRAM_BINS).astype(np.int64), 0, HISTOGRAM_BINS - 1)
    return np.bincount(places, minlength=HISTOGRAM_BINS)


def _zeros(bins: int) -> NDArray[np.int64]:
    return np.zeros(bins, dtype=np.int64)
