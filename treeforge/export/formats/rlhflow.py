"""`rlhflow`: a chat in which the user gives one step a turn and the assistant answers `+` or `-`.

The shape of RLHFlow's PRM data (`type: sharegpt` or `chat_template` in axolotl, column `conversations`); the first turn
is the question and the first step.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import Context, Format, Rows
from treeforge.export.formats.chat import MESSAGES, messages
from treeforge.export.formats.stepwise import NOTHING_LABELLED, PROVENANCE, SOFT, BlockChains, Chains
from treeforge.export.schemas import Column, Columns

_ROLES = pa.array(["user", "assistant"])

_COLUMNS = (
    Column("conversations", MESSAGES, "turns: a step of the user's (the first after the question), `+` or `-`, …"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    found = BlockChains(block)
    turns = pa.concat_arrays([_turns(block, found), pa.array(["-", "+"], pa.large_string())])
    minus = found.stack.size

    def columns(chains: Chains) -> Columns:
        said = np.stack([chains.paths.nodes, minus + chains.right], axis=1).ravel()
        roles = _ROLES.take(pa.array(np.arange(len(said)) % 2))
        chats = messages(roles, turns.take(pa.array(said)))
        offsets = pa.array((2 * chains.paths.offsets).astype(np.int32))
        return {
            "conversations": pa.ListArray.from_arrays(offsets, chats, type=MESSAGES),
            "values": chains.each(found.soft),
        }

    yield from found.rows(columns)


def _turns(block: ExportBlock, found: BlockChains) -> Any:
    """n Arrow texts: what the user says for each step; for a first one the question too."""
    steps = pc.utf8_trim_whitespace(found.stack.steps)
    questions = pc.utf8_trim_whitespace(block.questions.cast(pa.large_string()))
    first = found.stack.depth == 1
    question = questions.take(pa.array(found.stack.place[first]))
    space = pa.scalar(" ", pa.large_string())
    opened = pc.binary_join_element_wise(question, steps.filter(pa.array(first)), space)
    return pc.replace_with_mask(steps, pa.array(first), opened)


RLHFLOW = Format(
    name="rlhflow",
    about="One row a chain of labelled steps as a chat: each step a turn of the user, answered `+` or `-`.",
    columns=_COLUMNS,
    rows=_rows,
    compressed=True,
    text="conversations",
    empty=NOTHING_LABELLED,
)
