"""Loading reward models and scoring with them: solutions of a file, one solution, candidates of a beam search."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.annotating import SolutionFile
from treeforge.answers import states_answer
from treeforge.config import StepsConfig
from treeforge.errors import ConfigError
from treeforge.given import GivenSolution
from treeforge.policy.hub import SCHEME, fetch_repository
from treeforge.problem import Problem
from treeforge.reward.base import (
    AGGREGATES,
    Aggregate,
    RewardModel,
    SolutionScores,
    Task,
    Window,
    default_aggregate,
    score_solutions,
)
from treeforge.reward.saved import POLICY, STARTED, Saved, read_saved
from treeforge.search.given import lacks_end

PART = 1024
"""Windows that are scored at once, sorted by length: a line of output waits for so many."""


class LoadedModel(ABC):
    """A `RewardModel` that treeforge loaded: a trained one, or one that is served."""

    name: str
    task: Task
    truncated: int = 0
    """Windows so far that were cut, as they did not fit."""

    @property
    @abstractmethod
    def identity(self) -> str:
        """See `RewardModel`."""

    @abstractmethod
    def probabilities(self, windows: Sequence[Window]) -> NDArray[np.float64]:
        """See `RewardModel`."""

    def score(self, problem: Problem | str, steps: Sequence[str]) -> SolutionScores:
        """The scores of one solution, whole or not; `problem`: or its question. A step's text ends in its delimiter."""
        question = problem if isinstance(problem, str) else problem.question
        return score_solutions(self, [(question, steps)])[0]


def load_reward_model(place: str, *, batch: int | None = None) -> LoadedModel:
    """The reward model in a folder that `treeforge train` made, on the Hub (`hf://OWNER/NAME@REVISION`), or behind an
    address (`treeforge.reward.served`).

    `batch`: windows of one forward pass, or of one request; None: as many as are known to fit.

    Raises `ConfigError` for what is no such model, half-trained, or trained for another prompt format, `DataError` for
    a damaged one, `MissingExtraError` without torch, `PolicyUnavailableError` where no server answers.
    """
    if batch is not None and batch < 1:
        raise ConfigError(f"--batch must be at least 1, not {batch}")
    folder = model_folder(place)
    if folder is None:
        from treeforge.reward.served import ServedModel

        return ServedModel(place, batch=batch)
    from treeforge.reward.trained import TrainedModel

    saved = saved_in(folder)
    model = TrainedModel(folder, saved, batch=batch)
    if place.startswith(SCHEME):
        model.name = place.removeprefix(SCHEME)
    return model


def model_folder(place: str) -> Path | None:
    """Where a reward model lies, fetched from the Hub where `place` names one there; None for an address."""
    if place.startswith(SCHEME):
        return fetch_repository(place, "the reward model")
    return None if "://" in place else Path(place).expanduser()


def saved_in(folder: Path) -> Saved:
    """What stands beside a trained model's weights. Raises `ConfigError` that says what the folder is instead."""
    if not folder.exists():
        what = "there is no such folder. Name one that `treeforge train` made, or a server: http://HOST:PORT?folder=…"
    elif not folder.is_dir():
        what = "it is a file. Name the folder that `treeforge train` made"
    elif (saved := read_saved(folder)) is not None:
        return saved
    elif (folder / POLICY).exists():
        what = "it is a policy, of --task policy. Name one that was trained with --task orm, prm or hrm"
    elif (folder / STARTED).exists():
        what = "its training has not ended. The same `treeforge train` command goes on with it"
    elif (folder / "config.json").exists():
        what = f"it is a model without a reward.json. Train one from it: treeforge train DATA --model {folder} --out …"
    elif (folder / "manifest.json").exists():
        what = f"it is a run. Train one from its export: treeforge train {folder} --out …"
    else:
        what = "the folder holds no reward.json. Name one that `treeforge train` made"
    raise ConfigError(f"{folder} is no reward model: {what}")


