"""The journal at size: completions of 300 tokens written, read back for resume, bytes on disk. Prints one table.

python benchmarks/journal.py [--completions 1000000] [--texts FILE.jsonl --field solution]

The texts are made up, in the style of our word problems, or those of a file of yours, cut and joined to 1,200
characters (300 tokens). Four completions are one request, as in a run with `children = 4`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from treeforge.problem import make_problem
from treeforge.sample import Request, Sample
from treeforge.store.journal import Journal

CHARS = 1_200
N = 4
NAMES = (
    "Ann",
    "Ben",
    "Cora",
    "Dan",
    "Eve",
    "Finn",
    "Gina",
    "Hugo",
    "Iris",
    "Jack",
    "Kim",
    "Leo",
    "Mia",
    "Noah",
    "Olga",
)
THINGS = (
    "apples",
    "books",
    "cups",
    "dollars",
    "eggs",
    "flowers",
    "games",
    "hours",
    "jars",
    "lamps",
    "miles",
    "oranges",
)
PHRASES = (
    "First we find how many {thing} {name} has: {a} + {b} = {c}.",
    "Since {name} gives away {a} {thing}, we subtract {a} from {b}, which leaves {c} {thing}.",
    "Let $x$ be the number of {thing}. Then $x + {a} = {b}$, so $x = {c}$.",
    "Each of the {a} boxes holds {b} {thing}, so together they hold ${a} \\times {b} = {c}$ {thing}.",
    "Therefore {name} needs \\frac{{{a}}}{{{b}}} of the {thing}, that is {c} in all.",
    "We check this: {a} times {b} is {c}, as it should be for {name}'s {thing}.",
    "Now we divide the remaining {thing} by {a}, because {name} shares them among {b} friends, and get {c}.",
)


def made_up(chance: random.Random) -> str:
    lines, length = [], 0
    while length < CHARS:
        line = chance.choice(PHRASES).format(
            name=chance.choice(NAMES),
            thing=chance.choice(THINGS),
            a=chance.randrange(2, 99),
            b=chance.randrange(2, 999),
            c=chance.randrange(2, 9999),
        )
        lines.append(line)
        length += len(line) + 1
    return "\n".join(lines) + f"\nThe answer is {chance.randrange(1000)}."


def completions(path: Path | None, field: str, chance: random.Random) -> Iterator[str]:
    if path is None:
        while True:
            yield made_up(chance)
    texts = [str(json.loads(line)[field]) for line in path.read_text(encoding="utf-8").splitlines()]
    while True:  # two halves of different solutions, so that no completion comes twice
        first, second = chance.choice(texts), chance.choice(texts)
        cut = chance.randrange(CHARS // 3, 2 * CHARS // 3)
        yield (first + "\n" + second + "\n" + chance.choice(texts))[cut // 2 : cut // 2 + CHARS]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--completions", type=int, default=1_000_000)
    parser.add_argument("--texts", type=Path)
    parser.add_argument("--field", default="solution")
    options = parser.parse_args()
    requests = options.completions // N
    trees = max(requests // 64, 1)
    source = completions(options.texts, options.field, random.Random(0))
    problem = make_problem("What is 1 + 1?", "2")
    folder = Path(tempfile.mkdtemp())
    table = Table("journal", "measured", "goal", title=f"{requests * N:,} completions of {CHARS} characters")
    try:
        journal, writing, characters = Journal.open(folder / "journal.sqlite"), 0.0, 0
        for number in range(requests):
            samples = tuple(
                Sample(text, "stop", 300, -random.random() * 100) for text in (next(source) for _ in range(N))
            )
            characters += sum(len(sample.text) for sample in samples)
            request = Request(
                problem=problem,
                prefix="",
                n=N,
                mode="rollout",
                seed=0,
                digest=random.randbytes(16),
                tree=number % trees,
            )
            started = time.perf_counter()
            journal.record(request, samples)
            writing += time.perf_counter() - started
        started = time.perf_counter()
        journal.close()
        writing += time.perf_counter() - started
        size = (folder / "journal.sqlite").stat().st_size
        table.add_row("written, completions/s", f"{requests * N / writing:,.0f}", ">= 20,000")
        table.add_row("bytes a completion on disk", f"{size / requests / N:.0f}", "<= 400")
        table.add_row("characters a completion", f"{characters / requests / N:.0f}", "")
        started = time.perf_counter()
        journal = Journal.open(folder / "journal.sqlite")
        journal.totals()
        found = sum(len(samples) for tree in range(trees) for samples in journal.rows(tree).values())
        table.add_row("reopened, every row read for resume, s", f"{time.perf_counter() - started:.1f}", "< 20")
        assert found == requests * N
        started = time.perf_counter()
        journal.compact()
        journal.close()
        table.add_row("compacted, s", f"{time.perf_counter() - started:.1f}", "")
        size = (folder / "journal.sqlite").stat().st_size
        table.add_row("bytes a completion after compaction", f"{size / requests / N:.0f}", "")
    finally:
        shutil.rmtree(folder)
    Console().print(table)


if __name__ == "__main__":
    main()
