"""What a recheck changed: verdicts, values and labels, each against what the run's own verdicts give."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.problem import Problem
from treeforge.store.verdicts import NewVerdict
from treeforge.tree import TreeRecord
from treeforge.value import Values
from treeforge.verdict import Verdict

EXAMPLES = 5
"""Examples of one kind of change in a report."""
_LABELS = {1: "positive", 0: "negative", -1: "unlabelled"}


class Example(msgspec.Struct, frozen=True, kw_only=True, order=True):
    """An answer whose verdict changed."""

    completions: int
    """Of this problem that end so."""
    problem_id: str
    gold_answer: str
    answer: str
    route: str
    """Of the new verdict, like `reason`."""
    reason: str


class VerdictChange(msgspec.Struct, frozen=True, kw_only=True):
    """The answers with one verdict before and another (or, with another answer extracted, the same) after."""

    before: str
    after: str
    completions: int
    answers: int
    """Different answers to different problems."""
    examples: tuple[Example, ...]
    """The most frequent first, `EXAMPLES` at most."""


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """A recheck against the run's own verdicts, under the same label settings."""

    policy: dict[str, Any]
    """The check policy of the recheck."""
    digest: str
    """Of its settings."""
    judged: int
    """Completions that were judged again."""
    changed: int
    """Of these, with another verdict or another answer."""
    problems: int
    """With such a completion."""
    verdicts: tuple[VerdictChange, ...]
    """By verdict before and after, the most frequent first."""
    steps: int
    """In the trees of these problems."""
    values_changed: int
    """Steps whose value is another one."""
    labels_changed: int
    """Steps whose hard label is another one."""
    labels: dict[str, int]
    """Of these, by label before and after, as `negative to positive`."""


class DifferenceCounter:
    """Adds up the changes of tree after tree. Memory does not grow with the run."""

    def __init__(self) -> None:
        self._problems = self._steps = self._values = 0
        self._labels = Counter[tuple[int, int]]()
        self._completions = Counter[tuple[int, int]]()
        self._answers = Counter[tuple[int, int]]()
        self._examples: dict[tuple[int, int], list[Example]] = {}

    def add_verdicts(self, problem: Problem, grown: TreeRecord, changes: Iterable[NewVerdict]) -> None:
        """The changes of one tree, which is given as it was grown."""
        found = Counter[tuple[tuple[int, int], NewVerdict]]()
        for new in changes:
            if new.rollout < 0:
                before, count = int(grown.tree.verdict[new.node]), round(float(grown.tree.multiplicity[new.node]))
            else:
                before, count = grown.rollouts[new.rollout].verdict, 1
            # Without node and rollout: one answer of a problem is one example, wherever it was given.
            found[(before, new.verdict), msgspec.structs.replace(new, node=0, rollout=0)] += count
        self._problems += 1
        for (change, new), count in found.items():
            self._completions[change] += count
            self._answers[change] += 1
            example = Example(
                completions=count,
                problem_id=problem.problem_id,
                gold_answer=problem.gold_answer,
                answer=new.answer,
                route=new.route,
                reason=new.reason,
            )
            kept = [*self._examples.get(change, ()), example]
            self._examples[change] = heapq.nsmallest(EXAMPLES, kept, key=_frequent_first)

    def add_labels(
        self, before: Values, after: Values, hard_before: NDArray[np.int8], hard_after: NDArray[np.int8]
    ) -> None:
        """Values and hard labels of one tree by the run's own verdicts and by the new ones; roots do not count."""
        same = (before.value == after.value) | (np.isnan(before.value) & np.isnan(after.value))
        self._steps += len(same) - 1
        self._values += int(np.count_nonzero(~same[1:]))
        pairs = zip(hard_before[1:].tolist(), hard_after[1:].tolist(), strict=True)
        self._labels.update((old, new) for old, new in pairs if old != new)

    def result(self, about: dict[str, Any]) -> Difference:
        """The sums; `about` is `treeforge.recheck.Verdicts.about`."""
        changes = sorted(self._completions, key=lambda change: (-self._completions[change], change))
        return Difference(
            policy=about["policy"],
            digest=about["digest"],
            judged=about["judged"],
            changed=about["changed"],
            problems=self._problems,
            verdicts=tuple(
                VerdictChange(
                    before=_name(change[0]),
                    after=_name(change[1]),
                    completions=self._completions[change],
                    answers=self._answers[change],
                    examples=tuple(self._examples[change]),
                )
                for change in changes
            ),
            steps=self._steps,
            values_changed=self._values,
            labels_changed=self._labels.total(),
            labels={f"{_LABELS[old]} to {_LABELS[new]}": count for (old, new), count in sorted(self._labels.items())},
        )


def _frequent_first(example: Example) -> tuple[int, str, str]:
    return -example.completions, example.problem_id, example.answer


def _name(verdict: int) -> str:
    return Verdict(verdict).name.lower()
