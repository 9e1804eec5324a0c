"""Accuracy by N of choosing among a run's solutions: by reward models, votes, blindly, and perfectly.

All choose among the same samples of the same problems, so that the policy is paid once and differences are paired.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from treeforge.config import RunConfig
from treeforge.configuration import convert, to_dict
from treeforge.errors import ConfigError, RunError
from treeforge.manifest import check_recipe
from treeforge.pipeline import run as run_pipeline
from treeforge.printable import one_line
from treeforge.problem import Problem
from treeforge.recheck import SECTION as RECHECK
from treeforge.recheck import current_checker, saved_verdicts, verdicts_of
from treeforge.reward.base import Aggregate, RewardModel, check_aggregate, default_aggregate
from treeforge.reward.kept import KeptScores
from treeforge.reward.samples import Same, Samples, check_run, read_samples, same_answers
from treeforge.reward.select import Floats, best_of_n, draw, majority_vote, oracle, random_pick, weighted_vote
from treeforge.stats.bootstrap import CONFIDENCE, Figure, Resampler
from treeforge.store.run import RunFolder
from treeforge.store.views import view_lock

SIZES = (1, 2, 4, 8, 16, 24)
"""N, as in the HRM paper."""
SUBSETS = 200
"""For a weighted vote, where a problem's samples have more subsets than this."""
NAME_CELLS = 40
_DIGITS = 12
"""Of accuracies: what lies beyond is rounding, and would be a difference."""
PART = 16
"""Problems whose solutions are in memory, and are scored, at once."""

Kind = Literal["random", "majority", "best-of-n", "weighted vote", "oracle"]


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy at one N."""

    n: int
    accuracy: Figure
    """The mean over problems of the chance to choose a right solution."""
    over_majority: Figure | None
    """How much more than the majority vote on the same problems; None for the vote itself."""
    over_first: Figure | None
    """How much more than the first reward model's best-of-N; None for that one, and without models."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy by N of one way to choose."""

    name: str
    """What tables call it."""
    kind: Kind
    model: str
    """The reward model's name; '' where none is asked."""
    aggregate: str
    """How a solution's scores become one; '' where none is asked."""
    points: tuple[Point, ...]


class Evaluation(msgspec.Struct, frozen=True, kw_only=True):
    """Ways to choose among a run's solutions, side by side."""

    run: str
    problems: int
    """Those that every figure is of: with a verdict, and as many samples as the largest N needs."""
    samples: int
    """Of these problems."""
    undecided: int
    """Of the samples: their verdict is undecided, and they count as wrong."""
    errors: int
    """Requests for samples of these problems that the engine failed; they count nowhere."""
    left_out: dict[str, int]
    """The other problems, by the reason."""
    confidence: float
    """Level of the intervals."""
    curves: tuple[Curve, ...]


@dataclass(frozen=True)
class _Way:
    """One way to choose: a column of accuracies for each N."""

    kind: Kind
    model: int = -1
    aggregate: Aggregate | None = None


def grow_solutions(
    problems: Sequence[Problem], out: Path | str, config: RunConfig, *, solutions: int, source: str = "", **parts: Any
) -> Path:
    """Sample `solutions` whole solutions of each problem into the run folder `out`, or go on with one that was stopped.

    A folder that has more of them is taken as it is. `parts`: see `treeforge.Parts`. Raises `RunError` for a
    folder that has fewer, `RecipeChangedError` for one that was started with another recipe or problems.
    """
    path = Path(out)
    there = RunFolder.open(path) if (path / "manifest.json").exists() else None
    if there is not None and there.strategy == "best-of-n":
        has = int(there.manifest["recipe"]["search"]["solutions"])
        if has < solutions:
            raise RunError(
                f"{path} samples {has} solutions of a problem, and N = {solutions} needs as many: ask for smaller --n, "
                "or name a new run folder"
            )
        solutions = has
    search = to_dict(config.recipe.search) | {"strategy": "best-of-n", "solutions": solutions}
    recipe = convert(to_dict(config.recipe) | {"search": search}, type(config.recipe))
    if there is not None and all(status != "open" for status, _ in there.statuses().values()):
        check_recipe(there, recipe, problems)
        return path
    run_pipeline(problems, path, msgspec.structs.replace(config, recipe=recipe), source=source, **parts)
    return path


