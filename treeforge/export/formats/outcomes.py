"""Formats with one row a whole solution: what they share.

A solution is a completion that ended, of a node or a rollout, or several of the same text. Engine errors and
completions without any text are none.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from operator import itemgetter
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.stack import NOTHING, Paths, Stack, pieces
from treeforge.export.schemas import Column, Columns
from treeforge.forest import Rows
from treeforge.store.forests import text_sizes
from treeforge.tree import Finish
from treeforge.verdict import NO_VERDICT, Verdict

UNDECIDED = "solution whose answer is undecided"
NOTHING_ENDED = (
    "no trajectory has ended in an answer that was judged",
    "Grow trees with rollouts first (`treeforge run`, or `treeforge search RUN`); `treeforge stats RUN` says how "
    "completions ended",
)

_FINISH = pa.array([finish.name.lower() for finish in sorted(Finish)])

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


@dataclass(frozen=True, kw_only=True, slots=True)
class Solutions:
    """k solutions of a block; of each tree those of nodes before those of rollouts."""

    place: Rows
    """intp[k], as the other arrays: the place of its tree in the block."""
    text: Any
    """Arrow texts of wide offsets: all steps, concatenated."""
    answer: Any
    """Arrow texts: the extracted final answer."""
    verdict: NDArray[np.int8]
    """A `Verdict`; never -1."""
    finish: NDArray[np.int8]
    """A `Finish`."""
    count: NDArray[np.int64]
    """How many completions have this text."""
    tokens: NDArray[np.int64]
    """Tokens of the whole text."""
    logprob: NDArray[np.float64]
    """Sum of their log-probabilities in nats; NaN unknown."""
    value: NDArray[np.float64]
    """The lowest soft label of the nodes on its path; NaN where none has one."""
    node: NDArray[np.int32]
    """The node that ends it, or that its rollout started from."""
    rollout: NDArray[np.int32]
    """The rollout's place among its tree's, from 0; -1: the node itself ends it."""

    @property
    def right(self) -> NDArray[np.bool_]:
        """bool[k]: whether it ends with the right answer."""
        right: NDArray[np.bool_] = self.verdict == Verdict.CORRECT
        return right

    @property
    def decided(self) -> NDArray[np.bool_]:
        """bool[k]: whether it is right or wrong."""
        decided: NDArray[np.bool_] = self.verdict != Verdict.UNDECIDED
        return decided

    @property
    def size(self) -> NDArray[np.int64]:
        """int64[k]: UTF-8 bytes of the text."""
        return text_sizes(self.text).astype(np.int64)

    def take(self, rows: Rows) -> Solutions:
        """Some of them, in the order given."""
        if len(rows) == len(self.place) and (np.diff(rows) == 1).all():
            return self
        places = pa.array(rows)
        return self._mapped(lambda column: column.take(places) if isinstance(column, pa.Array) else column[rows])

    def some(self, block: ExportBlock) -> Iterator[Solutions]:
        """All of them, some at a time, so that memory stays bounded."""
        for piece in pieces(self.size + block.question_sizes[self.place]):
            yield self._mapped(itemgetter(piece))

    def _mapped(self, change: Callable[[Any], Any]) -> Solutions:
        return Solutions(**{spec.name: change(getattr(self, spec.name)) for spec in fields(self)})

    def provenance(self, block: ExportBlock) -> Columns:
        """The columns of `PROVENANCE`."""
        return {
            "answer": self.answer.cast(pa.string()),
            "finish": _FINISH.take(pa.array(self.finish)),
            "count": self.count,
            "tokens": self.tokens,
            "logprob": self.logprob,
            "value": self.value,
            "problem_id": block.problem_ids.take(pa.array(self.place)),
            "tree_id": block.numbers[self.place],
            "node_id": self.node,
            "rollout": self.rollout,
        }


def solutions(block: ExportBlock) -> Solutions:
    """The solutions of the trees as grown, each text of a tree once: where it comes first, with the count of all."""
    block = block.grown
    stack = Stack(block)
    path = _path_columns(stack)
    found = _joined(_of_nodes(stack, path), _of_rollouts(stack, path, block))
    order = np.argsort(found.place, kind="stable")
    return _distinct(found.take(order[found.size[order] > 0]))


def _of_nodes(stack: Stack, path: dict[str, Any]) -> Solutions:
    """Of nodes that end a trajectory. `count` is 0 where the node is no sample: a prefix that was cut out, or given."""
    verdict = stack.arrays("nodes.forest.verdict")
    rows = np.flatnonzero(verdict != NO_VERDICT)
    return Solutions(
        **{name: column[rows] for name, column in path.items()},
        text=Paths.of(stack, rows).joined(stack.steps),
        answer=stack.texts("answer").cast(pa.large_string()).take(pa.array(rows)),
        verdict=verdict[rows],
        finish=stack.arrays("nodes.forest.finish")[rows],
        count=np.rint(stack.arrays("nodes.forest.multiplicity")[rows]).astype(np.int64),
        rollout=np.full(len(rows), -1, dtype=np.int32),
    )


def _of_rollouts(stack: Stack, path: dict[str, Any], block: ExportBlock) -> Solutions:
    table = block.rollouts
    tree_id = table["tree_id"].to_numpy()
    number = np.arange(len(tree_id)) - np.searchsorted(tree_id, tree_id)
    keep = table["finish"].to_numpy() != Finish.ERROR
    if not keep.all():
        table, number = table.filter(pa.array(keep)), number[keep]
    column = {name: table[name].to_numpy() for name in ("tree_id", "node_id", "verdict", "finish", "tokens", "logprob")}
    starts = block.passes[0].nodes.forest.starts
    rows = starts[np.searchsorted(block.numbers, column["tree_id"])] + column["node_id"]
    steps = table["steps"].combine_chunks().cast(pa.list_(pa.large_string()))
    parts = [Paths.of(stack, rows).joined(stack.steps)]
    if stack.arrays("nodes.forest.observed").any():
        said = stack.texts("observation").cast(pa.large_string()).take(pa.array(rows))
        parts.append(pc.if_else(pc.greater(pc.list_value_length(steps), 0), said, NOTHING))
    parts.append(pc.binary_join(steps, NOTHING))
    path = {name: values[rows] for name, values in path.items()}
    return Solutions(
        **path | {"tokens": path["tokens"] + column["tokens"], "logprob": path["logprob"] + column["logprob"]},
        text=pc.binary_join_element_wise(*parts, NOTHING),
        answer=table["answer"].combine_chunks().cast(pa.large_string()),
        verdict=column["verdict"],
        finish=column["finish"],
        count=np.ones(len(rows), dtype=np.int64),
        rollout=number.astype(np.int32),
    )


def _path_columns(stack: Stack) -> dict[str, Any]:
    """What the path to each node says, any[n] each."""
    tokens = stack.arrays("nodes.forest.token_count").astype(np.int64)
    logprob = stack.arrays("nodes.forest.logprob").astype(np.float64)
    return {
        "place": stack.place,
        "node": stack.arrays("row_of"),
        "tokens": stack.from_root(np.add, tokens, 0),
        "logprob": stack.from_root(np.add, logprob, 0.0),
        "value": stack.from_root(np.fmin, stack.arrays("soft"), np.nan),
    }


def _joined(first: Solutions, second: Solutions) -> Solutions:
    def both(a: Any, b: Any) -> Any:
        return pa.concat_arrays([a, b]) if isinstance(a, pa.Array) else np.concatenate([a, b])

    return Solutions(
        **{spec.name: both(getattr(first, spec.name), getattr(second, spec.name)) for spec in fields(Solutions)}
    )


def _distinct(found: Solutions) -> Solutions:
    """Each text of a tree with one verdict and one ending once.

    A node that is no sample stands for a solution that was given, unless a rollout has its very text: then it was cut
    out of that one (`omega`), which counts.
    """
    code = pc.dictionary_encode(found.text).indices.to_numpy().astype(np.int64)
    kind = (found.place * len(Verdict) + found.verdict) * len(Finish) + found.finish
    _, first, group = np.unique(kind * (len(code) + 1) + code, return_index=True, return_inverse=True)
    rolled = np.zeros(len(first), dtype=np.bool_)
    rolled[group[found.rollout >= 0]] = True
    own = np.where((found.count == 0) & ~rolled[group], 1, found.count)
    count = np.zeros(len(first), dtype=np.int64)
    np.add.at(count, group, own)
    order = np.argsort(first)
    return replace(found.take(first[order]), count=count[order])
