"""Values of steps that come from elsewhere (people's ratings, another engine): `trees/values-*.parquet` of a run that
was imported, and the one place that says whether a run's values are these or computed from its trees.

They are no view: nothing could make them again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.config import LabelConfig
from treeforge.errors import RunError, StorageError
from treeforge.evidence import Evidence, Floats
from treeforge.forest import Forest, ranges
from treeforge.heldout import held_out
from treeforge.posterior import FIXED, Prior
from treeforge.store.blocks import TreeFiles
from treeforge.store.forests import NodeTable
from treeforge.store.parquet import read_table, write_table
from treeforge.store.run import RunFolder
from treeforge.store.tables import ROLLOUTS, VALUES
from treeforge.store.value_table import ValueTable, rows_of_values
from treeforge.tree import Rollout, Tree
from treeforge.value import FROM_ELSEWHERE, Estimator, Values, estimate

SECTION = "imported"
"""The manifest's section: format, estimator and file; absent in a run that was grown."""

_NODES = 2**14


def imported_values(value: Floats, estimator: Estimator) -> Values:
    """Values (float64[n], NaN for none) that nothing else is known of: no outcomes, no interval."""
    n = len(value)
    unknown = np.full(n, np.nan)
    none = np.zeros(n, dtype=np.int64)
    return Values(
        value=value, rollouts=none, undecided=none, stderr=unknown, low=unknown, high=unknown, estimator=estimator
    )


class ImportedBlock:
    """Collects the trees of one block of an imported run, and writes its tables.

    In memory are Arrow tables of the block, and as Python objects the trees of about `_NODES` nodes.
    """

    def __init__(self, folder: Path, block: int, estimator: Estimator | None) -> None:
        """`estimator`: that of the values that came with the trees; None where none came."""
        self._folder, self._block, self._estimator = folder, block, estimator
        self._numbers: list[int] = []
        self._trees: list[Tree] = []
        self._values: list[Floats] = []
        self._waiting = 0
        self._tables: list[pa.Table] = []
        self._value_tables: list[pa.Table] = []

    def add(self, number: int, tree: Tree, values: Floats) -> None:
        """Add the next tree; `values`, float64[n], NaN for none."""
        self._numbers.append(number)
        self._trees.append(tree)
        self._values.append(values)
        self._waiting += tree.size
        if self._waiting >= _NODES:
            self._convert()

    def write(self) -> None:
        """Write the block's nodes, its (no) rollouts and, where the trees came with values, these."""
        self._convert()
        trees = TreeFiles(self._folder)
        write_table(pa.concat_tables(self._tables), trees.table_path("nodes", self._block))
        write_table(ROLLOUTS.empty_table(), trees.table_path("rollouts", self._block))
        if self._estimator is not None:
            write_table(pa.concat_tables(self._value_tables), _file(self._folder, self._block))

    def _convert(self) -> None:
        if not self._trees:
            return
        nodes = NodeTable.of(self._numbers, self._trees)
        self._tables.append(nodes.to_nodes())
        if self._estimator is not None:
            values = imported_values(np.concatenate(self._values), self._estimator)
            n = nodes.forest.size
            table = ValueTable(
                numbers=nodes.numbers,
                starts=nodes.forest.starts,
                values=values,
                hard=np.full(n, -1, dtype=np.int8),
                soft=np.full(n, np.nan),
            )
            self._value_tables.append(table.to_arrow())
        self._numbers, self._trees, self._values, self._waiting = [], [], [], 0


class StepValues:
    """The values that a run's labels are made of: imported ones, or estimates from its trees."""

    def __init__(self, run: RunFolder, config: LabelConfig, prior: Prior = FIXED) -> None:
        """`prior`: what `smoothed` starts from.

        Raises `RunError` where the run has no values of the estimator that `config` names.
        """
        section: dict[str, Any] | None = run.manifest.get(SECTION)
        own = section["estimator"] if section else ""
        if config.estimator != own and config.estimator in FROM_ELSEWHERE:
            raise RunError(
                f"{run.path} has no labels of the estimator {config.estimator!r}, which stands for what "
                "`treeforge import` read; use policy_mean, leaf_share, visit_mean or smoothed"
            )
        split = run.manifest["recipe"]["search"].get("adaptive", {}).get("split", False)
        if config.estimator == "held_out" and not split:
            raise RunError(
                f"{run.path} holds no completions that its search did not look at; the estimator held_out is for runs "
                "with search.strategy = 'adaptive' and search.adaptive.split = true"
            )
        if own and config.estimator != own:
            raise RunError(
                f"{run.path} was imported with {own} labels and without outcomes to compute {config.estimator} from; "
                f"its only estimator is {own}"
            )
        self._run, self._config, self._prior = run, config, prior
        self.imported = bool(own)
        """They came with the trees, and do not move with merges."""
        self._block = -1
        self._known: ValueTable | None = None
        """The block that was read last."""

    def of(self, number: int, tree: Tree, rollouts: Sequence[Rollout] = ()) -> Values:
        """The values of a tree's nodes. `rollouts` are those beside the tree, which the estimator `held_out` needs."""
        return self.of_forest(np.array([number], dtype=np.int32), Forest.of([tree]), [(tree, rollouts)])

    def of_forest(
        self,
        numbers: NDArray[np.int32],
        forest: Forest,
        rollouts: Iterable[tuple[Tree, Sequence[Rollout]]] = (),
    ) -> Values:
        """The values of all nodes of several trees of one block. `numbers`, int32[trees]: their tree_ids.

        `rollouts`, each tree with those beside it, are what the estimator `held_out` needs.
        """
        config, estimator = self._config, self._config.estimator
        if estimator == "human" or estimator == "imported":
            return self._read(numbers, forest)
        if estimator == "held_out":
            forest = Forest.of([held_out(tree, own) for tree, own in rollouts])
            values = estimate(Evidence.of(forest), truncated=config.truncated, confidence=config.confidence)
            return replace(values, estimator="held_out")
        evidence, truncated, confidence = Evidence.of(forest), config.truncated, config.confidence
        return estimate(evidence, estimator, truncated=truncated, confidence=confidence, prior=self._prior)

    def _read(self, numbers: NDArray[np.int32], forest: Forest) -> Values:
        block = int(numbers[0]) // self._run.block
        file = _file(self._run.path / "trees", block)
        if block != self._block or self._known is None:
            self._block, self._known = block, ValueTable.read(read_table(file, VALUES))
        known = self._known
        places = np.searchsorted(known.numbers, numbers)
        there = known.numbers[np.minimum(places, len(known.numbers) - 1)] == numbers
        wrong = ~there
        wrong[there] = np.diff(known.starts)[places[there]] != forest.sizes[there]
        if wrong.any():
            missing = int(numbers[wrong][0])
            raise StorageError(f"{file} does not hold the values of tree {missing}; import the run again")
        return rows_of_values(known.values, ranges(known.starts[places], forest.sizes))


def _file(folder: Path, block: int) -> Path:
    return folder / f"values-{block:05d}.parquet"
