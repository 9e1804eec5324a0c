"""What this machine can do at this moment, to read a benchmark's figures by."""

from __future__ import annotations

import time


def reference() -> float:
    """Million additions a CPU second of plain Python: what this machine can do at this moment."""
    started = time.process_time()
    total = 0
    for number in range(2_000_000):
        total += number
    return 2.0 / (time.process_time() - started)
