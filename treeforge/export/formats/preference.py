"""`preference`: pairs of a right and a wrong continuation, of sibling steps and of whole solutions.

Both sides are whole assistant turns that share what comes before the step, so that the common part takes no part in the
difference that a preference loss sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, within_limit
from treeforge.export.formats.chat import MESSAGES, assistant, user
from treeforge.export.formats.outcomes import Solutions, solutions
from treeforge.export.formats.stack import Paths, Stack, pieces, ranks
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.forest import Rows as NodeRows
from treeforge.store.forests import text_sizes

_COLUMNS = (
    Column("prompt", MESSAGES, "the question, as the user's turn"),
    Column("chosen", MESSAGES, "the model's turn: the steps before, and the better step; or a right solution"),
    Column("rejected", MESSAGES, "the same with the worse step; or a wrong solution"),
    Column("margin", pa.float64(), "difference of the two soft labels; 1 between solutions"),
    Column("level", pa.string(), "`step`: two steps after the same prefix; `solution`: two whole solutions"),
    Column("separated", pa.bool_(), "whether the intervals of the two values do not overlap"),
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column("node_ids", LIST_OF_ROWS, "the chosen and the rejected node; of a rollout, the node it started from"),
    Column(
        "rollouts", pa.list_(pa.int64()), "decided outcomes behind the two labels; completions of the two solutions"
    ),
)


_LEVELS = pa.array(["step", "solution"])


class _Pairs(NamedTuple):
    """k pairs."""

    place: NodeRows
    """intp[k], as the first axis of the others: the place of the tree."""
    sides: NDArray[np.intp]
    """intp[k, 2]: the chosen and the rejected one: rows of the stack, or of the solutions."""
    size: NDArray[np.int64]
    """UTF-8 bytes of both texts."""
    margin: NDArray[np.float64]
    separated: NDArray[np.bool_]
    node_ids: NDArray[np.int32]
    """int32[k, 2]."""
    rollouts: NDArray[np.int64]
    """int64[k, 2]."""


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    stack, found = Stack(block.grown), solutions(block)
    found = found.take(np.flatnonzero(found.decided))
    kinds = _step_pairs(stack), _solution_pairs(found)
    columns_of_both: Iterator[Any] = zip(*kinds, strict=True)
    pairs = _Pairs._make(map(np.concatenate, columns_of_both))
    of_solutions = np.repeat([False, True], [len(kind.place) for kind in kinds])
    fits = within_limit(pairs.size + block.question_sizes[pairs.place])
    if not fits.all():
        yield Rows({}, 0, {TOO_LARGE: int((~fits).sum())})
    order = np.argsort(pairs.place, kind="stable")
    order = order[fits[order]]
    for piece in pieces(pairs.size[order] + block.question_sizes[pairs.place[order]]):
        rows = order[piece]
        some = _Pairs._make(column[rows] for column in pairs)
        texts = [_texts(stack, found, some.sides[:, side], of_solutions[rows]) for side in (0, 1)]
        place, numbers = pa.array(some.place), block.numbers[some.place]
        columns: dict[str, Any] = {
            "prompt": user(block.questions.take(place)),
            "chosen": assistant(texts[0]),
            "rejected": assistant(texts[1]),
            "margin": some.margin,
            "level": _LEVELS.take(pa.array(of_solutions[rows].astype(np.int8))),
            "separated": some.separated.astype(np.int8),
            "problem_id": block.problem_ids.take(place),
            "tree_id": numbers,
            "node_ids": _twos(some.node_ids),
            "rollouts": _twos(some.rollouts),
        }
        yield Rows(columns, len(rows), numbers=numbers)


def _step_pairs(stack: Stack) -> _Pairs:
    """Of each node's labelled children the best right one with the worst wrong one, the second best with the …"""
    soft, low, high = (stack.arrays(name) for name in ("soft", "values.low", "values.high"))
    labelled = np.flatnonzero((stack.hard >= 0) & (stack.parent >= 0))
    good, bad = labelled[stack.hard[labelled] == 1], labelled[stack.hard[labelled] == 0]
    chosen, rejected = _matched(stack.parent[good], -soft[good], stack.parent[bad], soft[bad])
    sides = np.stack([good[chosen], bad[rejected]], axis=1)
    size = stack.from_root(np.add, text_sizes(stack.steps).astype(np.int64), 0)
    return _Pairs(
        place=stack.place[sides[:, 0]],
        sides=sides,
        size=size[sides].sum(axis=1),
        margin=soft[sides[:, 0]] - soft[sides[:, 1]],
        separated=low[sides[:, 0]] > high[sides[:, 1]],
        node_ids=stack.arrays("row_of")[sides],
        rollouts=stack.arrays("values.rollouts")[sides],
    )


def _solution_pairs(found: Solutions) -> _Pairs:
    """The most frequent right solution with the most frequent wrong one, the second with the second, …"""
    good, bad = np.flatnonzero(found.right), np.flatnonzero(~found.right)
    chosen, rejected = _matched(found.place[good], -found.count[good], found.place[bad], -found.count[bad])
    sides = np.stack([good[chosen], bad[rejected]], axis=1)
    return _Pairs(
        place=found.place[sides[:, 0]],
        sides=sides,
        size=found.size[sides].sum(axis=1),
        margin=np.ones(len(sides)),
        separated=np.ones(len(sides), dtype=np.bool_),
        node_ids=found.node[sides],
        rollouts=found.count[sides],
    )


def _matched(
    group: NodeRows, key: NDArray[Any], other_group: NodeRows, other_key: NDArray[Any]
) -> tuple[NodeRows, NodeRows]:
    """Of two sets, the members that go together: of each group the first of both by their keys, the second, …

    Ties keep the order. The pairs come by group, and in a group by rank.
    """
    order, other_order = np.lexsort([key, group]), np.lexsort([other_key, other_group])
    width = len(group) + len(other_group) + 1
    place = group[order] * width + ranks(group[order])
    other_place = other_group[other_order] * width + ranks(other_group[other_order])
    _, mine, theirs = np.intersect1d(place, other_place, assume_unique=True, return_indices=True)
    return order[mine], other_order[theirs]


def _texts(stack: Stack, found: Solutions, rows: NodeRows, of_solutions: NDArray[np.bool_]) -> Any:
    """k Arrow texts of one side."""
    steps = Paths.of(stack, rows[~of_solutions]).joined(stack.steps)
    texts = pa.concat_arrays([steps, found.text.take(pa.array(rows[of_solutions]))])
    return texts.take(pa.array(np.argsort(np.argsort(of_solutions, kind="stable"), kind="stable")))


def _twos(values: NDArray[Any]) -> Any:
    """k Arrow lists of two numbers each."""
    return pa.ListArray.from_arrays(
        pa.array(np.arange(0, values.size + 1, 2, dtype=np.int32)), pa.array(values.ravel())
    )


PREFERENCE = Format(
    name="preference",
    about="Pairs of a better and a worse step after the same steps, and of a right and a wrong solution.",
    columns=_COLUMNS,
    rows=_rows,
    rollouts=True,
    text="chosen",
    same=("level", "rejected"),
    empty=(
        "no two steps after the same prefix have different labels, and no problem has a right and a wrong solution",
        "Label the trees (`treeforge label RUN`) and sample more children or rollouts a node",
    ),
)
