"""What a true step label costs: strategies on synthetic worlds with known values. Findings: docs/label_efficiency.md.

python benchmarks/label_efficiency.py [--quick] [--problems 200] [--jobs 2] [--plot docs/label_efficiency.png]
                                      [--json FILE]

Labels are those of steps whose trajectory goes on; a step that ends one has its verdict and costs nothing to label.
"""

from __future__ import annotations

import argparse
import json
import math
import random
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from statistics import NormalDist
from typing import Any, NamedTuple

import msgspec
import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table

from treeforge.config import AdaptiveConfig, BudgetConfig, LabelConfig, Recipe, SearchConfig
from treeforge.hashing import derive_seed, digest, encode_text
from treeforge.heldout import held_out
from treeforge.label.steps import label_nodes
from treeforge.policy import SCRIPTED_STEPS, ScriptedPolicy, World
from treeforge.problem import Problem, make_problem
from treeforge.sample import Request, Sample
from treeforge.search.growing import GrowingTree, request_base
from treeforge.search.strategies import start
from treeforge.tree import Finish, Tree, TreeRecord
from treeforge.value import Values, estimate
from treeforge.verdict import Judgement, Verdict

UNLIKE: dict[str, Any] = {"branching": 64, "duplicate_rate": 0.05}
"""Hardly a step is sampled twice, as with a language model."""
FALSE_NEGATIVES = 0.02
CONFIDENCE = 0.9
DISTANCES = np.array([0.05, 0.1, 0.2, 0.3])
"""Bounds of the classes of |true value - threshold|, by which steps are hard or easy to label."""
MANY = 24
"""Outcomes at or below a step from which it counts as well known."""


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


class Setting(NamedTuple):
    """A strategy with what it may spend."""

    name: str
    """The curve it is a point of."""
    spend: float
    search: SearchConfig
    simulations: int = 0


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


def problems(count: int) -> list[Problem]:
    return [make_problem(f"What is {i} + {i}?", str(2 * i)) for i in range(count)]


class Costs(NamedTuple):
    """Tokens of one tree."""

    sampled: int
    uncached: int
    """With the prefixes that were read, each as often as it was asked for."""


def grow(problem: Problem, policy: ScriptedPolicy, setting: Setting) -> tuple[TreeRecord, Costs]:
    """Grow one tree as the scheduler would."""
    recipe = Recipe(steps=SCRIPTED_STEPS, search=setting.search, budget=BudgetConfig(simulations=setting.simulations))
    tree = GrowingTree(0, problem, recipe, ExactJudge(), request_base(recipe, policy.identity))
    strategy = start(tree, recipe.search, recipe.budget)
    replies, read = None, 0
    while True:
        try:
            wave = strategy.send(replies)  # type: ignore[arg-type]
        except StopIteration as stop:
            record = TreeRecord(problem.problem_id, tree.builder.freeze(), tuple(tree.rollouts), *stop.value)
            return record, Costs(tree.tokens, tree.tokens + read)
        read += sum(8 * request.prefix.count("\n") * request.n for request in wave)
        replies = [policy.sample_now(request) for request in wave]


def estimates(record: TreeRecord, setting: Setting) -> dict[str, Values]:
    """The values of a tree by every estimator that the study looks at."""
    names: Sequence[Any] = ("policy_mean", "leaf_share", "smoothed")
    found = {name: estimate(record.tree, name, confidence=CONFIDENCE) for name in names}
    if setting.search.adaptive.split and setting.search.strategy == "adaptive":
        found = {"held_out": estimate(held_out(record.tree, record.rollouts), confidence=CONFIDENCE)} | found
    return found


