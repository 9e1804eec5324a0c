"""Formats with one row a chain of labelled steps: what they share.

A chain runs from a first step down to a node below which no step is labelled; a step without a label ends its chain,
and what lies below it belongs to none. Of a compressed tree, chains with a merged step or a moved value are further
rows, unless the tree as grown or an earlier pass has a chain of the same steps with the same hard labels: a value that
moved without crossing the threshold is no other row to a trainer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import NO_LABEL, NOT_FRESH, TOO_LARGE, Rows, within_limit
from treeforge.export.formats.stack import Paths, Stack, pieces
from treeforge.export.schemas import LIST_OF_ROWS, Column, Columns
from treeforge.forest import Rows as NodeRows
from treeforge.store.forests import text_sizes

AFTER = "labelled step after one without a label"
REPEATED = "same as in an earlier HNC pass"
NOTHING_LABELLED = (
    "no step has a hard label",
    "Label the trees first (`treeforge label RUN`); label.min_rollouts, label.band, export.min_rollouts and "
    "export.max_interval say which steps get one",
)

SOFT = pa.list_(pa.float64())

PROVENANCE = (
    Column("problem_id", pa.string(), "the problem's id; a problem is in one split only"),
    Column("tree_id", pa.int32(), "the tree's number in the run"),
    Column("node_ids", LIST_OF_ROWS, "a step each: its node in that tree"),
    Column("rollouts", pa.list_(pa.int64()), "a step each: decided outcomes behind its label"),
    Column("compressed", pa.int8(), "the HNC pass, from 1; 0 for the tree as grown"),
)


@dataclass(frozen=True, slots=True)
class Chains:
    """Some chains of a block, k of them."""

    ends: NodeRows
    """intp[k]: their last steps, as rows of the stack."""
    place: NodeRows
    """intp[k]: the places of their trees in the block."""
    paths: Paths
    """Their steps."""
    right: NDArray[np.bool_]
    """bool[steps of all of them]: the hard labels."""

    def all_right(self) -> NDArray[np.int8]:
        """int8[k]: 1 where every step is labelled right."""
        found: NDArray[np.int8] = self.paths.reduced(np.logical_and, self.right).astype(np.int8)
        return found

    def each(self, values: Any) -> Any:
        """k Arrow lists, a step each, of a numpy array or Arrow texts of the stack's n nodes."""
        nodes = self.paths.nodes
        if isinstance(values, pa.Array):
            return self.paths.lists(values.take(pa.array(nodes)).cast(pa.string()))
        return self.paths.lists(values[nodes])


