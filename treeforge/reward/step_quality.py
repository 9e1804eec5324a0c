"""A reward model's scores of steps against people's labels: ProcessBench's first errors, and agreement with PRM800K.

A step is called wrong where its score is below a threshold. An HRM is measured by its scores of single steps, by those
of the pairs that a step ends, and where each row is one solution by `hierarchical` ones, in which a step that the next
one corrects is not lost. (In PRM800K people went on from good steps only, so that having a next one would give the
label away.) An ORM names no step and is not measured.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.errors import ConfigError, DataError
from treeforge.export.readers import ImportedRow, choose_reader
from treeforge.reward.base import RewardModel, score_solutions
from treeforge.reward.evaluate import model_names
from treeforge.stats.bootstrap import Figure, Resampler
from treeforge.stats.quality import Quality, compare, majority
from treeforge.stats.step_labels import HumanLabels, guessed_format, human_rows, no_labels, step_key
from treeforge.tree import Finish

THRESHOLD = 0.5
_ROWS = 64
"""Rows of a file that are scored at once."""

By = Literal["single", "pair", "hierarchical"]


class StepQuality(msgspec.Struct, frozen=True, kw_only=True):
    """One model's step scores against the labels of one file."""

    model: str
    by: By
    """The scores: of single steps; of the pair that a step ends (a first step's own); or the better of the step's own
    and that of the pair which it begins (`SolutionScores.hierarchical`)."""
    threshold: float
    """A step with a lower score is called wrong."""
    quality: Quality
    """Of these labels: agreement, kappa, and first errors (ProcessBench)."""
    auc: Figure
    """The chance that a step that people call right has a higher score than one they call wrong; ties count half."""


class _Scored:
    """What one model says of the steps of one file of people's labels."""

    def __init__(self, model: RewardModel, path: Path, format: str | None) -> None:
        self.path, self.human = path, HumanLabels()
        self._keys: dict[tuple[str, str], bytes] = {}
        """The keys of steps: of the question, and all text up to the step's end."""
        self.scores: dict[By, dict[bytes, float]] = {"single": {}}
        format = format or guessed_format(path)
        if model.task == "hrm":
            self.scores["pair"] = {}
            if format == "processbench":
                self.scores["hierarchical"] = {}
        rows = human_rows(path, format)
        delimiter = choose_reader(format).delimiter
        while some := list(islice(rows, _ROWS)):
            for row in some:
                self.human.add(row)
            self._score(model, some, delimiter)
        if not self.human.labels:
            raise no_labels(path)

    def _score(self, model: RewardModel, rows: Sequence[ImportedRow], delimiter: str) -> None:
        asked = [(row.question, steps) for row in rows for steps in _solutions(row, delimiter)]
        for (question, steps), scores in zip(asked, score_solutions(model, asked), strict=True):
            by: dict[By, tuple[float, ...]] = {
                "single": scores.single,
                "pair": (scores.single[0], *scores.pairs),
                "hierarchical": scores.hierarchical(),
            }
            text = ""
            for place, step in enumerate(steps):
                text += step
                key = self._keys.get((question, text)) or step_key(question, text)
                self._keys[question, text] = key
                for kind, kept in self.scores.items():
                    # Solutions that begin alike differ in what corrects a step; if one does, it can be corrected.
                    kept[key] = max(by[kind][place], kept.get(key, 0.0))

    def quality(self, by: By, threshold: float, seed: int) -> Quality:
        scores = self.scores[by]
        labelled = ((*step, scores[key] >= threshold, "") for step, key in self._keys.items())
        found = compare(self.human, labelled, seed=seed)
        if found is None:
            raise no_labels(self.path)  # each step is called right as often as wrong
        return found

    def auc(self, by: By, seed: int) -> Figure:
        labels = {key: label for key, all_ in self.human.labels.items() if (label := majority(all_)) is not None}
        problem = np.array([self.human.problem[key] for key in labels], dtype=np.intp)
        scores = np.array([self.scores[by][key] for key in labels])
        right = np.array(list(labels.values()), dtype=np.bool_)
        order = np.argsort(scores, kind="stable")
        problem, right, scores = problem[order], right[order], scores[order]
        starts = np.flatnonzero(np.concatenate([[True], np.diff(scores) > 0])[: len(scores)])

        def measure(times: NDArray[np.uint16]) -> float:
            weight = times[problem].astype(np.float64)
            high, low = (np.add.reduceat(weight * chosen, starts) for chosen in (right, ~right))
            pairs = high.sum() * low.sum()
            return float(high @ (np.cumsum(low) - low / 2) / pairs) if pairs else float("nan")

        return Resampler(len(self.human.questions), seed).weighted(measure)


