"""`orm` and `kto`: whole solutions with whether their final answer is right, as text and as a chat."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

import numpy as np
import pyarrow as pa

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, within_limit
from treeforge.export.formats.chat import MESSAGES, assistant, user
from treeforge.export.formats.outcomes import NOTHING_ENDED, PROVENANCE, UNDECIDED, solutions
from treeforge.export.schemas import Column

_LABEL = Column("label", pa.bool_(), "whether the final answer is right")


def _rows(block: ExportBlock, context: Context, *, chat: bool) -> Iterator[Rows]:
    found = solutions(block)
    fits = within_limit(found.size + block.question_sizes[found.place])
    left_out = {UNDECIDED: ~found.decided, TOO_LARGE: found.decided & ~fits}
    yield Rows({}, 0, {reason: int(mask.sum()) for reason, mask in left_out.items() if mask.any()})
    for some in found.take(np.flatnonzero(found.decided & fits)).some(block):
        questions, label = block.questions.take(pa.array(some.place)), some.right.astype(np.int8)
        columns = {
            "prompt": user(questions) if chat else questions,
            "completion": assistant(some.text) if chat else some.text.cast(pa.string()),
            "label": label,
        }
        columns |= some.provenance(block)
        yield Rows(columns, len(label), labels=label, numbers=columns["tree_id"])


ORM = Format(
    name="orm",
    about="Whole solutions as text with whether their final answer is right, for outcome reward models.",
    columns=(
        Column("prompt", pa.string(), "the question"),
        Column("completion", pa.string(), "the whole solution"),
        _LABEL,
        *PROVENANCE,
    ),
    rows=partial(_rows, chat=False),
    rollouts=True,
    text="completion",
    same=("label",),
    empty=NOTHING_ENDED,
)

KTO = Format(
    name="kto",
    about="Whole solutions as chats with whether their final answer is right (unpaired preference), for KTO and alike.",
    columns=(
        Column("prompt", MESSAGES, "the question, as the user's turn"),
        Column("completion", MESSAGES, "the whole solution, as the model's turn"),
        _LABEL,
        *PROVENANCE,
    ),
    rows=partial(_rows, chat=True),
    rollouts=True,
    text="completion",
    same=("label",),
    empty=NOTHING_ENDED,
)
