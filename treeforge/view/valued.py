"""One problem's tree with its values: the saved ones where they are of this very tree, else estimated now."""

from __future__ import annotations

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.config import LabelConfig
from treeforge.configuration import convert
from treeforge.label.steps import label_nodes
from treeforge.problem import Problem
from treeforge.recheck import saved_verdicts
from treeforge.store.imported import StepValues
from treeforge.store.run import RunFolder
from treeforge.store.tables import VALUES, values_from_table
from treeforge.store.views import read_view, view_state
from treeforge.tree import TreeRecord
from treeforge.value import Values


class ValuedTree(msgspec.Struct, frozen=True, kw_only=True):
    """A tree of n nodes that has ended, ready to be looked at."""

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
    grown = next((record for _, record in run.records([number])), None)
    if grown is None:
        return None
    record = saved_verdicts(run).apply(number, grown)
    state = view_state(run, "labels")
    config = convert(state["config"]["label"] if state else run.manifest["label"], LabelConfig)
    # Stale labels may be of a smaller tree (the run was extended since), and then of other nodes.
    saved = _saved_values(run, number) if state and not state["stale"] else None
    if saved is not None:
        values, hard = saved
    else:
        tree = record.tree
        values = StepValues(run, config).of(number, tree, record.rollouts)
        hard = label_nodes(tree, values, config).hard
    return ValuedTree(
        number=number,
        problem=run.problems[number],
        record=record,
        values=values,
        hard=hard,
        saved=saved is not None,
        config=config,
    )


def _saved_values(run: RunFolder, number: int) -> tuple[Values, NDArray[np.int8]] | None:
    table = read_view(run, "labels", "values", VALUES, number // run.block)
    return next(((values, hard) for tree, values, hard, _ in values_from_table(table) if tree == number), None)
