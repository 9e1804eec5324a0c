"""Wall time of a run. No table holds any, by design: it stands in `logs/run.jsonl`, one line a sitting."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec


class Sittings(msgspec.Struct, frozen=True, kw_only=True):
    """Sums over the times a run was worked on."""

    sittings: int
    seconds: float
    """Wall time of the search, all sittings together."""
    tokens: int
    """Sampled by the policy in them."""


def read_sittings(path: Path) -> Sittings | None:
    """The sums of a `run.jsonl`; None where there is none or it names no sitting.

    Lines of other events and lines that cannot be read, as a kill tears them, are passed over.
    """
    try:
        lines = path.read_bytes().splitlines()
    except OSError:
        return None
    count, seconds, tokens = 0, 0.0, 0
    for line in lines:
        try:
            event = json.loads(line)
            if event["event"] != "sitting":
                continue
            lasted, sampled = float(event["seconds"]), int(event["tokens"])
        except (ValueError, KeyError, TypeError):
            continue
        count, seconds, tokens = count + 1, seconds + lasted, tokens + sampled
    return Sittings(sittings=count, seconds=seconds, tokens=tokens) if count else None
