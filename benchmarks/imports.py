"""`treeforge import` of a large file: rows/s, MB/s and peak memory, and the same file cut short. Prints one table.

python benchmarks/imports.py [--gigabytes 0.2] [--folder FOLDER]

The file is JSONL in the format `math-shepherd`: four solutions of five steps a problem, with texts of a page's usual
length. Each import runs in a process of its own; times are processor time, since other work may share the machine. Of
the file that is cut in the middle of its last row, nothing may be left but the error.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from treeforge.errors import TreeforgeError
from treeforge.importing import import_file

SOLUTIONS, STEPS, STEP_WORDS = 4, 5, 40
WORDS = ("so", "we", "add", "the", "first", "number", "to", "what", "is", "left", "and", "get", "half", "of", "it")


def lines(rng: random.Random) -> Iterator[str]:
    """Rows without end."""
    problem = 0
    while True:
        question = f"Problem {problem}: what is {problem} + {problem}? " + " ".join(rng.choices(WORDS, k=STEP_WORDS))
        for _ in range(SOLUTIONS):
            steps = [
                f"Step {n}: {' '.join(rng.choices(WORDS, k=STEP_WORDS))} {rng.randrange(1000)}."
                for n in range(1, STEPS)
            ]
            steps.append(f"Step {STEPS}: Hence it is so. The answer is: {2 * problem + rng.randrange(2)}")
            marks = [rng.choice("+-") for _ in steps]
            yield json.dumps(
                {
                    "input": " ".join([question, "\n".join(f"{step} ки" for step in steps)]),
                    "label": " ".join([question, "\n".join(map("{} {}".format, steps, marks))]),
                    "task": "GSM8K",
                },
                ensure_ascii=False,
            )
        problem += 1


def make_file(path: Path, size: int) -> None:
    """A file of about `size` bytes."""
    written = 0
    with path.open("w", encoding="utf-8") as stream:
        for line in lines(random.Random(7)):
            written += stream.write(line + "\n")
            if written >= size:
                return


def timed(source: Path, out: Path) -> dict[str, Any]:
    """One import, timed, in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    try:
        report = import_file(source, "math-shepherd", out)
        found: dict[str, Any] = {"rows": report.rows, "steps": report.steps, "error": ""}
    except TreeforgeError as error:
        found = {"rows": 0, "steps": 0, "error": str(error)}
    return found | {
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
    }


def measured(source: Path, out: Path) -> dict[str, Any]:
    """The same in a process of its own."""
    command = [sys.executable, __file__, "--import", str(source), str(out)]
    return dict(json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gigabytes", type=float, default=0.2)
    parser.add_argument("--folder", type=Path, help="for the file and the run, about twice its size; a temporary one")
    parser.add_argument("--import", nargs=2, type=Path, dest="job", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.job:
        print(json.dumps(timed(*options.job)))
        return
    table = Table(
        "file", "GB", "rows", "steps", "CPU s", "wall s", "MB/CPU s", "GiB", title="import, peak memory in GiB"
    )
    with tempfile.TemporaryDirectory(dir=options.folder) as name:
        folder = Path(name)
        source = folder / "rows.jsonl"
        make_file(source, int(options.gigabytes * 1e9))
        size = source.stat().st_size
        found = [("whole", measured(source, folder / "run"))]
        os.truncate(source, size - 200)
        found.append(("cut short", measured(source, folder / "cut")))
        left = sorted(path.name for path in folder.iterdir() if path.name not in ("rows.jsonl", "run"))
    for kind, row in found:
        table.add_row(
            kind,
            f"{size / 1e9:.2f}",
            f"{row['rows']:,}",
            f"{row['steps']:,}",
            f"{row['cpu']:.0f}",
            f"{row['wall']:.0f}",
            f"{size / 1e6 / row['cpu']:.1f}",
            f"{row['peak']:.2f}",
        )
    console = Console()
    console.print(table)
    console.print(f"Of the file cut short: {found[1][1]['error'] or 'NO ERROR'}", markup=False, soft_wrap=True)
    console.print(f"Left of that import: {', '.join(left) or 'nothing'}", markup=False)


if __name__ == "__main__":
    main()
