"""`ScriptedPolicy`: a synthetic world in place of a language model, in which every prefix has a known true value.

The world is a chain of `depth` steps with two hidden states, on track and off track. A step from on track goes wrong
with the problem's error rate; a step from off track recovers with `recovery_rate`. The last step gives the answer,
which is right exactly when the chain is on track. Each step is written in one of `branching` ways, so that siblings can
be identical. The text shows the state (the number a step arrives at is the chain's own number or not), therefore the
true value of a prefix is a function of the prefix: see `ScriptedPolicy.true_value`.

It answers a seed always alike, whatever the order of requests, and can be made slow or unreliable. It is the public
fake to test pipelines with.
"""

from __future__ import annotations

import asyncio
import math
import random
from bisect import bisect
from collections.abc import Callable
from typing import Any

import msgspec

from treeforge.config import StepsConfig
from treeforge.errors import ConfigError, RequestFailedError
from treeforge.hashing import derive_seed, digest, encode_text
from treeforge.problem import Problem
from treeforge.sample import Request, Sample

SCRIPTED_STEPS = StepsConfig(preset="scripted", delimiter="\n", answer_markers=("The answer is",))
"""The step format that the scripted world writes."""

_LEVELS = 8
_STEP_TOKENS = 8
_ANSWER_TOKENS = 5


