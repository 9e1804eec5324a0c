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
from functools import lru_cache
from hashlib import shake_128
from itertools import accumulate
from operator import getitem
from struct import Struct
from typing import Any, NamedTuple

import msgspec

from treeforge.config import StepsConfig
from treeforge.config.base import fits_64_bits
from treeforge.errors import ConfigError, RequestFailedError
from treeforge.hashing import derive_seed, digest, encode_text
from treeforge.problem import Problem
from treeforge.sample import Request, Sample

SCRIPTED_STEPS = StepsConfig(preset="scripted", delimiter="\n", answer_markers=("The answer is",))
"""The step format that the scripted world writes."""

_LEVELS = 8
_SPAN = 8
"""Steps whose states are drawn at once, out of at most 2^8 paths."""
_STEP_TOKENS = 8
_ANSWER_TOKENS = 5
_WRONG_ANSWERS = ("1", "2")
"""In place of the last step's text where the world chooses among answers; written with a minus."""


class World(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Parameters of the synthetic world. Probabilities are in [0, 1]."""

    depth: int = 8
    """Steps of every trajectory, the answering one included."""
    branching: int = 4
    """Ways to write a step, 256 at most, so that a node has at most 2 · `branching` distinct children."""
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
        if not 1 <= self.depth <= 10_000 or not 1 <= self.branching <= 256:
            raise ValueError("depth must be from 1 to 10000 and branching from 1 to 256")
        if self.latency < 0 or self.latency_sigma < 0:
            raise ValueError("latency and latency_sigma must not be negative")
        fits_64_bits(self, "seed")


class _Path(NamedTuple):
    """One sequence of states over the next few steps."""

    texts: tuple[tuple[str, ...], ...]
    """A step: its text for each byte of chance, so that ways to write it come out as often as the world says."""
    logprobs: tuple[tuple[float, ...], ...]
    """A step: the log-probability of its state after the one before and of that way to write it."""
    on_track: bool
    """The state after the last of these steps."""


_Paths = tuple[list[int], list[_Path]]
"""Cumulative bounds, in units of 2^-32, and the paths they part."""


_Endings = tuple[int, str, dict[str, str]]
"""Of a problem: the level of its error rate, the right last step, and the wrong one for each of `_WRONG_ANSWERS`."""


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
        self._rates = [_level_rate(world, level) for level in range(_LEVELS)]
        self._values = [_true_values(world, rate) for rate in self._rates]
        self._known: dict[tuple[str, str], _Endings] = {}
        self._paths: dict[tuple[int, int, int, bool], _Paths] = {}
        self._shapes: dict[int, tuple[Struct, int, tuple[int, ...]]] = {}
        """By steps: how a sample lies in the stream of random bytes; its tokens, and those of each step."""

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
        return {"backend": "scripted", "model": "scripted-world-2", "world": world}

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    def true_value(self, problem: Problem, prefix: str) -> float:
        """The exact chance that a completion of `prefix` ends correct."""
        depth = self._depth(prefix)
        if "The answer is" in prefix:
            return float(f"The answer is {problem.gold_answer}." in prefix)
        return self._values[self._endings(problem)[0]][depth][self._on_track(prefix, depth)]

    def sample_now(self, request: Request) -> tuple[Sample, ...] | None:
        """The samples at once, or None in a world with latency or failures."""
        return None if self._waits else self._answer(request)

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """The samples, after this request's latency; fails by the world's failure rate."""
        world = self.world
        if not world.latency_sigma and not world.failure_rate:  # nothing to draw, and seeding takes its time
            await asyncio.sleep(world.latency)
            return self._answer(request)
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
        prefix, depth = request.prefix, self.world.depth
        start = self._depth(prefix)
        level, right, wrong = self._endings(request.problem)
        steps = 1 if request.mode == "step" else depth - start
        answers = start + steps == depth
        bounds, paths = self._next(level, start, min(_SPAN, steps), self._on_track(prefix, start))
        layout, tokens, step_tokens = self._shapes.get(steps) or self._shape(steps)
        # Each sample reads its own part of one stream of random bytes: for every span 4 for the path of states, and one
        # a step for the way to write it.
        stream = shake_128(request.seed.to_bytes(8, "little")).digest(layout.size * request.n)
        samples = []
        ways: bytes
        for drawn, ways, *further in layout.iter_unpack(stream):
            step_texts, step_logprobs, on_track = paths[bisect(bounds, drawn)]
            texts = list(map(getitem, step_texts, ways))
            logprobs = tuple(map(getitem, step_logprobs, ways))
            while further:
                drawn, ways, *further = further
                step = start + len(texts)
                more_bounds, more_paths = self._next(level, step, len(ways), on_track)
                step_texts, step_logprobs, on_track = more_paths[bisect(more_bounds, drawn)]
                texts += map(getitem, step_texts, ways)
                logprobs += tuple(map(getitem, step_logprobs, ways))
            if answers:
                texts[-1] = right if on_track else wrong[texts[-1]]
                samples.append(Sample("".join(texts), "stop", tokens, sum(logprobs), step_tokens, logprobs))
            else:
                samples.append(Sample(texts[0][:-1], "delimiter", _STEP_TOKENS, logprobs[0], (_STEP_TOKENS,), logprobs))
        return tuple(samples)

    def _shape(self, steps: int) -> tuple[Struct, int, tuple[int, ...]]:
        spans = [min(_SPAN, steps - done) for done in range(0, steps, _SPAN)]
        step_tokens = (_STEP_TOKENS,) * (steps - 1) + (_ANSWER_TOKENS,)
        layout = Struct("<" + "".join(f"I{span}s" for span in spans))  # of a span: the path, the ways
        found = self._shapes[steps] = (layout, sum(step_tokens), step_tokens)
        return found

    def _next(self, level: int, start: int, span: int, on_track: bool) -> _Paths:
        key = (level, start, span, on_track)
        found = self._paths.get(key)
        if found is None:  # hashing a world for the cache behind it costs more than walking a step
            found = self._paths[key] = _make_paths(self.world, self._rates[level], start, span, on_track)
        return found

    def _depth(self, prefix: str) -> int:
        """Steps done. One is always left, the answer, however many another writer took."""
        return min(prefix.count("\n"), self.world.depth - 1)

    def _on_track(self, prefix: str, depth: int) -> bool:
        return depth == 0 or prefix.endswith(self._ends[depth - 1])

    def _endings(self, problem: Problem) -> _Endings:
        key = (problem.problem_id, problem.gold_answer)
        found = self._known.get(key)
        if found is None:
            gold = problem.gold_answer
            seed = self.world.seed.to_bytes(8, "little", signed=True)
            level = digest(encode_text(problem.problem_id), seed)[0] % _LEVELS
            wrong = {way: f"The answer is {f'-{way}' if gold != f'-{way}' else '-3'}." for way in _WRONG_ANSWERS}
            found = self._known[key] = (level, f"The answer is {gold}.", wrong)
        return found


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


@lru_cache(maxsize=4096)
def _make_paths(world: World, rate: float, start: int, span: int, on_track: bool) -> _Paths:
    """The paths of the `span` steps after `start` from a state. The last step of the world chooses among answers."""
    paths: list[tuple[float, _Path]] = [(1.0, _Path((), (), on_track))]
    for depth in range(start + 1, start + span + 1):
        moves = {state: _moves(world, rate, depth, state) for state in (True, False)}
        paths = [
            (chance * change, _Path((*texts, ways), (*logprobs, way_logprobs), next_state))
            for chance, (texts, logprobs, state) in paths
            for next_state, change, ways, way_logprobs in moves[state]
        ]
    bounds = [min(round(bound * 2**32), 2**32 - 1) for bound in accumulate(chance for chance, _ in paths)]
    return bounds[:-1], [path for _, path in paths]


def _moves(
    world: World, rate: float, depth: int, on_track: bool
) -> list[tuple[bool, float, tuple[str, ...], tuple[float, ...]]]:
    """The states that follow a state: (on track, chance, texts by byte, log-probabilities by byte)."""
    stay_on = 1.0 - rate if on_track else world.recovery_rate
    moves = []
    for next_state, change in ((True, stay_on), (False, 1.0 - stay_on)):
        if change > 0.0:
            ways, way_logprobs = _ways(world, depth, next_state)
            # One object a value: 256 of equal value would not stay in the processor's cache.
            totals = {logprob: math.log(change) + logprob for logprob in set(way_logprobs)}
            moves.append((next_state, change, ways, tuple(totals[logprob] for logprob in way_logprobs)))
    return moves


@lru_cache(maxsize=4096)
def _ways(world: World, depth: int, on_track: bool) -> tuple[tuple[str, ...], tuple[float, ...]]:
    """A step's text and log-probability for each of the 256 bytes; ways share the bytes by the world's chances.

    At the last depth the texts are the numbers of the wrong answers, equally likely; a right answer has one text.
    """
    if depth == world.depth:
        return _WRONG_ANSWERS * 128, (0.0 if on_track else math.log(0.5),) * 256
    firsts = round(256 * (world.duplicate_rate + (1.0 - world.duplicate_rate) / world.branching))
    others = world.branching - 1
    ways = [0] * firsts + [1 + i % others for i in range(256 - firsts)] if others else [0] * 256
    shares = [math.log(count / 256) if (count := ways.count(way)) else 0.0 for way in range(world.branching)]
    texts = [_step_text(depth, way, on_track) for way in range(world.branching)]
    return tuple(texts[way] for way in ways), tuple(shares[way] for way in ways)