def measure(record: TreeRecord, values: Values, policy: ScriptedPolicy, problem: Problem) -> dict[str, Any]:
    """Sums over one tree's labels, against its true values."""
    tree = record.tree
    labels = label_nodes(tree, values, LabelConfig())
    labelled = np.flatnonzero((labels.hard >= 0) & (tree.finish == Finish.OPEN))
    truth = np.full(tree.size, np.nan)
    truth[labelled] = [policy.true_value(problem, tree.prefix(row)) for row in labelled.tolist()]
    seen = truth * (1 - FALSE_NEGATIVES) if isinstance(policy, FalseNegatives) else truth
    at = labelled
    error = values.value[at] - seen[at]
    wrong = labels.hard[at] != (truth[at] > 0.5)
    distance = np.digitize(np.abs(truth[at] - 0.5), DISTANCES)
    firsts, right = first_errors(tree, labels.hard, truth)
    return {
        "labels": len(at),
        "wrong": float(wrong.sum()),
        "by_distance": np.bincount(distance, minlength=len(DISTANCES) + 1),
        "wrong_by_distance": np.bincount(distance, wrong, len(DISTANCES) + 1),
        "absolute": float(np.abs(error).sum()),
        "error": float(error.sum()),
        "covered": float(np.sum((values.low[at] <= seen[at]) & (seen[at] <= values.high[at]))),
        "width": float(np.sum(values.high[at] - values.low[at])),
        "many": float(np.sum(values.rollouts[at] >= MANY)),
        "many_error": float(error[values.rollouts[at] >= MANY].sum()),
        "firsts": firsts,
        "first_right": right,
    }


def first_errors(tree: Tree, hard: Any, truth: Any) -> tuple[int, int]:
    """(solutions all of whose steps have a label, those of them whose first wrong step is the true one)."""
    known = right = 0
    for leaf in np.flatnonzero(tree.finish == Finish.ANSWERED).tolist():
        path = tree.path(leaf)[:-1]
        if path and all(hard[row] >= 0 for row in path):
            said = next((i for i, row in enumerate(path) if hard[row] == 0), len(path))
            true = next((i for i, row in enumerate(path) if truth[row] <= 0.5), len(path))
            known, right = known + 1, right + (said == true)
    return known, right


class Point(NamedTuple):
    """One setting in one world by one estimator: sums over problems, a row a problem."""

    world: str
    strategy: str
    spend: float
    estimator: str
    sampled: Any
    uncached: Any
    sums: dict[str, Any]

    @property
    def labels(self) -> float:
        return float(self.sums["labels"].sum())

    def per_label(self, name: str) -> float:
        """Mean over labels of a measure."""
        over = self.sums["firsts"] if name == "first_right" else self.sums["labels"]
        return float(self.sums[name].sum() / max(over.sum(), 1))

    def wrong_on(self, steps: Point) -> float:
        """Share of wrong labels on steps that are as hard to label as those of `steps`.

        A class of which this point has no label counts with the class next to it.
        """
        own, wrong = self.sums["by_distance"].sum(axis=0), self.sums["wrong_by_distance"].sum(axis=0)
        classes = np.flatnonzero(own)
        weights = np.zeros(len(own))
        for number, weight in enumerate(steps.sums["by_distance"].sum(axis=0)):
            weights[classes[np.argmin(np.abs(classes - number))]] += weight
        return float((weights[classes] * wrong[classes] / own[classes]).sum() / weights.sum())

    @property
    def price(self) -> float:
        """Tokens a label."""
        return float(self.sampled.sum() / max(self.labels, 1))

    @property
    def uncached_price(self) -> float:
        """Tokens a label with those of the prefixes, each read as often as it was asked from."""
        return float(self.uncached.sum() / max(self.labels, 1))

    @property
    def bias(self) -> tuple[float, float]:
        """Mean error and its standard error; the labels of one problem are one draw."""
        error, labels = self.sums["error"], self.sums["labels"]
        mean = error.sum() / labels.sum()
        return float(mean), float(np.sqrt(((error - mean * labels) ** 2).sum()) / labels.sum())


def run_world(name: str, count: int, quick: bool) -> list[Point]:
    """Every setting on `count` problems of a world."""
    policy, points = WORLDS[name], []
    for setting in settings(quick):
        rows: dict[str, list[dict[str, Any]]] = {}
        costs = []
        for problem in problems(count):
            record, cost = grow(problem, policy, setting)
            costs.append(cost)
            for estimator, values in estimates(record, setting).items():
                rows.setdefault(estimator, []).append(measure(record, values, policy, problem))
        sampled, uncached = np.array(costs, dtype=np.float64).T
        for estimator, found in rows.items():
            sums = {key: np.array([row[key] for row in found], dtype=np.float64) for key in found[0]}
            points.append(Point(name, setting.name, setting.spend, estimator, sampled, uncached, sums))
    return points


