"""Formats with one row a chain of labelled steps: what they share.

A chain runs from a first step down to a node below which no step is labelled (`treeforge.export.solutions.chains`). Of
a compressed tree, chains with a merged step or a moved value are further rows, unless the tree as grown or an earlier
pass has a chain of the same steps with the same hard labels: a value that moved without crossing the threshold is no
other row to a trainer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from treeforge.export.formats.base import NOT_FRESH, TOO_LARGE, Rows, fits
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.export.solutions import Chain, labelled_from_root, new_chains
from treeforge.export.trees import ExportTree, LabelledTree

BELOW = "step without a label, or after one"
REPEATED = "same as in an earlier HNC pass"
NOTHING_LABELLED = (
    "no step has a hard label",
    "Label the trees first (`treeforge label RUN`); label.min_rollouts, label.band, export.min_rollouts and "
    "export.max_interval say which steps get one",
)

SOFT = pa.list_(pa.float64())

PROVENANCE = (
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column("node_ids", LIST_OF_ROWS, "a step each: its node in that tree"),
    Column("rollouts", pa.list_(pa.int64()), "a step each: decided outcomes behind its label"),
    Column("compressed", pa.int8(), "the HNC pass, from 1; 0 for the tree as grown"),
)


def provenance(tree: ExportTree, number: int, labelled: LabelledTree, chains: list[Chain]) -> dict[str, Any]:
    """The columns of `PROVENANCE`."""
    n = len(chains)
    names, rollouts = labelled.row_of.tolist(), labelled.values.rollouts.tolist()
    return {
        "problem_id": [tree.problem.problem_id] * n,
        "tree_id": np.full(n, tree.number, np.int32),
        "node_ids": [[names[row] for row in chain.nodes] for chain in chains],
        "rollouts": [[rollouts[row] for row in chain.nodes] for chain in chains],
        "compressed": np.full(n, number, np.int8),
    }


def chain_rows(tree: ExportTree) -> Iterator[tuple[int, LabelledTree, list[Chain], dict[str, int]]]:
    """(pass, its tree, its chains, what was left out by reason), for the tree as grown and each HNC pass."""
    grown: set[Hashable] = set()
    earlier: set[Hashable] = set()
    for number, labelled in tree.passes():
        found, old = new_chains(tree, number, labelled)
        keys = [(chain.steps, chain.labels) for chain in found]
        fresh = [key not in grown for key in keys]
        new = [chain for chain, key in zip(found, keys, strict=True) if key not in grown and key not in earlier]
        (earlier if number else grown).update(keys)
        kept = [chain for chain in new if fits(tree.problem.question, chain.steps)]
        left_out = {
            BELOW: int(np.count_nonzero(~labelled_from_root(labelled)[1:])) if number == 0 else 0,
            NOT_FRESH: old + fresh.count(False),
            REPEATED: fresh.count(True) - len(new),
            TOO_LARGE: len(new) - len(kept),
        }
        yield number, labelled, kept, {reason: count for reason, count in left_out.items() if count}


def all_right(chains: list[Chain]) -> np.ndarray[Any, np.dtype[np.int8]]:
    """int8[k]: 1 where every step of a chain is labelled right."""
    return np.array([all(chain.labels) for chain in chains], dtype=np.int8)


def make_rows(columns: dict[str, Any], chains: list[Chain], left_out: dict[str, int]) -> Rows:
    """Rows that are counted and balanced by whether every step is right."""
    return Rows(columns, len(chains), left_out, all_right(chains))
