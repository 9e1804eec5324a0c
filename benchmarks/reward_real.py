"""The second part of `reward_study.py`: from `treeforge run` to the best-of-N table with a real small model.

SmolLM2-135M is the policy and the reward models' base. What runs here are the commands that docs/reward.md shows, one
after another in a folder; a second call does only what is missing.
"""

from __future__ import annotations

import json
import os
import random
import shlex
import subprocess
import sys
import time
from pathlib import Path

MODEL = "smollm2-135m"
PROBLEMS = Path(__file__).parents[1] / "datasets" / "word_problems.jsonl"
MOST_STEPS = 2
"""Problems with more are beyond this model: all its answers are wrong."""
TASKS = ("prm", "hrm")


def split(folder: Path, train: int, test: int) -> None:
    """Write `train.jsonl` and `test.jsonl`, of different problems."""
    rows = [json.loads(line) for line in PROBLEMS.read_text().splitlines()]
    rows = [row for row in rows if row["steps"] <= MOST_STEPS]
    random.Random(0).shuffle(rows)
    folder.mkdir(parents=True, exist_ok=True)
    for name, part in (("train", rows[:train]), ("test", rows[train : train + test])):
        lines = [json.dumps({key: row[key] for key in ("id", "question", "answer", "level")}) for row in part]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")


def commands(*, quick: bool) -> list[str]:
    """The commands, in order; paths are of the study's folder."""
    n, sizes = (2, "1,2") if quick else (8, "1,2,4,8")
    training = f"--model {MODEL} --lora 8 --lr 2e-4 --batch 8 --window 256 --set evals=2"
    training += " --limit 16" if quick else ""
    return [
        "treeforge run train.jsonl --out trees --policy local --strategy exhaustive"
        " --set search.children=4 --set search.levels=2 --set export.balance=true"
        ' --set export.validation_share=0.15 --set export.formats=\'["hrm","orm"]\'',
        *(f"treeforge train trees --task {task} --out {task} {training}" for task in TASKS),
        f"treeforge evaluate samples --policy local --problems test.jsonl --n {sizes} --seed {n}"
        f" --reward {','.join(TASKS)} --plot best_of_n.svg --csv best_of_n.csv",
    ]


def study(folder: Path, *, quick: bool = False) -> None:
    """Run the commands that have not succeeded yet, and print how long each took."""
    split(folder, *((8, 3) if quick else (56, 16)))
    log = folder / "times.json"
    times: dict[str, float] = json.loads(log.read_text()) if log.exists() else {}
    for command in commands(quick=quick):
        if command in times and " evaluate " not in command:
            continue
        print(f"$ {command}", flush=True)
        start = time.monotonic()
        words = shlex.split(command)
        subprocess.run([sys.executable, "-m", *words], cwd=folder, env=dict(os.environ), check=True)
        times[command] = time.monotonic() - start
        log.write_text(json.dumps(times, indent=2))
    print(f"\n{'minutes':>8}  command")
    for command, seconds in times.items():
        print(f"{seconds / 60:8.1f}  {command}")
    print(f"{sum(times.values()) / 60:8.1f}  in all")