class StepScorer:
    """What `beam` ranks partial solutions by: the scores of their steps so far, as one number.

    Rounded to four decimals, so that the last bits, which differ between machines and batches, decide nothing.
    """

    def __init__(self, model: RewardModel, aggregate: Aggregate | None = None) -> None:
        """`aggregate`: None for `default_aggregate` of the model's task."""
        self.model = model
        self.aggregate: Aggregate = aggregate or default_aggregate(model.task)

    @property
    def identity(self) -> str:
        """What the manifest of a run names, and a run that goes on must have again."""
        return f"reward model ({self.model.task}), {self.aggregate}, {self.model.identity}"

    def __call__(self, problem: Problem, steps: Sequence[str]) -> float:
        """The score of `steps` as the first steps of a solution, in [0, 1]."""
        return self.score_many(problem, [steps])[0]

    def score_many(self, problem: Problem, candidates: Sequence[Sequence[str]]) -> list[float]:
        """The scores of several, in one batch."""
        found = score_solutions(self.model, [(problem.question, steps) for steps in candidates])
        return [round(scores.aggregate(self.aggregate), 4) for scores in found]


class ScoredSolution(msgspec.Struct, frozen=True, kw_only=True):
    """A solution of a file with its scores: a line of what `treeforge score` writes."""

    row: int
    """Where it stands in its file; 0 unknown."""
    problem_id: str
    prompt: str
    """The question."""
    completions: tuple[str, ...]
    """Its steps as the model read them: with the delimiter that ends each, but for a last one that states an answer."""
    places: tuple[int, ...]
    """Of its steps among those of the row: 0, 1, … unless the row holds a tree, each path of which has a line."""
    single: tuple[float, ...]
    """Of each step by itself; of the whole solution where the model is an ORM."""
    pairs: tuple[float, ...]
    """Of each two consecutive steps; empty unless the model is an HRM."""
    scores: dict[Aggregate, float]
    """By every way to aggregate."""
    score: float
    """By the one that was asked for."""


def score_file(
    model: RewardModel,
    file: SolutionFile,
    steps: StepsConfig,
    aggregate: Aggregate | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> Iterator[ScoredSolution]:
    """The solutions of a file with their scores, in the file's order, as they come. Each path of a tree is one.

    `steps`: the step format, whose delimiter ends a step where its text does not, as in the data of training.
    `on_progress` is told (solutions done, all).
    """
    how = aggregate or default_aggregate(model.task)
    found = [
        (problem, solution, places)
        for problem in file.problems
        for solution in file.solutions[problem.problem_id]
        for places in _paths(solution)
    ]
    found.sort(key=lambda one: one[1].row)
    for start, end in _parts([len(places) for _, _, places in found], model.task):
        part = found[start:end]
        texts = [_texts([solution.steps[place] for place in places], steps) for _, solution, places in part]
        scored = score_solutions(model, [(part[i][0].question, texts[i]) for i in range(len(part))])
        for (problem, solution, places), path, scores in zip(part, texts, scored, strict=True):
            every = {name: scores.aggregate(name) for name in AGGREGATES}
            yield ScoredSolution(
                row=solution.row,
                problem_id=problem.problem_id,
                prompt=problem.question,
                completions=tuple(path),
                places=tuple(places),
                single=scores.single,
                pairs=scores.pairs,
                scores=every,
                score=every[how],
            )
        if on_progress is not None:
            on_progress(end, len(found))


def _paths(solution: GivenSolution) -> Iterator[list[int]]:
    """The places of the steps from a first one to each that none follows."""
    inner = set(solution.parents)
    for place in range(len(solution.steps)):
        if place in inner:
            continue
        path, at = [], place
        while at >= 0:
            path.append(at)
            at = solution.parents[at]
        yield path[::-1]


def _texts(texts: Sequence[str], steps: StepsConfig) -> list[str]:
    """As trees have them (`search.given.place`): all but a last step that states an answer end in the delimiter."""
    found: list[str] = []
    for text in texts:
        if found and lacks_end(steps, found[-1]):
            found[-1] += steps.delimiter
            if text.startswith(steps.delimiter) and not text[len(steps.delimiter) :].isspace():
                text = text[len(steps.delimiter) :] or text
        found.append(text)
    states = states_answer(found[-1]) or any(marker in found[-1] for marker in steps.answer_markers)
    if lacks_end(steps, found[-1]) and not states:
        found[-1] += steps.delimiter
    return found


def _parts(sizes: Sequence[int], task: Task) -> Iterator[tuple[int, int]]:
    """(start, end) of consecutive solutions with about `PART` windows together."""
    start, windows = 0, 0
    for place, size in enumerate(sizes):
        windows += {"orm": 1, "prm": size, "hrm": 2 * size - 1}[task]
        if windows >= PART:
            yield start, place + 1
            start, windows = place + 1, 0
    if start < len(sizes):
        yield start, len(sizes)
