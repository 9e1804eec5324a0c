"""What a reward model is asked and what it answers: windows of steps, chances, and one score for a whole solution."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.errors import ConfigError

Task = Literal["orm", "prm", "hrm"]
"""`orm`: whole solutions; `prm`: single steps; `hrm`: single steps and pairs of consecutive steps (HRM paper,
Section 3)."""

Aggregate = Literal["min", "product", "mean", "last", "hierarchical"]
"""How the scores of a solution's steps become one: `SolutionScores.aggregate`."""

AGGREGATES: tuple[Aggregate, ...] = ("min", "product", "mean", "last", "hierarchical")


class Window(msgspec.Struct, frozen=True):
    """One thing to judge: `current`, after `previous`, as part of an answer to `question`."""

    question: str
    previous: str
    """The steps before, concatenated; empty before the first step, and for whole solutions."""
    current: str
    """One step, two or more consecutive ones, or a whole solution."""


@runtime_checkable
class RewardModel(Protocol):
    """A model that says how likely what a window ends with is right. A trained one (`treeforge.reward.score`), a
    served one, or any object of this shape."""

    @property
    def name(self) -> str:
        """What tables call it."""
        ...

    @property
    def identity(self) -> str:
        """All that determines its scores, as a digest: scores that were kept are found again by it."""
        ...

    @property
    def task(self) -> Task:
        """What it was trained for: which windows it is shown."""
        ...

    def probabilities(self, windows: Sequence[Window]) -> NDArray[np.float64]:
        """float64[k]: for each window the chance, in [0, 1], that its last step is right. The same for the same
        window, whatever stands beside it, up to rounding."""
        ...


class SolutionScores(msgspec.Struct, frozen=True):
    """What a reward model says of one solution of n steps."""

    single: tuple[float, ...]
    """Of each step by itself; n values, or one for an ORM, which sees the whole solution."""
    pairs: tuple[float, ...] = ()
    """Of steps i and i+1 read together, i = 0 … n-2: whether the later one is right; empty unless `hrm`."""

    def hierarchical(self) -> tuple[float, ...]:
        """Of each step, the better of its own score and that of the pair which it begins.

        A wrong step that the next one corrects has a low score of its own and a high one as a pair; it is not counted
        as lost. The last step begins no pair.
        """
        if not self.pairs:
            return self.single
        return (*map(max, self.single[:-1], self.pairs), self.single[-1])

    def aggregate(self, how: Aggregate) -> float:
        """One score for the solution, in [0, 1]; 0 for one without steps.

        `min`, `product`, `mean` and `last` are of `single`; `hierarchical` is the least of `hierarchical()`, which
        without pairs is `min`. Raises `ConfigError` for what is none of these.
        """
        if not self.single:
            return 0.0
        match check_aggregate(how):
            case "min":
                return min(self.single)
            case "product":
                return float(np.prod(self.single))
            case "mean":
                return float(np.mean(self.single))
            case "last":
                return self.single[-1]
            case "hierarchical":
                return min(self.hierarchical())


def check_aggregate(how: str) -> Aggregate:
    """`how` as an `Aggregate`; raises `ConfigError` that names the choices."""
    for known in AGGREGATES:
        if how == known:
            return known
    raise ConfigError(f"aggregate {how!r} is none of {', '.join(AGGREGATES)}")


def default_aggregate(task: Task) -> Aggregate:
    """`hierarchical` for an HRM, `min` for a PRM (as Let's Verify Step by Step has it and its alternatives), `last`
    for an ORM, which has one score."""
    return {"orm": "last", "prm": "min", "hrm": "hierarchical"}[task]  # type: ignore[return-value]


def windows_of(question: str, steps: Sequence[str], task: Task) -> list[Window]:
    """The windows that a model of this task is shown of a solution: single steps first, then pairs, each in order."""
    if not steps:
        return []
    if task == "orm":
        return [Window(question, "", "".join(steps))]
    before = [""]
    for step in steps:
        before.append(before[-1] + step)
    found = [Window(question, before[i], step) for i, step in enumerate(steps)]
    if task == "hrm":
        found += [Window(question, before[i], steps[i] + steps[i + 1]) for i in range(len(steps) - 1)]
    return found


def score_solutions(
    model: RewardModel, solutions: Sequence[tuple[str, Sequence[str]]], *, at_once: int = 4096
) -> list[SolutionScores]:
    """The scores of solutions, each a question and the texts of its steps, in their order.

    The model is shown each different window once, as solutions with the same first steps share them, and about
    `at_once` of them at a time. Raises `ConfigError` where the model gives no chance for each window.
    """
    asked = [windows_of(question, steps, model.task) for question, steps in solutions]
    different = list(dict.fromkeys(window for windows in asked for window in windows))
    chance: dict[Window, float] = {}
    for start in range(0, len(different), at_once):
        part = different[start : start + at_once]
        found = np.asarray(model.probabilities(part), dtype=np.float64)
        if found.shape != (len(part),) or not ((found >= 0) & (found <= 1)).all():
            raise ConfigError(f"the reward model {model.name} must give a number in [0, 1] for each window")
        chance.update(zip(part, found.tolist(), strict=True))
    scores = []
    for (_, steps), windows in zip(solutions, asked, strict=True):
        values = [chance[window] for window in windows]
        singles = min(len(steps), len(windows))
        scores.append(SolutionScores(tuple(values[:singles]), tuple(values[singles:])))
    return scores
