"""Which replica of a fleet takes a request: rendezvous hashing with bounded load, away from slow and failing replicas.

A tree's requests go to one replica, so that its prefix cache hits. A replica takes at most ceil(c x in flight / open
replicas), else the tree's next one does (consistent hashing with bounded loads, Mirrokni, Thorup and Zadimoghaddam,
2017), so that none holds all slots. A replica that is many times slower than the others, or fails again and again, is
drained: it gets no requests but, after a rest, a few one at a time, which decide whether it is open again.

No IO, and the clock is an argument.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Collection, Sequence
from statistics import median
from typing import Generic, Literal, Protocol, TypeVar

from treeforge.hashing import digest, encode_text

logger = logging.getLogger("treeforge.policy.server")

LOAD = 1.25
"""c of the bounded load."""

LIGHT = 8
"""So many may be in flight at a replica however idle the others are: that batch costs it hardly more than one request
does, while leaving the tree's cache costs the whole prefix."""

SLOW = 5.0
"""A replica is drained when its replies take this many times as long as the others'."""

WELL = 2.5
"""Trials that take no longer than this many times what the others' replies take open it again."""

FAILURES = 4
"""So many failures in a row drain a replica."""

TRIALS = 4
"""Trials that decide."""

REST_SECONDS = 5.0
"""Until the first trial; doubled each time it is drained again."""

LONGEST_REST_SECONDS = 60.0
REVIEW_SECONDS = 0.25

_WINDOW = 32  # replies that a latency is taken from, or twice as many as are in flight
_LONGEST_WINDOW = 1024
_EVIDENCE = 8  # replies before which a latency says little
_TREES = 65_536  # orders that are remembered

Outcome = Literal["answered", "failed", "neither"]
"""`neither`: it says nothing of the replica, as a request that is refused or cancelled."""


class Health:
    """One replica's load, latency and state."""

    __slots__ = (
        "_counted",
        "_failures",
        "_marks",
        "_rest",
        "_rest_until",
        "_since",
        "_spent",
        "_spent_at",
        "_trial_seconds",
        "_trying",
        "drained",
        "in_flight",
    )

    def __init__(self) -> None:
        self.in_flight = 0
        self.drained = False
        """It gets trials only."""
        self._rest = REST_SECONDS
        self.reset(0.0)

    def reset(self, now: float) -> None:
        """Forget what was measured, as of a server that was started anew. Requests from before no longer count."""
        self.drained = False
        self._since, self._counted = now, 0
        self._spent, self._spent_at = 0.0, now
        self._marks = deque([0.0], maxlen=_LONGEST_WINDOW + 1)
        self._failures = 0
        self._rest_until = 0.0
        self._trying = 0
        self._trial_seconds: list[float] = []

    def begin(self, now: float) -> None:
        """A request leaves."""
        self._spend(now)
        self.in_flight += 1
        self._counted += 1
        if self.drained:
            self._trying += 1

    def end(self, began: float, now: float, outcome: Outcome) -> None:
        """The request that left at `began` is over."""
        self._spend(now)
        self.in_flight -= 1
        if began < self._since:
            return
        self._counted -= 1
        if self.drained:
            self._trying -= 1
        if outcome == "answered":
            self._failures = 0
            self._marks.append(self._spent)
            if self.drained:
                self._trial_seconds.append(now - began)
        elif outcome == "failed":
            self._failures += 1

    def latency(self, now: float) -> float | None:
        """Mean seconds of a reply lately; None where there were too few.

        By Little's law: the request-seconds spent for the last replies, those of requests that still wait included, so
        that a replica which answers nothing is seen as well.
        """
        spent, replies = self._lately(now)
        return None if replies < _EVIDENCE else spent / replies

    def slow(self, now: float, typical: float) -> bool:
        """Too slow beside others whose replies take `typical` seconds; few replies are believed less."""
        spent, replies = self._lately(now)
        return (spent + _EVIDENCE * typical) / (replies + _EVIDENCE) > SLOW * typical

    @property
    def failing(self) -> bool:
        """It failed several times in a row; while drained, once."""
        return self._failures >= (1 if self.drained else FAILURES)

    def drain(self, now: float) -> None:
        """No requests until a rest is over, then trials."""
        rest = self._rest
        self.reset(now)
        self.drained = True
        self._rest_until = now + rest
        self._rest = min(2.0 * rest, LONGEST_REST_SECONDS)

    def wants_trial(self, now: float) -> bool:
        """It is drained, rested, and tries nothing at the moment."""
        return self.drained and now >= self._rest_until and not self._trying

    def passed(self, typical: float | None) -> bool | None:
        """Whether the trials say that it is well again; None while there are too few. `typical`: None unknown."""
        if len(self._trial_seconds) < TRIALS:
            return None
        return typical is None or sum(self._trial_seconds) / len(self._trial_seconds) <= WELL * typical

    def reopen(self, now: float) -> None:
        """Take requests again."""
        self.reset(now)
        self._rest = REST_SECONDS

    def _spend(self, now: float) -> None:
        self._spent += self._counted * (now - self._spent_at)
        self._spent_at = now

    def _lately(self, now: float) -> tuple[float, int]:
        """(request-seconds spent, replies) of the last replies.

        Replies may come in bursts; over fewer than are in flight, the seconds would not be theirs.
        """
        replies = min(len(self._marks) - 1, max(_WINDOW, 2 * self._counted))
        return self._spent + self._counted * (now - self._spent_at) - self._marks[-1 - replies], replies


