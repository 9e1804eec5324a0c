"""`omega`: OmegaPRM's divide-and-conquer search for first errors (arXiv 2406.06592)."""

from __future__ import annotations

from collections.abc import Sequence

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.sample import Sample
from treeforge.search.base import Strategy, spent_budget
from treeforge.search.growing import Ending, GrowingTree, step_costs
from treeforge.search.pool import RolloutPool
from treeforge.tree import Finish, Rollout
from treeforge.verdict import NO_VERDICT, Verdict


class _Search:
    """The binary search for the first error of one wrong rollout: the prefix of `low` steps is good, of `high` bad."""

    __slots__ = ("high", "logprobs", "low", "rollout", "rows", "tokens")

    def __init__(self, rollout: Rollout, sample: Sample) -> None:
        self.rollout = rollout
        self.tokens, self.logprobs = step_costs(sample, rollout.steps)
        self.low, self.high = 0, len(rollout.steps)
        self.rows = [rollout.node]
        """The node of each prefix, as far as there is one."""

    def probe(self, tree: GrowingTree) -> int | None:
        """The node in the middle, whose value decides where the search goes on; None where the error is found."""
        steps, last = self.rollout.steps, len(self.rollout.steps)
        ends = tree.ends(steps[-1], self.rollout.finish)
        if len(self.rows) == 1 and not ends and tree.builder.depth[self.rows[0]] + last < tree.max_steps:
            self.high = last + 1  # it stopped after a whole step, and other completions may go on from there
        if self.high - self.low > 1:
            return self._node(tree, (self.low + self.high) // 2, None)
        if self.high <= last:
            ending = (self.rollout.finish, self.rollout.answer, self.rollout.verdict)
            self._node(tree, self.high, ending if ends else None)
        return None

    def halve(self, value: float) -> None:
        """Go on in the half that holds the first error, given the value of the node in the middle."""
        middle = (self.low + self.high) // 2
        if value > 0:
            self.low = middle
        else:
            self.high = middle

    def _node(self, tree: GrowingTree, count: int, ending: Ending | None) -> int:
        """The node of the first `count` steps; `ending` where the last of all steps ends the trajectory."""
        steps = self.rollout.steps
        for i in range(len(self.rows) - 1, count):
            at_end = ending if i == len(steps) - 1 else None
            self.rows.append(tree.prefix_node(self.rows[i], steps[i], self.tokens[i], self.logprobs[i], at_end))
        return self.rows[count]


def omega(tree: GrowingTree, config: SearchConfig, budget: BudgetConfig, screening: Sequence[Sample] = ()) -> Strategy:
    """OmegaPRM: pick a wrong rollout, find its first error by binary search with `children` completions a probe.

    States are the root and the probed prefixes; MC(s) is the share of right completions from s. A state with
    0 < MC(s) < 1 puts its wrong rollouts into the pool that `RolloutPool` picks from. The prefixes that are found
    become nodes, with the steps between them, and completions stay own rollouts of the node they started from. A prefix
    that several rollouts share is probed once (where duplicates are merged).

    `wave` rollouts are searched at once, a probe each; with 1 it is the paper's algorithm. A simulation is a probe. The
    screening's solutions are rollouts of the root, which is asked only for what they lack of `children`.
    """
    pool: RolloutPool[_Search] = RolloutPool(config.omega)
    values: dict[int, float] = {}
    samples = list(screening)
    tree.absorb(0, screening, as_rollouts=True)
    probes = searched = 0
    if (missing := config.children - len(samples)) > 0:
        (reply,) = yield [tree.request(0, "rollout", missing, 0)]
        tree.absorb(0, reply, as_rollouts=True)
        samples += reply
        probes += 1
    value = _take_in(tree, pool, 0, tree.rollouts, samples)
    right, judged = round(tree.builder.value_sum[0]), tree.builder.visits[0]
    if value in (None, 0.0, 1.0):
        return "done", f"{right} of {judged} right at the root: no first error to look for"

    active: list[tuple[_Search, int]] = []
    while True:
        while len(active) < config.wave and (search := pool.pick()) is not None:
            searched += 1
            if (node := _advance(tree, search, values)) is not None:
                active.append((search, node))
        if not active:
            return "done", f"{searched} wrong rollouts searched, none is left"
        if reason := spent_budget(tree, budget):
            return "exhausted", reason
        nodes = list(dict.fromkeys(node for _, node in active))
        if budget.simulations:
            nodes = nodes[: budget.simulations - probes]
        if not nodes:
            return "done", f"{probes} simulations"
        replies = yield [tree.request(node, "rollout", config.children, 0) for node in nodes]
        probes += len(nodes)
        for node, reply in zip(nodes, replies, strict=True):
            before = len(tree.rollouts)
            tree.absorb(node, reply, as_rollouts=True)
            found = _take_in(tree, pool, node, tree.rollouts[before:], reply)
            values[node] = -1.0 if found is None else found
        active = [
            (search, further)
            for search, node in active
            if (further := _advance(tree, search, values) if node in values else node) is not None
        ]


def _advance(tree: GrowingTree, search: _Search, values: dict[int, float]) -> int | None:
    """Go on with a search by what is known; the next node to probe, None where it has ended.

    It also ends, without a result, at a prefix none of whose completions was judged.
    """
    while (node := search.probe(tree)) is not None:
        value = values.get(node)
        if value is None:
            return node
        if value < 0:
            return None
        search.halve(value)
    return None


def _take_in(
    tree: GrowingTree,
    pool: RolloutPool[_Search],
    node: int,
    rollouts: Sequence[Rollout],
    samples: Sequence[Sample],
) -> float | None:
    """Put the wrong ones among a state's completions into the pool, where some are right; the state's value.

    `rollouts` are the completions as they stand in the tree, in the order of `samples`.
    """
    builder = tree.builder
    judged = builder.rollouts[node] - builder.rollouts_undecided[node]
    if not judged:
        return None
    value = builder.rollouts_correct[node] / judged
    if 0 < value < 1:
        pool.add(
            value,
            (
                (rollout.tokens, _Search(rollout, sample))
                for rollout, sample in zip(rollouts, samples, strict=True)
                if rollout.steps
                and rollout.finish != Finish.ERROR
                and rollout.verdict not in (NO_VERDICT, Verdict.CORRECT, Verdict.UNDECIDED)
            ),
        )
    return value
