"""Where requests go: pure simulations of a fleet on a clock of their own."""

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.policy.balance import LIGHT, LOAD, TRIALS, Balancer, Health


@dataclass(eq=False)
class Replica:
    url: str
    latency: Callable[[float], float] = lambda now: 0.2
    """Seconds (median) of a request that begins now; infinite: it never answers."""
    fails: Callable[[float], bool] = lambda now: False
    alive: bool = True
    health: Health = field(default_factory=Health)
    taken: list[float] = field(default_factory=list)
    """When it was given a request."""

    def between(self, start: float, end: float) -> int:
        return sum(start <= now < end for now in self.taken)


def replicas(count: int) -> list[Replica]:
    return [Replica(f"http://host:{8000 + i}/v1") for i in range(count)]


class Fleet:
    """Keeps `slots` requests in flight. `sigma`: of the log-normal latencies."""

    def __init__(self, members: list[Replica], slots: int = 64, seed: int = 0, sigma: float = 1.0) -> None:
        self.members, self.slots, self.sigma = members, slots, sigma
        self.balancer = Balancer(members, slots)
        self.random = random.Random(seed)
        self.now = 0.0
        self.waiting: list[tuple[float, int, float, Replica]] = []
        self.asked = 0
        self.answered = 0

    def run(self, seconds: float) -> None:
        end = self.now + seconds
        while True:
            while len(self.waiting) < self.slots:
                self.ask()
            at, _, began, member = self.waiting[0]
            if at >= end:
                self.now = end
                return
            heapq.heappop(self.waiting)
            self.now = at
            failed = member.fails(began)
            self.answered += not failed
            self.balancer.end(member, began, at, "failed" if failed else "answered")

    def ask(self) -> None:
        member = self.balancer.choose(self.asked % 200, self.now)
        assert member is not None
        self.asked += 1
        member.taken.append(self.now)
        self.balancer.begin(member, self.now)
        lasts = (
            0.01 if member.fails(self.now) else member.latency(self.now) * math.exp(self.random.gauss(0, self.sigma))
        )
        heapq.heappush(self.waiting, (self.now + lasts, self.asked, self.now, member))


@given(
    alive=st.lists(st.booleans(), min_size=1, max_size=12),
    ends=st.lists(st.integers(0, 10**6), max_size=300),
    trees=st.integers(1, 500),
)
def test_no_replica_holds_more_than_its_bound(alive, ends, trees):
    members = replicas(len(alive))
    for member, up in zip(members, alive, strict=True):
        member.alive = up
    balancer = Balancer(members, 256)
    flying = []
    for number, end in enumerate(ends):
        chosen = balancer.choose(number * 7919 % trees, 0.0)
        assert (chosen is None) == (not any(alive))
        if chosen is None:
            return
        assert chosen.alive
        balancer.begin(chosen, 0.0)
        flying.append(chosen)
        if len(members) > 1:
            bound = max(math.ceil(LOAD * len(flying) / sum(alive)), LIGHT)
            assert chosen.health.in_flight <= bound
        if end % 3 == 0:
            done = flying.pop(end % len(flying))
            balancer.end(done, 0.0, 0.0, "neither")
    assert balancer.in_flight == len(flying) == sum(member.health.in_flight for member in members)


def test_a_lost_replica_moves_its_own_trees_only_and_a_new_one_takes_its_share():
    members = replicas(5)
    balancer = Balancer(members, 16)
    first = [balancer.choose(tree, 0.0) for tree in range(1000)]
    assert min(Counter(member.url for member in first).values()) > 150
    members[2].alive = False
    second = [balancer.choose(tree, 0.0) for tree in range(1000)]
    assert all(a is b for a, b in zip(first, second, strict=True) if a is not members[2])
    assert len({b.url for a, b in zip(first, second, strict=True) if a is members[2]}) == 4
    members[2].alive = True
    new = Replica("http://host:9000/v1")
    balancer.replace([*members, new])
    third = [balancer.choose(tree, 0.0) for tree in range(1000)]
    assert all(b in (a, new) for a, b in zip(first, third, strict=True))
    assert 100 < sum(member is new for member in third) < 250


@pytest.mark.parametrize("seed", range(5))
def test_replicas_alike_are_never_drained_and_share_alike(seed, caplog):
    fleet = Fleet(replicas(4), seed=seed)
    fleet.run(60.0)
    assert caplog.text == ""
    assert max(len(member.taken) for member in fleet.members) < 1.5 * min(len(member.taken) for member in fleet.members)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("slow", [10.0, math.inf], ids=["ten times slower", "hanging"])
