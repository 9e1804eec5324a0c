"""A run's counters over time: JSON lines in its `logs/`, and, by option, a file in Prometheus's text format.

Times and rates belong here, never into tables.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from pathlib import Path

import msgspec

from treeforge.errors import StorageError
from treeforge.search.progress import Progress
from treeforge.store.files import atomic_file

_log = logging.getLogger("treeforge.pipeline")

_COUNTERS = (
    "requests",
    "replayed",
    "completions",
    "tokens",
    "prompt_tokens",
    "cached_tokens",
    "retries",
    "errors",
    "judged",
    "correct",
)


class Metrics:
    """Writes a line every `seconds`; a disk that does not take it costs a warning, never the run."""

    def __init__(self, path: Path, seconds: float, prometheus: Path | None) -> None:
        """`prometheus`: a file for node_exporter's textfile collector, replaced whole each time."""
        self._path, self._seconds, self._prometheus = path, seconds, prometheus
        self._started = time.monotonic()
        self._last = -math.inf
        self._before: tuple[float, int, int] = (self._started, 0, 0)
        self._warned = False

    def update(self, progress: Progress, *, final: bool = False) -> None:
        """Write the counters, where it is time to."""
        now = time.monotonic()
        if not final and now - self._last < self._seconds:
            return
        self._last = now
        then, completions, tokens = self._before
        took = max(now - then, 1e-9)
        self._before = now, progress.completions, progress.tokens
        row = {
            "time": round(time.time(), 3),
            "seconds": round(now - self._started, 3),
            **{name: value for name, value in msgspec.to_builtins(progress).items() if value is not None},
            "completions_per_second": round((progress.completions - completions) / took, 3),
            "tokens_per_second": round((progress.tokens - tokens) / took, 3),
        }
        try:
            with self._path.open("a", encoding="ascii") as stream:
                stream.write(json.dumps(row) + "\n")
            if self._prometheus is not None:
                with atomic_file(self._prometheus) as binary:
                    binary.write(prometheus_text(row).encode())
        except (OSError, StorageError) as error:
            if not self._warned:
                _log.warning("metrics cannot be written: %s", error)
            self._warned = True


def prometheus_text(row: dict[str, float]) -> str:
    """The row in Prometheus's text exposition format, version 0.0.4; counters are those of this sitting."""
    lines = []
    for name, value in row.items():
        if name == "time":
            continue
        kind = "counter" if name in _COUNTERS else "gauge"
        metric = f"treeforge_{name}" + ("_total" if kind == "counter" else "")
        lines += [f"# TYPE {metric} {kind}", f'{metric}{{pid="{os.getpid()}"}} {value}']
    return "\n".join(lines) + "\n"
