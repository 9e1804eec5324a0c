"""`sft`: solutions with the right final answer, each text once, as prompt and completion of a chat."""

from __future__ import annotations

import math
from collections.abc import Iterator

from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, by_tree, fits
from treeforge.export.formats.chat import MESSAGES, assistant, user
from treeforge.export.formats.outcomes import PROVENANCE, provenance
from treeforge.export.schemas import Column
from treeforge.export.solutions import Solution, right, solutions
from treeforge.export.trees import ExportTree

OVER_LIMIT = "right solution beyond export.solutions_per_problem"

_COLUMNS = (
    Column("prompt", MESSAGES, "the question, as the user's turn"),
    Column("completion", MESSAGES, "a solution with the right final answer, as the model's turn"),
    *PROVENANCE,
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    question, config = tree.problem.question, context.config
    found = [solution for solution in solutions(tree) if right(solution)]
    kept = [solution for solution in found if fits(question, solution.steps)]
    too_large = len(found) - len(kept)
    kept.sort(key=_by_length if config.solution_order == "length" else _by_value)  # stable: ties keep the tree's order
    most = config.solutions_per_problem or len(kept)
    left_out = {TOO_LARGE: too_large, OVER_LIMIT: max(len(kept) - most, 0)}
    kept = kept[:most]
    columns = {
        "prompt": [[user(question)]] * len(kept),
        "completion": [[assistant(solution.text)] for solution in kept],
    } | provenance(tree, kept)
    yield Rows(columns, len(kept), {reason: count for reason, count in left_out.items() if count})


def _by_length(solution: Solution) -> int:
    return len(solution.text)


def _by_value(solution: Solution) -> tuple[float, int]:
    return (math.inf if math.isnan(solution.value) else -solution.value, len(solution.text))


SFT = Format(
    name="sft",
    about="Solutions with the right final answer, each text once, the shortest (or most valued) of a problem first.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
    rollouts=True,
    text="completion",
    empty=(
        "no trajectory has ended in the right answer",
        "Grow more trees, or easier problems; see `treeforge stats RUN`",
    ),
)
