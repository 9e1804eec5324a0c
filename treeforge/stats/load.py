"""Requests in flight over time, from the lines of a run's `logs/metrics.jsonl`."""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from treeforge.stats.effort import MAX_POINTS, Load, LoadPoint


class _Line(msgspec.Struct):
    seconds: float
    in_flight: int
    tokens_per_second: float = 0.0


def read_load(path: Path) -> Load | None:
    """The run's load; None where there is no such file or no line of it can be read.

    Lines that cannot be read, as a kill tears them, are passed over. Seconds count from the start of each sitting, so
    that a smaller number than the last is the next sitting.
    """
    lines: list[tuple[float, int, float]] = []
    before = last = 0.0
    decoder = msgspec.json.Decoder(_Line)
    try:
        with path.open("rb") as stream:
            for text in stream:
                try:
                    line = decoder.decode(text)
                except msgspec.DecodeError:
                    continue
                if line.seconds < last:
                    before += last
                last = line.seconds
                lines.append((before + last, line.in_flight, line.tokens_per_second))
    except OSError:
        return None
    if not lines:
        return None
    rows = np.array(lines)
    parts = np.array_split(rows, min(len(rows), MAX_POINTS))
    return Load(
        in_flight=float(rows[:, 1].mean()),
        max_in_flight=int(rows[:, 1].max()),
        points=tuple(
            LoadPoint(
                seconds=float(part[-1, 0]),
                in_flight=float(part[:, 1].mean()),
                tokens_per_second=float(part[:, 2].mean()),
            )
            for part in parts
        ),
    )
