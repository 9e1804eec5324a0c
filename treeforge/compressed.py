"""The view `compressed/`: HNC passes of a run's blocks into tables, and back as labelled trees. Part of `views`.

Everything works on a block at once: most trees are small, and a call for each of them would cost more than its work.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from treeforge.compress import Compressed, CompressReport, Forest, compress_passes, new_rows, pair_windows
from treeforge.config import CompressConfig, LabelConfig
from treeforge.evidence import Evidence
from treeforge.export import LabelledTree
from treeforge.label.steps import label_nodes
from treeforge.recheck import Verdicts
from treeforge.store.imported import StepValues
from treeforge.store.run import RunFolder
from treeforge.store.tables import COMPRESSED, forest_from_table, forest_table
from treeforge.store.views import read_view
from treeforge.tree import Tree, TreeRecord
from treeforge.value import FROM_ELSEWHERE, Values, WeightedEstimator, estimate

FOLDER = "compressed"
_VALUE_COLUMNS = tuple(spec.name for spec in fields(Values) if spec.name != "estimator")


def compress_block(
    run: RunFolder,
    members: Sequence[int],
    config: CompressConfig,
    labels: LabelConfig,
    verdicts: Verdicts,
    source: StepValues,
) -> Iterator[tuple[str, Any, CompressReport]]:
    """For each pass the stem of its file's name, its table (None: no tree of its own) and its report."""
    numbers, forest = _forest(run, members, verdicts)
    known = None
    if source.imported:
        known = np.concatenate([source.of(n, tree).value for n, tree in zip(numbers, forest.trees(), strict=True)])
    for made in compress_passes(
        forest,
        config,
        keys=[run.problems[number].problem_id for number in numbers],
        estimator=_weighted(labels),
        truncated=labels.truncated,
        threshold=labels.threshold,
        known=known,
    ):
        # The first pass has a row of every node of the run, so that it can be read without the trees.
        keep = made.new if made.number > 1 else np.ones(len(numbers), dtype=np.bool_)
        table = forest_table(numbers, forest.starts, made.forest.tree, keep) if keep.any() else None
        yield _stem(made.number), table, made.report


def read_passes(
    run: RunFolder,
    block: int,
    passes: int,
    originals: dict[int, tuple[Tree, Values]],
    labels: LabelConfig,
    spans: tuple[int, ...],
) -> dict[int, list[LabelledTree]]:
    """What HNC passes made of a block's trees, labelled, by the tree's number; trees without a merge are left out."""
    found: dict[int, list[LabelledTree]] = {number: [] for number in originals}
    for number in range(1, passes + 1):
        table = read_view(run, FOLDER, _stem(number), COMPRESSED, block)
        if not table.num_rows:
            continue
        numbers, starts, tree = forest_from_table(table)
        forest = Forest(tree=tree, starts=starts)
        before = [originals[n] for n in numbers]
        for n, labelled in zip(numbers, _labelled(before, forest, labels, spans, number), strict=True):
            if any(labelled.tree.merged_from):
                found[n].append(labelled)
    return found


def read_block(
    run: RunFolder, members: Sequence[int], verdicts: Verdicts, *, rollouts: bool
) -> Iterator[tuple[int, TreeRecord]]:
    """A block's members with the verdicts that count; their rollouts only where asked for or in need of a verdict."""
    if rollouts or verdicts.about is not None:
        yield from ((number, verdicts.apply(number, record)) for number, record in run.records(members))
        return
    statuses = run.statuses()
    numbers, forest = _forest(run, members, verdicts)
    for number, tree in zip(numbers, forest.trees(), strict=True):
        yield number, TreeRecord(run.problems[number].problem_id, tree, (), *statuses[number])


def _forest(run: RunFolder, members: Sequence[int], verdicts: Verdicts) -> tuple[list[int], Forest]:
    """The numbers and trees of a block's members, with the verdicts that count."""
    if verdicts.about is None:
        numbers, starts, tree = forest_from_table(run.block_nodes(members))
        return numbers, Forest(tree=tree, starts=starts)
    records = [(number, verdicts.apply(number, record)) for number, record in run.records(members)]
    return [number for number, _ in records], Forest.of([record.tree for _, record in records])


def _stem(number: int) -> str:
    """The beginning of the names of a pass's files."""
    return "nodes" if number == 1 else f"pass{number}"


def _labelled(
    before: list[tuple[Tree, Values]],
    forest: Forest,
    config: LabelConfig,
    spans: tuple[int, ...],
    number: int,
) -> Iterator[LabelledTree]:
    """Compressed trees with values, labels and which of their rows are new."""
    evidence = Evidence.of(forest.tree)
    old = _joined([values for _, values in before])
    if old.estimator in FROM_ELSEWHERE:
        values = old
    else:
        values = estimate(evidence, _weighted(config), truncated=config.truncated, confidence=config.confidence)
    labels = label_nodes(evidence, values, config)
    with np.errstate(invalid="ignore"):
        shifted = np.abs(values.value - old.value) > 1e-12
    compressed = Compressed(tree=forest.tree, shifted=shifted, report=CompressReport())
    fresh: dict[int, Any] = {}
    for span, new in new_rows(Forest.of([tree for tree, _ in before]).tree, compressed, spans).items():
        fresh[span] = np.zeros(forest.tree.size, dtype=np.bool_)
        fresh[span][pair_windows(forest.tree, span).node] = new
    for tree, rows in zip(forest.trees(), forest.rows(), strict=True):
        yield LabelledTree(
            tree=tree,
            values=Values(estimator=values.estimator, **{n: getattr(values, n)[rows] for n in _VALUE_COLUMNS}),
            hard=labels.hard[rows],
            soft=labels.soft[rows],
            row_of=np.arange(tree.size, dtype=np.int32),
            fresh={span: marks[rows] for span, marks in fresh.items()},
            number=number,
        )


def _weighted(labels: LabelConfig) -> WeightedEstimator:
    """The estimator whose evidence merges divide; of no meaning for values that came from elsewhere."""
    return "policy_mean" if labels.estimator == "policy_mean" else "leaf_share"


def _joined(parts: list[Values]) -> Values:
    columns = {name: np.concatenate([getattr(part, name) for part in parts]) for name in _VALUE_COLUMNS}
    return Values(estimator=parts[0].estimator, **columns)
