"""`sft`: solutions with the right final answer, each text once, as prompt and completion of a chat."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, within_limit
from treeforge.export.formats.chat import MESSAGES, assistant, user
from treeforge.export.formats.outcomes import PROVENANCE, solutions
from treeforge.export.formats.stack import ranks
from treeforge.export.schemas import Column

OVER_LIMIT = "right solution beyond export.solutions_per_problem"

_COLUMNS = (
    Column("prompt", MESSAGES, "the question, as the user's turn"),
    Column("completion", MESSAGES, "a solution with the right final answer, as the model's turn"),
    *PROVENANCE,
)


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    config = context.config
    found = solutions(block)
    found = found.take(np.flatnonzero(found.right))
    fits = within_limit(found.size + block.question_sizes[found.place])
    found = found.take(np.flatnonzero(fits))
    length = pc.utf8_length(found.text).to_numpy()
    # Ties keep the tree's order; solutions without a value go last.
    keys = [length] if config.solution_order == "length" else [length, -found.value]
    found = found.take(np.lexsort([*keys, found.place]))
    most = config.solutions_per_problem or len(found.place)
    first = ranks(found.place) < most
    left_out = {TOO_LARGE: ~fits, OVER_LIMIT: ~first}
    yield Rows({}, 0, {reason: int(mask.sum()) for reason, mask in left_out.items() if mask.any()})
    for some in found.take(np.flatnonzero(first)).some(block):
        columns = {
            "prompt": user(block.questions.take(pa.array(some.place))),
            "completion": assistant(some.text),
        }
        columns |= some.provenance(block)
        yield Rows(columns, len(some.place), numbers=columns["tree_id"])


SFT = Format(
    name="sft",
    about="Solutions with the right final answer, each text once, the shortest (or most valued) of a problem first.",
    columns=_COLUMNS,
    rows=_rows,
    rollouts=True,
    text="completion",
    empty=(
        "no trajectory has ended in the right answer",
        "Grow more trees, or easier problems; see `treeforge stats RUN`",
    ),
)
