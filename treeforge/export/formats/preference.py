"""`preference`: pairs of a right and a wrong continuation, of sibling steps and of whole solutions.

Both sides are whole assistant turns that share what comes before the step, so that the common part takes no part in the
difference that a preference loss sees.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, by_tree, fits
from treeforge.export.formats.chat import MESSAGES, assistant, user
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.export.solutions import Solution, decided, right, step_texts
from treeforge.export.trees import ExportTree

_COLUMNS = (
    Column("prompt", MESSAGES, "the question, as the user's turn"),
    Column("chosen", MESSAGES, "the model's turn: the steps before, and the better step; or a right solution"),
    Column("rejected", MESSAGES, "the same with the worse step; or a wrong solution"),
    Column("margin", pa.float64(), "difference of the two soft labels; 1 between solutions"),
    Column("level", pa.string(), "`step`: two steps after the same prefix; `solution`: two whole solutions"),
    Column("separated", pa.bool_(), "whether the intervals of the two values do not overlap"),
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column("node_ids", LIST_OF_ROWS, "the chosen and the rejected node; of a rollout, the node it started from"),
    Column(
        "rollouts", pa.list_(pa.int64()), "decided outcomes behind the two labels; completions of the two solutions"
    ),
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    yield _step_pairs(tree)
    yield _solution_pairs(tree)


def _step_pairs(tree: ExportTree) -> Rows:
    """Of each node's labelled children the best right one with the worst wrong one, the second best with the …"""
    nodes, values, soft = tree.record.tree, tree.values, tree.soft.tolist()
    texts, question = step_texts(nodes), tree.problem.question
    right_children: dict[int, list[int]] = {}
    wrong_children: dict[int, list[int]] = {}
    for row in np.flatnonzero(tree.hard[1:] >= 0) + 1:
        side = right_children if tree.hard[row] == 1 else wrong_children
        side.setdefault(int(nodes.parent[row]), []).append(int(row))
    pairs, prefixes, too_large = [], [], 0
    for parent in sorted(right_children.keys() & wrong_children.keys()):
        best = sorted(right_children[parent], key=lambda row: -soft[row])
        worst = sorted(wrong_children[parent], key=lambda row: soft[row])
        prefix = "".join([texts[row] for row in nodes.path(parent)])
        for chosen, rejected in zip(best, worst, strict=False):
            if fits(question, [prefix, prefix, texts[chosen], texts[rejected]]):
                pairs.append((chosen, rejected))
                prefixes.append(prefix)
            else:
                too_large += 1
    sides = np.array(pairs, dtype=np.intp).reshape(-1, 2)
    columns: dict[str, Any] = {
        "chosen": [[assistant(p + texts[row])] for p, (row, _) in zip(prefixes, pairs, strict=True)],
        "rejected": [[assistant(p + texts[row])] for p, (_, row) in zip(prefixes, pairs, strict=True)],
        "margin": tree.soft[sides[:, 0]] - tree.soft[sides[:, 1]],
        "separated": (values.low[sides[:, 0]] > values.high[sides[:, 1]]).astype(np.int8),
        "node_ids": [list(pair) for pair in pairs],
        "rollouts": values.rollouts[sides].tolist(),
    }
    return _make(tree, columns, "step", len(pairs), too_large)


def _solution_pairs(tree: ExportTree) -> Rows:
    """The most frequent right solution with the most frequent wrong one, the second with the second, …"""
    found, _ = decided(tree)
    found.sort(key=lambda solution: -solution.count)  # stable: ties keep the tree's order
    good = [solution for solution in found if right(solution)]
    bad = [solution for solution in found if not right(solution)]
    pairs: list[tuple[Solution, Solution]] = []
    too_large = 0
    for pair in zip(good, bad, strict=False):
        if fits(tree.problem.question, [*pair[0].steps, *pair[1].steps]):
            pairs.append(pair)
        else:
            too_large += 1
    n = len(pairs)
    columns: dict[str, Any] = {
        "chosen": [[assistant(chosen.text)] for chosen, _ in pairs],
        "rejected": [[assistant(rejected.text)] for _, rejected in pairs],
        "margin": np.ones(n),
        "separated": np.ones(n, np.int8),
        "node_ids": [[chosen.node, rejected.node] for chosen, rejected in pairs],
        "rollouts": [[chosen.count, rejected.count] for chosen, rejected in pairs],
    }
    return _make(tree, columns, "solution", n, too_large)


def _make(tree: ExportTree, columns: dict[str, Any], level: str, n: int, too_large: int) -> Rows:
    shared = {
        "prompt": [[user(tree.problem.question)]] * n,
        "level": [level] * n,
        "problem_id": [tree.problem.problem_id] * n,
        "tree_id": np.full(n, tree.number, np.int32),
    }
    return Rows(columns | shared, n, {TOO_LARGE: too_large} if too_large else {})


PREFERENCE = Format(
    name="preference",
    about="Pairs of a better and a worse step after the same steps, and of a right and a wrong solution.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
    rollouts=True,
    text="chosen",
    same=("level", "rejected"),
    empty=(
        "no two steps after the same prefix have different labels, and no problem has a right and a wrong solution",
        "Label the trees (`treeforge label RUN`) and sample more children or rollouts a node",
    ),
)