class BlockChains:
    """The chains of a block that are rows: tree by tree, of each tree pass by pass, by their last nodes."""

    def __init__(self, block: ExportBlock) -> None:
        self.block, self.stack = block, Stack(block)
        self.left_out: Counter[str] = Counter()
        """What is missing here, by reason."""
        self.inside = labelled_from_root(self.stack)
        """bool[n]: steps with a hard label whose steps before have one too."""
        self.soft = self.stack.arrays("soft")
        self._names, self._rollouts = self.stack.arrays("row_of"), self.stack.arrays("values.rollouts")
        self.left_out.update(outside_chains(self.stack, self.inside))
        tip = self.inside.copy()
        tip[self.stack.parent[self.inside]] = False
        ends = np.flatnonzero(tip)
        if len(block.passes) > 1:
            ends = self._new(ends)
        ends = ends[np.argsort(self.stack.place[ends], kind="stable")]
        steps = self.stack.from_root(np.add, text_sizes(self.stack.steps).astype(np.int64), 0)
        size = steps[ends] + block.question_sizes[self.stack.place[ends]]
        fits = within_limit(size)
        self.left_out[TOO_LARGE] = len(ends) - int(np.count_nonzero(fits))
        self.ends, self._size = ends[fits], size[fits]

    def rows(self, columns: Callable[[Chains], Columns], labels: NDArray[np.int8] | None = None) -> Iterator[Rows]:
        """The rows. `columns` gives those of some chains, beside `PROVENANCE`; `labels`, int8[chains], are those that
        the report counts: whether every step is right, if not given.
        """
        if left_out := {reason: count for reason, count in self.left_out.items() if count}:
            yield Rows({}, 0, left_out)
        for piece in pieces(self._size):
            chains = self.some(piece)
            numbers = self.block.numbers[chains.place]
            provenance = {
                "problem_id": self.block.problem_ids.take(pa.array(chains.place)),
                "tree_id": numbers,
                "node_ids": chains.each(self._names),
                "rollouts": chains.each(self._rollouts),
                "compressed": self.stack.pass_of(chains.ends),
            }
            label = chains.all_right() if labels is None else labels[piece]
            yield Rows({**columns(chains), **provenance}, len(chains.ends), labels=label, numbers=numbers)

    def some(self, piece: slice) -> Chains:
        """Some of the chains."""
        ends = self.ends[piece]
        paths = Paths.of(self.stack, ends)
        return Chains(ends, self.stack.place[ends], paths, self.stack.hard[paths.nodes] == 1)

    def pieces(self) -> Iterator[Chains]:
        """All chains, some at a time."""
        yield from map(self.some, pieces(self._size))

    def drop(self, mask: NDArray[np.bool_], reason: str) -> None:
        """Leave out the chains where `mask`, bool[chains], is true, and count them."""
        self.left_out[reason] += int(np.count_nonzero(mask))
        self.ends, self._size = self.ends[~mask], self._size[~mask]

    def _new(self, ends: NodeRows) -> NodeRows:
        """Of `ends`, those of the trees as grown, and those of later passes whose chains are new; the rest counts."""
        key = self._keys()
        stack, block = self.stack, self.block
        changed = stack.joined(map(block.shifted, block.passes)) | stack.arrays("nodes.forest.merged")
        touched = stack.from_root(np.logical_or, changed, False)
        parts = [ends[np.searchsorted(ends, a) : np.searchsorted(ends, b)] for a, b in pairwise(stack.starts.tolist())]
        grown, earlier = np.zeros(stack.size + 1, dtype=np.bool_), np.zeros(stack.size + 1, dtype=np.bool_)
        grown[key[parts[0]]] = True
        kept = parts[:1]
        for part in parts[1:]:
            own = part[touched[part]]
            fresh = own[~grown[key[own]]]
            new = fresh[~earlier[key[fresh]]]
            earlier[key[own]] = True
            kept.append(new)
            self.left_out[NOT_FRESH] += len(part) - len(fresh)
            self.left_out[REPEATED] += len(fresh) - len(new)
        return np.concatenate(kept)

    def _keys(self) -> NDArray[np.int64]:
        """int64[n], up to n: alike for two nodes of one tree whose steps from the root on, with their labels, are."""
        stack = self.stack
        code = pc.dictionary_encode(stack.steps).indices.to_numpy().astype(np.int64)
        own = 2 * code + (stack.hard == 1)
        key = stack.place.astype(np.int64)
        made = len(self.block.problems)
        for level in stack.levels:
            rows = level[self.inside[level]]
            pairs = pc.dictionary_encode(pa.array(key[stack.parent[rows]] * (2 * stack.size) + own[rows]))
            key[rows] = made + pairs.indices.to_numpy()
            made += len(pairs.dictionary)
        return key


def labelled_from_root(stack: Stack) -> NDArray[np.bool_]:
    """bool[n]: steps with a hard label whose steps before have one too; false at the roots."""
    inside = stack.from_root(np.logical_and, stack.hard >= 0, True)
    inside[stack.parent < 0] = False
    return inside


def outside_chains(stack: Stack, inside: NDArray[np.bool_]) -> dict[str, int]:
    """Steps of the trees as grown that belong to no chain, by reason."""
    grown = slice(0, int(stack.starts[1]))
    labelled, step = stack.hard[grown] >= 0, stack.parent[grown] >= 0
    return {
        NO_LABEL: int(np.count_nonzero(~labelled & step)),
        AFTER: int(np.count_nonzero(labelled & step & ~inside[grown])),
    }
