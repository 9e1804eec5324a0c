"""`hrm`: training rows of a hierarchical reward model, one or two consecutive steps after what came before.

HRM paper (arXiv 2503.13551), Section 3: single steps teach to see an error, pairs of steps to see it corrected; a pair
has the label of its *later* step.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.config import ExportConfig
from treeforge.export.blocks import ExportBlock, LabelledForest
from treeforge.export.formats.base import (
    MAX_ROW_BYTES,
    NO_LABEL,
    NOT_FRESH,
    TOO_LARGE,
    Context,
    Format,
    Rows,
    utf8_size,
)
from treeforge.export.formats.stack import NOTHING, Lists, Stack, pieces
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.forest import Rows as NodeRows
from treeforge.store.forests import text_sizes
from treeforge.store.tables import text_array

_SOURCES = pa.array(["tree", "hnc"])

_COLUMNS = (
    Column("prompt", pa.string(), "the question"),
    Column("previous", pa.string(), "the steps before `current`, concatenated; empty for a first step"),
    Column("current", pa.string(), "the step to judge, or two or more consecutive ones"),
    Column(
        "span",
        pa.int8(),
        "steps in `current`: 1, or 2 (or more, `export.spans`) where a later step may correct an earlier one",
    ),
    Column("hard", pa.bool_(), "the hard label, of the last step in `current`"),
    Column("soft", pa.float64(), "the soft label, of the last step in `current`"),
    Column("rollouts", pa.int64(), "decided outcomes behind the label"),
    Column("low", pa.float64(), "lower end of the value's interval"),
    Column("high", pa.float64(), "upper end of the value's interval"),
    Column("estimator", pa.string(), "how the value was estimated"),
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column("node_id", pa.int32(), "the last step's node in that tree"),
    Column("source", pa.string(), "`tree`: the tree as grown; `hnc`: a tree after Hierarchical Node Compression"),
    Column("compressed", pa.int8(), "the HNC pass, from 1; 0 for the tree as grown"),
    Column("shifted", pa.bool_(), "compression moved the value of the last step: the controlled noise of HNC"),
    Column("merged_from", LIST_OF_ROWS, "of merged nodes in `current`, the node_ids whose texts they join; else empty"),
)


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    stack, spans = Stack(block), context.config.spans
    questions = [problem.question for problem in block.problems]
    question_size = np.array([utf8_size(question) for question in questions])
    steps = _Steps(stack, MAX_ROW_BYTES - question_size)
    chosen, span_of, left_out = [], [], Counter[str]()
    for forest, start in zip(block.passes, stack.starts.tolist(), strict=False):
        for span in spans:
            rows = _select(forest, span, steps.fits[start : start + forest.nodes.forest.size], left_out)
            chosen.append(start + rows)
            span_of.append(span)
    if left_out:
        yield Rows({}, 0, dict(left_out))

    hard, soft = stack.hard, stack.arrays("soft")
    names, shifted = stack.arrays("row_of"), stack.joined(map(block.shifted, block.passes))
    values = {name: stack.arrays(f"values.{name}") for name in ("rollouts", "low", "high")}
    prompts, problem_ids = text_array("prompt", questions), block.problem_ids
    estimator = pa.scalar(block.passes[0].values.estimator, pa.string())
    rows, of = stack.by_tree(chosen)
    for piece in pieces(steps.size[rows] + question_size[stack.place[rows]]):
        node, length = rows[piece], np.array(span_of, dtype=np.int8)[of[piece]]
        place, number = pa.array(stack.place[node]), stack.pass_of(node)
        tree_id = block.numbers[stack.place[node]]
        previous, current, merged_from = steps.windows(node, length)
        columns = {
            "prompt": prompts.take(place),
            "previous": previous,
            "current": current,
            "span": length,
            "hard": hard[node],
            "soft": soft[node],
            "estimator": pa.repeat(estimator, len(node)),
            "problem_id": problem_ids.take(place),
            "tree_id": tree_id,
            "node_id": names[node],
            "source": _SOURCES.take(pa.array(np.minimum(number, 1))),
            "compressed": number,
            "shifted": shifted[node],
            "merged_from": merged_from,
        }
        columns |= {name: column[node] for name, column in values.items()}
        first = np.where(length > 1, hard[stack.parent[node]], np.int8(-1))
        yield Rows(columns, len(node), {}, hard[node], first, tree_id)


def _select(forest: LabelledForest, span: int, fits: NDArray[np.bool_], left_out: Counter[str]) -> NDArray[np.intp]:
    """Nodes that end a sample of `span` steps; the others are counted by reason. `fits`, bool[n]: not too large."""
    candidates = np.flatnonzero(forest.nodes.forest.depth >= span)
    keeps = [(NO_LABEL, (forest.hard >= 0) | ~np.isnan(forest.soft)), (TOO_LARGE, fits)]
    if span in forest.fresh:
        keeps.insert(0, (NOT_FRESH, forest.fresh[span]))
    for reason, keep in keeps:
        kept = candidates[keep[candidates]]
        if len(kept) < len(candidates):
            left_out[reason] += len(candidates) - len(kept)
        candidates = kept
    return candidates


class _Steps:
    """The texts of a stack's windows of steps: what stands before each, and the steps themselves."""

    def __init__(self, stack: Stack, limit: NDArray[np.integer[Any]]) -> None:
        """`limit`, int[trees]: the most UTF-8 bytes that a window and what stands before it may have."""
        self._parent = stack.parent
        self._text = stack.texts("text").cast(pa.large_string())
        self._observation = stack.texts("observation").cast(pa.large_string())
        self._observed = bool(stack.arrays("nodes.forest.observed").any())
        self._merged = Lists(stack.texts("merged_from"))
        sizes = text_sizes(self._text).astype(np.int64) + text_sizes(self._observation)
        self.size: NDArray[np.int64] = stack.from_root(np.add, sizes, 0)
        """int64[n]: UTF-8 bytes of all steps and observations from the root down to and including a node."""
        self.fits: NDArray[np.bool_] = self.size <= limit[stack.place]
        """bool[n]: nodes that keep within the limit."""
        inner = np.zeros(stack.size, dtype=np.bool_)
        inner[self._parent[self._parent >= 0]] = True
        self._prefix, self._slot = self._prefixes(stack.levels, inner & self.fits)

    def _prefixes(self, levels: list[NodeRows], wanted: NDArray[np.bool_]) -> tuple[Any, NodeRows]:
        """The texts from the root down to and including each wanted node, and where each node's stands.

        Each level's are made from those of the level above; the first text is empty, for the roots.
        """
        parts = [pa.array([""], pa.large_string())]
        slot, within = np.zeros(len(wanted), dtype=np.intp), np.zeros(len(wanted), dtype=np.intp)
        made = 1
        for level in levels:
            rows = level[wanted[level]]
            if not len(rows):
                break
            above = parts[-1].take(pa.array(within[self._parent[rows]]))
            parts.append(self._join([above, *self._step(pa.array(rows))]))
            within[rows] = np.arange(len(rows))
            slot[rows] = made + within[rows]
            made += len(rows)
        return pa.concat_arrays(parts), slot

    def windows(self, node: NodeRows, span: NDArray[np.int8]) -> tuple[Any, Any, Any]:
        """(previous, current, merged_from) of the windows of `span` steps that end at each of `node`: Arrow, k rows."""
        before = node
        texts: list[Any] = []
        merged: list[tuple[NodeRows, NDArray[np.bool_]]] = []
        for number in range(int(span.max(initial=1))):
            inside = span > number
            row = pa.array(before, mask=~inside)
            # The last step's observation is no part of a window; steps that are none give an empty text.
            step = self._step(row) if number else [self._text.take(row)]
            texts = [part.fill_null("") if part.null_count else part for part in step] + texts
            merged.insert(0, (before, inside))
            before = np.where(inside, self._parent[before], before)
        previous = self._prefix.take(pa.array(self._slot[before]))
        return previous.cast(pa.string()), self._join(texts).cast(pa.string()), self._merged.joined(merged)

    def _step(self, rows: Any) -> list[Any]:
        """Text and observation of some rows."""
        text = self._text.take(rows)
        return [text, self._observation.take(rows)] if self._observed else [text]

    @staticmethod
    def _join(parts: list[Any]) -> Any:
        return pc.binary_join_element_wise(*parts, NOTHING) if len(parts) > 1 else parts[0]


def _labelled_depths(block: ExportBlock) -> dict[str, int]:
    """Labelled steps by their depth."""
    forest = block.passes[0]
    depths, counts = np.unique(forest.nodes.forest.depth[forest.hard >= 0], return_counts=True)
    return {str(depth): count for depth, count in zip(depths.tolist(), counts.tolist(), strict=True) if depth}


def _too_long(depths: Mapping[str, int], config: ExportConfig) -> tuple[str, str] | None:
    deepest = max(map(int, depths), default=0)
    if not deepest or min(config.spans) <= deepest:
        return None
    return (
        f"the spans are {list(config.spans)}, and no labelled step has so many steps up to it",
        f"The deepest one stands at depth {deepest}, so spans are 1 to {deepest} (export.spans)",
    )


HRM = Format(
    name="hrm",
    about="Single steps and pairs of consecutive steps with their labels, for hierarchical and process reward models.",
    columns=_COLUMNS,
    rows=_rows,
    compressed=True,
    text="current",
    same=("previous", "span", "hard", "shifted"),
    survey=_labelled_depths,
    explain=_too_long,
)
