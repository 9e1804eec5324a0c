"""Weak labels: few outcomes behind them, or a wide interval."""

from __future__ import annotations

from collections import Counter

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from treeforge.config import ExportConfig
from treeforge.export.trees import ExportTree
from treeforge.value import Values


def drop_weak_labels(tree: ExportTree, config: ExportConfig, dropped: Counter[str]) -> ExportTree:
    """The tree with the weak labels taken away, so that every format does without them. `dropped` counts them.

    A node keeps its value; only its labels go. A step that ends a trajectory counts its own completions, as every step.
    """
    if config.min_rollouts <= 0 and config.max_interval >= 1:
        return tree
    few, wide = _weak(tree.values, config)
    for reason, mask in (
        (f"fewer than {config.min_rollouts} outcomes", few),
        (f"interval wider than {config.max_interval:g}", wide & ~few),
    ):
        count = int(np.count_nonzero(mask & (tree.hard >= 0)))
        if count:
            dropped[f"label: {reason}"] += count
    hard, soft = _without(tree.hard, tree.soft, few | wide)
    passes = []
    for labelled in tree.compressed:
        few, wide = _weak(labelled.values, config)
        passes.append(
            replace(
                labelled, **dict(zip(("hard", "soft"), _without(labelled.hard, labelled.soft, few | wide), strict=True))
            )
        )
    return replace(tree, hard=hard, soft=soft, compressed=tuple(passes))


def _weak(values: Values, config: ExportConfig) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    with np.errstate(invalid="ignore"):
        return values.rollouts < config.min_rollouts, values.high - values.low > config.max_interval


def _without(
    hard: NDArray[np.int8], soft: NDArray[np.float64], weak: NDArray[np.bool_]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    return np.where(weak, np.int8(-1), hard), np.where(weak, np.nan, soft)
