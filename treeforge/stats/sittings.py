"""Wall time of a run. No table holds any, by design: it stands in `logs/run.jsonl`, one line a sitting."""

from __future__ import annotations

from pathlib import Path

import msgspec


class Sittings(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the times that a run was worked on."""

    sittings: int
    seconds: float
    """Wall time, all sittings together."""
    tokens: int
    """Sampled by the policy in them."""


class _Line(msgspec.Struct):
    event: str
    seconds: float = 0.0
    tokens: int = 0


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
    return Sittings(sittings=len(found), seconds=sum(s.seconds for s in found), tokens=sum(s.tokens for s in found))
