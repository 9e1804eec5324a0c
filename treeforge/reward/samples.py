"""The solutions of a finished run that were sampled whole and independently: what best-of-N chooses among."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from treeforge.errors import RunError
from treeforge.label import CheckPolicy, check
from treeforge.reward.select import NO_ANSWER, Floats, Ints
from treeforge.store.given import SECTION as GIVEN
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, Rollout, Tree, TreeRecord
from treeforge.verdict import NO_VERDICT, Verdict

WHOLE = ("best-of-n", "step-rollouts", "adaptive")
"""The strategies that start with whole solutions, whose steps become nodes."""
_OWN_RUN = "`treeforge evaluate NEW_RUN --policy … --problems …` samples solutions to choose among"

Same = Callable[[str, str], bool]
"""Whether two answers are the same."""


class Samples(msgspec.Struct, frozen=True, kw_only=True):
    """The samples of one problem: k different solutions, n samples in all."""

    steps: tuple[tuple[str, ...], ...]
    """k: each solution's steps; none for samples without any text, which are one solution."""
    count: Ints
    """int64[k]: how many samples gave it."""
    correct: Floats
    """float64[k]: 1 where the verdict is right; undecided ones count as wrong."""
    answers: Ints
    """int64[k]: equal numbers are equal answers; `NO_ANSWER`."""
    undecided: int
    """Samples whose verdict is undecided."""
    errors: int
    """Requests for samples that the engine failed; they are no samples."""

    @property
    def size(self) -> int:
        """n."""
        return int(self.count.sum())


def check_run(run: RunFolder) -> None:
    """Raise `RunError` for a run that still grows, or whose trees hold no whole solutions sampled from the problem."""
    statuses = [status for status, _ in run.statuses().values()]
    if still := statuses.count("open"):
        raise RunError(
            f"{run.path} is still growing: {still} of {len(statuses)} problems are open. Wait for it, or go on with "
            f"`treeforge resume {run.path}`"
        )
    if (run.manifest.get("policy") or {}).get("backend") == "imported":
        raise RunError(f"{run.path} was imported: nothing says how often the policy gave its solutions. {_OWN_RUN}")
    if GIVEN in run.manifest:
        raise RunError(f"{run.path} labels given solutions, which are no samples of its policy. {_OWN_RUN}")
    strategy = run.strategy
    if strategy not in WHOLE:
        raise RunError(
            f"{run.path} was grown by {strategy}, whose completions are no independent samples: it went where it found "
            f"right answers. {_OWN_RUN}"
        )


def read_samples(record: TreeRecord, same: Same) -> Samples:
    """The samples of a tree that one of `WHOLE` grew and that ended.

    The solutions that it started with count; what was sampled from a later step does not, since that depends on where
    the search went. Samples without any text count, as wrong.
    """
    counts: Counter[_Ending] = Counter()
    for ending, count in _endings(record):
        counts[ending] += count
    found = list(counts)
    return Samples(
        steps=tuple(ending.steps for ending in found),
        count=np.array([counts[ending] for ending in found], dtype=np.int64),
        correct=np.array([ending.verdict == Verdict.CORRECT for ending in found], dtype=np.float64),
        answers=answer_groups([(ending.answer, ending.verdict) for ending in found], same),
        undecided=sum(counts[ending] for ending in found if ending.verdict == Verdict.UNDECIDED),
        errors=sum(1 for rollout in record.rollouts if rollout.node == 0 and rollout.finish == Finish.ERROR),
    )


class _Ending(NamedTuple):
    steps: tuple[str, ...]
    verdict: int
    answer: str


def _endings(record: TreeRecord) -> Iterator[tuple[_Ending, int]]:
    """Whole samples, and how many of them end so: nodes first, then rollouts."""
    tree = record.tree
    for row in np.flatnonzero(tree.verdict != NO_VERDICT).tolist():
        count = round(float(tree.multiplicity[row]))
        yield _Ending(_steps(tree, row), int(tree.verdict[row]), tree.answer[row]), count
    for rollout in _from_root(record):
        steps = _steps(tree, rollout.node)
        if rollout.steps:
            steps = (*steps, tree.observation[rollout.node] + rollout.steps[0], *rollout.steps[1:])
        yield _Ending(steps, rollout.verdict, rollout.answer), 1


def _steps(tree: Tree, node: int) -> tuple[str, ...]:
    """The steps from the first one to `node`; what an environment answered to a step begins the next one's text."""
    path = tree.path(node)
    return tuple(tree.observation[before] + tree.text[row] for before, row in zip([0, *path], path, strict=False))


def _from_root(record: TreeRecord) -> Iterator[Rollout]:
    """The rollouts that are whole samples: those of the root, and samples that stopped right after a step.

    The latter are own rollouts without a step of the node they stopped at, before any completion of that node; as many
    as its multiplicity exceeds its children's.
    """
    tree = record.tree
    stopped = tree.multiplicity - np.bincount(tree.parent[1:], tree.multiplicity[1:], tree.size)
    for rollout in record.rollouts:
        if rollout.finish == Finish.ERROR:
            continue
        if rollout.node == 0:
            yield rollout
        elif not rollout.steps and stopped[rollout.node] > 0:
            stopped[rollout.node] -= 1
            yield rollout


def answer_groups(answers: Sequence[tuple[str, int]], same: Same) -> Ints:
    """int64[k]: a number for each different answer, of (answer, `Verdict`).

    All right ones are one; others are compared with the first of each group. What is no answer votes for nothing.
    """
    groups: list[int] = []
    firsts: list[str] = []
    known: dict[str, int] = {}
    for answer, verdict in answers:
        plain = "".join(answer.split())
        if verdict == Verdict.CORRECT:
            groups.append(0)
        elif verdict == Verdict.NO_ANSWER or not plain:
            groups.append(NO_ANSWER)
        else:
            if plain not in known:
                known[plain] = next((at for at, first in enumerate(firsts, 1) if same(answer, first)), len(firsts) + 1)
                if known[plain] > len(firsts):
                    firsts.append(answer)
            groups.append(known[plain])
    return np.array(groups, dtype=np.int64)


def same_answers(policy: CheckPolicy) -> Same:
    """Equality by the answer checker, the second answer in the gold answer's place; sympy is not asked."""
    remembered: dict[tuple[str, str], bool] = {}

    def same(answer: str, other: str) -> bool:
        key = answer, other
        if key not in remembered:
            remembered[key] = check(answer, other, policy, symbolic=False).verdict == Verdict.CORRECT
        return remembered[key]

    return same
