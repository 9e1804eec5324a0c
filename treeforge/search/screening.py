"""Screening: sample a few solutions first, and search only where there is something to learn."""

from __future__ import annotations

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.search.base import Start, Strategy
from treeforge.search.growing import GrowingTree

SCREENED_OUT = "screened out"
"""How the reason begins of a tree that ended with its samples."""


def screened(start: Start, tree: GrowingTree, config: SearchConfig, budget: BudgetConfig) -> Strategy:
    """Sample `screen` solutions, and grow the tree by `start` where the share of right ones is within `keep`.

    The samples are evidence either way: the strategy takes them over, and a problem that is screened out keeps them as
    own rollouts of its root. Undecided answers may be right or wrong: a problem is kept if it could be within.
    """
    (samples,) = yield [tree.request(0, "rollout", config.screen, 0, purpose="screen")]
    right, wrong, undecided = tree.outcomes(samples)
    judged = right + wrong + undecided
    lowest, highest = config.keep_range
    if judged and right <= highest * judged and right + undecided >= lowest * judged:
        return (yield from start(tree, config, budget, samples))
    tree.absorb(0, samples, as_rollouts=True)
    if not judged:
        return "failed", f"every request failed: {tree.errors[0]}"
    return "done", f"{SCREENED_OUT}: {right} of {judged} right" + (f", {undecided} undecided" if undecided else "")
