"""Selection for `mcts`: which leaf is expanded next, in O(depth) whatever the size of the tree.

A node is *open* while it may still be expanded or has an open child. Closing and reopening travel up the path, so that
selection never enters a finished subtree and a leaf in flight is not picked again beyond `SearchConfig.expansions`.
"""

from __future__ import annotations

from math import exp, log, sqrt

from treeforge.config import SearchConfig
from treeforge.tree import TreeBuilder


class Selector:
    """UCT/PUCT over a `TreeBuilder`, with virtual loss and, by option, progressive widening.

    **Progressive widening** (Coulom 2007; Chaslot et al. 2008): a node may have C · N^alpha children, N its visits, and
    is expanded again where it has fewer. Children are counted as they were sampled, duplicates and samples in flight
    included: a policy that repeats itself is not asked for ever.
    """

    __slots__ = ("_most", "_uct", "_widening", "builder", "closed", "config", "expansions", "open_children")

    def __init__(self, builder: TreeBuilder, config: SearchConfig) -> None:
        self.builder = builder
        self.config = config
        self.closed = [False]
        self.open_children = [0]
        self.expansions = [0]
        self._uct = config.selection == "uct"
        self._widening = config.widening > 0
        self._most = config.expansions

    def select(self) -> int | None:
        """Descend from the root by the selection rule to a node to expand; None where every branch is closed."""
        if self.closed[0]:
            return None
        builder, closed, open_children = self.builder, self.closed, self.open_children
        children, visits, value_sum, prior = builder.children, builder.visits, builder.value_sum, builder.prior
        exploration, uct, widening = self.config.exploration, self._uct, self._widening
        node = 0
        while open_children[node] and not (widening and self._may_expand(node)):
            here = visits[node]
            # An unvisited child is valued as its parent is (first-play urgency).
            parent_value = value_sum[node] / here if here else 0.5
            spread = exploration * sqrt((log(here) if here > 1 else 0.0) if uct else here or 1)
            best, best_score = -1, -1.0
            for child in children[node] or ():
                if closed[child]:
                    continue
                n = visits[child]
                if uct:
                    score = value_sum[child] / n + spread / sqrt(n) if n else 1e9 + prior[child]
                else:
                    score = (value_sum[child] / n if n else parent_value) + spread * prior[child] / (1 + n)
                if score > best_score:
                    best, best_score = child, score
            node = best
        return node

    def expand(self, leaf: int) -> int:
        """Note an expansion of `leaf` and return its index; the leaf closes when its expansions are used up."""
        index = self.expansions[leaf]
        self.expansions[leaf] = index + 1
        if not self.open_children[leaf] and not self._may_expand(leaf):
            self._close(leaf)
        return index

    def opened(self, leaf: int, new: list[int]) -> None:
        """After the expansion of `leaf` was applied: take in its new children and set the siblings' priors."""
        builder, config = self.builder, self.config
        if new:
            if builder.depth[leaf] + 1 >= config.max_depth:
                shut = [True] * len(new)
            else:
                finish = builder.finish
                shut = [finish[row] != 0 for row in new]
            none = [0] * len(new)
            self.closed += shut
            self.open_children += none
            self.expansions += none
            if opened := shut.count(False):
                self.open_children[leaf] += opened
                if self.closed[leaf]:
                    self._reopen(leaf)
        if self._widening:
            self._reopen_widened(leaf)
        if config.prior == "share":
            share_priors(builder, leaf)
        else:
            other_priors(builder, leaf, config.prior_temperature if config.prior == "logprob" else None)

    def virtual_loss(self, leaf: int) -> None:
        """Count the samples in flight as visits of value 0 on the path, so that the wave spreads.

        `GrowingTree.absorb` takes them back.
        """
        visits, parent, n = self.builder.visits, self.builder.parent, self.config.children
        while leaf >= 0:
            visits[leaf] += n
            leaf = parent[leaf]

    def _may_expand(self, node: int) -> bool:
        expansions = self.expansions[node]
        if not self._widening:
            return expansions < self._most
        config = self.config
        allowed: float = config.widening * self.builder.visits[node] ** config.widening_power
        return not expansions or expansions * config.children < allowed

    def _close(self, node: int) -> None:
        while True:
            self.closed[node] = True
            node = self.builder.parent[node]
            if node < 0:
                return
            self.open_children[node] -= 1
            if self.open_children[node] or self._may_expand(node):
                return

    def _reopen_widened(self, node: int) -> None:
        """Visits have grown on the path up from `node`, so closed nodes there may have become allowed more children."""
        while node >= 0:
            if self.closed[node] and self._may_expand(node):
                self._reopen(node)
            node = self.builder.parent[node]

    def _reopen(self, node: int) -> None:
        while True:
            self.closed[node] = False
            node = self.builder.parent[node]
            if node < 0:
                return
            self.open_children[node] += 1
            if not self.closed[node]:
                return


def share_priors(builder: TreeBuilder, node: int) -> None:
    """P of each child of `node`: its share of the samples that were drawn from there."""
    siblings = builder.children[node]
    if siblings:
        multiplicity, prior = builder.multiplicity, builder.prior
        total = sum([multiplicity[row] for row in siblings])
        for row in siblings:
            prior[row] = multiplicity[row] / total


def other_priors(builder: TreeBuilder, node: int, temperature: float | None) -> None:
    """P of each child of `node`: the softmax of the mean log-probabilities of their tokens, or uniform without a
    temperature. The share of samples where a log-probability is unknown."""
    siblings = builder.children[node] or []
    if temperature is None:
        weights = [1.0] * len(siblings)
    else:
        means = [builder.logprob[row] / max(builder.token_count[row], 1) / temperature for row in siblings]
        if any(mean != mean for mean in means):  # NaN
            share_priors(builder, node)
            return
        highest = max(means, default=0.0)
        weights = [exp(mean - highest) for mean in means]
    total = sum(weights)
    for row, weight in zip(siblings, weights, strict=True):
        builder.prior[row] = weight / total
