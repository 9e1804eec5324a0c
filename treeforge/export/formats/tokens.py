"""`tokens`: token ids with a label at the last token of every step and -100 elsewhere, for token classification.

What TRL's and axolotl's stepwise trainers made of a row: special tokens that begin a sequence, the question, an empty
line, the steps.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from treeforge.errors import ConfigError
from treeforge.export.formats.base import Context, Format, Rows, by_tree
from treeforge.export.formats.stepwise import NOTHING_LABELLED, PROVENANCE, SOFT, chain_rows, make_rows, provenance
from treeforge.export.schemas import Column
from treeforge.export.trees import ExportTree

IGNORED = -100
"""The label of a token that counts nowhere (`ignore_index` of the cross entropy)."""

_COLUMNS = (
    Column("input_ids", pa.list_(pa.int32()), "tokens of the question, an empty line and the steps"),
    Column("labels", pa.list_(pa.int32()), f"a token each: 1 or 0 at the last one of a step, {IGNORED} elsewhere"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    encode = context.tokenizer
    if encode is None:
        raise ConfigError("export.tokenizer: the format tokens needs a tokenizer; give --tokenizer PATH_OR_NAME")
    start = encode(f"{tree.problem.question}\n\n", True)
    known: dict[str, list[int]] = {}
    for number, labelled, chains, left_out in chain_rows(tree):
        ids, labels = [], []
        for chain in chains:
            tokens, marks = list(start), [IGNORED] * len(start)
            for step, label in zip(chain.steps, chain.labels, strict=True):
                piece = known.get(step)
                if piece is None:
                    piece = known[step] = encode(step, False)
                if piece:
                    tokens += piece
                    marks += [IGNORED] * (len(piece) - 1) + [int(label)]
            ids.append(tokens)
            labels.append(marks)
        columns = {
            "input_ids": ids,
            "labels": labels,
            "values": [list(chain.soft) for chain in chains],
        }
        yield make_rows(columns | provenance(tree, number, labelled, chains), chains, left_out)


TOKENS = Format(
    name="tokens",
    about="One row a chain of labelled steps as token ids and token labels, for any token-classification trainer.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
    text="input_ids",
    same=("labels",),
    empty=NOTHING_LABELLED,
)
