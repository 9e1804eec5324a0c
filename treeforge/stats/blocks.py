"""The nodes of a run a block at a time, as arrays, with their labels beside them: for what needs a node's parent."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeforge.evidence import Evidence, Floats
from treeforge.label.steps import NO_LABEL
from treeforge.stats.scan import RunScan, collect, scan_values
from treeforge.store.run import RunFolder

_KEY = ["tree_id", "node_id"]
_COUNTED = [spec.name for spec in fields(Evidence) if spec.name != "parent"]


@dataclass(frozen=True, kw_only=True, slots=True)
class BlockNodes:
    """The n nodes of some trees, each tree's together and a parent before its children."""

    block: int
    tree: NDArray[np.int32]
    """int32[n]: tree_id."""
    node: NDArray[np.int32]
    """int32[n]: node_id."""
    evidence: Evidence
    """Its `parent` names rows of the block."""
    token_count: NDArray[np.int32]
    text: NDArray[np.uint64] | None
    """uint64[n]: a hash of the step's text, where it was asked for."""
    listed: NDArray[np.bool_]
    """bool[n]: `labels/` has a row for the node."""
    hard: NDArray[np.int8]
    """int8[n]: as in `NodeLabels`."""
    value: Floats
    """float64[n]: NaN for no value."""
    low: Floats
    high: Floats

    @property
    def is_step(self) -> NDArray[np.bool_]:
        """bool[n]: every node but the roots."""
        return self.evidence.parent >= 0


def read_blocks(run: RunFolder, scan: RunScan, *, texts: bool = False) -> Iterator[BlockNodes]:
    """The trees that have ended, block by block, with those labels that there are, stale or not.

    Raises `StorageError` for damaged files.
    """
    texted = [pl.col("text").hash().alias("text")] if texts else []
    for block in scan.blocks:
        frame = scan.block("nodes", block).select(*_KEY, "parent_id", "token_count", *_COUNTED, *texted)
        (nodes,) = collect(frame, files=scan.files, streaming=False)
        values = _labels(run.path / "labels" / f"values-{block:05d}.parquet", nodes)
        node, above = nodes["node_id"].to_numpy(), nodes["parent_id"].to_numpy()
        parent = np.where(above >= 0, np.arange(len(node)) - node + above, -1).astype(np.int32)
        yield BlockNodes(
            block=block,
            tree=nodes["tree_id"].to_numpy(),
            node=node,
            evidence=Evidence(parent=parent, **{name: nodes[name].to_numpy() for name in _COUNTED}),
            token_count=nodes["token_count"].to_numpy(),
            text=nodes["text"].to_numpy() if texts else None,
            listed=values["value"].is_not_null().to_numpy(),
            hard=values["hard"].cast(pl.Int8).fill_null(NO_LABEL).to_numpy(),
            **{name: values[name].fill_null(np.nan).to_numpy() for name in ("value", "low", "high")},
        )


def _labels(file: Path, nodes: pl.DataFrame) -> pl.DataFrame:
    """A row a node, of nulls where the file has none."""
    if not file.exists():
        none = {name: pl.lit(None, pl.Float64) for name in ("value", "low", "high")}
        return nodes.select(_KEY).with_columns(**none, hard=pl.lit(None, pl.Boolean))
    (values,) = collect(scan_values(file), files=[file], streaming=False)
    if values.select(_KEY).equals(nodes.select(_KEY)):
        return values
    return nodes.select(_KEY).join(values, on=_KEY, how="left", maintain_order="left")
