"""`processbench`: whole solutions with the first wrong step, as Qwen/ProcessBench is read."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from treeforge.export.formats.base import Context, Format, Rows, by_tree
from treeforge.export.formats.stepwise import BELOW, PROVENANCE, SOFT, chain_rows, provenance
from treeforge.export.schemas import Column
from treeforge.export.trees import ExportTree
from treeforge.verdict import NO_VERDICT, Verdict

UNFINISHED = "chain that ends no trajectory, or undecided"

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


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    for number, labelled, found, left_out in chain_rows(tree):
        if number:
            break  # A merged step is no unit that a person would judge.
        chains = [chain for chain in found if chain.verdict not in (NO_VERDICT, Verdict.UNDECIDED)]
        right = np.array([chain.verdict == Verdict.CORRECT for chain in chains], dtype=np.int8)
        first_wrong = [chain.labels.index(False) if False in chain.labels else -1 for chain in chains]
        columns = {
            "id": [f"{tree.problem.problem_id}-{chain.nodes[-1]}" for chain in chains],
            "generator": [context.generator] * len(chains),
            "problem": [tree.problem.question] * len(chains),
            "steps": [[step.strip() for step in chain.steps] for chain in chains],
            "final_answer_correct": right,
            "label": np.array(first_wrong, dtype=np.int64),
            "values": [list(chain.soft) for chain in chains],
        }
        left_out = {reason: count for reason, count in left_out.items() if reason != BELOW}
        if len(chains) < len(found):
            left_out[UNFINISHED] = len(found) - len(chains)
        yield Rows(columns | provenance(tree, number, labelled, chains), len(chains), left_out, right)


PROCESSBENCH = Format(
    name="processbench",
    about="Whole solutions with the first step that is labelled wrong, for measuring process reward models.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
    text="steps",
    same=("label",),
    empty=(
        "no trajectory of nodes has all its steps labelled",
        "Trajectories are nodes with `search.strategy` exhaustive, or where rollouts become nodes; label with "
        "`treeforge label RUN` and a low label.min_rollouts",
    ),
)
