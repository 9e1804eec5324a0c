"""What a true step label costs: strategies on synthetic worlds with known values. Findings: docs/label_efficiency.md.

python benchmarks/label_efficiency.py [--quick] [--problems 200] [--jobs 2] [--plot docs/label_efficiency.png]
                                      [--json FILE]

Labels are those of steps whose trajectory goes on; a step that ends one has its verdict and costs nothing to label.
"""

from __future__ import annotations

import argparse
import random
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
from label_points import Point, Setting, Source, grow, points_of
from label_tables import report
from rich.console import Console

from treeforge.config import AdaptiveConfig, SearchConfig
from treeforge.hashing import derive_seed, digest, encode_text
from treeforge.policy import SCRIPTED_STEPS, ScriptedPolicy, World
from treeforge.problem import Problem, make_problem
from treeforge.sample import Request, Sample
from treeforge.verdict import Judgement, Verdict

UNLIKE: dict[str, Any] = {"branching": 64, "duplicate_rate": 0.05}
"""Hardly a step is sampled twice, as with a language model."""
FALSE_NEGATIVES = 0.02


class LateErrors(ScriptedPolicy):
    """A world whose steps go wrong in the last third only, with `world.error_rate` on average."""

    def _rate(self, problem: Problem) -> float:
        level = digest(encode_text(problem.problem_id))[0] % 8
        return self.world.error_rate * (1 + self.world.error_spread * (2 * level / 7 - 1))

    def _stays(self, problem: Problem, step: int, on_track: bool) -> float:
        """Chance that step number `step` ends on track."""
        if on_track:
            return 1 - (self._rate(problem) if 3 * step > 2 * self.world.depth else 0.0)
        return self.world.recovery_rate

    def true_value(self, problem: Problem, prefix: str) -> float:
        depth = prefix.count("\n")
        on, off = 1.0, 0.0
        for step in range(self.world.depth, depth, -1):
            stays, returns = (self._stays(problem, step, track) for track in (True, False))
            on, off = stays * on + (1 - stays) * off, returns * on + (1 - returns) * off
        return on if depth == 0 or prefix.endswith(f" {10 * depth + 7}.\n") else off

    def sample_now(self, request: Request) -> tuple[Sample, ...]:
        chance, depth = random.Random(request.seed), request.prefix.count("\n")
        goes = depth == 0 or request.prefix.endswith(f" {10 * depth + 7}.\n")
        return tuple(self._walk(request.problem, chance, depth, goes) for _ in range(request.n))

    def _walk(self, problem: Problem, chance: random.Random, depth: int, on_track: bool) -> Sample:
        texts = []
        for step in range(depth + 1, self.world.depth + 1):
            on_track = chance.random() < self._stays(problem, step, on_track)
            number = 10 * step + (7 if on_track else 4)
            texts.append(f"Step {step}: going way {chance.randrange(64)} we get {number}.\n")
        texts[-1] = f"The answer is {problem.gold_answer if on_track else -1}."
        costs = (8,) * (len(texts) - 1) + (5,)
        return Sample("".join(texts), "stop", sum(costs), None, costs)


class FalseNegatives(ScriptedPolicy):
    """A world in which a right answer is written unreadably now and then: a checker that misses 2% of them."""

    def sample_now(self, request: Request) -> tuple[Sample, ...]:
        samples = super().sample_now(request)
        assert samples is not None
        chance = random.Random(derive_seed(1, request.digest, "checker", 0))
        right = f"The answer is {request.problem.gold_answer}."
        return tuple(
            msgspec.structs.replace(sample, text=sample.text[:-1] + " or so.")
            if chance.random() < FALSE_NEGATIVES and sample.text.endswith(right)
            else sample
            for sample in samples
        )


class ExactJudge:
    """Right is what states the gold answer and nothing else."""

    def judge(self, problem: Problem, text: str) -> Judgement:
        right = text.strip() == f"The answer is {problem.gold_answer}."
        return Judgement(Verdict.CORRECT if right else Verdict.INCORRECT, text)


WORLDS: dict[str, ScriptedPolicy] = {
    "easy": ScriptedPolicy(World(error_rate=0.04, **UNLIKE)),
    "hard": ScriptedPolicy(World(error_rate=0.25, **UNLIKE)),
    "late error": LateErrors(World(error_rate=0.3, **UNLIKE)),
    "recoverable": ScriptedPolicy(World(error_rate=0.15, recovery_rate=0.25, **UNLIKE)),
    "long": ScriptedPolicy(World(depth=24, error_rate=0.05, recovery_rate=0.03, **UNLIKE)),
    "noisy checker": FalseNegatives(World(**UNLIKE)),
}


def settings(quick: bool) -> list[Setting]:
    """Every curve, from few tokens to many."""
    found = [
        Setting("step-rollouts", n, SearchConfig(strategy="step-rollouts", children=n))
        for n in ((4, 16) if quick else (1, 2, 4, 8, 16, 32, 64))
    ]
    found += [
        Setting("adaptive", gain, SearchConfig(strategy="adaptive", adaptive=AdaptiveConfig(min_gain=gain)))
        for gain in ((0.05, 0.01) if quick else (0.2, 0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001))
    ]
    found += [
        Setting("adaptive, soft", gain, SearchConfig(strategy="adaptive", adaptive=_soft(gain)))
        for gain in ((0.01,) if quick else (0.1, 0.05, 0.02, 0.01, 0.005, 0.002, 0.001))
    ]
    split = AdaptiveConfig(min_gain=0.02, split=True)
    found.append(Setting("adaptive, split", 0.02, SearchConfig(strategy="adaptive", adaptive=split)))
    found += [
        Setting("omega", k, SearchConfig(strategy="omega", children=k), simulations=24)
        for k in ((8,) if quick else (4, 8, 16, 32, 64))
    ]
    found += [
        Setting("mcts", n, SearchConfig(strategy="mcts"), simulations=n) for n in ((16,) if quick else (8, 32, 128))
    ]
    return found


def _soft(gain: float) -> AdaptiveConfig:
    return AdaptiveConfig(min_gain=gain, target="soft")


def problems(count: int) -> list[Problem]:
    return [make_problem(f"What is {i} + {i}?", str(2 * i)) for i in range(count)]


def run_world(name: str, count: int, quick: bool) -> list[Point]:
    """Every setting on `count` problems of a world."""
    policy = WORLDS[name]
    sees = 1 - FALSE_NEGATIVES if isinstance(policy, FalseNegatives) else 1.0
    source = Source(policy, SCRIPTED_STEPS, ExactJudge(), lambda prefix: 8 * prefix.count("\n"), sees)
    points: list[Point] = []
    for setting in settings(quick):
        trees = [grow(problem, source, setting) for problem in problems(count)]
        points += points_of(name, setting, trees)
    return points


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="few problems and settings, to see that it works")
    parser.add_argument("--problems", type=int, default=0, help="problems a world (64, quick: 6)")
    parser.add_argument("--jobs", type=int, default=2, help="worlds at once")
    parser.add_argument("--plot", type=Path, help="write a PNG there (needs matplotlib)")
    parser.add_argument("--json", type=Path, help="write every point there")
    options = parser.parse_args()
    count = options.problems or (6 if options.quick else 64)
    with ProcessPoolExecutor(options.jobs) as pool:
        runs = [pool.submit(run_world, world, count, options.quick) for world in WORLDS]
        points = [point for run in runs for point in run.result()]
    console = Console(width=140)
    console.print(f"{count} problems a world")
    report(points, console, options.json, options.plot)


if __name__ == "__main__":
    main()