class Member(Protocol):
    """What is balanced."""

    url: str
    health: Health

    @property
    def alive(self) -> bool:
        """It can be asked now."""
        ...


M = TypeVar("M", bound=Member)


class Balancer(Generic[M]):
    """Replicas with one model. `slots`: requests in flight over all of them, at most."""

    def __init__(self, members: Sequence[M], slots: int) -> None:
        self.slots = slots
        self.in_flight = 0
        self._reviewed = 0.0
        self.members: list[M] = []
        self.replace(members)

    def replace(self, members: Sequence[M]) -> None:
        """Other replicas from now on. Only the trees of those that went, and some for those that came, move."""
        self.members = list(members)
        self._ranked: dict[int, list[M]] = {}

    def ranked(self, tree: int) -> list[M]:
        """All replicas, a tree's first choice first: rendezvous hashing, so that a lost one moves its trees only."""
        found = self._ranked.get(tree)
        if found is None:
            if len(self._ranked) >= _TREES:
                self._ranked.clear()
            key = tree.to_bytes(8, "little", signed=True)
            found = sorted(self.members, key=lambda member: digest(encode_text(member.url), key))
            self._ranked[tree] = found
        return found

    def choose(self, tree: int, now: float, without: Collection[M] = ()) -> M | None:
        """The replica that a tree's next request goes to; None where none is alive."""
        if len(self.members) == 1:  # nothing to choose, and nothing to compare its latency with
            only = self.members[0]
            return only if only.alive and only not in without else None
        if now >= self._reviewed + REVIEW_SECONDS:
            self._reviewed = now
            self.review(now)
        alive = [member for member in self.ranked(tree) if member.alive and member not in without]
        opened = [member for member in alive if not member.health.drained] or alive
        if not opened:
            return None
        bound = max(math.ceil(LOAD * (self.in_flight + 1) / len(opened)), LIGHT)
        # A trial may take long. Where there is little to do, trees would wait for it, and nobody needs the replica.
        busy = 2 * self.in_flight >= self.slots
        for member in alive:
            health = member.health
            if health.drained and opened is not alive:
                if busy and health.wants_trial(now):
                    return member
            elif health.in_flight < bound:
                return member
        return min(opened, key=lambda member: member.health.in_flight)

    def begin(self, member: M, now: float) -> None:
        """A request leaves for a replica."""
        self.in_flight += 1
        member.health.begin(now)

    def end(self, member: M, began: float, now: float, outcome: Outcome) -> None:
        """A request that left at `began` is over."""
        self.in_flight -= 1
        health = member.health
        health.end(began, now, outcome)
        if health.failing:  # at once: who fails quickly has few in flight and would be sent ever more
            if not health.drained:
                logger.warning("%s fails again and again: it is drained", member.url)
            health.drain(now)

    def review(self, now: float) -> None:
        """Drain what is slow or fails, and open again what is well. The last open replica is slow beside nobody."""
        latencies = {
            member.url: latency
            for member in self.members
            if member.alive and not member.health.drained and (latency := member.health.latency(now)) is not None
        }
        for member in self.members:
            health = member.health
            if not member.alive:
                continue
            others = [latency for url, latency in latencies.items() if url != member.url]
            typical = median(others) if others else None
            if health.drained:
                passed = health.passed(typical)
                if passed:
                    logger.warning("%s is well again and takes requests", member.url)
                    health.reopen(now)
                elif passed is False:
                    health.drain(now)
            elif typical is not None and health.slow(now, typical):
                own = latencies.pop(member.url, None)
                said = "little" if own is None else f"in {own:.1f} s"
                logger.warning("%s replies %s, the others in %.1f s: it is drained", member.url, said, typical)
                health.drain(now)
