"""`tokens`: token ids with a label at the last token of every step and -100 elsewhere, for token classification.

What TRL's and axolotl's stepwise trainers made of a row: special tokens that begin a sequence, the question, an empty
line, the steps.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treeforge.errors import ConfigError
from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import Context, Format, Rows
from treeforge.export.formats.stepwise import NOTHING_LABELLED, PROVENANCE, SOFT, BlockChains, Chains
from treeforge.export.schemas import Column, Columns
from treeforge.forest import ranges

IGNORED = -100
"""The label of a token that counts nowhere (`ignore_index` of the cross entropy)."""

_TOKENS = pa.list_(pa.int32())

_COLUMNS = (
    Column("input_ids", _TOKENS, "tokens of the question, an empty line and the steps"),
    Column("labels", _TOKENS, f"a token each: 1 or 0 at the last one of a step, {IGNORED} elsewhere"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


class _Parts:
    """Texts as tokens, of which sequences are joined."""

    def __init__(self, parts: Sequence[Sequence[int]]) -> None:
        self.size = np.array([len(part) for part in parts], dtype=np.intp)
        self.start = np.cumsum(self.size) - self.size
        self.tokens = np.fromiter((token for part in parts for token in part), np.int32, int(self.size.sum()))


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    encode = context.tokenizer
    if encode is None:
        raise ConfigError(
            "--tokenizer (export.tokenizer): the format tokens needs a tokenizer; give --tokenizer PATH_OR_NAME"
        )
    found = BlockChains(block)
    known = pc.dictionary_encode(found.stack.steps.take(pa.array(np.flatnonzero(found.inside))))
    # A block's questions first, then its different steps.
    parts = _Parts(
        [encode(f"{problem.question}\n\n", True) for problem in block.problems]
        + [encode(step, False) for step in known.dictionary.to_pylist()]
    )
    part_of = np.zeros(found.stack.size, dtype=np.intp)
    part_of[found.inside] = len(block.problems) + known.indices.to_numpy()

    def columns(chains: Chains) -> Columns:
        first = chains.paths.offsets[:-1]
        part = np.insert(part_of[chains.paths.nodes], first, chains.place)
        opening = first + np.arange(len(first))
        sizes = parts.size[part]
        ends = np.cumsum(sizes)
        tokens = parts.tokens[ranges(parts.start[part], sizes)]
        labels = np.full(len(tokens), IGNORED, dtype=np.int32)
        step = np.ones(len(part), dtype=np.bool_)
        step[opening] = False
        said = sizes[step] > 0
        labels[ends[step][said] - 1] = chains.right[said]
        offsets = pa.array(np.append(ends[opening] - sizes[opening], len(tokens)).astype(np.int32))
        return {
            "input_ids": pa.ListArray.from_arrays(offsets, pa.array(tokens)),
            "labels": pa.ListArray.from_arrays(offsets, pa.array(labels)),
            "values": chains.each(found.soft),
        }

    yield from found.rows(columns)


TOKENS = Format(
    name="tokens",
    about="One row a chain of labelled steps as token ids and token labels, for any token-classification trainer.",
    columns=_COLUMNS,
    rows=_rows,
    compressed=True,
    text="input_ids",
    same=("labels",),
    empty=NOTHING_LABELLED,
)
