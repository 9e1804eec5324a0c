"""Formats with one row a whole solution: what they share."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from treeforge.export.schemas import Column
from treeforge.export.solutions import Solution
from treeforge.export.trees import ExportTree
from treeforge.tree import Finish

UNDECIDED = "solution whose answer is undecided"
NOTHING_ENDED = (
    "no trajectory has ended in an answer that was judged",
    "Grow trees with rollouts first (`treeforge run`, or `treeforge search RUN`); `treeforge stats RUN` says how "
    "completions ended",
)

_FINISH = {int(finish): finish.name.lower() for finish in Finish}

PROVENANCE = (
    Column("answer", pa.string(), "the extracted final answer"),
    Column("finish", pa.string(), "how it ended: stop, answered, truncated"),
    Column("count", pa.int64(), "completions with this text"),
    Column("tokens", pa.int64(), "tokens of the whole text"),
    Column("logprob", pa.float64(), "sum of their log-probabilities in nats; null: unknown"),
    Column("value", pa.float64(), "the lowest soft label on its path through the tree; null: none"),
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column("node_id", pa.int32(), "the node that ends it, or that its rollout started from"),
    Column("rollout", pa.int32(), "the rollout's place among its tree's, from 0; -1: the node itself ends it"),
)


def provenance(tree: ExportTree, solutions: list[Solution]) -> dict[str, Any]:
    """The columns of `PROVENANCE`."""
    n = len(solutions)
    return {
        "answer": [solution.answer for solution in solutions],
        "finish": [_FINISH[solution.finish] for solution in solutions],
        "count": np.array([solution.count for solution in solutions], np.int64),
        "tokens": np.array([solution.tokens for solution in solutions], np.int64),
        "logprob": np.array([solution.logprob for solution in solutions], np.float64),
        "value": np.array([solution.value for solution in solutions], np.float64),
        "problem_id": [tree.problem.problem_id] * n,
        "tree_id": np.full(n, tree.number, np.int32),
        "node_id": np.array([solution.node for solution in solutions], np.int32),
        "rollout": np.array([solution.rollout for solution in solutions], np.int32),
    }
