"""`prm800k`: the nested shape of openai/prm800k: at every step all completions with their ratings, one of them chosen.

A row a node whose labelled children have no labelled steps after them, so that every labelled step stands in a row. The
chosen completions lead to that node, and to the best of its children. Ratings are 1 and -1, from hard labels; there is
no 0 (neutral).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, within_limit
from treeforge.export.formats.stack import Paths, Stack, pieces, ranks
from treeforge.export.formats.stepwise import NOTHING_LABELLED, labelled_from_root, outside_chains
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.forest import Rows as NodeRows
from treeforge.forest import ranges
from treeforge.store.forests import text_sizes
from treeforge.store.tables import text_array
from treeforge.verdict import NO_VERDICT

_COMPLETION = pa.struct(
    [
        pa.field("text", pa.string()),
        pa.field("rating", pa.int8()),
        pa.field("flagged", pa.bool_()),
    ]
)
_HUMAN = pa.struct(
    [
        pa.field("text", pa.string()),
        pa.field("rating", pa.int8()),
        pa.field("source", pa.string()),
        pa.field("flagged", pa.bool_()),
    ]
)
_STEP = pa.struct(
    [
        pa.field("completions", pa.list_(_COMPLETION)),
        pa.field("human_completion", _HUMAN),
        pa.field("chosen_completion", pa.int32()),
    ]
)
_LABEL = pa.struct(
    [
        pa.field("steps", pa.list_(_STEP)),
        pa.field("total_time", pa.int64()),
        pa.field("finish_reason", pa.string()),
    ]
)
_QUESTION = pa.struct([pa.field("problem", pa.string()), pa.field("ground_truth_answer", pa.string())])

_REASONS = pa.array(["give_up", "solution"])

_COLUMNS = (
    Column("labeler", pa.string(), "the estimator of the values behind the ratings"),
    Column("timestamp", pa.string(), "null: no time stands in an export"),
    Column("generation", pa.int64(), "null: phases of the original's data collection"),
    Column("is_quality_control_question", pa.bool_(), "false"),
    Column("is_initial_screening_question", pa.bool_(), "false"),
    Column("question", _QUESTION, "the question and the right final answer"),
    Column(
        "label", _LABEL, "the steps with all their completions and ratings (1 right, -1 wrong), the chosen one's index"
    ),
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column("node_ids", LIST_OF_ROWS, "a step each: the chosen completion's node in that tree"),
)


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    grown = block.grown
    stack = Stack(grown)
    inside = labelled_from_root(stack)
    siblings = _Siblings(stack, inside)
    bottom, best = siblings.bottom()
    # Of a row count all siblings of every step of its path.
    own = np.bincount(stack.parent[siblings.nodes], text_sizes(stack.steps)[siblings.nodes], stack.size)
    levels = stack.from_root(np.add, own.astype(np.int64), own[stack.parent < 0].astype(np.int64))
    size = levels[bottom] + grown.question_sizes[stack.place[bottom]]
    fits = within_limit(size)
    left_out = outside_chains(stack, inside) | {TOO_LARGE: int((~fits).sum())}
    yield Rows({}, 0, {reason: count for reason, count in left_out.items() if count})
    ends, size = best[fits], size[fits]
    answers = text_array("ground_truth_answer", [problem.gold_answer for problem in grown.problems])
    questions = pa.StructArray.from_arrays([grown.questions, answers], fields=list(_QUESTION))
    ended = stack.arrays("nodes.forest.verdict") != NO_VERDICT
    estimator = pa.scalar(grown.passes[0].values.estimator, pa.string())
    names = stack.arrays("row_of")
    for piece in pieces(size):
        end = ends[piece]
        n, paths, place = len(end), Paths.of(stack, end), stack.place[end]
        label = [
            paths.lists(siblings.steps(paths.nodes)),
            pa.array(np.zeros(n, dtype=np.int64)),
            _REASONS.take(pa.array(ended[end].astype(np.int8))),
        ]
        columns = {
            "labeler": pa.repeat(estimator, n),
            "timestamp": pa.nulls(n, pa.string()),
            "generation": pa.nulls(n, pa.int64()),
            "is_quality_control_question": np.zeros(n, np.int8),
            "is_initial_screening_question": np.zeros(n, np.int8),
            "question": questions.take(pa.array(place)),
            "label": pa.StructArray.from_arrays(label, fields=list(_LABEL)),
            "problem_id": grown.problem_ids.take(pa.array(place)),
            "tree_id": grown.numbers[place],
            "node_ids": paths.lists(names[paths.nodes]),
        }
        yield Rows(columns, n, numbers=columns["tree_id"])


class _Siblings:
    """The labelled children of each node, as rated completions."""

    def __init__(self, stack: Stack, inside: NDArray[np.bool_]) -> None:
        self._stack = stack
        rows = np.flatnonzero(inside)
        order = np.argsort(stack.parent[rows], kind="stable")
        self.nodes: NodeRows = rows[order]
        """All of them, parent after parent."""
        self._count = np.bincount(stack.parent[rows], minlength=stack.size)
        self._start = np.cumsum(self._count) - self._count
        self._rank = np.zeros(stack.size, dtype=np.int32)
        self._rank[self.nodes] = ranks(stack.parent[self.nodes])
        n = len(self.nodes)
        texts = pc.utf8_trim_whitespace(stack.steps.take(pa.array(self.nodes))).cast(pa.string())
        rating = np.where(stack.hard[self.nodes] == 1, 1, -1).astype(np.int8)
        self._completions = pa.StructArray.from_arrays(
            [texts, pa.array(rating), pa.array(np.zeros(n, dtype=np.bool_))], fields=list(_COMPLETION)
        )

    def bottom(self) -> tuple[NodeRows, NodeRows]:
        """Nodes whose labelled children have no labelled steps below them, and the best such child of each."""
        parent = self._stack.parent
        inner = self._count[self.nodes] > 0
        deeper = np.bincount(parent[self.nodes[inner]], minlength=self._stack.size) > 0
        bottom = np.flatnonzero((self._count > 0) & ~deeper)
        soft = self._stack.arrays("soft")[self.nodes]
        by_value = self.nodes[np.lexsort([-soft, parent[self.nodes]])]  # stable: of the best the first
        return bottom, by_value[self._start[bottom]]

    def steps(self, nodes: NodeRows) -> Any:
        """Arrow structs (`_STEP`), one a node: it and its siblings, and which it is."""
        parents = self._stack.parent[nodes]
        sizes = self._count[parents]
        offsets = np.concatenate(([0], np.cumsum(sizes))).astype(np.int32)
        rated = self._completions.take(pa.array(ranges(self._start[parents], sizes)))
        completions = pa.ListArray.from_arrays(pa.array(offsets), rated)
        return pa.StructArray.from_arrays(
            [completions, pa.nulls(len(nodes), _HUMAN), pa.array(self._rank[nodes])], fields=list(_STEP)
        )


PRM800K = Format(
    name="prm800k",
    about="Steps with all their rated completions, nested as PRM800K was released.",
    columns=_COLUMNS,
    rows=_rows,
    whole=True,
    empty=NOTHING_LABELLED,
)
