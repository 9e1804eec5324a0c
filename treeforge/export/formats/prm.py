"""`prm`: stepwise supervision, as `PRMTrainer` of TRL (up to 1.13) and `stepwise_supervised` of axolotl read it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from treeforge.export.formats.base import Context, Format, Rows, by_tree
from treeforge.export.formats.stepwise import NOTHING_LABELLED, PROVENANCE, SOFT, chain_rows, make_rows, provenance
from treeforge.export.schemas import Column
from treeforge.export.trees import ExportTree

_COLUMNS = (
    Column("prompt", pa.string(), "the question"),
    Column("completions", pa.list_(pa.string()), "the steps, delimiters kept"),
    Column("labels", pa.list_(pa.bool_()), "a step each: its hard label"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    for number, labelled, chains, left_out in chain_rows(tree):
        columns = {
            "prompt": [tree.problem.question] * len(chains),
            "completions": [list(chain.steps) for chain in chains],
            "labels": [list(chain.labels) for chain in chains],
            "values": [list(chain.soft) for chain in chains],
        }
        yield make_rows(columns | provenance(tree, number, labelled, chains), chains, left_out)


PRM = Format(
    name="prm",
    about="One row a chain of labelled steps (stepwise supervision), for process reward models.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
    text="completions",
    same=("labels",),
    empty=NOTHING_LABELLED,
)
