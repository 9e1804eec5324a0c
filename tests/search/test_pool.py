"""The pool of wrong rollouts against OmegaPRM's definition, which looks at everything at every pick."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treeforge.config import OmegaConfig
from treeforge.search.pool import RolloutPool


@dataclass
class NaivePool:
    """Q(s, r) + U(s) of every rollout of every state, written down from the paper (arXiv 2406.06592, Section 3.3)."""

    config: OmegaConfig
    states: list[tuple[float, list[tuple[int, int, object]]]] = field(default_factory=list)
    visits: list[int] = field(default_factory=list)
    count: int = 0

    def add(self, value, rollouts):
        self.states.append((value, []))
        self.visits.append(0)
        for tokens, rollout in rollouts:
            self.states[-1][1].append((tokens, self.count, rollout))
            self.count += 1

    def pick(self):
        total, config = math.sqrt(sum(self.visits)), self.config
        scored = []
        for i, (value, rollouts) in enumerate(self.states):
            for entry in rollouts:
                q = config.alpha ** (1 - value) * config.beta ** (entry[0] / config.length)
                u = config.exploration * total / (1 + self.visits[i])
                scored.append((q + u, q, -entry[1], i, entry))
        if not scored:
            return None
        *_, i, entry = max(scored, key=lambda row: row[:3])
        self.states[i][1].remove(entry)
        self.visits[i] += 1
        return entry[2]


STATES = st.lists(
    st.tuples(st.sampled_from([0.125, 0.25, 0.5, 0.875]), st.lists(st.integers(0, 900), max_size=6)), max_size=4
)


@settings(deadline=None)
@given(
    rounds=st.lists(st.tuples(STATES, st.integers(0, 8)), min_size=1, max_size=12),
    exploration=st.sampled_from([0.0, 0.125, 1.0, 30.0]),
    beta=st.sampled_from([0.5, 0.9, 1.0]),
)
def test_every_pick_is_that_of_the_definition(rounds, exploration, beta):
    config = OmegaConfig(exploration=exploration, beta=beta, length=100)
    pool, naive = RolloutPool(config), NaivePool(config)
    numbers = iter(range(10**6))
    for states, picks in [*rounds, ([], 10**3)]:
        for value, lengths in states:
            rollouts = [(tokens, next(numbers)) for tokens in lengths]
            pool.add(value, rollouts)
            naive.add(value, rollouts)
        for _ in range(picks):
            picked = pool.pick()
            assert picked == naive.pick()
            if picked is None:
                break
    assert pool.pick() is None


def test_a_pick_changes_who_is_next_among_all_states_not_only_the_picked_one():
    """U grows with Σ N: a state that was never visited overtakes one with a better Q without being touched."""
    pool = RolloutPool(OmegaConfig(exploration=0.1, beta=1.0))
    pool.add(0.9, [(1, f"good {i}") for i in range(40)])
    pool.add(0.5, [(1, f"fair {i}") for i in range(40)])
    order = [pool.pick() for _ in range(40)]
    assert order[:2] == ["good 0", "good 1"]
    assert 0 < sum(str(name).startswith("fair") for name in order) < 20


@pytest.mark.parametrize("states", [10, 1000])
def test_a_pick_looks_at_few_states_however_many_there_are(states):
    """The heaps whose tops a pick compares: one for each number of visits, sqrt(2 p) + 1 at most."""
    pool = RolloutPool(OmegaConfig(exploration=2.0))
    for i in range(states):
        pool.add(0.1 + 0.8 * (i % 7) / 7, [(10 * r, (i, r)) for r in range(8)])
    for picks in range(1, 8 * states // 2):
        assert pool.pick() is not None
        assert len(pool.heaps) <= math.sqrt(2 * picks) + 1
