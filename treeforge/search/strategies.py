"""Search strategies as generators: each yields a wave of requests and receives their samples, in the same order.

A strategy knows nothing of time, slots or other trees; the scheduler decides when a wave is asked. Its return value is
(status, reason).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.sample import Request, Sample
from treeforge.search.growing import GrowingTree
from treeforge.search.selection import Selector

Wave = list[Request]
Strategy = Generator[Wave, Sequence[Sequence[Sample]], tuple[str, str]]


def spent_budget(tree: GrowingTree, budget: BudgetConfig) -> str | None:
    """Which limit of this tree is reached, as a reason; None while there is room. Asked at wave boundaries."""
    if budget.nodes and tree.builder.size >= budget.nodes:
        return f"budget: {budget.nodes} nodes"
    if budget.rollouts and tree.samples >= budget.rollouts:
        return f"budget: {budget.rollouts} rollouts"
    if budget.tokens and tree.tokens >= budget.tokens:
        return f"budget: {budget.tokens} tokens"
    return None


def mcts(tree: GrowingTree, config: SearchConfig, budget: BudgetConfig) -> Strategy:
    """Monte Carlo tree search over steps (UCT: Kocsis & Szepesvári 2006; PUCT: Silver et al. 2017).

    A simulation selects a leaf, asks once for `children` samples and backs their verdicts up. With `sample="rollout"`
    they are completions to the end whose first steps become children. With `sample="step"` a new leaf is evaluated by
    rollouts first and expanded by single steps when it is selected again.
    """
    selector = Selector(tree.builder, config)
    by_step = config.sample == "step"
    rollout_index: dict[int, int] = {}
    simulations = 0
    while True:
        if reason := spent_budget(tree, budget):
            return "exhausted", reason
        room = config.wave if not budget.simulations else min(config.wave, budget.simulations - simulations)
        if room <= 0:
            return "done", f"{simulations} simulations"
        wave: Wave = []
        picks: list[tuple[int, bool]] = []
        for _ in range(room):
            leaf = selector.select()
            if leaf is None:
                break
            evaluate = by_step and leaf not in rollout_index and leaf != 0
            if evaluate:
                rollout_index[leaf] = 1
                wave.append(tree.request(leaf, "rollout", config.children, 0))
            else:
                index = selector.expand(leaf)
                wave.append(tree.request(leaf, "step" if by_step else "rollout", config.children, index))
            selector.virtual_loss(leaf)
            picks.append((leaf, evaluate))
        if not wave:
            return "done", "every branch is closed"
        replies = yield wave
        simulations += len(wave)
        for (leaf, evaluate), samples in zip(picks, replies, strict=True):
            selector.undo_virtual_loss(leaf)
            _, _, new = tree.absorb(leaf, samples, as_rollouts=evaluate)
            if not evaluate:
                selector.opened(leaf, new)


def exhaustive(tree: GrowingTree, config: SearchConfig, budget: BudgetConfig) -> Strategy:
    """The HRM paper's construction (arXiv 2503.13551, Section 3): breadth first, `children` samples a node.

    The nodes that make the last of `levels` levels are asked for completions to the end: each gives a node of that
    level and, as its own rollout, what follows. A level is one wave; `simulations` does not limit it.
    """
    builder = tree.builder
    level = [0]
    for depth in range(config.levels):
        last = depth == config.levels - 1
        wave = [tree.request(node, "rollout" if last else "step", config.children, 0) for node in level]
        replies = yield wave
        below: list[int] = []
        for node, samples in zip(level, replies, strict=True):
            _, _, new = tree.absorb(node, samples)
            below += [row for row in new if builder.finish[row] == 0]
        _priors(tree, level)
        if last or not below:
            break
        if reason := spent_budget(tree, budget):
            return "exhausted", reason
        level = below
    return "done", f"{int(max(builder.depth))} levels"


def _priors(tree: GrowingTree, nodes: Sequence[int]) -> None:
    builder = tree.builder
    for node in nodes:
        rows = builder.children[node] or ()
        total = math.fsum(builder.multiplicity[row] for row in rows)
        for row in rows:
            builder.prior[row] = builder.multiplicity[row] / total


STRATEGIES: dict[str, Callable[[GrowingTree, SearchConfig, BudgetConfig], Strategy]] = {
    "exhaustive": exhaustive,
    "mcts": mcts,
}
"""By the names of `SearchConfig.strategy`."""
