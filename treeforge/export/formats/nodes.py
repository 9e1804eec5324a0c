"""`nodes`, the canonical format: one row a node, everything that is known of it."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from treeforge.export.formats.base import MAX_ROW_BYTES, MAX_UTF8, TOO_LARGE, Context, Format, Rows, utf8_size
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.export.trees import ExportTree
from treeforge.tree import Finish, Tree
from treeforge.verdict import NO_VERDICT, Verdict

_FINISH = {int(finish): finish.name.lower() for finish in Finish}
_VERDICT = {NO_VERDICT: None} | {int(verdict): verdict.name.lower() for verdict in Verdict}

_COLUMNS = (
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column(
        "node_id", pa.int32(), "the node's number in its tree, the same before and after compression; 0 is the root"
    ),
    Column("parent_id", pa.int32(), "the parent's node_id; -1 at the root"),
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("question", pa.string(), "the question as the policy saw it, before the prompt template"),
    Column("gold_answer", pa.string(), "the right final answer"),
    Column("depth", pa.int16(), "steps from the root"),
    Column("text", pa.string(), "the step's text, delimiter kept: a prefix is plain concatenation from the root"),
    Column("observation", pa.string(), "what an environment answered to the step; empty in mathematics"),
    Column("token_count", pa.int32(), "tokens of the step's text"),
    Column("logprob", pa.float32(), "sum of their log-probabilities in nats; null: unknown"),
    Column("multiplicity", pa.float64(), "how many of the policy's samples from the parent this node stands for"),
    Column("finish", pa.string(), f"how the text ended: {', '.join(_FINISH.values())}"),
    Column("answer", pa.string(), "the final answer extracted at a leaf; empty elsewhere"),
    Column(
        "verdict", pa.string(), f"{', '.join(v for v in _VERDICT.values() if v)}; null: ends no trajectory, or an error"
    ),
    Column("rollouts", pa.int32(), "the node's own rollouts: started at its prefix and not nodes themselves"),
    Column("rollouts_correct", pa.int32(), "of these, judged correct"),
    Column("rollouts_undecided", pa.int32(), "of these, undecided"),
    Column("rollouts_truncated", pa.int32(), "of these, truncated and not correct"),
    Column("visits", pa.int32(), "N: completions the search backed up through the node; 0 after compression"),
    Column("value_sum", pa.float64(), "W: the sum of their outcomes; 0 after compression"),
    Column("prior", pa.float32(), "P: the search's prior among siblings; null: unknown, and after compression"),
    Column(
        "value", pa.float64(), "estimated chance that the policy, continuing from here, ends correct; null: no evidence"
    ),
    Column("value_rollouts", pa.int64(), "decided outcomes at or below the node: the evidence behind `value`"),
    Column("stderr", pa.float64(), "standard error of `value`"),
    Column("low", pa.float64(), "lower end of the interval of `value`"),
    Column("high", pa.float64(), "upper end of the interval of `value`"),
    Column("estimator", pa.string(), "how `value` was estimated"),
    Column("hard", pa.bool_(), "the hard label; null: none"),
    Column("soft", pa.float64(), "the soft label; null: none"),
    Column("merged_from", LIST_OF_ROWS, "a node merged by HNC: the node_ids whose texts it joins; empty elsewhere"),
    Column("compressed", pa.int8(), "0: the tree as grown; 1, 2, …: what that HNC pass made of it"),
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    problem = tree.problem
    shared = (problem.problem_id, problem.question, problem.gold_answer)
    limit = MAX_ROW_BYTES - sum(map(utf8_size, shared))
    for number, labelled in tree.passes():
        nodes, values, n = labelled.tree, labelled.values, labelled.tree.size
        if not _fits(nodes, limit):
            # A tree without one of its nodes is no tree: it is left out as a whole.
            yield Rows({}, 0, {TOO_LARGE: n})
            continue
        parents = np.where(nodes.parent >= 0, labelled.row_of[nodes.parent], np.int32(-1))
        columns = {
            "tree_id": np.full(n, tree.number, np.int32),
            "node_id": labelled.row_of,
            "parent_id": parents,
            "problem_id": [problem.problem_id] * n,
            "question": [problem.question] * n,
            "gold_answer": [problem.gold_answer] * n,
            "depth": nodes.depth,
            "text": nodes.text,
            "observation": nodes.observation,
            "token_count": nodes.token_count,
            "logprob": nodes.logprob,
            "multiplicity": nodes.multiplicity,
            "finish": [_FINISH[code] for code in nodes.finish.tolist()],
            "answer": nodes.answer,
            "verdict": [_VERDICT[code] for code in nodes.verdict.tolist()],
            "rollouts": nodes.rollouts,
            "rollouts_correct": nodes.rollouts_correct,
            "rollouts_undecided": nodes.rollouts_undecided,
            "rollouts_truncated": nodes.rollouts_truncated,
            "visits": nodes.visits,
            "value_sum": nodes.value_sum,
            "prior": nodes.prior,
            "value": values.value,
            "value_rollouts": values.rollouts,
            "stderr": values.stderr,
            "low": values.low,
            "high": values.high,
            "estimator": [values.estimator] * n,
            "hard": labelled.hard,
            "soft": labelled.soft,
            "merged_from": nodes.merged_from,
            "compressed": np.full(n, number, np.int8),
        }
        yield Rows(columns, n, labels=labelled.hard)


def _fits(tree: Tree, limit: int) -> bool:
    """Whether no row's own texts have more than `limit` UTF-8 bytes."""
    texts = (tree.text, tree.observation, tree.answer)
    if MAX_UTF8 * sum(max(map(len, column)) for column in texts) <= limit:
        return True
    return all(sum(map(utf8_size, row)) <= limit for row in zip(*texts, strict=True))


NODES = Format(
    name="nodes",
    about="Whole trees, one row a node: text, counts, search statistics, value with its interval, labels.",
    columns=_COLUMNS,
    rows=_rows,
    whole=True,
)
