"""`prm`: stepwise supervision, as `PRMTrainer` of TRL (up to 1.13) and `stepwise_supervised` of axolotl read it."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import Context, Format, Rows
from treeforge.export.formats.stepwise import NOTHING_LABELLED, PROVENANCE, SOFT, BlockChains, Chains
from treeforge.export.schemas import Column, Columns

_COLUMNS = (
    Column("prompt", pa.string(), "the question"),
    Column("completions", pa.list_(pa.string()), "the steps, delimiters kept"),
    Column("labels", pa.list_(pa.bool_()), "a step each: its hard label"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    found = BlockChains(block)

    def columns(chains: Chains) -> Columns:
        return {
            "prompt": block.questions.take(pa.array(chains.place)),
            "completions": chains.each(found.stack.steps),
            "labels": chains.paths.lists(chains.right),
            "values": chains.each(found.soft),
        }

    yield from found.rows(columns)


PRM = Format(
    name="prm",
    about="One row a chain of labelled steps (stepwise supervision), for process reward models.",
    columns=_COLUMNS,
    rows=_rows,
    compressed=True,
    text="completions",
    same=("labels",),
    empty=NOTHING_LABELLED,
)
