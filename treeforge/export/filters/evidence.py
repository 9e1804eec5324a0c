"""Weak labels: few outcomes behind them, or a wide interval."""

from __future__ import annotations

from collections import Counter

import numpy as np
from numpy.typing import NDArray

from treeforge.config import ExportConfig
from treeforge.export.blocks import ExportBlock
from treeforge.value import Values

WEAK = "label: "
"""How the reasons begin by which a label was taken away."""


def drop_weak_labels(block: ExportBlock, config: ExportConfig, dropped: Counter[str]) -> ExportBlock:
    """The trees with the weak labels taken away, so that every format does without them. `dropped` counts them.

    A node keeps its value; only its labels go. A step that ends a trajectory counts its own completions, as every step.
    """
    if config.min_rollouts <= 0 and config.max_interval >= 1:
        return block
    labels = []
    for forest in block.passes:
        few, wide = _weak(forest.values, config)
        if forest.number == 0:
            for reason, mask in (
                (f"fewer than {config.min_rollouts} outcomes", few),
                (f"interval wider than {config.max_interval:g}", wide & ~few),
            ):
                count = int(np.count_nonzero(mask & (forest.hard >= 0)))
                if count:
                    dropped[f"{WEAK}{reason}"] += count
        labels.append(_without(forest.hard, forest.soft, few | wide))
    return block.relabelled(labels)


def _weak(values: Values, config: ExportConfig) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    with np.errstate(invalid="ignore"):
        return values.rollouts < config.min_rollouts, values.high - values.low > config.max_interval


def _without(
    hard: NDArray[np.int8], soft: NDArray[np.float64], weak: NDArray[np.bool_]
) -> tuple[NDArray[np.int8], NDArray[np.float64]]:
    return np.where(weak, np.int8(-1), hard), np.where(weak, np.nan, soft)
