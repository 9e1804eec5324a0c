"""`omega`: OmegaPRM's divide-and-conquer search for first errors (arXiv 2406.06592)."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Sequence

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.policy.steps import step_costs
from treeforge.sample import Sample
from treeforge.search.base import Replies, Strategy, Wave, spent_budget
from treeforge.search.given import last_nodes, place
from treeforge.search.growing import Ending, GrowingTree
from treeforge.search.pool import RolloutPool
from treeforge.tree import Finish, Rollout
from treeforge.verdict import NO_VERDICT, Verdict


class _Search:
    """The binary search for the first error of one solution: the prefix of `low` steps is good, of `high` bad."""

    __slots__ = ("high", "logprobs", "low", "rollout", "rows", "tokens")

    def __init__(self, rollout: Rollout, sample: Sample) -> None:
        self.rollout = rollout
        self.tokens, self.logprobs = step_costs(sample, rollout.steps)
        self.low, self.high = 0, len(rollout.steps)
        self.rows = [rollout.node]
        """The node of each prefix, as far as there is one."""

    @classmethod
    def of_given(cls, tree: GrowingTree, end: int) -> _Search:
        """The search of a given solution, all of whose steps are nodes, by the node that ends it.

        One that states no answer may be good to its end: the search then tells whether other completions go on from it.
        """
        builder = tree.builder
        rows = [end]
        while rows[-1]:
            rows.append(builder.parent[rows[-1]])
        rows.reverse()
        steps = tuple(builder.text[row] for row in rows[1:])
        ending = (builder.answer[end], builder.verdict[end], builder.finish[end])
        search = cls(Rollout(0, steps, *ending, 0, math.nan), Sample("", "stop"))
        search.rows = rows
        search.high += builder.finish[end] == Finish.OPEN and len(steps) < tree.max_steps
        return search

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

    With `given` the given solutions that do not end right are searched first, all of them whatever `simulations` says,
    and nothing else unless `omega.further` asks for the paper's loop after them.
    """
    probes = _Probes(tree, config, budget)
    if config.given:
        outcome = yield from _search_given(probes)
        if outcome[0] != "done" or not config.omega.further:
            return outcome
    samples = list(screening)
    tree.absorb(0, screening, as_rollouts=True)
    if (missing := config.children - len(samples)) > 0:
        (reply,) = yield [tree.request(0, "rollout", missing, 0)]
        tree.absorb(0, reply, as_rollouts=True)
        samples += reply
        probes.count += 1
    value = _take_in(tree, probes.pool, 0, [r for r in tree.rollouts if r.node == 0], samples)
    if value in (None, 0.0, 1.0) and not config.given:
        right, judged = round(tree.builder.value_sum[0]), tree.builder.visits[0]
        return "done", f"{right} of {judged} right at the root: no first error to look for"
    before = probes.searched
    ended = yield from probes.search(probes.pool.pick, budget.simulations)
    if ended is None:
        return "done", f"{probes.searched - before} wrong rollouts searched, none is left"
    return ended


def _search_given(probes: _Probes) -> Generator[Wave, Replies, tuple[str, str]]:
    """Search the given solutions for their first errors, in order; those that end right are left, unless asked for."""
    tree = probes.tree
    ends = last_nodes(tree, place(tree))
    wanted = [
        end
        for end in ends
        if probes.config.omega.search_right or tree.builder.verdict[end] not in (Verdict.CORRECT, Verdict.UNDECIDED)
    ]
    waiting = iter([_Search.of_given(tree, end) for end in wanted])
    ended = yield from probes.search(lambda: next(waiting, None), 0)
    left = len(ends) - len(wanted)
    return ended or ("done", f"{len(wanted)} given solutions searched" + (f", {left} left: not wrong" if left else ""))


class _Probes:
    """What the probes of one tree have found so far."""

    __slots__ = ("budget", "config", "count", "pool", "searched", "tree", "values")

    def __init__(self, tree: GrowingTree, config: SearchConfig, budget: BudgetConfig) -> None:
        self.tree, self.config, self.budget = tree, config, budget
        self.pool: RolloutPool[_Search] = RolloutPool(config.omega)
        self.values: dict[int, float] = {}
        """MC of each probed prefix; -1 where none of its completions was judged."""
        self.count = 0
        """Requests so far, which `simulations` limits."""
        self.searched = 0

    def search(
        self, pick: Callable[[], _Search | None], simulations: int
    ) -> Generator[Wave, Replies, tuple[str, str] | None]:
        """Work off what `pick` gives, `wave` searches at once; None at the end, else the limit that was reached."""
        tree, config, values = self.tree, self.config, self.values
        active: list[tuple[_Search, int]] = []
        while True:
            while len(active) < config.wave and (search := pick()) is not None:
                self.searched += 1
                if (node := _advance(tree, search, values)) is not None:
                    active.append((search, node))
            if not active:
                return None
            if reason := spent_budget(tree, self.budget):
                return "exhausted", reason
            nodes = list(dict.fromkeys(node for _, node in active))
            if simulations:
                nodes = nodes[: simulations - self.count]
            if not nodes:
                return "done", f"{self.count} simulations"
            replies = yield [tree.request(node, "rollout", config.children, 0) for node in nodes]
            if simulations:
                self.count += len(nodes)
            for node, reply in zip(nodes, replies, strict=True):
                before = len(tree.rollouts)
                tree.absorb(node, reply, as_rollouts=True)
                found = _take_in(tree, self.pool, node, tree.rollouts[before:], reply)
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
