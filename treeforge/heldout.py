"""The evidence that a search with `adaptive.split` never looked at, for values without any selection in them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from treeforge.tree import Finish, Rollout, Tree
from treeforge.verdict import NO_VERDICT, Verdict


def held_out(tree: Tree, rollouts: Sequence[Rollout]) -> Tree:
    """The tree of an `adaptive` search with `split`, with the held out completions as its only evidence.

    The search looked at the solutions and at the first, third, … completion that it asked of a step. What it did not
    look at decided neither which step was asked nor how often, so that their share of right ones is unbiased, given
    how many they are. Steps then stand for no sample of their parent (multiplicity 0): which way the solution went on
    is something that the search saw.
    """
    through = tree.multiplicity.copy()
    np.subtract.at(through, tree.parent[1:], tree.multiplicity[1:])
    own: dict[int, list[Rollout]] = defaultdict(list)
    for rollout in rollouts:
        own[rollout.node].append(rollout)
    counts = {name: np.zeros(tree.size, dtype=np.int32) for name in ("all", "correct", "undecided", "truncated")}
    for node, listed in own.items():
        if node == 0:
            continue  # the root's are solutions, too, or failed ones
        first = round(float(through[node]))  # solutions that stopped right after this step
        for rollout in listed[first + 1 :: 2]:
            if rollout.verdict != NO_VERDICT:
                counts["all"][node] += 1
                counts["correct"][node] += rollout.verdict == Verdict.CORRECT
                counts["undecided"][node] += rollout.verdict == Verdict.UNDECIDED
                counts["truncated"][node] += rollout.finish == Finish.TRUNCATED and rollout.verdict not in (
                    Verdict.CORRECT,
                    Verdict.UNDECIDED,
                )
    multiplicity = np.zeros(tree.size)
    multiplicity[0] = tree.multiplicity[0]
    return replace(
        tree,
        multiplicity=multiplicity,
        rollouts=counts["all"],
        rollouts_correct=counts["correct"],
        rollouts_undecided=counts["undecided"],
        rollouts_truncated=counts["truncated"],
    )