class World(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of the synthetic world. Probabilities are in [0, 1]."""

    depth: int = 8
    """Steps of every trajectory, the answering one included."""
    branching: int = 4
    """Ways to write a step, so that a node has at most 2 · `branching` distinct children."""
    error_rate: float = 0.12
    """Mean chance that a step from on track leaves it."""
    error_spread: float = 0.8
    """Problems differ: their error rates go from (1 - spread) to (1 + spread) times `error_rate`."""
    recovery_rate: float = 0.05
    """Chance that a step from off track returns to it."""
    duplicate_rate: float = 0.2
    """Chance that a step is written in the first way; otherwise the ways are equally likely."""
    latency: float = 0.0
    """Median seconds a request takes."""
    latency_sigma: float = 0.0
    """Sigma of its log-normal distribution; 0 is constant."""
    failure_rate: float = 0.0
    """Chance that an attempt fails with a retryable error."""
    seed: int = 0
    """Of the problems' error rates, the latencies and the failures."""

    def __post_init__(self) -> None:
        for name in ("error_rate", "recovery_rate", "duplicate_rate", "failure_rate", "error_spread"):
            if not 0 <= getattr(self, name) <= 1:
                raise ValueError(f"{name} must be in [0, 1], not {getattr(self, name)!r}")
        if self.depth < 1 or self.branching < 1:
            raise ValueError("depth and branching must be at least 1")
        if self.latency < 0 or self.latency_sigma < 0:
            raise ValueError("latency and latency_sigma must not be negative")


_Choice = tuple[str, bool, float]
"""A step's text, whether it is on track, and its log-probability."""
_Table = tuple[list[float], list[_Choice]]
"""Cumulative bounds and the choices they part, for one depth, coming from one state."""


class ScriptedPolicy:
    """A policy that walks a `World`. Implements `Policy` and, where nothing has to wait, `ImmediatePolicy`.

    `requests` counts the attempts that were answered, `asked` the answered requests by digest.
    """

    def __init__(self, world: World | None = None) -> None:
        self.world = world = world or World()
        self.requests = 0
        self.asked: dict[bytes, int] | None = None
        """Set to a dict to count answered requests by digest."""
        self._attempts: dict[bytes, int] = {}
        self._waits = world.latency > 0 or world.failure_rate > 0
        self._ends = [_step_text(d, 0, True).rpartition(" ")[2] for d in range(1, world.depth + 1)]
        rates = [_level_rate(world, level) for level in range(_LEVELS)]
        self._values = [_true_values(world, rate) for rate in rates]
        self._tables = [
            [[_table(world, rate, depth, state) for state in (False, True)] for depth in range(1, world.depth)]
            for rate in rates
        ]
        self._rates = rates

    @classmethod
    def from_options(cls, options: dict[str, Any]) -> ScriptedPolicy:
        """From the config's `policy.scripted` mapping. Raises `ConfigError` naming the key."""
        try:
            return cls(msgspec.convert(options, World))
        except msgspec.ValidationError as error:
            raise ConfigError(f"policy.scripted: {error}") from None

    @property
    def identity(self) -> dict[str, Any]:
        """Backend and all of the world that determines its texts."""
        world: dict[str, Any] = msgspec.to_builtins(self.world)
        for name in ("latency", "latency_sigma", "failure_rate"):
            del world[name]
        return {"backend": "scripted", "model": "scripted-world-1", "world": world}

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    def true_value(self, problem: Problem, prefix: str) -> float:
        """The exact chance that a completion of `prefix` ends correct."""
        depth = prefix.count("\n")
        if "The answer is" in prefix:
            return float(f"The answer is {problem.gold_answer}." in prefix)
        return self._values[self._level(problem)][depth][self._on_track(prefix, depth)]

    def sample_now(self, request: Request) -> tuple[Sample, ...] | None:
        """The samples at once, or None in a world with latency or failures."""
        return None if self._waits else self._answer(request)

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """The samples, after this request's latency; fails by the world's failure rate."""
        world = self.world
        attempt = self._attempts.pop(request.digest, 0)
        chance = random.Random(derive_seed(world.seed, request.digest, "attempt", attempt))
        if world.latency:
            await asyncio.sleep(world.latency * math.exp(chance.gauss(0.0, world.latency_sigma)))
        if chance.random() < world.failure_rate:
            self._attempts[request.digest] = attempt + 1
            raise RequestFailedError("the scripted world failed on purpose")
        return self._answer(request)

    def _answer(self, request: Request) -> tuple[Sample, ...]:
        self.requests += 1
        if self.asked is not None:
            self.asked[request.digest] = self.asked.get(request.digest, 0) + 1
        problem, prefix = request.problem, request.prefix
        start = prefix.count("\n")
        state = self._on_track(prefix, start)
        level = self._level(problem)
        one_step = request.mode == "step"
        tables = self._tables[level][start : start + 1] if one_step else self._tables[level][start:]
        uniform = random.Random(request.seed).random
        return tuple(
            self._step(tables[0][state], uniform)
            if one_step and tables
            else self._rollout(tables, state, uniform, problem.gold_answer, self._rates[level])
            for _ in range(request.n)
        )

    def _step(self, table: _Table, uniform: Callable[[], float]) -> Sample:
        bounds, choices = table
        text, _, logprob = choices[bisect(bounds, uniform())]
        return Sample(text[:-1], "delimiter", _STEP_TOKENS, logprob, (_STEP_TOKENS,), (logprob,))

    def _rollout(
        self, tables: list[list[_Table]], on_track: bool, uniform: Callable[[], float], gold: str, rate: float
    ) -> Sample:
        parts: list[str] = []
        logprobs: list[float] = []
        for table in tables:
            bounds, choices = table[on_track]
            text, on_track, logprob = choices[bisect(bounds, uniform())]
            parts.append(text)
            logprobs.append(logprob)
        chance_right = 1.0 - rate if on_track else self.world.recovery_rate
        right = uniform() < chance_right
        parts.append(f"The answer is {gold if right else _wrong(gold, uniform() < 0.5)}.")
        logprobs.append(math.log(max(chance_right if right else (1.0 - chance_right) / 2, 1e-30)))
        step_tokens = (_STEP_TOKENS,) * len(tables) + (_ANSWER_TOKENS,)
        return Sample("".join(parts), "stop", sum(step_tokens), sum(logprobs), step_tokens, tuple(logprobs))

    def _on_track(self, prefix: str, depth: int) -> bool:
        return depth == 0 or prefix.endswith(self._ends[depth - 1])

    def _level(self, problem: Problem) -> int:
        key = digest(encode_text(problem.problem_id), self.world.seed.to_bytes(8, "little", signed=True))
        return key[0] % _LEVELS


def _wrong(gold: str, first: bool) -> str:
    wrong = "-1" if first else "-2"
    return wrong if gold != wrong else "-3"


def _level_rate(world: World, level: int) -> float:
    """Error rates spread evenly over the levels."""
    rate = world.error_rate * (1.0 + world.error_spread * (2.0 * level / (_LEVELS - 1) - 1.0))
    return min(max(rate, 0.0), 1.0)


def _step_text(depth: int, way: int, on_track: bool) -> str:
    number = 10 * depth + 7 if on_track else 10 * depth + 4
    return f"Step {depth}: going way {way + 1} we get {number}.\n"


def _true_values(world: World, rate: float) -> list[tuple[float, float]]:
    """values[d] = (value off track, value on track) after d steps."""
    values = [(0.0, 1.0)]
    for _ in range(world.depth):
        off, on = values[-1]
        values.append(
            (
                world.recovery_rate * on + (1.0 - world.recovery_rate) * off,
                (1.0 - rate) * on + rate * off,
            )
        )
    return values[::-1]


def _table(world: World, rate: float, depth: int, on_track: bool) -> _Table:
    """Cumulative bounds and choices of the step at `depth`, coming from a state."""
    stay_on = 1.0 - rate if on_track else world.recovery_rate
    way_chances = [(1.0 - world.duplicate_rate) / world.branching] * world.branching
    way_chances[0] += world.duplicate_rate
    choices: list[_Choice] = []
    bounds: list[float] = []
    total = 0.0
    for next_on, chance_state in ((True, stay_on), (False, 1.0 - stay_on)):
        for way, chance_way in enumerate(way_chances):
            chance = chance_state * chance_way
            if chance > 0.0:
                choices.append((_step_text(depth, way, next_on), next_on, math.log(chance)))
                total += chance
                bounds.append(total)
    return bounds[:-1], choices
