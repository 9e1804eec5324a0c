"""What labels of given solutions cost and how true they are, by strategy, on a world with known values.

python benchmarks/annotate.py [--problems 200] [--seed 0]

The solutions are those of a world that errs twice as often as the one that completes them. Findings: docs/annotate.md.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.table import Table

import treeforge as tf
from treeforge.policy import ScriptedPolicy, World
from treeforge.sample import Request
from treeforge.tree import Finish

WORLD = World(depth=8, error_rate=0.1, recovery_rate=0.05, branching=64, duplicate_rate=0.05)
WRITER = World(depth=8, error_rate=0.2, recovery_rate=0.05, branching=64, duplicate_rate=0.05)
SOLUTIONS = 3
STRATEGIES = ("step-rollouts", "omega", "adaptive")


def solutions(problems: list[tf.Problem], seed: int) -> dict[str, list[str]]:
    """What another policy wrote."""
    writer = ScriptedPolicy(WRITER)
    written = {}
    for number, problem in enumerate(problems):
        request = Request(problem, "", SOLUTIONS, "rollout", seed + number, b"", 0)
        written[problem.problem_id] = [sample.text for sample in writer.sample_now(request) or ()]
    return written


def row(strategy: str, problems: list[tf.Problem], written: dict[str, list[str]], folder: Path) -> list[str]:
    """One strategy's costs a solution and errors a label."""
    options = [f"search.strategy={strategy}"]
    options += [f"policy.scripted.{name}={getattr(WORLD, name)}" for name in WORLD.__struct_fields__]
    config = tf.load_config(None, options, backend="scripted", given=True)
    result = tf.annotate(problems, written, folder, config)
    world = ScriptedPolicy(WORLD)
    errors, wrong, steps = [], 0, 0
    for number, record in tf.RunFolder.open(folder).records():
        tree = record.tree
        values = tf.estimate(tree, config.label.estimator).value
        for node in range(1, tree.size):
            if tree.finish[node] != Finish.OPEN:
                continue
            steps += 1
            if not np.isnan(values[node]):
                true = world.true_value(problems[number], tree.prefix(node))
                errors.append(values[node] - true)
                wrong += (values[node] > 0.5) != (true > 0.5)
    count = SOLUTIONS * len(problems)
    found = np.array(errors)
    return [
        strategy,
        config.label.estimator,
        f"{result.progress.requests / count:.1f}",
        f"{result.progress.completions / count:.1f}",
        f"{result.progress.tokens / count:,.0f}",
        f"{len(found) / steps:.0%}",
        f"{wrong / len(found):.1%}",
        f"{np.abs(found).mean():.3f}",
        f"{found.mean():+.4f} ± {found.std() / len(found) ** 0.5:.4f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--problems", type=int, default=200)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    problems = [tf.make_problem(f"What is {n} + {n}?", str(2 * n), problem_id=f"p{n}") for n in range(options.problems)]
    written = solutions(problems, options.seed)
    table = Table(title=f"{SOLUTIONS} solutions of {WORLD.depth} steps for each of {options.problems} problems")
    for name in ("strategy", "estimator", "requests", "completions", "tokens", "labelled", "wrong", "|error|", "bias"):
        table.add_column(name, justify="left" if name in ("strategy", "estimator") else "right")
    with tempfile.TemporaryDirectory() as folder:
        for strategy in STRATEGIES:
            table.add_row(*row(strategy, problems, written, Path(folder) / strategy))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
