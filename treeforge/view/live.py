"""A run while it goes on: counters and rates from its metrics, trees that grow now from its journal. Read only."""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import msgspec

from treeforge.printable import one_line
from treeforge.store.journal import Journal
from treeforge.store.run import OPEN, RunFolder
from treeforge.view.reader import RunReader

_TAIL = 256 * 1024
"""Bytes of the end of `logs/metrics.jsonl` that are read."""
MAX_POINTS, MAX_GROWING = 120, 50
"""Points of the charts, and trees that are listed."""
_LATE = 3
"""Where no lock tells it, a run counts as going while its last line is at most so many of its intervals old."""


class _Line(msgspec.Struct):
    time: float
    seconds: float
    trees: int = 0
    finished: int = 0
    in_flight: int = 0
    completions: int = 0
    tokens: int = 0
    retries: int = 0
    errors: int = 0
    judged: int = 0
    correct: int = 0
    completions_per_second: float = 0.0
    tokens_per_second: float = 0.0


def live_data(reader: RunReader) -> dict[str, Any]:
    """Progress, the rates of the sitting that is or was last, and the trees that grow."""
    run, statuses = reader.run, reader.statuses
    by_status = Counter(status for status, _ in statuses.values())
    lines = read_metrics(run.path / "logs" / "metrics.jsonl")
    left = by_status["open"]
    going = left > 0 and _is_going(run, lines)
    return {
        "going": going,
        "by_status": dict(by_status),
        "problems": len(statuses),
        "now": msgspec.to_builtins(lines[-1]) if lines else None,
        "points": [
            [round(line.seconds, 1), line.tokens_per_second, line.completions_per_second] for line in _thinned(lines)
        ],
        "seconds_left": _seconds_left(lines, left) if going and lines else None,
        "growing": _growing(reader) if left else [],
    }


def _is_going(run: RunFolder, lines: list[_Line]) -> bool:
    """A process holds the run's lock; the kernel lets go of it with the process, however that ends."""
    locked = run.is_locked()
    if locked is None:
        interval = float(run.manifest["machine"].get("metrics_seconds", 30.0))
        return bool(lines) and time.time() - lines[-1].time < max(_LATE * interval, 15.0)
    return locked


def read_metrics(path: Path) -> list[_Line]:
    """The lines of the last sitting at the end of a `metrics.jsonl`; torn and foreign ones are passed over."""
    try:
        with path.open("rb") as stream:
            size = stream.seek(0, 2)
            stream.seek(max(size - _TAIL, 0))
            texts = stream.read(_TAIL).splitlines()
    except OSError:
        return []
    found: list[_Line] = []
    for text in texts:
        try:
            line = msgspec.json.decode(text, type=_Line)
        except (msgspec.DecodeError, RecursionError):
            continue
        if found and line.seconds < found[-1].seconds:
            found = []  # Another sitting began.
        found.append(line)
    return found


def _growing(reader: RunReader) -> list[dict[str, Any]]:
    file = reader.run.path / "journal.sqlite"
    if not file.exists():
        return []
    journal = Journal.open(file, read_only=True)
    try:
        requests = journal.requests_by_tree()
    finally:
        journal.close()
    statuses, problems = reader.statuses, reader.run.problems
    return [
        {"number": number, "requests": count, "question": one_line(problems[number].question, 120)}
        for number, count in sorted(requests.items())
        if statuses.get(number) == OPEN
    ][:MAX_GROWING]


def _thinned(lines: list[_Line]) -> list[_Line]:
    every = -(-len(lines) // MAX_POINTS) or 1
    return lines[::-1][::every][::-1]


def _seconds_left(lines: list[_Line], left: int) -> float | None:
    first, last = lines[0], lines[-1]
    done, took = last.finished - first.finished, last.seconds - first.seconds
    return round(left * took / done, 1) if done > 0 and took > 0 else None