def test_a_slow_replica_is_drained_soon_and_holds_few_slots_meanwhile(seed, slow, caplog):
    members = replicas(4)
    members[1].latency = lambda now: 0.2 * slow
    fleet = Fleet(members, seed=seed)
    fleet.run(8.0)
    assert members[1].health.drained
    assert "it is drained" in caplog.text
    assert members[1].between(0.0, 8.0) < 60 < 0.3 * members[0].between(0.0, 8.0)
    before = fleet.answered
    fleet.run(60.0)
    assert members[1].between(8.0, 68.0) < 60 < 0.1 * members[0].between(8.0, 68.0)  # trials, one at a time
    held = members[1].health.in_flight
    assert fleet.answered - before > 0.9 * (64 - held) / 0.33 * 60
    assert not any(member.health.drained for member in fleet.members if member is not members[1])


@pytest.mark.parametrize("seed", range(5))
def test_a_replica_that_is_quick_again_is_opened_by_its_trials(seed, caplog):
    members = replicas(4)
    members[1].latency = lambda now: 4.0 if now < 30.0 else 0.2
    fleet = Fleet(members, seed=seed)
    fleet.run(30.0)
    assert members[1].health.drained
    fleet.run(120.0)
    assert not members[1].health.drained
    assert "is well again" in caplog.text
    assert members[1].between(140.0, 150.0) > 0.2 * fleet.asked / 15


def test_a_replica_that_grows_slow_in_the_middle_is_found_as_well():
    members = replicas(4)
    members[1].latency = lambda now: 0.2 if now < 60.0 else 4.0
    fleet = Fleet(members)
    fleet.run(60.0)
    assert not members[1].health.drained
    fleet.run(10.0)
    assert members[1].health.drained


@pytest.mark.parametrize("seed", range(3))
def test_a_replica_that_fails_again_and_again_is_drained_and_opened_when_it_is_well(seed, caplog):
    members = replicas(3)
    members[0].fails = lambda now: 5.0 <= now < 40.0
    fleet = Fleet(members, seed=seed)
    fleet.run(4.0)
    assert not members[0].health.drained
    fleet.run(2.0)
    assert members[0].health.drained
    assert "fails again and again" in caplog.text
    fleet.run(30.0)
    assert members[0].between(6.0, 36.0) < 12
    fleet.run(120.0)
    assert not members[0].health.drained


def test_single_failures_drain_nobody():
    members = replicas(3)
    for member in members:
        member.fails = lambda now: hash((now, 7)) % 4 == 0
    fleet = Fleet(members, slots=6)
    members[0].fails = lambda now: False
    fleet.run(20.0)
    assert not members[0].health.drained


def test_a_fleet_of_which_all_are_slow_or_failing_goes_on_with_what_there_is():
    members = replicas(3)
    for member in members:
        member.fails = lambda now: now < 10.0
    fleet = Fleet(members)
    fleet.run(10.0)
    assert all(member.health.drained for member in members)
    assert min(len(member.taken) for member in members) > 100
    fleet.run(10.0)
    assert not any(member.health.drained for member in members)
    for member in members:
        member.latency = lambda now: 5.0
    fleet.run(60.0)
    assert not any(member.health.drained for member in members)


def test_nothing_is_tried_where_there_is_little_to_do():
    members = replicas(2)
    members[1].latency = lambda now: 10.0
    fleet = Fleet(members, slots=32)
    fleet.run(30.0)
    assert members[1].health.drained
    fleet.slots = 4  # the end of a run
    fleet.run(60.0)
    assert members[1].between(60.0, 90.0) == 0


def test_trials_that_fail_send_it_back_to_rest_for_longer():
    health = Health()
    rests = []
    now = 0.0
    for _ in range(6):
        health.drain(now)
        start = now
        while not health.wants_trial(now):
            now += 0.5
        rests.append(now - start)
        for _ in range(TRIALS):
            health.begin(now)
            assert not health.wants_trial(now)  # one at a time
            health.end(now, now + 2.0, "answered")
            now += 2.0
        assert health.passed(0.2) is False
        assert health.passed(1.0) is True
    assert rests == [5.0, 10.0, 20.0, 40.0, 60.0, 60.0]


def test_what_was_asked_before_a_restart_says_nothing_of_the_new_server():
    health = Health()
    health.begin(0.0)
    health.reset(100.0)
    for i in range(20):
        health.begin(100.0 + i)
        health.end(100.0 + i, 100.5 + i, "answered")
    health.end(0.0, 130.0, "failed")
    assert health.latency(130.0) == pytest.approx(0.5)
    assert health.in_flight == 0
    assert not health.failing
