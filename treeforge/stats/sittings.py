"""Wall time of a run, and what its answer checker did. No table holds either, by design: they stand in
`logs/run.jsonl`, one line a sitting.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import msgspec

from treeforge.stats.effort import CheckerUse, SlowCheck

SLOWEST = 5
"""Slow checks kept of all sittings."""


class Sittings(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the times that a run was worked on."""

    sittings: int
    seconds: float
    """Wall time, all sittings together."""
    tokens: int
    """Sampled by the policy in them."""
    prompt_tokens: int | None
    """Of the sittings whose policy told what its prefix cache did; None where none did."""
    cached_tokens: int | None
    """Of these, from that cache."""
    checker: CheckerUse | None
    """Of the sittings whose judge was the answer checker; None without any."""


class _Checker(msgspec.Struct):
    """`treeforge.label.CheckStatistics`, as it was noted."""

    hits: int = 0
    checks: int = 0
    routes: dict[str, int] = {}
    verdicts: dict[str, int] = {}
    seconds: float = 0.0
    slowest: list[tuple[float, str, str]] = []


class _Line(msgspec.Struct):
    event: str
    seconds: float = 0.0
    tokens: int = 0
    prompt_tokens: int | None = None
    cached_tokens: int | None = None
    checker: _Checker | None = None


def read_sittings(path: Path) -> Sittings | None:
    """The sums of a `run.jsonl`; None where there is none or it names no sitting.

    Lines of other events and lines that cannot be read, as a kill tears them, are passed over.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    found: list[_Line] = []
    for text in lines:
        try:
            line = msgspec.json.decode(text, type=_Line)
        except msgspec.DecodeError:
            continue
        if line.event == "sitting":
            found.append(line)
    if not found:
        return None
    return Sittings(
        sittings=len(found),
        seconds=sum(s.seconds for s in found),
        tokens=sum(s.tokens for s in found),
        prompt_tokens=_sum(s.prompt_tokens for s in found),
        cached_tokens=_sum(s.cached_tokens for s in found),
        checker=_checker([s.checker for s in found if s.checker is not None]),
    )


def _sum(noted: Iterable[int | None]) -> int | None:
    known = [count for count in noted if count is not None]
    return sum(known) if known else None


def _checker(noted: list[_Checker]) -> CheckerUse | None:
    asked = sum(note.hits + note.checks for note in noted)
    if not asked:
        return None
    routes, verdicts = Counter[str](), Counter[str]()
    for note in noted:
        routes.update(note.routes)
        verdicts.update(note.verdicts)
    checks, hits = sum(note.checks for note in noted), sum(note.hits for note in noted)
    slowest = sorted((slow for note in noted for slow in note.slowest), reverse=True)[:SLOWEST]
    return CheckerUse(
        checks=checks,
        hits=hits,
        hit_share=hits / asked,
        seconds=sum(note.seconds for note in noted),
        routes=dict(routes.most_common()),
        verdicts=dict(verdicts.most_common()),
        undecided_share=verdicts["undecided"] / checks if checks else None,
        slowest=tuple(SlowCheck(seconds=seconds, answer=answer, gold_answer=gold) for seconds, answer, gold in slowest),
    )