def cheapest(curve: Sequence[tuple[float, float]], wrong: float) -> float:
    """Tokens a label at which a curve of (tokens, wrong share) comes down to `wrong`, log-linear between its points.

    Infinite where it does not get there; the fewest tokens of the curve where it is there from the start.
    """
    ordered = sorted(curve)
    for i, (price, rate) in enumerate(ordered):
        if rate <= wrong:
            if i == 0:
                return price
            before, higher = ordered[i - 1]
            return math.exp(math.log(before) + (higher - wrong) / (higher - rate) * math.log(price / before))
    return math.inf


def headline_table(points: list[Point]) -> Table:
    """What a label costs at the share of wrong labels that step-rollouts reaches, on steps that are as hard to label.

    A solution's steps are what `step-rollouts` and `adaptive` label. `omega` labels others, and easier ones: its last
    column is the price at the same share of wrong labels among the steps that it chose itself.
    """
    table = Table(title="Tokens a label at the same share of wrong hard labels", title_justify="left", box=box.MARKDOWN)
    columns = "wrong", "step-rollouts", "omega", "adaptive", "of the better", "no cache", "omega, own steps"
    for column in ("world", *columns):
        table.add_column(column, justify="left" if column == "world" else "right")
    for world in WORLDS:
        curves: dict[str, list[Point]] = {}
        for p in points:
            if p.world == world and p.estimator == ("smoothed" if p.strategy == "adaptive" else "policy_mean"):
                curves.setdefault(p.strategy, []).append(p)
        for level in curves["step-rollouts"]:
            wrong = level.wrong_on(level)
            if level.spend < 4:
                continue
            names = "step-rollouts", "omega", "adaptive"
            prices, uncached = (
                [cheapest([(getattr(p, cost), p.wrong_on(level)) for p in curves[name]], wrong) for name in names]
                for cost in ("price", "uncached_price")
            )
            own = cheapest([(p.price, p.per_label("wrong")) for p in curves["omega"]], wrong)
            cells = [f"{price:,.0f}" if math.isfinite(price) else "-" for price in (*prices, own)]
            shares = [f"{p[2] / min(p[:2]):.2f}" if math.isfinite(p[2]) else "-" for p in (prices, uncached)]
            table.add_row(world, f"{wrong:.1%}", *cells[:3], *shares, cells[3])
    return table


def curve_table(points: list[Point], world: str) -> Table:
    table = Table(title=f"World: {world}", title_justify="left", box=box.MARKDOWN)
    measures = "tokens/label", "no cache", "labels/1k", "wrong", "as hard", "MAE", "first", "90%", "width"
    reference = next(p for p in points if p.world == world and p.strategy == "step-rollouts")
    for column in ("strategy", "spend", "estimator", *measures):
        table.add_column(column, justify="left" if column in ("strategy", "estimator") else "right")
    for p in points:
        if p.world == world and p.estimator != "leaf_share":
            table.add_row(
                p.strategy,
                f"{p.spend:g}",
                p.estimator,
                f"{p.price:,.0f}",
                f"{p.uncached_price:,.0f}",
                f"{1000 / p.price:.1f}",
                f"{p.per_label('wrong'):.1%}",
                f"{p.wrong_on(reference):.1%}",
                f"{p.per_label('absolute'):.3f}",
                f"{p.per_label('first_right'):.0%}" if p.sums["firsts"].sum() >= 20 else "",
                f"{p.per_label('covered'):.0%}",
                f"{p.per_label('width'):.2f}",
            )
    return table


