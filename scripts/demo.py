"""`make demo`: the main job on the embedded model, on problems easy enough that trees have both kinds of leaves."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "runs" / "demo"


def treeforge(*arguments: str) -> None:
    command = [str(Path(sys.executable).parent / "treeforge"), *arguments]
    print("\n$ treeforge " + " ".join(arguments), flush=True)
    done = subprocess.run(command, cwd=ROOT, check=False)
    if done.returncode:
        sys.exit(done.returncode)


def main() -> None:
    out = str(OUT.relative_to(ROOT))
    treeforge("models", "pull", "smollm2-135m")
    options = ["--policy", "local", "--limit", "10", "--simulations", "6"]
    treeforge("run", "datasets/word_problems.jsonl", "--out", out, *options)
    treeforge("stats", out)
    treeforge("show", out, most_mixed(), "--depth", "4")
    print(f"\nYour dataset is {out}/dataset. Start over with: rm -r {out}")


def most_mixed() -> str:
    """The tree whose share of right completions is nearest to a half: the one worth looking at."""
    import treeforge as tf

    records = tf.RunFolder.open(OUT).records()
    best = min(records, key=lambda item: abs(item[1].tree.value_sum[0] / max(item[1].tree.visits[0], 1) - 0.5))
    return best[1].problem_id


if __name__ == "__main__":
    main()
