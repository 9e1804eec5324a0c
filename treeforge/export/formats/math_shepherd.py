"""`math-shepherd`: text with a step tag after every step, as peiyi9979/Math-Shepherd was released.

`input` is the question and `Step 1: … ки`, `Step 2: … ки`, a line each; `label` is the same text with `+` or `-` in the
tag's place.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import Context, Format, Rows
from treeforge.export.formats.stack import NOTHING, Paths, Stack
from treeforge.export.formats.stepwise import NOTHING_LABELLED, PROVENANCE, SOFT, BlockChains, Chains
from treeforge.export.schemas import Column, Columns
from treeforge.store.tables import text_array

STEP_TAG = "ки"
HAS_TAG = f"text that holds the step tag {STEP_TAG}"

_SPACE = r"[\s\x0b\x1c-\x1f\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000}]*"
_NUMBERED = rf"^(?i:step){_SPACE}\p{{Nd}}+{_SPACE}[:.]"
"""A step with a number of its own; white space is Python's, which RE2 knows in ASCII only."""

_COLUMNS = (
    Column("input", pa.string(), f"the question and the steps, `{STEP_TAG}` after each"),
    Column("label", pa.string(), f"`input` with `+` (right) or `-` (wrong) in place of every `{STEP_TAG}`"),
    Column("task", pa.string(), "the problem set: `export.data_source`, or the file the problem came from"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    found = BlockChains(block)
    steps, questions = found.stack.steps, block.questions.cast(pa.large_string())
    tagged = [_holds_tag(questions, chains.place, chains.paths, steps) for chains in found.pieces()]
    if tagged:
        found.drop(np.concatenate(tagged), HAS_TAG)
    questions = pc.utf8_trim_whitespace(questions)
    marks = pa.array(["-", "+"], pa.large_string()).take(pa.array((found.stack.hard == 1).astype(np.int8)))
    lines = _lines(found.stack)
    inputs = pc.binary_join_element_wise(lines, _wide(STEP_TAG), _wide(" "))
    labels = pc.binary_join_element_wise(lines, marks, _wide(" "))
    task = text_array("task", [context.config.data_source or problem.source for problem in block.problems])

    def columns(chains: Chains) -> Columns:
        place = pa.array(chains.place)
        question = questions.take(place)
        return {
            name: pc.binary_join_element_wise(question, chains.paths.joined(texts, "\n"), _wide(" ")).cast(pa.string())
            for name, texts in (("input", inputs), ("label", labels))
        } | {"task": task.take(place), "values": chains.each(found.soft)}

    yield from found.rows(columns)


def _holds_tag(questions: Any, place: NDArray[np.intp], paths: Paths, steps: Any) -> NDArray[np.bool_]:
    """bool[k]: chains whose question and steps, one after another, hold the tag."""
    whole = pc.binary_join_element_wise(questions.take(pa.array(place)), paths.joined(steps), NOTHING)
    mask: NDArray[np.bool_] = pc.match_substring(whole, STEP_TAG).to_numpy(zero_copy_only=False)
    return mask


def _lines(stack: Stack) -> Any:
    """n Arrow texts: each step without white space around it, with its number where it has none of its own."""
    text = pc.utf8_trim_whitespace(stack.steps)
    numbers = pa.array(stack.depth).cast(pa.large_string())
    numbered = pc.binary_join_element_wise(_wide("Step "), numbers, _wide(": "), text, NOTHING)
    return pc.if_else(pc.match_substring_regex(text, _NUMBERED), text, numbered)


def _wide(text: str) -> Any:
    return pa.scalar(text, pa.large_string())


MATH_SHEPHERD = Format(
    name="math-shepherd",
    about=f"One row a chain of labelled steps as text, with the tag `{STEP_TAG}` and its `+` or `-` after every step.",
    columns=_COLUMNS,
    rows=_rows,
    compressed=True,
    text="label",
    empty=NOTHING_LABELLED,
)
