"""One problem's tree with its values: the saved ones where they are of this very tree, else estimated now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.config import LabelConfig
from treeforge.configuration import convert
from treeforge.label.steps import label_nodes
from treeforge.problem import Problem
from treeforge.recheck import saved_verdicts
from treeforge.store.imported import StepValues
from treeforge.store.run import RunFolder
from treeforge.store.tables import COMPRESSED, VALUES, trees_from_table, values_from_table
from treeforge.store.views import check_sizes, read_view, view_state
from treeforge.tree import TreeRecord
from treeforge.value import FROM_ELSEWHERE, Values, WeightedEstimator, estimate


class ValuedTree(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of n nodes that has ended, or grows still (`treeforge.view.growing`), ready to be looked at."""

    number: int
    """Its number in the run (tree_id)."""
    problem: Problem
    record: TreeRecord
    """With the verdicts of the run's recheck, where there was one."""
    values: Values
    hard: NDArray[np.int8]
    """int8[n]: the hard label, 1 or 0; -1 for none."""
    saved: bool
    """Values and labels stand in `labels/`; else they were estimated as `treeforge label` would now."""
    config: LabelConfig
    """How they were made."""


def load_tree(run: RunFolder, number: int) -> ValuedTree | None:
    """The tree of a problem; None while it has not ended. Raises `StorageError` for damaged files."""
    return next(load_trees(run, [number]), None)


def load_trees(run: RunFolder, numbers: Sequence[int]) -> Iterator[ValuedTree]:
    """Those of these trees that have ended, in order, a block in memory at a time. Raises as `load_tree`."""
    verdicts, state = saved_verdicts(run), view_state(run, "labels")
    config = convert(state["config"]["label"] if state else run.manifest["label"], LabelConfig)
    # Stale labels may be of a smaller tree (the run was extended since), and then of other nodes.
    fresh = state is not None and not state["stale"]
    block, saved = -1, dict[int, tuple[Values, NDArray[np.int8]]]()
    source: StepValues | None = None
    for number, grown in run.records(numbers):
        record = verdicts.apply(number, grown)
        if fresh and number // run.block != block:
            block = number // run.block
            saved = _saved_values(run, block)
        tree = record.tree
        if number in saved:
            values, hard = saved[number]
            check_sizes(run, "labels", "values", number // run.block, [len(hard)], [tree.size])
        else:
            source = source or StepValues(run, config)
            values = source.of(number, tree, record.rollouts)
            hard = label_nodes(tree, values, config).hard
        yield ValuedTree(
            number=number,
            problem=run.problems[number],
            record=record,
            values=values,
            hard=hard,
            saved=number in saved,
            config=config,
        )


def load_compressed(run: RunFolder, shown: ValuedTree, number: int) -> ValuedTree:
    """The tree after HNC pass `number` (from 1), with the values that its merges gave it; node_ids stay.

    A pass that merged nothing in a tree has no tree of its own: then it is the tree as it was. Raises `StorageError`
    for damaged files.
    """
    stem = "nodes" if number == 1 else f"pass{number}"
    table = read_view(run, "compressed", stem, COMPRESSED, shown.number // run.block)
    rows = table.filter(pc.equal(table["tree_id"], shown.number))
    tree = next((tree for _, tree in trees_from_table(rows)), None)
    if tree is None or tree.size != shown.record.tree.size:
        return shown
    config, values = shown.config, shown.values
    if values.estimator not in FROM_ELSEWHERE:
        weighted: WeightedEstimator = "policy_mean" if values.estimator == "policy_mean" else "leaf_share"
        values = estimate(tree, weighted, truncated=config.truncated, confidence=config.confidence)
    hard = label_nodes(tree, values, config).hard
    record = msgspec.structs.replace(shown.record, tree=tree)
    return msgspec.structs.replace(shown, record=record, values=values, hard=hard, saved=False)


def _saved_values(run: RunFolder, block: int) -> dict[int, tuple[Values, NDArray[np.int8]]]:
    """Values and hard labels of a block's trees."""
    table = read_view(run, "labels", "values", VALUES, block)
    return {tree: (values, hard) for tree, values, hard, _ in values_from_table(table)}
