"""`orm` and `kto`: whole solutions with whether their final answer is right, as text and as a chat."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, by_tree, fits
from treeforge.export.formats.chat import MESSAGES, assistant, user
from treeforge.export.formats.outcomes import NOTHING_ENDED, PROVENANCE, UNDECIDED, provenance
from treeforge.export.schemas import Column
from treeforge.export.solutions import decided, right
from treeforge.export.trees import ExportTree

_LABEL = Column("label", pa.bool_(), "whether the final answer is right")


def _rows(tree: ExportTree, *, chat: bool) -> Iterator[Rows]:
    question = tree.problem.question
    found, undecided = decided(tree)
    kept = [solution for solution in found if fits(question, solution.steps)]
    label = np.array([right(solution) for solution in kept], dtype=np.int8)
    prompt: Any = [user(question)] if chat else question
    columns = {
        "prompt": [prompt] * len(kept),
        "completion": [[assistant(solution.text)] if chat else solution.text for solution in kept],
        "label": label,
    } | provenance(tree, kept)
    left_out = {UNDECIDED: undecided, TOO_LARGE: len(found) - len(kept)}
    yield Rows(columns, len(kept), {reason: count for reason, count in left_out.items() if count}, label)


def _text_rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    return _rows(tree, chat=False)


def _chat_rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    return _rows(tree, chat=True)


ORM = Format(
    name="orm",
    about="Whole solutions as text with whether their final answer is right, for outcome reward models.",
    columns=(
        Column("prompt", pa.string(), "the question"),
        Column("completion", pa.string(), "the whole solution"),
        _LABEL,
        *PROVENANCE,
    ),
    rows=by_tree(_text_rows),
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
    rows=by_tree(_chat_rows),
    rollouts=True,
    text="completion",
    same=("label",),
    empty=NOTHING_ENDED,
)
