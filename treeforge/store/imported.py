"""Values of steps that come from elsewhere (people's ratings, another engine): `trees/values-*.parquet` of a run that
was imported, and the one place that says whether a run's values are these or computed from its trees.

They are no view: nothing could make them again.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from treeforge.config import LabelConfig
from treeforge.errors import RunError, StorageError
from treeforge.evidence import Floats
from treeforge.heldout import held_out
from treeforge.store.run import RunFolder
from treeforge.store.tables import VALUES, read_table, values_from_table, values_table, write_table
from treeforge.tree import Rollout, Tree
from treeforge.value import FROM_ELSEWHERE, Estimator, Values, estimate

SECTION = "imported"
"""The manifest's section: format, estimator and file; absent in a run that was grown."""


def imported_values(value: Floats, estimator: Estimator) -> Values:
    """Values (float64[n], NaN for none) that nothing else is known of: no outcomes, no interval."""
    n = len(value)
    unknown = np.full(n, np.nan)
    none = np.zeros(n, dtype=np.int64)
    return Values(
        value=value, rollouts=none, undecided=none, stderr=unknown, low=unknown, high=unknown, estimator=estimator
    )


def value_rows(number: int, values: Values) -> pa.Table:
    """A tree's rows of `trees/values-*.parquet`: values as they came, without labels."""
    n = len(values.value)
    return values_table(number, values, np.full(n, -1, dtype=np.int8), np.full(n, np.nan))


def write_imported(folder: Path, block: int, tables: list[pa.Table]) -> None:
    """Write one block's values."""
    write_table(pa.concat_tables(tables), _file(folder, block))


class StepValues:
    """The values that a run's labels are made of: imported ones, or estimates from its trees."""

    def __init__(self, run: RunFolder, config: LabelConfig) -> None:
        """Raises `RunError` where the run has no values of the estimator that `config` names."""
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
        self._run, self._config = run, config
        self.imported = bool(own)
        """They came with the trees, and do not move with merges."""
        self._block, self._values = -1, dict[int, Values]()

    def of(self, number: int, tree: Tree, rollouts: Sequence[Rollout] = ()) -> Values:
        """The values of a tree's nodes. `rollouts` are those beside the tree, which the estimator `held_out` needs."""
        config, estimator = self._config, self._config.estimator
        if estimator == "human" or estimator == "imported":
            return self._read(number, tree)
        if estimator == "held_out":
            unseen = held_out(tree, rollouts)
            values = estimate(unseen, truncated=config.truncated, confidence=config.confidence)
            return replace(values, estimator="held_out")
        return estimate(tree, estimator, truncated=config.truncated, confidence=config.confidence)

    def _read(self, number: int, tree: Tree) -> Values:
        block = number // self._run.block
        file = _file(self._run.path / "trees", block)
        if block != self._block:
            found = values_from_table(read_table(file, VALUES))
            self._block, self._values = block, {tree: values for tree, values, _, _ in found}
        values = self._values.get(number)
        if values is None or len(values.value) != tree.size:
            raise StorageError(f"{file} does not hold the values of tree {number}; import the run again")
        return values


def _file(folder: Path, block: int) -> Path:
    return folder / f"values-{block:05d}.parquet"
