"""Hypothesis strategies: valid trees with everything that a search can leave in them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
from hypothesis import strategies as st

from treeforge.tree import Finish, Tree, TreeBuilder
from treeforge.verdict import NO_VERDICT, Verdict

T = TypeVar("T")

TEXTS = ["a", "b", "ab", "é", "∑a"]
"""Few, and one the start of another, so that siblings and merged texts collide."""

ENDED = [
    (Finish.ANSWERED, Verdict.CORRECT),
    (Finish.ANSWERED, Verdict.INCORRECT),
    (Finish.ANSWERED, Verdict.UNPARSABLE),
    (Finish.ANSWERED, Verdict.UNDECIDED),
    (Finish.STOP, Verdict.NO_ANSWER),
    (Finish.TRUNCATED, Verdict.NO_ANSWER),
    (Finish.TRUNCATED, Verdict.INCORRECT),
    (Finish.ERROR, NO_VERDICT),
]
"""How a leaf can end a trajectory (or fail)."""


class _Choices:
    """Choices made of one blob of bytes, which hypothesis draws and shrinks much faster than a choice at a time.

    A byte of 0, and all that comes after the last byte, chooses the first option.
    """

    def __init__(self, blob: bytes) -> None:
        self._bytes = iter(blob)

    def __call__(self, options: Sequence[T]) -> T:
        return options[next(self._bytes, 0) % len(options)]


@st.composite
def trees(draw: st.DrawFn, *, max_nodes: int = 40, observations: bool = True) -> Tree:
    """A checked tree with what a search can leave in it.

    Wide nodes (4 and more children), duplicates with a multiplicity and beside one another, ended, truncated and failed
    leaves, undecided outcomes, own rollouts anywhere, rows in any order that puts parents first.
    """
    choose = _Choices(draw(st.binary(min_size=200, max_size=800)))
    builder = TreeBuilder()
    frontier = [0]
    while frontier and builder.size < max_nodes:
        parent = frontier.pop(choose(range(len(frontier))))
        for _ in range(choose([0, 1, 3, 4, 4, 5, 6] if parent else [2, 4, 5])):
            finish, verdict = choose([(Finish.OPEN, NO_VERDICT)] * len(ENDED) + ENDED)
            row = builder.add(
                parent,
                choose(TEXTS) + "\n",
                observation=choose(["", "", "", "", "", "o", "oo"]) if observations else "",
                token_count=choose(range(9)),
                logprob=choose([-0.5, -2.0, float("nan")]),
                finish=finish,
                answer="7" if finish is Finish.ANSWERED else "",
                verdict=verdict,
                prior=0.25,
            )
            builder.multiplicity[row] = choose([1.0, 1.0, 2.0, 5.0])
            if finish is Finish.OPEN:
                frontier.append(row)
    for row in range(builder.size):
        if builder.finish[row] == Finish.OPEN and choose([False, True]):
            correct, wrong = choose(range(4)), choose(range(4))
            undecided, truncated = choose(range(2)), choose(range(2))
            builder.rollouts[row] = correct + wrong + undecided + truncated
            builder.rollouts_correct[row] = correct
            builder.rollouts_undecided[row] = undecided
            builder.rollouts_truncated[row] = truncated
            builder.visits[row], builder.value_sum[row] = correct + wrong, float(correct)
    return builder.freeze()


def same(a: Any, b: Any) -> bool:
    """Equal columns, NaN equal to NaN."""
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and bool(np.array_equal(a, b, equal_nan=a.dtype.kind == "f"))
    return bool(a == b)
