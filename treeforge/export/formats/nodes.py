"""`nodes`, the canonical format: one row a node, everything that is known of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import MAX_ROW_BYTES, TOO_LARGE, Context, Format, Rows, utf8_size
from treeforge.export.formats.stack import Lists, Stack, pieces
from treeforge.export.schemas import LIST_OF_ROWS, Column
from treeforge.forest import ARRAY_FIELDS
from treeforge.store.forests import TEXTS, text_sizes
from treeforge.tree import Finish
from treeforge.verdict import NO_VERDICT, Verdict

_FINISH = pa.array([finish.name.lower() for finish in sorted(Finish)])
_VERDICT = pa.array([None, *(verdict.name.lower() for verdict in sorted(Verdict))])
"""`NO_VERDICT` (-1) and the verdicts from 0 on."""

_OF_THE_TREE = tuple(name for name in ARRAY_FIELDS if name != "parent")

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
    Column("finish", pa.string(), f"how the text ended: {', '.join(_FINISH.to_pylist())}"),
    Column("answer", pa.string(), "the final answer extracted at a leaf; empty elsewhere"),
    Column(
        "verdict", pa.string(), f"{', '.join(_VERDICT.drop_null().to_pylist())}; null: ends no trajectory, or an error"
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


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    problems = block.problems
    own = [(problem.problem_id, problem.question, problem.gold_answer) for problem in problems]
    shared = np.array([sum(map(utf8_size, texts)) for texts in own])
    stack = Stack(block)
    texts = {name: stack.texts(name) for name in TEXTS}
    sizes = sum(map(text_sizes, texts.values())) + shared[stack.place]
    chosen, too_large = [], 0
    for start, stop in pairwise(stack.starts.tolist()):
        # A tree without one of its nodes is no tree: it is left out as a whole.
        place, large = stack.place[start:stop], sizes[start:stop] > MAX_ROW_BYTES
        whole = np.bincount(place[large], minlength=len(problems)) == 0
        chosen.append(start + np.flatnonzero(whole[place]))
        too_large += stop - start - len(chosen[-1])
    if too_large:
        yield Rows({}, 0, {TOO_LARGE: too_large})

    names = stack.arrays("row_of")
    values = {name: stack.arrays(f"values.{name}") for name in ("value", "rollouts", "stderr", "low", "high")}
    forests = {name: stack.arrays(f"nodes.forest.{name}") for name in _OF_THE_TREE}
    hard, soft = stack.hard, stack.arrays("soft")
    merged = Lists(stack.texts("merged_from"))
    by_problem = [pa.array(column) for column in zip(*own, strict=True)]
    rows, _ = stack.by_tree(chosen)
    for piece in pieces(sizes[rows]):
        part = rows[piece]
        node, place = pa.array(part), pa.array(stack.place[part])
        problem_id, question, gold_answer = (column.take(place) for column in by_problem)
        numbers = block.numbers[stack.place[part]]
        parents = stack.parent[part]
        columns: dict[str, Any] = {
            "tree_id": numbers,
            "node_id": names[part],
            "parent_id": np.where(parents >= 0, names[parents], np.int32(-1)),
            "problem_id": problem_id,
            "question": question,
            "gold_answer": gold_answer,
            "finish": _FINISH.take(pa.array(forests["finish"][part])),
            "verdict": _VERDICT.take(pa.array(forests["verdict"][part] - NO_VERDICT)),
            "estimator": pa.repeat(pa.scalar(block.passes[0].values.estimator, pa.string()), len(part)),
            "value_rollouts": values["rollouts"][part],
            "hard": hard[part],
            "soft": soft[part],
            "merged_from": merged.joined([(part, np.ones(len(part), dtype=np.bool_))]),
            "compressed": stack.pass_of(part),
        }
        columns |= {name: texts[name].take(node) for name in TEXTS}
        columns |= {name: values[name][part] for name in ("value", "stderr", "low", "high")}
        columns |= {name: column[part] for name, column in forests.items() if name not in columns}
        yield Rows(columns, len(part), labels=hard[part], numbers=numbers)


NODES = Format(
    name="nodes",
    about="Whole trees, one row a node: text, counts, search statistics, value with its interval, labels.",
    columns=_COLUMNS,
    rows=_rows,
    compressed=True,
    whole=True,
)
