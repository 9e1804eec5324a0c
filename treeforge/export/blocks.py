"""What the formats see: the trees of one block at once, as arrays and Arrow texts."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.export.trees import ExportTree, LabelledTree
from treeforge.forest import Rows
from treeforge.problem import Problem
from treeforge.store.forests import NodeTable, text_sizes
from treeforge.store.tables import rollouts_table, text_array
from treeforge.store.value_table import joined_values, rows_of_values
from treeforge.value import Values

SHIFT = 1e-9
"""Two estimates of one value that differ by less are the same but for rounding."""

PIECE_NODES = 2**16
"""Nodes that are worked on at once: enough to make calls cheap, few enough for blocks of large trees."""


@dataclass(frozen=True, kw_only=True, slots=True)
class LabelledForest:
    """Trees with their values and labels, n nodes in all: as grown, or what one HNC pass made of them."""

    number: int
    """The HNC pass, from 1; 0 for trees as grown."""
    places: Rows
    """intp[trees]: each tree's place in the block, ascending; a pass that changed nothing in a tree lacks it."""
    nodes: NodeTable
    values: Values
    hard: NDArray[np.int8]
    """int8[n], as the other arrays: as in `LabelledTree`."""
    soft: NDArray[np.float64]
    row_of: NDArray[np.int32]
    fresh: Mapping[int, NDArray[np.bool_]]

    @property
    def place_of(self) -> Rows:
        """intp[n]: the place of each node's tree in the block."""
        return np.repeat(self.places, self.nodes.forest.sizes)

    def select(self, keep: NDArray[np.bool_]) -> LabelledForest:
        """The trees whose place in the block is kept (bool[trees of the block]); places are counted anew."""
        chosen = np.flatnonzero(keep[self.places])
        rows = self.nodes.forest.rows_of(chosen)
        return LabelledForest(
            number=self.number,
            places=(np.cumsum(keep) - 1)[self.places[chosen]],
            nodes=self.nodes.select(chosen),
            values=rows_of_values(self.values, rows),
            hard=self.hard[rows],
            soft=self.soft[rows],
            row_of=self.row_of[rows],
            fresh={span: marks[rows] for span, marks in self.fresh.items()},
        )

    @classmethod
    def of(
        cls, number: int, places: Sequence[int], numbers: Sequence[int], trees: Sequence[LabelledTree]
    ) -> LabelledForest:
        """`trees`, all of one pass."""
        spans = {span for tree in trees for span in tree.fresh}
        return cls(
            number=number,
            places=np.array(places, dtype=np.intp),
            nodes=NodeTable.of(numbers, [tree.tree for tree in trees]),
            values=joined_values([tree.values for tree in trees]),
            hard=np.concatenate([tree.hard for tree in trees]),
            soft=np.concatenate([tree.soft for tree in trees]),
            row_of=np.concatenate([tree.row_of for tree in trees]),
            fresh={
                span: np.concatenate([tree.fresh.get(span, np.ones(tree.tree.size, np.bool_)) for tree in trees])
                for span in spans
            },
        )


@dataclass(frozen=True, kw_only=True)
class ExportBlock:
    """Several problems' trees, ready for export."""

    problems: Sequence[Problem]
    """One a tree."""
    passes: tuple[LabelledForest, ...]
    """The trees as grown, all of them, and what each HNC pass made of some of them."""
    rollouts: pa.Table
    """The rows of the trees' rollouts (`ROLLOUTS`), in order; none where no format asks for them."""

    @classmethod
    def of(cls, trees: Sequence[ExportTree]) -> ExportBlock:
        """`trees`, each given by itself."""
        passes = sorted({labelled.number for tree in trees for labelled in tree.compressed})
        forests = []
        for number in (0, *passes):
            found = [
                (place, tree.number, labelled)
                for place, tree in enumerate(trees)
                for of, labelled in tree.passes()
                if of == number
            ]
            places, numbers, labelled_trees = zip(*found, strict=True)
            forests.append(LabelledForest.of(number, places, numbers, labelled_trees))
        return cls(
            problems=[tree.problem for tree in trees],
            passes=tuple(forests),
            rollouts=pa.concat_tables([rollouts_table(tree.number, tree.record.rollouts) for tree in trees]),
        )

    @property
    def numbers(self) -> NDArray[np.int32]:
        """int32[trees]: the tree_ids."""
        return self.passes[0].nodes.numbers

    @cached_property
    def questions(self) -> Any:
        """Arrow texts, one a tree."""
        return text_array("question", [problem.question for problem in self.problems])

    @cached_property
    def question_sizes(self) -> NDArray[np.int64]:
        """int64[trees]: UTF-8 bytes of the questions."""
        return text_sizes(self.questions).astype(np.int64)

    @cached_property
    def problem_ids(self) -> Any:
        """Arrow texts, one a tree."""
        return text_array("problem_id", [problem.problem_id for problem in self.problems])

    @property
    def grown(self) -> ExportBlock:
        """The same without compressed trees."""
        return replace(self, passes=self.passes[:1])

    def select(self, keep: NDArray[np.bool_]) -> ExportBlock:
        """Some of the trees; `keep`, bool[trees], of which at least one is true."""
        if keep.all():
            return self
        chosen = np.flatnonzero(keep).tolist()
        tree_id = self.rollouts["tree_id"].to_numpy()
        passes = [self.passes[0], *(forest for forest in self.passes[1:] if keep[forest.places].any())]
        return ExportBlock(
            problems=[self.problems[place] for place in chosen],
            passes=tuple(forest.select(keep) for forest in passes),
            rollouts=_rows_where(self.rollouts, np.isin(tree_id, self.numbers[keep])),
        )

    def pieces(self) -> Iterator[ExportBlock]:
        """The trees in order, some at a time: about `PIECE_NODES` nodes of all passes together, or one larger tree."""
        sizes = np.zeros(len(self.problems), dtype=np.int64)
        for forest in self.passes:
            sizes[forest.places] += forest.nodes.forest.sizes
        piece = (np.cumsum(sizes) - sizes) // PIECE_NODES
        for number in np.unique(piece).tolist():
            yield self.select(piece == number)

    def relabelled(self, labels: Sequence[tuple[NDArray[np.int8], NDArray[np.float64]]]) -> ExportBlock:
        """The same with other hard and soft labels, one pair a pass."""
        passes = [
            replace(forest, hard=hard, soft=soft) for forest, (hard, soft) in zip(self.passes, labels, strict=True)
        ]
        return replace(self, passes=tuple(passes))

    def shifted(self, forest: LabelledForest) -> NDArray[np.bool_]:
        """bool[n]: nodes of a pass whose value differs from the same node's in the tree as grown; NaN equals NaN."""
        grown = self.passes[0]
        now = forest.values.value
        before = grown.values.value[grown.nodes.forest.starts[forest.place_of] + forest.row_of]
        same: NDArray[np.bool_] = (np.abs(now - before) <= SHIFT) | (np.isnan(now) & np.isnan(before))
        return ~same


def _rows_where(table: pa.Table, mask: NDArray[np.bool_]) -> pa.Table:
    """The rows where `mask`, bool[rows], is true; not copied where they stand together."""
    rows = np.flatnonzero(mask)
    if not len(rows) or rows[-1] - rows[0] + 1 == len(rows):
        return table.slice(int(rows[0]) if len(rows) else 0, len(rows))
    return table.filter(pa.array(mask))