def evaluate(
    run: Path | str,
    models: Sequence[RewardModel] = (),
    *,
    n: Sequence[int] = SIZES,
    aggregates: Sequence[str] | None = None,
    seed: int = 0,
    on_progress: Callable[[int, int], None] | None = None,
) -> Evaluation:
    """Accuracy by N of best-of-N and weighted vote by each model, majority vote, blind and perfect choice.

    Of the solutions of a finished `best-of-n` run, or of another whose trees start with whole solutions; problems with
    fewer than max(n) samples are left out at every N. Scores are kept in the run folder (`treeforge.reward.kept`).
    `aggregates` is by default that of each model's task. `on_progress` is told (problems done, all). Raises `RunError`
    for a run that cannot be evaluated, `ConfigError` for what cannot be asked.
    """
    folder = RunFolder.open(run)
    sizes, ways = check_sizes(n), _ways(models, aggregates)
    check_run(folder)
    kept = [KeptScores(folder.path, model) for model in models]
    rng = np.random.default_rng(seed)
    left_out: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    rows: list[Floats] = []
    largest = 0
    for start, part in _parts(folder, left_out):
        largest = max([largest, *(samples.size for _, samples in part)])
        used = [(question, samples) for question, samples in part if _usable(samples, sizes, left_out)]
        listed = [(question, steps) for question, samples in used for steps in samples.steps]
        scores = [model.of(start // PART, listed) for model in kept]
        at = 0
        for _, samples in used:
            k = len(samples.steps)
            by_way = [
                np.array([found.aggregate(way.aggregate) for found in scores[way.model][at : at + k]])
                if way.aggregate
                else None
                for way in ways
            ]
            rows.append(_accuracies(samples, ways, by_way, sizes, rng))
            at += k
            totals.update(samples=samples.size, undecided=samples.undecided, errors=samples.errors)
        if on_progress is not None:
            on_progress(min(start + PART, len(folder.problems)), len(folder.problems))
    if not rows:
        raise _nothing_left(folder, sizes, largest, left_out)
    return Evaluation(
        run=str(run),
        problems=len(rows),
        samples=totals["samples"],
        undecided=totals["undecided"],
        errors=totals["errors"],
        left_out=dict(left_out),
        confidence=CONFIDENCE,
        curves=_curves(np.stack(rows).round(_DIGITS), ways, model_names(models), sizes, seed),
    )


def check_sizes(n: Sequence[int]) -> tuple[int, ...]:
    """The N asked for, in order. `ConfigError` where there is none, one is below 1, or one is named twice."""
    if not n or min(n) < 1:
        raise ConfigError(f"--n: {', '.join(map(str, n)) or 'nothing'} was given; N is 1 or more, as in 1,2,4,8")
    if twice := [size for size, times in Counter(n).items() if times > 1]:
        raise ConfigError(f"--n: {twice[0]} is there twice")
    return tuple(sorted(n))


def _ways(models: Sequence[RewardModel], aggregates: Sequence[str] | None) -> list[_Way]:
    identities = Counter(model.identity for model in models)
    if twice := next((model.name for model in models if identities[model.identity] > 1), None):
        raise ConfigError(f"--reward: {twice} is there twice")
    asked = list(dict.fromkeys(check_aggregate(how) for how in aggregates or ()))
    found = [_Way("random"), _Way("majority")]
    for number, model in enumerate(models):
        # The one score of an ORM is the same by every aggregate.
        how = asked if asked and model.task != "orm" else [default_aggregate(model.task)]
        found += [_Way(kind, number, one) for one in how for kind in ("best-of-n", "weighted vote")]
    return [*found, _Way("oracle")]


def _parts(run: RunFolder, left_out: Counter[str]) -> Iterator[tuple[int, list[tuple[str, Samples]]]]:
    """(number of the first problem, (question, samples) of those that have some), a part of the problems at a time."""
    verdicts = saved_verdicts(run)
    if verdicts.about is None and RECHECK in run.manifest:
        with view_lock(run, wait=True):
            verdicts = verdicts_of(run)  # makes them again
    same: Same = same_answers(current_checker(run).policy)
    statuses = run.statuses()
    for start in range(0, len(run.problems), PART):
        found = []
        for number, record in run.records(range(start, min(start + PART, len(run.problems)))):
            if statuses[number][0] == "failed":
                left_out["a failed tree"] += 1
            else:
                samples = read_samples(verdicts.apply(number, record), same)
                found.append((run.problems[number].question, samples))
        yield start, found


def _usable(samples: Samples, sizes: Sequence[int], left_out: Counter[str]) -> bool:
    if samples.size < sizes[-1]:
        left_out[f"fewer than {sizes[-1]} samples"] += 1
        return False
    if samples.undecided == samples.size:
        left_out["no verdict: every answer is undecided"] += 1
        return False
    return True


def _nothing_left(run: RunFolder, sizes: Sequence[int], largest: int, left_out: Counter[str]) -> RunError:
    why = ", ".join(f"{count} {reason}" for reason, count in left_out.items())
    advice = f"The most samples of one problem are {largest}: ask for smaller --n" if 0 < largest < sizes[-1] else ""
    return RunError(f"{run.path}: no problem can be evaluated at N = {sizes[-1]} ({why}). {advice}".rstrip(" ."))


def _accuracies(
    samples: Samples,
    ways: Sequence[_Way],
    scores: Sequence[Floats | None],
    sizes: Sequence[int],
    rng: np.random.Generator,
) -> Floats:
    """float64[ways, sizes]: the chance of a right choice. `scores`: float64[k] for each way that has some."""
    correct, answers = np.repeat(samples.correct, samples.count), np.repeat(samples.answers, samples.count)
    masks = list(draw(samples.size, sizes, SUBSETS, rng))
    found = np.zeros((len(ways), len(sizes)))
    for row, (way, by_solution) in enumerate(zip(ways, scores, strict=True)):
        by_sample = None if by_solution is None else np.repeat(by_solution, samples.count)
        for column, size in enumerate(sizes):
            match way.kind:
                case "random":
                    found[row, column] = random_pick(correct, size)
                case "majority":
                    found[row, column] = majority_vote(answers, correct, size)
                case "oracle":
                    found[row, column] = oracle(correct, size)
                case "best-of-n":
                    assert by_sample is not None
                    found[row, column] = best_of_n(by_sample, correct, size)
                case "weighted vote":
                    assert by_sample is not None
                    found[row, column] = weighted_vote(by_sample, answers, correct, masks[column])
    return found


def _curves(
    accuracies: Floats, ways: Sequence[_Way], names: Sequence[str], sizes: Sequence[int], seed: int
) -> tuple[Curve, ...]:
    """`accuracies`: float64[problems, ways, sizes]."""
    resample = Resampler(len(accuracies), seed)
    kinds = [way.kind for way in ways]
    majority, first = kinds.index("majority"), kinds.index("best-of-n") if names else -1
    several = {way.model for way in ways if sum(w.model == way.model and w.kind == way.kind for w in ways) > 1}

    def over(row: int, other: int, column: int) -> Figure | None:
        if other in (-1, row):
            return None
        return resample.mean(accuracies[:, row, column] - accuracies[:, other, column])

    found = []
    for row, way in enumerate(ways):
        name: str = way.kind
        if way.aggregate:
            name = names[way.model] + (f", {way.aggregate}" if way.model in several else "")
            name += ", vote" if way.kind == "weighted vote" else ""
        points = tuple(
            Point(
                n=size,
                accuracy=resample.mean(accuracies[:, row, column]),
                over_majority=over(row, majority, column),
                over_first=over(row, first, column),
            )
            for column, size in enumerate(sizes)
        )
        model = names[way.model] if way.aggregate else ""
        found.append(Curve(name=name, kind=way.kind, model=model, aggregate=way.aggregate or "", points=points))
    return tuple(found)


def model_names(models: Sequence[RewardModel]) -> list[str]:
    """The models' names, for tables: numbered where two are the same."""
    plain = [one_line(model.name, NAME_CELLS) for model in models]
    seen: Counter[str] = Counter()
    found = []
    for name in plain:
        seen[name] += 1
        found.append(name if plain.count(name) == 1 else f"{name} ({seen[name]})")
    return found
