"""The labels of given solutions, solution by solution, as their file had them (`treeforge annotate --labelled`)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from treeforge.config import Recipe
from treeforge.configuration import convert
from treeforge.errors import RunError
from treeforge.given import GivenSolution
from treeforge.problem import Problem
from treeforge.search.given import place
from treeforge.search.growing import GrowingTree
from treeforge.store.files import atomic_file
from treeforge.store.given import open_given
from treeforge.store.run import RunFolder
from treeforge.store.tables import VALUES, values_from_table
from treeforge.store.views import read_view, view_state
from treeforge.tree import Finish, Tree
from treeforge.verdict import Judgement, Verdict


class LabelledSolution(msgspec.Struct, frozen=True, kw_only=True):
    """A given solution with the labels of its steps: the shape of the format `prm`, and what they rest on."""

    row: int
    """Where it stands in its file; 0 unknown."""
    problem_id: str
    prompt: str
    """The question."""
    completions: tuple[str, ...]
    """Its steps, as they stand in the file."""
    labels: tuple[bool | None, ...]
    """A step each: its hard label, None for none."""
    values: tuple[float | None, ...]
    """A step each: its soft label, None for none."""
    rollouts: tuple[int, ...]
    """A step each: decided outcomes behind it."""
    nodes: tuple[int, ...]
    """A step each: its node_id in the run's tables. Solutions that begin alike share theirs."""
    parents: tuple[int, ...]
    """A step each: the place of the step before it, -1 for none; 0 is followed by 1, and so on, unless it is a tree."""
    correct: bool | None
    """Whether its final answer is right; None where it states none, or several, or is undecided."""
    gold_answer: str


def labelled_solutions(path: Path | str) -> Iterator[LabelledSolution]:
    """The given solutions of the trees that have ended, in the order of problems, with the labels of `labels/`.

    Raises `RunError` for a run without given solutions or up-to-date labels.
    """
    run = RunFolder.open(path)
    given, state = open_given(run), view_state(run, "labels")
    if given is None:
        raise RunError(f"{run.path} has no given solutions; runs of `treeforge annotate` have")
    if state is None or state["stale"]:
        raise RunError(
            f"{run.path} has no labels, or older ones than trees; make them with `treeforge label {run.path}`"
        )
    recipe = convert(run.manifest["recipe"], Recipe)
    for block in run.blocks:
        found = values_from_table(read_view(run, "labels", "values", VALUES, block))
        labels = {number: (values.rollouts, hard, soft) for number, values, hard, soft in found}
        for number, record in run.records(sorted(labels)):
            problem, solutions = run.problems[number], given.of(number)
            placed = _placed(number, problem, recipe, record.tree, solutions)
            for solution, nodes in zip(solutions, placed, strict=True):
                yield _labelled(problem, solution, nodes, record.tree, *labels[number])


def write_labelled(path: Path | str, file: Path) -> int:
    """Write `labelled_solutions` as JSON lines; how many."""
    count = 0
    with atomic_file(file) as stream:
        for solution in labelled_solutions(path):
            # In ASCII: an answer checker of one's own may let lone surrogates through, which only escapes can carry.
            stream.write(json.dumps(msgspec.to_builtins(solution)).encode() + b"\n")
            count += 1
    return count


class _AsGrown:
    """The judge of a tree that has grown: what it said of ends, read off the nodes."""

    identity = "as grown"

    def __init__(self, tree: Tree) -> None:
        ended = np.flatnonzero(tree.finish == Finish.ANSWERED).tolist()
        self._ends = {tree.text[row]: Judgement(Verdict(tree.verdict[row]), tree.answer[row]) for row in ended}

    def judge(self, problem: Problem, text: str) -> Judgement:
        return self._ends.get(text, Judgement(Verdict.NO_ANSWER))


def _placed(
    number: int, problem: Problem, recipe: Recipe, tree: Tree, solutions: Sequence[GivenSolution]
) -> list[list[int]]:
    """The nodes of each solution's steps: they are a tree's first ones, so that placing them again finds them."""
    return place(GrowingTree(number, problem, recipe, _AsGrown(tree), b"", solutions))


def _labelled(
    problem: Problem, solution: GivenSolution, nodes: list[int], tree: Tree, rollouts: Any, hard: Any, soft: Any
) -> LabelledSolution:
    verdicts = {int(tree.verdict[node]) for node in nodes} - {-1}
    known = {int(Verdict.CORRECT): True, int(Verdict.INCORRECT): False, int(Verdict.UNPARSABLE): False}
    return LabelledSolution(
        row=solution.row,
        problem_id=problem.problem_id,
        prompt=problem.question,
        completions=solution.steps,
        labels=tuple(None if hard[node] < 0 else bool(hard[node]) for node in nodes),
        values=tuple(None if np.isnan(soft[node]) else float(soft[node]) for node in nodes),
        rollouts=tuple(int(rollouts[node]) for node in nodes),
        nodes=tuple(nodes),
        parents=solution.parents,
        correct=known.get(next(iter(verdicts))) if len(verdicts) == 1 else None,
        gold_answer=problem.gold_answer,
    )
