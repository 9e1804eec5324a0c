"""The answer checker on files of pairs: accuracy, checks a second, latency. Prints one table; figures: docs/labels.md.

python benchmarks/answers.py PAIRS.jsonl … [--repeats 3] [--math-verify]

A pair is a JSON line with `prediction`, `gold`, `equal` and, where people disagree, `convention`. `--math-verify` runs
that package on the same rows in the same process, where it is installed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from treeforge.label import check, checker
from treeforge.label.read import read
from treeforge.label.walk import traits
from treeforge.verdict import Verdict

Check = Callable[[str, str], bool]


def ours(prediction: str, gold: str) -> bool:
    return check(prediction, gold).verdict is Verdict.CORRECT


def math_verify() -> Check:
    from math_verify import parse, verify

    def delimited(text: str) -> str:
        return text if "$" in text or "boxed" in text or "\\(" in text or len(text) > 60 else f"${text}$"

    def run(prediction: str, gold: str) -> bool:
        return bool(verify(parse(delimited(gold)), parse(delimited(prediction))))

    return run


def measure(run: Check, rows: list[dict[str, Any]]) -> tuple[int, int, list[float]]:
    """(rows judged wrongly, near misses accepted, seconds a row, sorted); processor time, nothing remembered."""
    for remembered in (read, traits, checker._read_gold):
        remembered.cache_clear()
    wrong, accepted, seconds = 0, 0, []
    for row in rows:
        start = time.process_time()
        equal = run(row["prediction"], row["gold"])
        seconds.append(time.process_time() - start)
        if equal != row["equal"]:
            wrong += 1
            accepted += equal
    return wrong, accepted, sorted(seconds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("pairs", nargs="+", type=Path)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--math-verify", action="store_true")
    options = parser.parse_args()
    table = Table("checker", "pairs", "rows", "right", "near misses accepted", "checks/s", "p50 µs", "p99 µs", "max ms")
    ours("\\sqrt{2}", "\\sqrt{3}")  # loads the interval library before the clock starts
    for path in options.pairs:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [row for row in rows if not row.get("convention")]
        checkers = {"treeforge": ours} | ({"math-verify": math_verify()} if options.math_verify else {})
        for name, run in checkers.items():
            repeats = options.repeats if name == "treeforge" else 1
            wrong, accepted, seconds = min(
                (measure(run, rows) for _ in range(repeats)), key=lambda found: sum(found[2])
            )
            n = len(rows)
            table.add_row(
                name,
                path.stem,
                str(n),
                f"{1 - wrong / n:.4f}",
                str(accepted),
                f"{n / sum(seconds):,.0f}",
                f"{seconds[n // 2] * 1e6:.0f}",
                f"{seconds[int(n * 0.99)] * 1e6:.0f}",
                f"{seconds[-1] * 1e3:.1f}",
            )
    Console().print(table)


if __name__ == "__main__":
    main()
