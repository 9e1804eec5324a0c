"""Best-of-N in one world: accuracy by N of kinds of reward models, and what they choose. Used by reward_study.py."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray
from reward_world import KINDS, kind_of

from treeforge.recheck import current_checker
from treeforge.reward.base import AGGREGATES, Aggregate, RewardModel, SolutionScores, Task, default_aggregate
from treeforge.reward.kept import KeptScores
from treeforge.reward.samples import Samples, read_samples, same_answers
from treeforge.reward.select import best_of_n, majority_vote, oracle, random_pick
from treeforge.stats.bootstrap import Figure, Resampler
from treeforge.store.run import RunFolder

Floats = NDArray[np.float64]
_AGGREGATES: dict[Task, tuple[Aggregate, ...]] = {"orm": ("last",), "prm": AGGREGATES[:-1], "hrm": AGGREGATES}
"""Those that differ."""


class Curve(msgspec.Struct, frozen=True, kw_only=True):
    """Accuracy by N of one way to choose, the mean of its seeds; intervals are bootstrapped over problems."""

    name: str
    aggregate: str = ""
    """How a solution's scores become one; '' where no model is asked."""
    accuracy: tuple[Figure, ...]
    """By N."""
    by_seed: tuple[tuple[float, ...], ...]
    """A row a seed: accuracy by N."""
    rise: Figure
    """Accuracy at the largest N less that at N = 2."""
    over_prm: tuple[Figure, ...] = ()
    """By N, above the PRM on the same problems; () where no model is asked."""
    chosen: dict[str, float] = {}
    """At the largest N, the shares of what is chosen, by `reward_world.KINDS`; {} where no model is asked."""


class WorldCurves(msgspec.Struct, frozen=True, kw_only=True):
    """All ways to choose in one world."""

    world: str
    problems: int
    samples: int
    """Of each problem."""
    sizes: tuple[int, ...]
    """N."""
    kinds: dict[str, float]
    """The shares of the samples, by `reward_world.KINDS`."""
    curves: tuple[Curve, ...]
    """No model first, then each kind of model with its default aggregate, the oracle last."""
    others: tuple[Curve, ...]
    """The models with the other aggregates."""


class _Problem(NamedTuple):
    """The samples of one problem, and the kind of each different solution (`reward_world.KINDS`)."""

    samples: Samples
    kinds: NDArray[np.intp]

    def each(self, values: NDArray[np.generic]) -> Floats:
        """Values of different solutions as values of samples."""
        return np.repeat(values.astype(np.float64), self.samples.count)


def curves_of(
    world: str, run: Path, models: Mapping[str, Sequence[RewardModel]], sizes: tuple[int, ...]
) -> WorldCurves:
    """`models`: by kind, of which one is `PRM`, a model a seed. Scores are kept in the folder of the run."""
    folder = RunFolder.open(run)
    problems, solutions = _read(folder)
    ends = np.cumsum([len(problem.kinds) for problem in problems])[:-1]
    resample = Resampler(len(problems), seed=0)

    def by_size(choose: Callable[[_Problem, int], float]) -> Floats:
        return np.array([[choose(problem, size) for size in sizes] for problem in problems])

    def without(name: str, choose: Callable[[_Problem, int], float]) -> Curve:
        return _curve(name, [by_size(choose)], sizes, resample)

    scores: dict[tuple[str, Aggregate], list[list[Floats]]] = {}
    for name, several in models.items():
        found = [KeptScores(folder.path, model).of(0, solutions) for model in several]
        for how in _AGGREGATES[several[0].task]:
            scores[name, how] = [np.split(_aggregated(one, how), ends) for one in found]
    values = {key: [_best(problems, one, sizes) for one in several] for key, several in scores.items()}
    default = {name: default_aggregate(several[0].task) for name, several in models.items()}
    prm = np.mean(values["PRM", default["PRM"]], axis=0)
    curves = {
        key: msgspec.structs.replace(
            _curve(key[0], several, sizes, resample),
            aggregate=key[1],
            over_prm=_figures(np.mean(several, axis=0) - prm, resample),
            chosen=_chosen(problems, scores[key], sizes[-1]),
        )
        for key, several in values.items()
    }
    counts = np.bincount(np.concatenate([p.each(p.kinds) for p in problems]).astype(np.intp), minlength=len(KINDS))
    return WorldCurves(
        world=world,
        problems=len(problems),
        samples=problems[0].samples.size,
        sizes=sizes,
        kinds=dict(zip(KINDS, (counts / counts.sum()).tolist(), strict=True)),
        curves=(
            without("one at random", lambda p, size: random_pick(p.each(p.samples.correct), size)),
            without(
                "majority vote",
                lambda p, size: majority_vote(
                    np.repeat(p.samples.answers, p.samples.count), p.each(p.samples.correct), size
                ),
            ),
            *(curves[key] for key in default.items()),
            without("oracle", lambda p, size: oracle(p.each(p.samples.correct), size)),
        ),
        others=tuple(curve for key, curve in curves.items() if key not in default.items()),
    )


def _read(folder: RunFolder) -> tuple[list[_Problem], list[tuple[str, Sequence[str]]]]:
    """The problems, and all their different solutions, each a question and steps."""
    same = same_answers(current_checker(folder).policy)
    problems: list[_Problem] = []
    solutions: list[tuple[str, Sequence[str]]] = []
    for number, record in folder.records():
        problem, samples = folder.problems[number], read_samples(record, same)
        right = (samples.correct > 0).tolist()
        kinds = [KINDS.index(kind_of(problem, *one)) for one in zip(samples.steps, right, strict=True)]
        problems.append(_Problem(samples, np.array(kinds, dtype=np.intp)))
        solutions += [(problem.question, steps) for steps in samples.steps]
    return problems, solutions


def _aggregated(scores: Sequence[SolutionScores], how: Aggregate) -> Floats:
    return np.array([one.aggregate(how) for one in scores])


def _best(problems: Sequence[_Problem], scores: Sequence[Floats], sizes: Sequence[int]) -> Floats:
    """float64[problems, sizes]: the chance that the best of N is right."""
    return np.array(
        [
            [best_of_n(problem.each(score), problem.each(problem.samples.correct), size) for size in sizes]
            for problem, score in zip(problems, scores, strict=True)
        ]
    )


def _chosen(problems: Sequence[_Problem], seeds: Sequence[Sequence[Floats]], size: int) -> dict[str, float]:
    """The shares of kinds of solutions among the best of `size`, the mean over seeds and problems."""
    return {
        name: float(
            np.mean(
                [
                    best_of_n(problem.each(score), problem.each(problem.kinds == kind), size)
                    for scores in seeds
                    for problem, score in zip(problems, scores, strict=True)
                ]
            )
        )
        for kind, name in enumerate(KINDS)
    }


def _curve(name: str, seeds: Sequence[Floats], sizes: Sequence[int], resample: Resampler) -> Curve:
    """`seeds`: float64[problems, sizes] each."""
    mean = np.mean(seeds, axis=0)
    return Curve(
        name=name,
        accuracy=_figures(mean, resample),
        by_seed=tuple(tuple(one.mean(axis=0).tolist()) for one in seeds),
        rise=resample.mean(mean[:, -1] - mean[:, sizes.index(2)]),
    )


def _figures(values: Floats, resample: Resampler) -> tuple[Figure, ...]:
    """A figure for each column of float64[problems, sizes]."""
    return tuple(resample.mean(column) for column in values.T)
