"""What a search strategy is, and what strategies share.

A strategy is a generator that yields a wave of requests and receives their samples, in the same order. It knows nothing
of time, slots or other trees; the scheduler decides when a wave is asked. Its return value is (status, reason).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.sample import Request, Sample
from treeforge.search.growing import GrowingTree

Wave = list[Request]
Replies = Sequence[Sequence[Sample]]
Strategy = Generator[Wave, Replies, tuple[str, str]]

Start = Callable[[GrowingTree, SearchConfig, BudgetConfig, Sequence[Sample]], Strategy]
"""Starts a strategy on a tree of one root. The samples are complete solutions of the problem that were sampled
before (the screening's, or none), which the strategy turns into evidence as it would its own."""


def spent_budget(tree: GrowingTree, budget: BudgetConfig) -> str | None:
    """Which limit of this tree is reached, as a reason; None while there is room. Asked at wave boundaries."""
    if budget.nodes and tree.builder.size >= budget.nodes:
        return f"budget: {budget.nodes} nodes"
    if budget.rollouts and tree.samples >= budget.rollouts:
        return f"budget: {budget.rollouts} rollouts"
    if budget.tokens and tree.tokens >= budget.tokens:
        return f"budget: {budget.tokens} tokens"
    return None