def bias_table(points: list[Point]) -> Table:
    """Mean error by strategy and estimator: over all worlds, and where it is the most standard errors from 0.

    The settings of one world look at the same problems, and are taken as if they were one draw, which is cautious.
    """
    groups: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for p in points:
        groups.setdefault((p.strategy, p.estimator), {}).setdefault(p.world, []).append(p)
    limit = NormalDist().inv_cdf(1 - 0.01 / (2 * len(groups) * len(WORLDS)))
    table = Table(
        title=f"Mean error of values (from 0 at a family-wise 99%: beyond {limit:.1f} standard errors)",
        title_justify="left",
        box=box.MARKDOWN,
    )
    columns = "all worlds", "the world furthest from 0", "its error", "from 0", f"{MANY} outcomes or more"
    for column in ("strategy", "estimator", *columns):
        left = column in ("strategy", "estimator", "the world furthest from 0")
        table.add_column(column, justify="left" if left else "right")
    for (strategy, estimator), worlds in groups.items():
        found = {world: np.mean([p.bias for p in group], axis=0) for world, group in worlds.items()}
        mean, error = (
            np.mean([m for m, _ in found.values()]),
            np.sqrt(sum(e**2 for _, e in found.values())) / len(found),
        )
        furthest, (its_mean, its_error) = max(found.items(), key=lambda item: abs(item[1][0] / item[1][1]))
        known = sum(p.sums["many"].sum() for group in worlds.values() for p in group)
        known_error = sum(p.sums["many_error"].sum() for group in worlds.values() for p in group)
        table.add_row(
            strategy,
            estimator,
            f"{mean:+.4f} ± {error:.4f}",
            furthest,
            f"{its_mean:+.4f} ± {its_error:.4f}",
            "yes" if abs(its_mean) > limit * its_error else "no",
            f"{known_error / known:+.4f}" if known >= 1000 else "",
        )
    return table


def plot(points: list[Point], path: Path) -> None:
    """Wrong hard labels against tokens a label, a panel a world."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(2, 3, figsize=(12, 7), sharey=False, constrained_layout=True)
    styles = {
        ("adaptive", "smoothed"): ("C3", "o-"),
        ("step-rollouts", "policy_mean"): ("C0", "s-"),
        ("step-rollouts", "smoothed"): ("C0", "s:"),
        ("omega", "policy_mean"): ("C2", "^-"),
        ("mcts", "policy_mean"): ("C7", "v-"),
    }
    for axis, world in zip(axes.flat, WORLDS, strict=True):
        for (strategy, estimator), (colour, style) in styles.items():
            curve = [p for p in points if (p.world, p.strategy, p.estimator) == (world, strategy, estimator)]
            reference = next(p for p in points if p.world == world and p.strategy == "step-rollouts")
            prices, rates = [p.price for p in curve], [100 * p.wrong_on(reference) for p in curve]
            axis.plot(prices, rates, style, color=colour, label=f"{strategy}, {estimator}", markersize=4)
        axis.set(
            title=world,
            xscale="log",
            yscale="log",
            xlabel="tokens a label",
            ylabel="wrong hard labels, %, on steps as hard",
        )
        axis.grid(alpha=0.3, which="both")
    axes.flat[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def as_json(points: list[Point]) -> list[dict[str, Any]]:
    """Every point's means, for a further look."""
    return [
        {
            "world": p.world,
            "strategy": p.strategy,
            "spend": p.spend,
            "estimator": p.estimator,
            "tokens_per_label": p.price,
            "tokens_per_label_without_prefix_cache": p.uncached_price,
            "tokens_per_problem": float(p.sampled.mean()),
            "bias": p.bias,
            "wrong_on_steps_as_hard": p.wrong_on(next(q for q in points if q.world == p.world)),
            **{name: p.per_label(name) for name in ("wrong", "absolute", "covered", "width", "first_right")},
        }
        for p in points
    ]


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
    for world in WORLDS:
        console.print(curve_table(points, world))
    console.print(bias_table(points))
    console.print(headline_table(points))
    if options.json:
        options.json.write_text(json.dumps(as_json(points), indent=1))
    if options.plot:
        plot(points, options.plot)


if __name__ == "__main__":
    main()
