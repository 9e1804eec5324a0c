"""Step labels against those that people gave: agreement, Cohen's kappa and ProcessBench's F1, before any training.

Steps are the same where problem and all text up to the step's end are, but for white space. Intervals are bootstrapped
over problems, since steps of one problem are not independent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.errors import DataError
from treeforge.stats.bootstrap import CONFIDENCE, Figure, Resampler
from treeforge.stats.step_labels import HumanLabels, labelled_steps, read_human, step_key

_DEPTHS = (1, 2, 3, 4, 6, 9, 13, 21)
"""Where bands of depths begin."""
_RIGHT_RIGHT, _RIGHT_WRONG, _WRONG_RIGHT, _WRONG_WRONG, _ERRORS, _ERRORS_HIT, _SOUND, _SOUND_HIT = range(8)
_COUNTS = 8

Counts = NDArray[np.float64]
"""float64[problems, 8]: steps by (people's, our) label, and solutions with and without an error, all and hit."""


class Agreement(msgspec.Struct, frozen=True, kw_only=True):
    """How labels agree with people's on some steps."""

    steps: int
    problems: int
    wrong: int
    """Steps that people called wrong."""
    agreement: Figure
    """Share of steps with the same label."""
    kappa: Figure
    """Cohen's kappa: 0 is agreement by chance, 1 is full."""


class FirstErrors(msgspec.Struct, frozen=True, kw_only=True):
    """ProcessBench's measure (arXiv 2412.06559): is the first wrong step found?"""

    solutions: int
    """Solutions whose steps are labelled as far as the answer needs."""
    erroneous: Figure
    """Of those with an error, the share whose first wrong step is the one that people name."""
    correct: Figure
    """Of those without, the share without a wrong step."""
    f1: Figure
    """The harmonic mean of the two."""


class Quality(msgspec.Struct, frozen=True, kw_only=True):
    """Labels against people's."""

    human_steps: int
    """Steps that people labelled."""
    human_solutions: int
    confidence: float
    """Level of the intervals."""
    steps: Agreement
    first_errors: FirstErrors
    by_depth: dict[str, Agreement]
    by_level: dict[str, Agreement]
    """By the problem's `level`, where the run's problem file had such a column."""


def quality(labels: Path | str, against: Path | str, *, format: str | None = None, seed: int = 0) -> Quality:
    """Compare the step labels of `labels` with people's in the file `against` (`prm800k` or `processbench`).

    `labels` is a labelled run folder, or a file (or folder of files) in the shape of an export: `prm` or `hrm`. Where
    one step has several labels, the majority counts, and none where they are even.

    Raises `DataError` for files that cannot be read and where no step is in both, `RunError` for a run without labels.
    """
    labels, against = Path(labels), Path(against)
    found = compare(read_human(against, format), labelled_steps(labels), seed=seed)
    if found is None:
        raise DataError(
            f"has no step in common with {against}",
            path=labels,
            fix="Both must be of the same solutions, word for word",
        )
    return found


def compare(human: HumanLabels, labelled: Iterable[tuple[str, str, bool, str]], *, seed: int = 0) -> Quality | None:
    """Labels as `labelled_steps` gives them against people's; None where no step is in both."""
    found: dict[bytes, list[bool]] = defaultdict(list)
    levels: dict[int, str] = {}
    for question, text, label, level in labelled:
        key = step_key(question, text)
        if key in human.depth:
            found[key].append(label)
            if level:
                levels[human.problem[key]] = level
    ours = {key: our for key, all_ in found.items() if (our := majority(all_)) is not None}
    pairs = [
        (key, theirs, ours[key])
        for key, all_ in human.labels.items()
        if key in ours and (theirs := majority(all_)) is not None
    ]
    if not pairs:
        return None
    resample = Resampler(len(human.questions), seed)

    def agreement(chosen: Iterable[tuple[bytes, bool, bool]]) -> Agreement:
        return _agreement(_count(chosen, human), resample)

    return Quality(
        human_steps=len(human.labels),
        human_solutions=len(human.solutions),
        confidence=CONFIDENCE,
        steps=agreement(pairs),
        first_errors=_first_errors(human, ours, resample),
        by_depth=_grouped(pairs, lambda key: _band(human.depth[key]), [_band(start) for start in _DEPTHS], agreement),
        by_level=_grouped(
            pairs, lambda key: levels.get(human.problem[key], ""), sorted(set(levels.values())), agreement
        ),
    )


def majority(labels: Sequence[bool]) -> bool | None:
    """What most labels of one step say; None where they are even."""
    right = sum(labels)
    return None if 2 * right == len(labels) else 2 * right > len(labels)


def _band(depth: int) -> str:
    """The band of depths that a depth is in, as text."""
    place = sum(start <= depth for start in _DEPTHS) - 1
    start = _DEPTHS[place]
    if place == len(_DEPTHS) - 1:
        return f"{start}+"
    end = _DEPTHS[place + 1] - 1
    return str(start) if start == end else f"{start}-{end}"


def _grouped(
    pairs: list[tuple[bytes, bool, bool]],
    group: Callable[[bytes], str],
    names: Sequence[str],
    agreement: Callable[[Iterable[tuple[bytes, bool, bool]]], Agreement],
) -> dict[str, Agreement]:
    members: dict[str, list[tuple[bytes, bool, bool]]] = defaultdict(list)
    for pair in pairs:
        members[group(pair[0])].append(pair)
    return {name: agreement(members[name]) for name in names if name in members}


def _count(pairs: Iterable[tuple[bytes, bool, bool]], human: HumanLabels) -> Counts:
    counts = np.zeros((len(human.questions), _COUNTS))
    for key, theirs, our in pairs:
        counts[human.problem[key], 2 * (not theirs) + (not our)] += 1
    return counts


def _agreement(counts: Counts, resample: Resampler) -> Agreement:
    steps = counts[:, :_ERRORS]
    return Agreement(
        steps=int(steps.sum()),
        problems=int(np.count_nonzero(steps.sum(axis=1))),
        wrong=int(counts[:, [_WRONG_RIGHT, _WRONG_WRONG]].sum()),
        agreement=resample.figure(counts, _share_equal),
        kappa=resample.figure(counts, _kappa),
    )


def _first_errors(human: HumanLabels, ours: dict[bytes, bool], resample: Resampler) -> FirstErrors:
    counts = np.zeros((len(human.questions), _COUNTS))
    used = 0
    for keys, wrong in human.solutions:
        found = [ours.get(key) for key in keys]
        first = found.index(False) if False in found else -1
        if None in (found if first < 0 else found[:first]):
            continue  # A step without a label stands before the answer.
        used += 1
        all_, hit = (_ERRORS, _ERRORS_HIT) if wrong >= 0 else (_SOUND, _SOUND_HIT)
        problem = human.problem[keys[0]]
        counts[problem, all_] += 1
        counts[problem, hit] += first == wrong
    return FirstErrors(
        solutions=used,
        erroneous=resample.figure(counts, lambda c: _ratio(c[:, _ERRORS_HIT], c[:, _ERRORS])),
        correct=resample.figure(counts, lambda c: _ratio(c[:, _SOUND_HIT], c[:, _SOUND])),
        f1=resample.figure(counts, _f1),
    )


def _ratio(part: NDArray[np.float64], whole: NDArray[np.float64]) -> NDArray[np.float64]:
    share: NDArray[np.float64] = np.divide(part, whole, out=np.full(len(whole), np.nan), where=whole > 0)
    return share


def _share_equal(counts: Counts) -> NDArray[np.float64]:
    return _ratio(counts[:, _RIGHT_RIGHT] + counts[:, _WRONG_WRONG], counts[:, :_ERRORS].sum(axis=1))


def _kappa(counts: Counts) -> NDArray[np.float64]:
    """(observed - expected) / (1 - expected), where not all labels of both sides are one."""
    total = counts[:, :_ERRORS].sum(axis=1)
    theirs = _ratio(counts[:, _RIGHT_RIGHT] + counts[:, _RIGHT_WRONG], total)
    our = _ratio(counts[:, _RIGHT_RIGHT] + counts[:, _WRONG_RIGHT], total)
    expected = theirs * our + (1 - theirs) * (1 - our)
    return _ratio(_share_equal(counts) - expected, 1 - expected)


def _f1(counts: Counts) -> NDArray[np.float64]:
    wrong, sound = _ratio(counts[:, _ERRORS_HIT], counts[:, _ERRORS]), _ratio(counts[:, _SOUND_HIT], counts[:, _SOUND])
    both = wrong + sound
    score: NDArray[np.float64] = 2 * wrong * sound / np.where(both == 0, 1.0, both)
    return score


def rows(found: Quality) -> list[tuple[str, Agreement]]:
    """The agreement on all steps and on each group, with its name, for a table."""
    named: list[tuple[str, Any]] = [("all steps", found.steps)]
    named += [(f"depth {name}", group) for name, group in found.by_depth.items()]
    return named + [(f"level {name.removeprefix('Level ')}", group) for name, group in found.by_level.items()]