def step_quality(
    models: Sequence[RewardModel],
    path: Path | str,
    *,
    format: str | None = None,
    threshold: float = THRESHOLD,
    threshold_from: Path | str | None = None,
    seed: int = 0,
) -> tuple[StepQuality, ...]:
    """Each model's step scores against people's labels in the file `path` (`prm800k` or `processbench`; guessed).

    `threshold_from` is another such file: the threshold is then, for each model and kind of scores, that of the highest
    F1 of first errors there; kinds that it does not have are left out. Raises `DataError` for a file that cannot be
    read or holds no label, `ConfigError` for a threshold outside [0, 1] and where all models are ORMs.
    """
    if not 0 <= threshold <= 1:
        raise ConfigError(f"--threshold: {threshold} is not in [0, 1]")
    judging = [model for model in models if model.task != "orm"]
    if not judging:
        raise ConfigError("--reward: steps are judged by a PRM or an HRM; an ORM judges whole solutions only")
    found: list[StepQuality] = []
    for name, model in zip(model_names(judging), judging, strict=True):
        scored = _Scored(model, Path(path), format)
        tuned = None if threshold_from is None else _Scored(model, Path(threshold_from), None)
        for by in scored.scores if tuned is None else [by for by in scored.scores if by in tuned.scores]:
            limit = threshold if tuned is None else best_threshold(tuned.human, tuned.scores[by], tuned.path)
            found.append(
                StepQuality(
                    model=name,
                    by=by,
                    threshold=limit,
                    quality=scored.quality(by, limit, seed),
                    auc=scored.auc(by, seed),
                )
            )
    return tuple(found)


def best_threshold(human: HumanLabels, scores: dict[bytes, float], path: Path) -> float:
    """The threshold with the highest F1 of first errors; of equal ones the lowest.

    Between two running minima of the scores nothing changes, so that one threshold between each two is tried.
    `DataError` where there is no solution with an error or none without.
    """
    low, high, wrong = [], [], []
    for keys, first in human.solutions:
        least = np.minimum.accumulate([scores[key] for key in keys])
        # The first score below t is the wrong step's where t is in (its own running minimum, the one before].
        low.append(float(least[first]) if first >= 0 else -1.0)
        high.append(float(least[first - 1]) if first > 0 else 2.0 if first == 0 else float(least[-1]))
        wrong.append(first >= 0)
    error = np.array(wrong, dtype=np.bool_)
    if not error.any() or error.all():
        raise DataError("needs solutions with an error and solutions without, to choose a threshold by", path=path)
    lows, highs = np.array(low), np.array(high)
    edges = np.unique(np.concatenate([lows, highs]).clip(0.0, 1.0))
    tried = np.unique(np.concatenate([[0.0], (edges[:-1] + edges[1:]) / 2, [1.0]]))
    best, best_f1 = THRESHOLD, -1.0
    for threshold in tried.tolist():
        hit = (lows < threshold) & (threshold <= highs)
        found, sound = hit[error].mean(), hit[~error].mean()
        f1 = 2 * found * sound / (found + sound) if found + sound else 0.0
        if f1 > best_f1:
            best, best_f1 = threshold, float(f1)
    return best


def _solutions(row: ImportedRow, delimiter: str) -> Iterator[tuple[str, ...]]:
    """The texts of the steps of each path of a row, as a policy would have written them.

    Every step has its delimiter but the one that ends a solution, whether or not people went on from it.
    """
    inner = {step.parent for step in row.steps}
    branching = len(inner) < len(row.steps)
    for tip in range(len(row.steps)):
        if tip in inner:
            continue
        path, at = [], tip
        while at >= 0:
            path.append(at)
            at = row.steps[at].parent
        ended = row.steps[tip].finish != Finish.OPEN or not branching
        texts = [row.steps[place].text + delimiter for place in reversed(path)]
        yield (*texts[:-1], row.steps[tip].text if ended else texts[-1])
