"""`processbench`: whole solutions with the first wrong step, as Qwen/ProcessBench is read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from treeforge.config import ExportConfig
from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import NO_LABEL, Context, Format, Rows
from treeforge.export.formats.stepwise import AFTER, PROVENANCE, SOFT, BlockChains, Chains
from treeforge.export.schemas import Column, Columns
from treeforge.forest import ranges
from treeforge.verdict import NO_VERDICT, Verdict

UNFINISHED = "chain that ends no trajectory, or undecided"

_NO_END = (NO_VERDICT, Verdict.UNDECIDED)
_LABEL = (
    "Label more steps: `treeforge label RUN` with a low label.min_rollouts and label.band, and export without "
    "--min-rollouts and --max-interval; of the strategies, step-rollouts and adaptive ask for every step of a solution"
)

_COLUMNS = (
    Column("id", pa.string(), "the problem's id and the last step's node"),
    Column("generator", pa.string(), "the policy that wrote the solution, or the file that it was given in"),
    Column("problem", pa.string(), "the question"),
    Column("steps", pa.list_(pa.string()), "the steps, without white space around them"),
    Column("final_answer_correct", pa.bool_(), "whether the final answer is right"),
    Column("label", pa.int64(), "the first step that is labelled wrong, from 0; -1: none"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    grown = block.grown  # A merged step is no unit that a person would judge.
    found = BlockChains(grown)
    for reason in (NO_LABEL, AFTER):
        del found.left_out[reason]
    verdict = found.stack.arrays("nodes.forest.verdict")
    found.drop(np.isin(verdict[found.ends], _NO_END), UNFINISHED)
    steps = pc.utf8_trim_whitespace(found.stack.steps)
    names = found.stack.arrays("row_of")

    def columns(chains: Chains) -> Columns:
        place = pa.array(chains.place)
        last = pa.array(names[chains.ends]).cast(pa.string())
        sizes = np.diff(chains.paths.offsets)
        number = ranges(np.zeros(len(sizes), dtype=np.intp), sizes)
        none = np.iinfo(np.int64).max
        first_wrong = chains.paths.reduced(np.minimum, np.where(chains.right, none, number))
        return {
            "id": pc.binary_join_element_wise(grown.problem_ids.take(place), last, "-"),
            "generator": pa.repeat(pa.scalar(context.generator, pa.string()), len(place)),
            "problem": grown.questions.take(place),
            "steps": chains.each(steps),
            "final_answer_correct": (verdict[chains.ends] == Verdict.CORRECT).astype(np.int8),
            "label": np.where(first_wrong == none, -1, first_wrong),
            "values": chains.each(found.soft),
        }

    yield from found.rows(columns, (verdict[found.ends] == Verdict.CORRECT).astype(np.int8))


def _ended(block: ExportBlock) -> dict[str, int]:
    """Nodes that end a trajectory."""
    verdict = block.passes[0].nodes.forest.verdict
    return {"ended": int(np.count_nonzero(~np.isin(verdict, _NO_END)))}


def _no_solution(counts: Mapping[str, int], config: ExportConfig) -> tuple[str, str] | None:
    ended = counts.get("ended", 0)
    if ended:
        have = "1 trajectory of nodes ends, and it" if ended == 1 else f"{ended:,} trajectories of nodes end, and each"
        return f"{have} has a step without a hard label", _LABEL
    return (
        "no trajectory of nodes ends with an answer that could be judged. What was written below the deepest nodes has "
        "no labels",
        "Grow the trees further (more simulations of mcts, more levels of exhaustive), or with step-rollouts or "
        "adaptive, whose solutions are nodes",
    )


PROCESSBENCH = Format(
    name="processbench",
    about="Whole solutions with the first step that is labelled wrong, for measuring process reward models.",
    columns=_COLUMNS,
    rows=_rows,
    text="steps",
    same=("label",),
    empty=("no trajectory of nodes has all its steps labelled", _LABEL),
    survey=_ended,
    explain=_no_solution,
)
