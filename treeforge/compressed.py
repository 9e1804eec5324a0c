"""The view `compressed/`: HNC passes of a run's blocks into tables, and back as labelled trees. Part of `views`.

Everything works on a block at once: most trees are small, and a call for each of them would cost more than its work.
"""

from __future__ import annotations

from collections.abc import Iterator
from collections.abc import Set as AbstractSet
from typing import Any

import numpy as np
import pyarrow as pa

from treeforge.compress import CompressReport, compress_passes, new_rows, pair_windows
from treeforge.config import CompressConfig, LabelConfig
from treeforge.evidence import Evidence
from treeforge.export import LabelledForest
from treeforge.label.steps import label_nodes
from treeforge.store.blocks import trees_of
from treeforge.store.forests import NodeTable
from treeforge.store.imported import StepValues
from treeforge.store.run import RunFolder
from treeforge.store.tables import COMPRESSED
from treeforge.store.value_table import rows_of_values
from treeforge.store.views import check_sizes, check_whole, read_view
from treeforge.value import FROM_ELSEWHERE, WeightedEstimator, estimate

FOLDER = "compressed"


def compress_block(
    run: RunFolder, nodes: NodeTable, config: CompressConfig, labels: LabelConfig, source: StepValues
) -> Iterator[tuple[str, pa.Table | None, CompressReport]]:
    """For each pass the stem of its file's name, its table (None: no tree of its own) and its report."""
    numbers = nodes.numbers.tolist()
    for made in compress_passes(
        nodes.forest,
        config,
        keys=[run.problems[number].problem_id for number in numbers],
        estimator=_weighted(labels),
        truncated=labels.truncated,
        threshold=labels.threshold,
        known=source.of_forest(nodes.numbers, nodes.forest).value if source.imported else None,
    ):
        # The first pass has a row of every node of the run, so that it can be read without the trees.
        keep = np.flatnonzero(made.new) if made.number > 1 else np.arange(len(numbers))
        merged = nodes.merged(made.forest, made.p, made.x)
        yield _stem(made.number), merged.to_compressed(keep) if len(keep) else None, made.report


def read_passes(
    run: RunFolder, block: int, passes: int, grown: NodeTable, ended: AbstractSet[int]
) -> Iterator[tuple[int, NodeTable]]:
    """The trees of a block's passes, by the pass; a pass without any is left out.

    Of the trees in `grown`, since others may have ended meanwhile. Raises `StorageError` where a table lacks one of
    `ended`, which had ended before the passes were made, or has trees of other sizes.
    """
    for number in range(1, passes + 1):
        stem = _stem(number)
        table = read_view(run, FOLDER, stem, COMPRESSED, block)
        nodes = NodeTable.read(trees_of(table, set(grown.numbers.tolist())))
        if number == 1:  # It has all trees, later ones only what is new.
            check_whole(run, FOLDER, stem, block, nodes.numbers.tolist(), ended)
        sizes = grown.forest.sizes[np.searchsorted(grown.numbers, nodes.numbers)]
        check_sizes(run, FOLDER, stem, block, nodes.forest.sizes, sizes)
        if len(nodes.numbers):
            yield number, nodes


def labelled_pass(
    number: int, nodes: NodeTable, grown: LabelledForest, config: LabelConfig, spans: tuple[int, ...]
) -> LabelledForest | None:
    """What an HNC pass made of some trees, labelled; trees without a merge are left out, None where no other is left.

    `nodes` are the pass's trees of some of those in `grown`.
    """
    changed = np.add.reduceat(nodes.forest.merged, nodes.forest.starts[:-1]) > 0
    if not changed.any():
        return None
    nodes = nodes.select(np.flatnonzero(changed))
    places = np.searchsorted(grown.nodes.numbers, nodes.numbers)
    before = grown.nodes.forest.select(places)
    old = rows_of_values(grown.values, grown.nodes.forest.rows_of(places))

    evidence = Evidence.of(nodes.forest)
    if old.estimator in FROM_ELSEWHERE:
        values = old
    else:
        values = estimate(evidence, _weighted(config), truncated=config.truncated, confidence=config.confidence)
    labels = label_nodes(evidence, values, config)
    with np.errstate(invalid="ignore"):
        shifted = np.abs(values.value - old.value) > 1e-12
    fresh: dict[int, Any] = {}
    for span, new in new_rows(before, nodes.forest, shifted, spans).items():
        fresh[span] = np.zeros(nodes.forest.size, dtype=np.bool_)
        fresh[span][pair_windows(nodes.forest, span).node] = new
    return LabelledForest(
        number=number,
        places=places,
        nodes=nodes,
        values=values,
        hard=labels.hard,
        soft=labels.soft,
        row_of=(np.arange(nodes.forest.size) - nodes.forest.offset).astype(np.int32),
        fresh=fresh,
    )


def _stem(number: int) -> str:
    """The beginning of the names of a pass's files."""
    return "nodes" if number == 1 else f"pass{number}"


def _weighted(labels: LabelConfig) -> WeightedEstimator:
    """The estimator whose evidence merges divide; of no meaning for values that came from elsewhere."""
    return "policy_mean" if labels.estimator == "policy_mean" else "leaf_share"
