"""`step-rollouts` and `best-of-n`: complete solutions whose steps are nodes, with or without completions from each."""

from __future__ import annotations

from collections.abc import Generator, Sequence

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.sample import Sample
from treeforge.search.base import Replies, Strategy, Wave, spent_budget
from treeforge.search.given import place
from treeforge.search.growing import GrowingTree
from treeforge.search.selection import share_priors


def best_of_n(
    tree: GrowingTree, config: SearchConfig, budget: BudgetConfig, screening: Sequence[Sample] = ()
) -> Strategy:
    """`solutions` complete solutions and nothing else: the baseline that every search is measured against.

    Their steps become nodes, identical first parts one path.
    """
    if reason := (yield from sample_solutions(tree, config, budget, screening)):
        return "exhausted", reason
    return "done", f"{config.solutions} solutions"


def step_rollouts(
    tree: GrowingTree, config: SearchConfig, budget: BudgetConfig, screening: Sequence[Sample] = ()
) -> Strategy:
    """Math-Shepherd (arXiv 2312.08935, Section 3.3): `solutions` solutions, `children` completions from every step.

    The solutions' steps become nodes; a step that several solutions share is completed once. Completions are own
    rollouts of the step they started from. Solutions are worked off one after another, so that a budget that ends the
    tree leaves whole ones. The step that answers needs no completion: its verdict is known. With `given` the solutions
    are the given ones, whose steps stand for no sample (see `treeforge.search.given`).
    """
    if reason := (yield from sample_solutions(tree, config, budget, screening)):
        return "exhausted", reason
    builder = tree.builder
    steps = [
        row for row in range(1, builder.size) if builder.finish[row] == 0 and builder.depth[row] < config.max_steps
    ]
    for start in range(0, len(steps), config.wave):
        if reason := spent_budget(tree, budget):
            return "exhausted", reason
        nodes = steps[start : start + config.wave]
        replies = yield [tree.request(node, "rollout", config.children, 0) for node in nodes]
        for node, samples in zip(nodes, replies, strict=True):
            tree.absorb(node, samples, as_rollouts=True)
    solutions = f"{len(tree.given)} given" if config.given else config.solutions
    return "done", f"{solutions} solutions, {len(steps)} steps completed"


def sample_solutions(
    tree: GrowingTree, config: SearchConfig, budget: BudgetConfig, screening: Sequence[Sample]
) -> Generator[Wave, Replies, str | None]:
    """Sample what is missing of `solutions`, at most `children` a request; a reason where a budget ends it.

    The screening's solutions are the first; those beyond `solutions` are own rollouts of the root. With `given` nothing
    is sampled: the given solutions are there already.
    """
    if config.given:
        place(tree)
        return None
    tree.absorb_solutions(screening[: config.solutions])
    tree.absorb(0, screening[config.solutions :], as_rollouts=True)
    reason = None
    index, missing = 0, config.solutions - len(screening)
    while missing > 0 and not (reason := spent_budget(tree, budget) if tree.samples else None):
        wave: Wave = []
        while missing > 0 and len(wave) < config.wave:
            n = min(config.children, missing)
            wave.append(tree.request(0, "rollout", n, index))
            missing, index = missing - n, index + 1
        for samples in (yield wave):
            tree.absorb_solutions(samples)
    for node in range(tree.builder.size):
        share_priors(tree.builder, node)
    return reason
