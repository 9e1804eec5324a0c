"""`math-shepherd`: text with a step tag after every step, as peiyi9979/Math-Shepherd was released.

`input` is the question and `Step 1: … ки`, `Step 2: … ки`, a line each; `label` is the same text with `+` or `-` in the
tag's place.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import pyarrow as pa

from treeforge.export.formats.base import Context, Format, Rows, by_tree
from treeforge.export.formats.stepwise import NOTHING_LABELLED, PROVENANCE, SOFT, chain_rows, make_rows, provenance
from treeforge.export.schemas import Column
from treeforge.export.trees import ExportTree

STEP_TAG = "ки"
HAS_TAG = f"text that holds the step tag {STEP_TAG}"

_NUMBERED = re.compile(r"step\s*\d+\s*[:.]", re.IGNORECASE)

_COLUMNS = (
    Column("input", pa.string(), f"the question and the steps, `{STEP_TAG}` after each"),
    Column("label", pa.string(), f"`input` with `+` (right) or `-` (wrong) in place of every `{STEP_TAG}`"),
    Column("task", pa.string(), "the problem set: `export.data_source`, or the file the problem came from"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    question = tree.problem.question
    for number, labelled, found, left_out in chain_rows(tree):
        chains = [chain for chain in found if STEP_TAG not in question + "".join(chain.steps)]
        columns = {
            "input": [_tagged(question, chain.steps, [STEP_TAG] * len(chain.steps)) for chain in chains],
            "label": [_tagged(question, chain.steps, ["-+"[label] for label in chain.labels]) for chain in chains],
            "task": [context.config.data_source or tree.problem.source] * len(chains),
            "values": [list(chain.soft) for chain in chains],
        }
        if len(chains) < len(found):
            left_out = left_out | {HAS_TAG: len(found) - len(chains)}
        yield make_rows(columns | provenance(tree, number, labelled, chains), chains, left_out)


def _tagged(question: str, steps: Sequence[str], tags: Sequence[str]) -> str:
    lines = []
    for number, (step, tag) in enumerate(zip(steps, tags, strict=True), start=1):
        text = step.strip()
        if not _NUMBERED.match(text):
            text = f"Step {number}: {text}"
        lines.append(f"{text} {tag}")
    return f"{question.strip()} " + "\n".join(lines)


MATH_SHEPHERD = Format(
    name="math-shepherd",
    about=f"One row a chain of labelled steps as text, with the tag `{STEP_TAG}` and its `+` or `-` after every step.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
    text="label",
    empty=NOTHING_LABELLED,
)
