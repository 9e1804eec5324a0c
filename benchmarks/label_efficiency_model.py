"""What a true step label costs on a real model, from its recorded completions. Findings: docs/label_efficiency.md.

    treeforge run PROBLEMS --out RUN --strategy step-rollouts --set search.children=256 …    # the model, once
    python benchmarks/label_efficiency_model.py RUN [--repeats 20] [--plot FILE] [--json FILE]

The run's solutions are taken as given. A step's true value is the share of its recorded completions that are right, and
a strategy that asks for completions of a step draws from them, without putting back and in another order in each
repetition: so every strategy is measured many times and the model is paid once.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from label_points import Point, Setting, Source, grow, points_of
from label_tables import report
from rich.console import Console

from treeforge.config import AdaptiveConfig, Recipe, SearchConfig
from treeforge.configuration import convert
from treeforge.given import GivenSolution, make_given
from treeforge.problem import Problem
from treeforge.sample import Request, Sample
from treeforge.sitting import open_judge
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeRecord
from treeforge.verdict import Verdict

FEWEST = 16
"""Steps with fewer recorded completions than this have no true value."""


class Recorded(NamedTuple):
    """One problem of the run: its solutions, and by prefix what the model went on with."""

    problem: Problem
    solutions: tuple[GivenSolution, ...]
    completions: dict[str, list[Sample]]
    values: dict[str, float]
    tokens: dict[str, int]
    """Of each prefix."""


class Draws:
    """A policy that answers with recorded completions, each once, in an order that `repetition` decides."""

    def __init__(self, recorded: Recorded, repetition: int) -> None:
        self._recorded, self._repetition = recorded, repetition
        self._orders: dict[str, list[Sample]] = {}

    @property
    def identity(self) -> dict[str, Any]:
        return {"backend": "recorded"}

    def sample_now(self, request: Request) -> tuple[Sample, ...]:
        found: list[Sample] = []
        while len(found) < request.n:
            order = self._orders.get(request.prefix)
            if not order:  # all were drawn
                order = list(self._recorded.completions[request.prefix])
                random.Random(f"{self._repetition} {request.prefix}").shuffle(order)
                self._orders[request.prefix] = order
            found.append(order.pop())
        return tuple(found)

    def true_value(self, problem: Problem, prefix: str) -> float:
        return self._recorded.values[prefix]


def read(problem: Problem, record: TreeRecord) -> Recorded | None:
    """What a tree of `step-rollouts` has recorded; None where no step has enough."""
    tree = record.tree
    completions: dict[str, list[Sample]] = {}
    right: dict[str, list[bool]] = {}
    for rollout in record.rollouts:
        if rollout.node == 0 or rollout.finish == Finish.ERROR or rollout.verdict == Verdict.UNDECIDED:
            continue
        prefix = tree.prefix(rollout.node)
        ended = "length" if rollout.finish == Finish.TRUNCATED else "stop"
        completions.setdefault(prefix, []).append(Sample("".join(rollout.steps), ended, rollout.tokens))
        right.setdefault(prefix, []).append(rollout.verdict == Verdict.CORRECT)
    tokens = {tree.prefix(row): int(tree.token_count[tree.path(row)].sum()) for row in range(1, tree.size)}
    solutions = []
    for leaf in np.flatnonzero(tree.is_leaf).tolist():
        path = tree.path(leaf)
        ends = [len(path) - 1] if tree.finish[leaf] != Finish.OPEN else []
        steps = [row for row in path if tree.finish[row] == Finish.OPEN]
        if all(len(completions.get(tree.prefix(row), ())) >= FEWEST for row in steps) and steps:
            solutions.append(make_given([tree.text[row] for row in path], ends=ends))
    if not solutions:
        return None
    values = {prefix: float(np.mean(ends)) for prefix, ends in right.items()}
    return Recorded(problem, tuple(solutions), completions, values, tokens)


def settings() -> list[Setting]:
    """Every curve, from few tokens to many."""
    found = [
        Setting("step-rollouts", n, SearchConfig(strategy="step-rollouts", given=True, children=n))
        for n in (1, 2, 4, 8, 16, 32, 64)
    ]
    found += [
        Setting("omega", k, SearchConfig(strategy="omega", given=True, children=k)) for k in (2, 4, 8, 16, 32, 64)
    ]
    for name, target in (("adaptive", "hard"), ("adaptive, soft", "soft")):
        for gain in (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001):
            adaptive = convert({"min_gain": gain, "target": target}, AdaptiveConfig)
            found.append(Setting(name, gain, SearchConfig(strategy="adaptive", given=True, adaptive=adaptive)))
    return found


def measured(name: str, recipe: Recipe, recorded: Sequence[Recorded], repeats: int) -> list[Point]:
    """Every setting on every problem, `repeats` times; the repetitions of one problem are one draw."""
    judge, points = open_judge(recipe), []
    for setting in settings():
        found = []
        for each in recorded:
            for repetition in range(repeats):
                source = Source(
                    Draws(each, repetition), recipe.steps, judge, lambda prefix, each=each: each.tokens[prefix]
                )
                found.append(grow(each.problem, source, setting, each.solutions))
        points += points_of(name, setting, found)
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path, help="a run of step-rollouts with many completions a step")
    parser.add_argument("--repeats", type=int, default=20, help="repetitions of every setting on every problem")
    parser.add_argument("--plot", type=Path, help="write a PNG there (needs matplotlib)")
    parser.add_argument("--json", type=Path, help="write every point there")
    options = parser.parse_args()
    folder = RunFolder.open(options.run)
    recipe = convert(folder.manifest["recipe"], Recipe)
    found = [read(folder.problems[number], record) for number, record in folder.records()]
    recorded = [each for each in found if each is not None]
    if not recorded:
        raise SystemExit(f"{options.run} has no step with {FEWEST} completions; see --help for the run it needs")
    counts = [len(samples) for each in recorded for samples in each.completions.values()]
    model = folder.manifest["policy"].get("model", "model")
    console = Console(width=140)
    console.print(
        f"{model}: {len(recorded)} problems, {sum(len(each.solutions) for each in recorded)} solutions, {len(counts)} "
        f"steps with {np.median(counts):.0f} completions each, {sum(counts):,} in all; {options.repeats} repetitions"
    )
    points = measured(model, recipe, recorded, options.repeats)
    report(points, console, options.json, options.plot)


if __name__ == "__main__":
    main()
