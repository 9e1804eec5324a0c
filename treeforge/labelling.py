"""The view `labels/`: values and step labels of all trees of a run that have ended. Part of `views`.

Works on a block at once: most trees are small, and a call for each of them would cost more than its work.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np

from treeforge.config import LabelConfig
from treeforge.configuration import to_dict
from treeforge.evidence import Evidence
from treeforge.fitting import fit_prior
from treeforge.forest import Forest
from treeforge.grown import GrownTrees
from treeforge.label.steps import label_nodes
from treeforge.posterior import FIXED, Prior
from treeforge.recheck import Verdicts
from treeforge.recheck_report import DifferenceCounter
from treeforge.store.imported import StepValues
from treeforge.store.opinions import Opinions
from treeforge.store.run import RunFolder
from treeforge.store.value_table import ValueTable, rows_of_values
from treeforge.store.views import write_view_blocks
from treeforge.tree import Finish, TreeRecord

_log = logging.getLogger("treeforge.views")
FOLDER = "labels"


def label_run(run: RunFolder, config: LabelConfig, verdicts: Verdicts) -> dict[str, Any]:
    """Make the view, by the verdicts that count; returns the counts."""
    opinions, grown = Opinions(run, config), GrownTrees(run, verdicts)
    source = StepValues(run, config, _prior(run, config, grown))
    difference = DifferenceCounter()
    counts = dict.fromkeys(("trees", "nodes", "positive", "negative", "unlabelled"), 0)
    truncated = outcomes = 0

    def make(members: Sequence[int]) -> dict[str, Any]:
        nonlocal truncated, outcomes
        records: list[tuple[int, TreeRecord]] = []
        if verdicts.about is not None or config.estimator == "held_out":
            records = grown.records(members)
            trees = [verdicts.apply(number, record) for number, record in records]
            numbers = np.array([number for number, _ in records], dtype=np.int32)
            forest = Forest.of([record.tree for record in trees])
            values = source.of_forest(numbers, forest, [(record.tree, record.rollouts) for record in trees])
        else:
            nodes = grown.nodes(members)
            numbers, forest = nodes.numbers, nodes.forest
            values = source.of_forest(numbers, forest)
        labels = label_nodes(Evidence.of(forest), values, config)
        for (number, record), rows in zip(records, forest.rows(), strict=False):
            if changes := verdicts.changes(number):
                before = source.of(number, record.tree, record.rollouts)
                difference.add_verdicts(run.problems[number], record, changes)
                was = label_nodes(record.tree, before, config).hard
                difference.add_labels(before, rows_of_values(values, rows), was, labels.hard[rows])
        hard = opinions.filter_forest(numbers, forest, labels.hard)
        steps = hard[forest.parent >= 0]
        counts["trees"] += len(numbers)
        counts["nodes"] += len(steps)
        for name, mark in (("positive", 1), ("negative", 0), ("unlabelled", -1)):
            counts[name] += int(np.count_nonzero(steps == mark))
        cut, ended = _truncation(forest)
        truncated += cut
        outcomes += ended
        table = ValueTable(numbers=numbers, starts=forest.starts, values=values, hard=hard, soft=labels.soft)
        return {"values": table.to_arrow()}

    def report() -> dict[str, Any]:
        found: dict[str, Any] = counts | {"truncated_share": truncated / outcomes if outcomes else 0.0}
        if verdicts.about is not None:
            found["recheck"] = msgspec.to_builtins(difference.result(verdicts.about))
        if opinions.config:
            found |= {f"second_{name}": n for name, n in msgspec.to_builtins(opinions.agreement).items()}
        return found

    made_with = {"label": to_dict(config)} | verdicts.config | opinions.config
    write_view_blocks(run, FOLDER, made_with, make, report)
    result = report()
    if result["truncated_share"] > 0.05:
        _log.warning(
            "%.0f%% of the completions were truncated and count as %s; raise sampling.max_tokens or search.max_steps",
            100 * result["truncated_share"],
            "wrong" if config.truncated == "wrong" else "nothing",
        )
    return result


def _prior(run: RunFolder, config: LabelConfig, grown: GrownTrees) -> Prior:
    """What the estimator `smoothed` starts from."""
    if config.estimator != "smoothed" or config.prior == "fixed":
        return FIXED
    ended = ([number for number in run.members(block) if grown.ending(number)[0] != "open"] for block in run.blocks)
    return fit_prior((grown.nodes(members).forest for members in ended if members), config.truncated)


def _truncation(forest: Forest) -> tuple[int, int]:
    """(truncated completions, all completions that ended) of some trees."""
    cut = np.where(forest.finish == Finish.TRUNCATED, forest.multiplicity, 0.0)
    ended = np.where(forest.verdict >= 0, forest.multiplicity, 0.0)
    # Each tree's sum is rounded by itself: `held_out` and the like leave no whole numbers.
    in_nodes = [int(np.rint(np.add.reduceat(counts, forest.starts[:-1])).sum()) for counts in (cut, ended)]
    return int(forest.rollouts_truncated.sum()) + in_nodes[0], int(forest.rollouts.sum()) + in_nodes[1]
