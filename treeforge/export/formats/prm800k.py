"""`prm800k`: the nested shape of openai/prm800k: at every step all completions with their ratings, one of them chosen.

A row a node whose labelled children have no labelled steps after them, so that every labelled step stands in a row. The
chosen completions lead to that node, and to the best of its children. Ratings are 1 and -1, from hard labels; there is
no 0 (neutral).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa

from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, by_tree, fits
from treeforge.export.formats.stepwise import BELOW, NOTHING_LABELLED
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.export.solutions import labelled_from_root, step_texts
from treeforge.export.trees import ExportTree
from treeforge.verdict import NO_VERDICT

_COMPLETION = pa.struct(
    [
        pa.field("text", pa.string()),
        pa.field("rating", pa.int8()),
        pa.field("flagged", pa.bool_()),
    ]
)
_HUMAN = pa.struct(
    [
        pa.field("text", pa.string()),
        pa.field("rating", pa.int8()),
        pa.field("source", pa.string()),
        pa.field("flagged", pa.bool_()),
    ]
)
_STEP = pa.struct(
    [
        pa.field("completions", pa.list_(_COMPLETION)),
        pa.field("human_completion", _HUMAN),
        pa.field("chosen_completion", pa.int32()),
    ]
)
_LABEL = pa.struct(
    [
        pa.field("steps", pa.list_(_STEP)),
        pa.field("total_time", pa.int64()),
        pa.field("finish_reason", pa.string()),
    ]
)
_QUESTION = pa.struct([pa.field("problem", pa.string()), pa.field("ground_truth_answer", pa.string())])

_COLUMNS = (
    Column("labeler", pa.string(), "the estimator of the values behind the ratings"),
    Column("timestamp", pa.string(), "null: no time stands in an export"),
    Column("generation", pa.int64(), "null: phases of the original's data collection"),
    Column("is_quality_control_question", pa.bool_(), "false"),
    Column("is_initial_screening_question", pa.bool_(), "false"),
    Column("question", _QUESTION, "the question and the right final answer"),
    Column(
        "label", _LABEL, "the steps with all their completions and ratings (1 right, -1 wrong), the chosen one's index"
    ),
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column("node_ids", LIST_OF_ROWS, "a step each: the chosen completion's node in that tree"),
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    labelled = next(tree.passes())[1]
    nodes = labelled.tree
    inside = labelled_from_root(labelled)
    children: list[list[int]] = [[] for _ in range(nodes.size)]
    for row in np.flatnonzero(inside).tolist():
        children[int(nodes.parent[row])].append(row)
    texts, hard, soft = step_texts(nodes), labelled.hard.tolist(), labelled.soft.tolist()
    question = {"problem": tree.problem.question, "ground_truth_answer": tree.problem.gold_answer}

    listed, paths, too_large = [], [], 0
    for row, below in enumerate(children):
        if not below or any(children[child] for child in below):
            continue
        path = [*nodes.path(row), max(below, key=lambda child: (soft[child], -child))]
        levels = [children[int(nodes.parent[node])] for node in path]
        if not fits(tree.problem.question, [texts[node] for level in levels for node in level]):
            too_large += 1
            continue
        steps: list[dict[str, Any]] = [
            {
                "completions": [
                    {"text": texts[node].strip(), "rating": 1 if hard[node] == 1 else -1, "flagged": False}
                    for node in level
                ],
                "human_completion": None,
                "chosen_completion": level.index(chosen),
            }
            for level, chosen in zip(levels, path, strict=True)
        ]
        ended = nodes.verdict[path[-1]] != NO_VERDICT
        listed.append({"steps": steps, "total_time": 0, "finish_reason": "solution" if ended else "give_up"})
        paths.append(path)
    n = len(listed)
    left_out = {BELOW: int(np.count_nonzero(~inside[1:])), TOO_LARGE: too_large}
    columns = {
        "labeler": [labelled.values.estimator] * n,
        "timestamp": [None] * n,
        "generation": [None] * n,
        "is_quality_control_question": np.zeros(n, np.int8),
        "is_initial_screening_question": np.zeros(n, np.int8),
        "question": [question] * n,
        "label": listed,
        "problem_id": [tree.problem.problem_id] * n,
        "tree_id": np.full(n, tree.number, np.int32),
        "node_ids": paths,
    }
    yield Rows(columns, n, {reason: count for reason, count in left_out.items() if count})


PRM800K = Format(
    name="prm800k",
    about="Steps with all their rated completions, nested as PRM800K was released.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
    whole=True,
    empty=NOTHING_LABELLED,
)
