"""The answer checker on files of pairs: accuracy, checks a second, latency. Prints one table; figures: docs/labels.md.

python benchmarks/answers.py [PAIRS.jsonl …] [--repeats 3] [--math-verify]

A pair is a JSON line with `prediction`, `gold`, `equal` and, where people disagree, `convention`; without files, the
project's own cases are used. Two more rows say how long the first check of a new process takes, without and with the
interval library. `--math-verify` runs that package on the same rows in the same process, where it is installed.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Console
from rich.table import Table

from treeforge.label import check, checker
from treeforge.label.read import read
from treeforge.label.walk import traits
from treeforge.verdict import Verdict

Check = Callable[[str, str], bool | None]
"""Whether the two are the same answer; None: undecided."""
CASES = Path(__file__).resolve().parent.parent / "tests" / "label" / "cases.jsonl"
FIRST_CHECK = """
import sys, time
from treeforge.label import check
start = time.perf_counter()
check({prediction!r}, {gold!r})
print(time.perf_counter() - start, "sympy" in sys.modules)
"""


class Measured(NamedTuple):
    """What one checker did on one file."""

    wrong: int
    accepted: int
    undecided: int
    seconds: list[float]
    """Processor time a row, sorted."""


def ours(prediction: str, gold: str) -> bool | None:
    verdict = check(prediction, gold).verdict
    return None if verdict is Verdict.UNDECIDED else verdict is Verdict.CORRECT


def math_verify() -> Check:
    from math_verify import parse, verify

    def delimited(text: str) -> str:
        return text if "$" in text or "boxed" in text or "\\(" in text or len(text) > 60 else f"${text}$"

    def run(prediction: str, gold: str) -> bool:
        return bool(verify(parse(delimited(gold)), parse(delimited(prediction))))

    return run


def measure(run: Check, rows: list[dict[str, Any]]) -> Measured:
    """One pass over the rows; nothing is remembered between passes."""
    for remembered in (read, traits, checker._read_gold):
        remembered.cache_clear()
    wrong, accepted, undecided, seconds = 0, 0, 0, []
    for row in rows:
        start = time.process_time()
        equal = run(row["prediction"], row["gold"])
        seconds.append(time.process_time() - start)
        undecided += equal is None
        wrong += bool(equal) != row["equal"]
        accepted += bool(equal) and not row["equal"]
    return Measured(wrong, accepted, undecided, sorted(seconds))


def first_check(prediction: str, gold: str) -> str:
    """Milliseconds of the first check in a new process, the least of five."""
    code = FIRST_CHECK.format(prediction=prediction, gold=gold)
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(5)]
    seconds = min(float(run.stdout.split()[0]) for run in runs)
    loaded = ", sympy was loaded" if any("True" in run.stdout for run in runs) else ""
    return f"{seconds * 1e3:.1f} ms{loaded}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("pairs", nargs="*", type=Path, default=[CASES])
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--math-verify", action="store_true")
    options = parser.parse_args()
    columns = ("checker", "pairs", "rows", "right", "accepted", "undecided", "checks/s", "p50 µs", "p99 µs", "max ms")
    table = Table(*columns, caption="accepted: near misses judged correct")
    ours("\\sqrt{2}", "\\sqrt{3}")  # loads the interval library before the clock starts
    for path in options.pairs:
        rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
        rows = [row for row in rows if not row.get("convention")]
        checkers = {"treeforge": ours} | ({"math-verify": math_verify()} if options.math_verify else {})
        for name, run in checkers.items():
            repeats = options.repeats if name == "treeforge" else 1
            found = min((measure(run, rows) for _ in range(repeats)), key=lambda found: sum(found.seconds))
            n, seconds = len(rows), found.seconds
            table.add_row(
                name,
                path.stem,
                str(n),
                f"{1 - found.wrong / n:.4f}",
                str(found.accepted),
                f"{found.undecided / n:.2%}",
                f"{n / sum(seconds):,.0f}",
                f"{seconds[n // 2] * 1e6:.0f}",
                f"{seconds[int(n * 0.99)] * 1e6:.0f}",
                f"{seconds[-1] * 1e3:.1f}",
            )
    console = Console()
    console.print(table)
    exact, intervals = first_check("6/4", "1.5"), first_check("2\\sqrt{2}", "\\sqrt{8}")
    console.print(f"first check after import: {exact}; with the interval library: {intervals}")


if __name__ == "__main__":
    main()
