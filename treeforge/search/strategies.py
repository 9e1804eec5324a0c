"""The strategies by name; `docs/strategies.md` describes them."""

from __future__ import annotations

from functools import partial

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.search.adaptive import adaptive
from treeforge.search.base import Start, Strategy, Wave, spent_budget
from treeforge.search.beam import Scorer, beam
from treeforge.search.exhaustive import exhaustive
from treeforge.search.growing import GrowingTree
from treeforge.search.mcts import mcts
from treeforge.search.omega import omega
from treeforge.search.screening import screened
from treeforge.search.solutions import best_of_n, step_rollouts

__all__ = ["STRATEGIES", "Scorer", "Start", "Strategy", "Wave", "mcts", "spent_budget", "start"]

STRATEGIES: dict[str, Start] = {
    "adaptive": adaptive,
    "beam": beam,
    "best-of-n": best_of_n,
    "exhaustive": exhaustive,
    "mcts": mcts,
    "omega": omega,
    "step-rollouts": step_rollouts,
}
"""By the names of `SearchConfig.strategy`."""


def start(tree: GrowingTree, config: SearchConfig, budget: BudgetConfig, scorer: Scorer | None = None) -> Strategy:
    """The strategy of `config` on `tree`, after the screening where one is asked for; `scorer` is for `beam`."""
    chosen = STRATEGIES[config.strategy]
    if scorer is not None and chosen is beam:
        chosen = partial(beam, scorer=scorer)
    return screened(chosen, tree, config, budget) if config.screen else chosen(tree, config, budget, ())
