"""How well chances of being right fit labels: pure numpy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Labels = NDArray[np.int8]

BINS = 10


class Bin(msgspec.Struct, frozen=True):
    """The rows whose chance lies in one tenth of [0, 1]."""

    rows: int
    chance: float
    """Their mean chance."""
    right: float
    """The share of them that is labelled right."""


class Measures(msgspec.Struct, frozen=True, kw_only=True):
    """Chances against labels on one set of rows. None where a figure is not defined: with one class only, or with no
    whole solution."""

    rows: int
    right: int
    """Rows that are labelled right."""
    auc: float | None
    """The chance that a right row has a higher score than a wrong one; ties count half."""
    accuracy: float | None
    """At 0.5."""
    balanced_accuracy: float | None
    """The mean of the accuracies on right and on wrong rows."""
    log_loss: float | None
    """Of the labels, in nats a row."""
    calibration_error: float | None
    """Expected calibration error over tenths (Guo et al. 2017, Section 2)."""
    first_error_f1: float | None
    """ProcessBench's measure on the paths of single steps that the rows make up: the harmonic mean of the share of
    paths with a wrong step whose first one is found, and of those without in which none is."""
    reliability: tuple[Bin, ...]
    """The reliability diagram: of those tenths that have rows, in order."""


def measure(labels: Labels, chances: Floats, paths: Sequence[Sequence[int]] = ()) -> Measures:
    """`labels` int8[n], 1 right and 0 wrong; `chances` float64[n]; `paths`: the rows of each solution's steps."""
    wrong, right = chances[labels == 0], chances[labels == 1]
    both = len(wrong) > 0 and len(right) > 0
    if not len(labels):
        return Measures(
            rows=0,
            right=0,
            auc=None,
            accuracy=None,
            balanced_accuracy=None,
            log_loss=None,
            calibration_error=None,
            first_error_f1=None,
            reliability=(),
        )
    bins = reliability(labels, chances)
    stated = np.clip(np.where(labels == 1, chances, 1 - chances), 1e-12, 1)
    return Measures(
        rows=len(labels),
        right=len(right),
        auc=_auc(wrong, right) if both else None,
        accuracy=float(np.mean((chances >= 0.5) == (labels == 1))),
        balanced_accuracy=float((np.mean(wrong < 0.5) + np.mean(right >= 0.5)) / 2) if both else None,
        log_loss=float(-np.log(stated).mean()),
        calibration_error=sum(bin_.rows * abs(bin_.chance - bin_.right) for bin_ in bins) / len(labels),
        first_error_f1=first_error_f1(labels, chances, paths),
        reliability=bins,
    )


def _auc(wrong: Floats, right: Floats) -> float:
    """Mann and Whitney's statistic over the number of pairs."""
    scores = np.concatenate([wrong, right])
    _, place, count = np.unique(scores, return_inverse=True, return_counts=True)
    ranks = (np.cumsum(count) - (count - 1) / 2)[place]
    above = ranks[len(wrong) :].sum() - len(right) * (len(right) + 1) / 2
    return float(above / (len(wrong) * len(right)))


def reliability(labels: Labels, chances: Floats) -> tuple[Bin, ...]:
    """The rows by tenths of their chance; 1 is in the last."""
    place = np.minimum((chances * BINS).astype(np.intp), BINS - 1)
    found = []
    for number in range(BINS):
        inside = place == number
        if rows := int(inside.sum()):
            found.append(Bin(rows, float(chances[inside].mean()), float((labels[inside] == 1).mean())))
    return tuple(found)


def first_error(values: Sequence[float], threshold: float = 0.5) -> int:
    """The place of the first value below the threshold; -1 where none is."""
    return next((place for place, value in enumerate(values) if value < threshold), -1)


def first_error_f1(labels: Labels, chances: Floats, paths: Sequence[Sequence[int]]) -> float | None:
    """The harmonic mean of the two shares (ProcessBench, arXiv 2412.06559, Section 3); None where one is undefined."""
    hits: dict[bool, list[bool]] = {True: [], False: []}
    for path in paths:
        truth = first_error([float(labels[row]) for row in path])
        hits[truth >= 0].append(first_error([float(chances[row]) for row in path]) == truth)
    if not hits[True] or not hits[False]:
        return None
    erroneous, sound = (float(np.mean(hits[kind])) for kind in (True, False))
    return 2 * erroneous * sound / (erroneous + sound) if erroneous + sound else 0.0


def paths_of(previous: Sequence[str], current: Sequence[str], groups: Sequence[Any]) -> list[list[int]]:
    """The rows of each whole path that single steps make up, first step first.

    A row follows the one whose `previous` and `current` make up its own `previous`, within its group (the problem). A
    path runs from a first step to one that no row follows; rows whose beginning is missing are on none.
    """
    at: dict[tuple[Any, str], int] = {}
    for row, (before, step, group) in enumerate(zip(previous, current, groups, strict=True)):
        at.setdefault((group, before + step), row)
    parents = {row: at.get((groups[row], previous[row])) for row in at.values()}
    inner = set(parents.values())
    paths = []
    for tip in (row for row in at.values() if row not in inner):
        path: list[int] = [tip]
        while previous[path[-1]] and (parent := parents[path[-1]]) is not None:
            path.append(parent)
        if not previous[path[-1]]:
            paths.append(path[::-1])
    return paths
