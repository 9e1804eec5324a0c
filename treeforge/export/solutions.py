"""Steps in a row and whole solutions: what most training formats are made of."""

from __future__ import annotations

import math
from collections.abc import Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.export.trees import ExportTree, LabelledTree, shifted_nodes
from treeforge.tree import Finish, Tree
from treeforge.verdict import NO_VERDICT, Verdict


class Chain(msgspec.Struct, frozen=True, kw_only=True):
    """A maximal run of labelled steps: from a first step down to a node below which no step is labelled."""

    nodes: tuple[int, ...]
    """Rows of the tree, in order."""
    steps: tuple[str, ...]
    """The steps' texts. What an environment answered to a step begins the next one's, so that they concatenate."""
    labels: tuple[bool, ...]
    """Their hard labels."""
    soft: tuple[float, ...]
    """Their soft labels."""
    verdict: int
    """The `Verdict` that the last step ends with; -1 where it ends no trajectory."""


class Solution(msgspec.Struct, frozen=True, kw_only=True):
    """One completion to the end, or several of the same text."""

    steps: tuple[str, ...]
    """Its steps, from the first."""
    verdict: int
    """A `Verdict`; never -1."""
    finish: int
    """A `Finish`."""
    answer: str
    """The extracted final answer."""
    count: int
    """How many completions have this text."""
    tokens: int
    """Tokens of the whole text."""
    logprob: float
    """Sum of their log-probabilities in nats; NaN unknown."""
    value: float
    """The lowest soft label of the nodes on its path; NaN where none has one."""
    node: int
    """The node that ends it, or that its rollout started from."""
    rollout: int
    """The rollout's place among its tree's, from 0; -1: the node itself ends it."""

    @property
    def text(self) -> str:
        """All steps, concatenated."""
        return "".join(self.steps)


def chains(labelled: LabelledTree) -> list[Chain]:
    """The maximal chains of steps with a hard label, ordered by their last row.

    A step without a label ends its chain, and what lies below it belongs to none.
    """
    tree = labelled.tree
    inside = labelled_from_root(labelled)
    tip = inside.copy()
    rows = np.flatnonzero(inside)
    tip[tree.parent[rows]] = False
    parent, hard, soft = tree.parent.tolist(), labelled.hard.tolist(), labelled.soft.tolist()
    texts = step_texts(tree)
    out = []
    for row in np.flatnonzero(tip & (tree.parent >= 0)).tolist():
        nodes = _path(parent, row)
        out.append(
            Chain(
                nodes=nodes,
                steps=tuple([texts[node] for node in nodes]),
                labels=tuple([hard[node] == 1 for node in nodes]),
                soft=tuple([soft[node] for node in nodes]),
                verdict=int(tree.verdict[row]),
            )
        )
    return out


def labelled_from_root(labelled: LabelledTree) -> NDArray[np.bool_]:
    """bool[n]: steps with a hard label whose steps before have one too; false at the root."""
    parent = labelled.tree.parent.tolist()
    inside = (labelled.hard >= 0).tolist()
    inside[0] = True
    for row in range(1, len(parent)):
        if inside[row] and not inside[parent[row]]:
            inside[row] = False
    inside[0] = False
    return np.array(inside, dtype=np.bool_)


def new_chains(tree: ExportTree, number: int, labelled: LabelledTree) -> tuple[list[Chain], int]:
    """The chains of a pass, and how many were left out: of a compressed tree, those without a merge or moved value."""
    found = chains(labelled)
    if number == 0:
        return found, 0
    changed = shifted_nodes(labelled, tree.values.value)
    changed |= np.fromiter(map(bool, labelled.tree.merged_from), dtype=np.bool_, count=labelled.tree.size)
    new = [chain for chain in found if changed[list(chain.nodes)].any()]
    return new, len(found) - len(new)


def step_texts(tree: Tree) -> Sequence[str]:
    """n texts: each step's, after what an environment answered to the step before it."""
    if not any(tree.observation):
        return tree.text
    before = tree.observation
    return [(before[p] if p > 0 else "") + text for p, text in zip(tree.parent.tolist(), tree.text, strict=True)]


def solutions(tree: ExportTree) -> list[Solution]:
    """All completions that ended, of nodes and of rollouts, each text once: in row order, rollouts after nodes.

    Engine errors and completions without any text are no solutions.
    """
    nodes = tree.record.tree
    parent, soft = nodes.parent.tolist(), tree.soft.tolist()
    texts, tokens = step_texts(nodes), nodes.token_count.tolist()
    logprob = nodes.logprob.astype(np.float64).tolist()
    paths: dict[int, tuple[int, ...]] = {0: ()}

    def make(
        node: int, rollout: int, more: Sequence[str], verdict: int, finish: int, answer: str, count: int
    ) -> Solution:
        path = paths.get(node) or paths.setdefault(node, _path(parent, node))
        own = tree.record.rollouts[rollout] if rollout >= 0 else None
        bridge = nodes.observation[node]
        steps = [texts[row] for row in path] + [bridge + more[0], *more[1:]] if more else [texts[row] for row in path]
        known = [soft[row] for row in path if not math.isnan(soft[row])]
        return Solution(
            steps=tuple(steps),
            verdict=verdict,
            finish=finish,
            answer=answer,
            count=count,
            tokens=sum([tokens[row] for row in path]) + (own.tokens if own else 0),
            logprob=sum([logprob[row] for row in path]) + (own.logprob if own else 0.0),
            value=min(known, default=math.nan),
            node=node,
            rollout=rollout,
        )

    found: dict[tuple[str, int, int], Solution] = {}

    def add(solution: Solution) -> None:
        text = solution.text
        if not text:
            return
        key = text, solution.verdict, solution.finish
        old = found.get(key)
        found[key] = solution if old is None else msgspec.structs.replace(old, count=old.count + solution.count)

    for row in np.flatnonzero(nodes.verdict != NO_VERDICT).tolist():
        count = max(round(float(nodes.multiplicity[row])), 1)
        add(make(row, -1, (), int(nodes.verdict[row]), int(nodes.finish[row]), nodes.answer[row], count))
    for number, rollout in enumerate(tree.record.rollouts):
        if rollout.finish != Finish.ERROR:
            add(make(rollout.node, number, rollout.steps, rollout.verdict, rollout.finish, rollout.answer, 1))
    return list(found.values())


def right(solution: Solution) -> bool:
    """Whether it ends with the right answer."""
    return solution.verdict == Verdict.CORRECT


def decided(tree: ExportTree) -> tuple[list[Solution], int]:
    """The solutions that are right or wrong, and how many are undecided."""
    found = solutions(tree)
    kept = [solution for solution in found if solution.verdict != Verdict.UNDECIDED]
    return kept, len(found) - len(kept)


def _path(parent: Sequence[int], node: int) -> tuple[int, ...]:
    rows = []
    while node > 0:
        rows.append(node)
        node = parent[node]
    return tuple(rows[::-1])
