"""`hrm`: training rows of a hierarchical reward model, one or two consecutive steps after what came before.

HRM paper (arXiv 2503.13551), Section 3: single steps teach to see an error, pairs of steps to see it corrected; a pair
has the label of its *later* step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.export.formats.base import (
    MAX_ROW_BYTES,
    MAX_UTF8,
    NO_LABEL,
    NOT_FRESH,
    TOO_LARGE,
    Context,
    Format,
    Rows,
    utf8_size,
)
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.export.trees import ExportTree, LabelledTree, shifted_nodes
from treeforge.tree import Tree

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


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    for number, labelled in tree.passes():
        prefixes = _Prefixes(labelled.tree, MAX_ROW_BYTES - utf8_size(tree.problem.question))
        shifted = shifted_nodes(labelled, tree.values.value)
        for span in context.config.spans:
            rows, left_out = _select(labelled, span, prefixes.fits)
            yield Rows(
                _columns(tree, number, labelled, span, rows, prefixes, shifted),
                len(rows),
                left_out,
                labelled.hard[rows],
                labelled.hard[labelled.tree.parent[rows]] if span > 1 else None,
            )


def _select(labelled: LabelledTree, span: int, fits: NDArray[np.bool_]) -> tuple[NDArray[np.intp], dict[str, int]]:
    """Nodes that end a sample of `span` steps, and how many do not by reason. `fits`, bool[n]: not too large."""
    candidates = np.flatnonzero(labelled.tree.depth >= span)
    left_out = {}
    fresh = labelled.fresh.get(span)
    keeps = [(NO_LABEL, (labelled.hard >= 0) | ~np.isnan(labelled.soft)), (TOO_LARGE, fits)]
    if fresh is not None:
        keeps.insert(0, (NOT_FRESH, fresh))
    for reason, keep in keeps:
        kept = candidates[keep[candidates]]
        if len(kept) < len(candidates):
            left_out[reason] = len(candidates) - len(kept)
        candidates = kept
    return candidates, left_out


def _columns(
    tree: ExportTree,
    number: int,
    labelled: LabelledTree,
    span: int,
    rows: NDArray[np.intp],
    prefixes: _Prefixes,
    shifted: NDArray[np.bool_],
) -> dict[str, Any]:
    nodes, values, n = labelled.tree, labelled.values, len(rows)
    listed, parents = rows.tolist(), nodes.parent[rows]
    text, merged = nodes.text, nodes.merged_from
    current = [text[row] for row in listed]
    merged_from = [merged[row] for row in listed]
    for _ in range(span - 1):
        above = parents.tolist()
        current = [text[row] + nodes.observation[row] + below for row, below in zip(above, current, strict=True)]
        merged_from = [merged[row] + below for row, below in zip(above, merged_from, strict=True)]
        parents = nodes.parent[parents]
    return {
        "prompt": [tree.problem.question] * n,
        "previous": [prefixes.texts[row] for row in parents.tolist()],
        "current": current,
        "span": np.full(n, span, np.int8),
        "hard": labelled.hard[rows],
        "soft": labelled.soft[rows],
        "rollouts": values.rollouts[rows],
        "low": values.low[rows],
        "high": values.high[rows],
        "estimator": [values.estimator] * n,
        "problem_id": [tree.problem.problem_id] * n,
        "tree_id": np.full(n, tree.number, np.int32),
        "node_id": labelled.row_of[rows],
        "source": ["hnc" if number else "tree"] * n,
        "compressed": np.full(n, number, np.int8),
        "shifted": shifted[rows],
        "merged_from": merged_from,
    }


def _fits(tree: Tree, limit: int) -> NDArray[np.bool_]:
    if MAX_UTF8 * (sum(map(len, tree.text)) + sum(map(len, tree.observation))) <= limit:
        return np.ones(tree.size, np.bool_)
    sizes = [0]
    for parent, text, observation in zip(tree.parent[1:].tolist(), tree.text[1:], tree.observation[1:], strict=True):
        sizes.append(sizes[parent] + utf8_size(text) + utf8_size(observation))
    return np.array(sizes) <= limit


class _Prefixes:
    """Prefix texts of a tree's inner nodes, each made once from its parent's: siblings share one string."""

    def __init__(self, tree: Tree, limit: int) -> None:
        self.fits: NDArray[np.bool_] = _fits(tree, limit)
        """bool[n]: nodes whose prefix has at most `limit` UTF-8 bytes."""
        wanted = np.zeros(tree.size, np.bool_)
        wanted[tree.parent[1:]] = True
        wanted[0] = False
        parent, text, observation = tree.parent.tolist(), tree.text, tree.observation
        self.texts: list[str] = [""] * tree.size
        """The text of all steps and observations from the root down to and including a node, where it has children."""
        for row in np.flatnonzero(wanted & self.fits).tolist():
            self.texts[row] = self.texts[parent[row]] + text[row] + observation[row]


HRM = Format(
    name="hrm",
    about="Single steps and pairs of consecutive steps with their labels, for hierarchical and process reward models.",
    columns=_COLUMNS,
    rows=_rows,
    text="current",
    same=("previous", "span", "hard", "shifted"),
)
