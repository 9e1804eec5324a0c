"""The pool of wrong rollouts of `omega`: which one is searched next, without looking at all of them.

OmegaPRM picks the rollout r of a state s with the greatest Q(s, r) + U(s), where (arXiv 2406.06592, Section 3.3)

    Q(s, r) = alpha^(1 - MC(s)) · beta^(len(r) / L),     U(s) = c_puct · sqrt(Σ_i N(s_i)) / (1 + N(s)).

A pick adds 1 to N(s), and thereby changes U of *every* state, by the sum under the root. But states with the same N
have the same U, so that among them Q alone decides, and Q of what is in the pool never changes: MC(s) is estimated
once. So states are kept in one heap for each N, the best rollout first, and a pick compares the tops of the heaps.
After p picks there are at most sqrt(2p) + 1 different N, however many states and rollouts there are.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Iterable
from typing import Generic, TypeVar

from treeforge.config import OmegaConfig

R = TypeVar("R")


class RolloutPool(Generic[R]):
    """Wrong rollouts by state. Equal scores go to the greater Q, then to what came first."""

    def __init__(self, config: OmegaConfig) -> None:
        self.config = config
        self.picks = 0
        """Σ N over all states."""
        self.heaps: dict[int, list[tuple[float, int, _Rollouts[R]]]] = {}
        """By N: (-Q of the state's best rollout, its number, the state's rollouts)."""
        self._count = 0

    def add(self, value: float, rollouts: Iterable[tuple[int, R]]) -> None:
        """Take in a state with MC(s) = `value` and its wrong rollouts, as (tokens, what `pick` gives back)."""
        scale = self.config.alpha ** (1.0 - value)
        entries: list[tuple[float, int, R]] = []
        for tokens, rollout in rollouts:
            entries.append((-scale * self.config.beta ** (tokens / self.config.length), self._count, rollout))
            self._count += 1
        if entries:
            entries.sort(key=lambda entry: entry[:2], reverse=True)
            self._push(0, entries)

    def pick(self) -> R | None:
        """Take out the rollout with the greatest Q + U and count the visit of its state; None where none is left."""
        total = self.config.exploration * math.sqrt(self.picks)
        best, best_key = -1, (-math.inf, -math.inf, 0)
        for visits, heap in self.heaps.items():
            q = -heap[0][0]
            key = (q + total / (1 + visits), q, -heap[0][1])
            if key > best_key:
                best, best_key = visits, key
        if best < 0:
            return None
        heap = self.heaps[best]
        rollouts = heapq.heappop(heap)[2]
        if not heap:
            del self.heaps[best]
        self.picks += 1
        picked = rollouts.pop()[2]
        if rollouts:
            self._push(best + 1, rollouts)
        return picked

    def _push(self, visits: int, rollouts: _Rollouts[R]) -> None:
        score, number, _ = rollouts[-1]
        heapq.heappush(self.heaps.setdefault(visits, []), (score, number, rollouts))


_Rollouts = list[tuple[float, int, R]]
"""One state's rollouts as (-Q, number, rollout), the best one last."""
