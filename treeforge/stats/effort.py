"""What a run took, as a part of its `Summary`: tokens and time, the answer checker's work, requests in flight."""

from __future__ import annotations

import msgspec

MAX_POINTS = 200
"""Points of a run's load over time."""


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What was paid, from the journal (all trees, open ones too) and the log; None where these are missing."""

    requests: int | None
    completions: int | None
    """Samples, single steps too."""
    tokens: int | None
    failed_requests: int | None
    """Given up after all retries; they stand as `error` samples."""
    journal_bytes: int | None
    tokens_per_node: float | None
    """Tokens paid for the trees that ended / their nodes, roots not counted."""
    tokens_per_label: float | None
    """The same / steps with a hard label."""
    tokens_per_correct: float | None
    """The same / correct completions."""
    sittings: int | None
    """Times the run was started or resumed."""
    seconds: float | None
    """Wall time of all sittings together."""
    tokens_per_second: float | None
    prompt_tokens: int | None
    """Of the sittings whose policy told what its prefix cache did."""
    cached_share: float | None
    """Of these, from that cache."""
    price: float | None
    """What the run cost, where a price was given: of sampled tokens, or of GPU hours."""
    price_per_label: float | None
    price_per_correct: float | None


class SlowCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One of the slowest checks."""

    seconds: float
    answer: str
    """Its start, like the gold answer's."""
    gold_answer: str


class CheckerUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer checker did while the trees grew, from the log of the sittings.

    A tree remembers its own endings and asks the checker about each once, so this counts fewer than `completions`; what
    a resumed run replays from the journal is judged again and counts again.
    """

    checks: int
    """Verdicts that were worked out."""
    hits: int
    """Verdicts that the checker remembered."""
    hit_share: float
    """hits / (hits + checks)."""
    seconds: float
    """Wall time of the checks."""
    routes: dict[str, int]
    """Checks by route, the most frequent first."""
    verdicts: dict[str, int]
    """Checks by verdict."""
    undecided_share: float | None
    slowest: tuple[SlowCheck, ...]
    """The slowest first."""


class LoadPoint(msgspec.Struct, frozen=True):
    """The run over a stretch of time, from `logs/metrics.jsonl`."""

    seconds: float
    """Its end, in working time: the times between sittings are left out."""
    in_flight: float
    """Requests in flight, the mean of what was noted."""
    tokens_per_second: float


class Load(msgspec.Struct, frozen=True, kw_only=True):
    """How busy the policy was."""

    in_flight: float
    """Mean of what was noted, about every `machine.metrics_seconds`."""
    max_in_flight: int
    points: tuple[LoadPoint, ...]
    """In order, `MAX_POINTS` at most."""
