"""`exhaustive`: the HRM paper's breadth-first construction."""

from __future__ import annotations

from collections.abc import Sequence

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.sample import Sample
from treeforge.search.base import Strategy, spent_budget
from treeforge.search.growing import GrowingTree
from treeforge.search.selection import share_priors


def exhaustive(
    tree: GrowingTree, config: SearchConfig, budget: BudgetConfig, screening: Sequence[Sample] = ()
) -> Strategy:
    """The HRM paper's construction (arXiv 2503.13551, Section 3): breadth first, `children` samples a node.

    The nodes that make the last of `levels` levels are asked for completions to the end: each gives a node of that
    level and, as its own rollout, what follows. A level is one wave; `simulations` does not limit it. The screening's
    solutions are own rollouts of the root.
    """
    builder = tree.builder
    tree.absorb(0, screening, as_rollouts=True)
    level = [0]
    for depth in range(config.levels):
        last = depth == config.levels - 1
        wave = [tree.request(node, "rollout" if last else "step", config.children, 0) for node in level]
        replies = yield wave
        below: list[int] = []
        for node, samples in zip(level, replies, strict=True):
            _, _, new = tree.absorb(node, samples)
            below += [row for row in new if builder.finish[row] == 0]
        for node in level:
            share_priors(builder, node)
        if last or not below:
            break
        if reason := spent_budget(tree, budget):
            return "exhausted", reason
        level = below
    return "done", f"{int(max(builder.depth))} levels"
