"""`mcts`: Monte Carlo tree search over steps."""

from __future__ import annotations

from collections.abc import Sequence

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.sample import Sample
from treeforge.search.base import Strategy, Wave, spent_budget
from treeforge.search.growing import GrowingTree
from treeforge.search.selection import Selector


def mcts(tree: GrowingTree, config: SearchConfig, budget: BudgetConfig, screening: Sequence[Sample] = ()) -> Strategy:
    """Monte Carlo tree search over steps (UCT: Kocsis & Szepesvári 2006; PUCT: Silver et al. 2017).

    A simulation selects a leaf, asks once for `children` samples and backs their verdicts up. With `sample="rollout"`
    they are completions to the end whose first steps become children. With `sample="step"` a new leaf is evaluated by
    rollouts first and expanded by single steps when it is selected again.
    """
    selector = Selector(tree.builder, config)
    by_step = config.sample == "step"
    rollout_index: dict[int, int] = {}
    simulations = 0
    if screening:
        _, _, new = tree.absorb(0, screening, as_rollouts=by_step)
        if not by_step:
            selector.opened(0, new)
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
            _, _, new = tree.absorb(leaf, samples, as_rollouts=evaluate, in_flight=config.children)
            if not evaluate:
                selector.opened(leaf, new)
