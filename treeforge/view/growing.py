"""The tree of a problem that still grows, as far as the journal takes it. Read only: the run notices nothing.

A tree is a function of (recipe, problem, given solutions, journal), so it is grown again from the rows that are there
and looked at before its first wave that is not wholly answered. Nodes are only ever appended: their ids stay.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from treeforge.config import LabelConfig, Recipe
from treeforge.configuration import convert
from treeforge.errors import RunError
from treeforge.label.steps import label_nodes
from treeforge.manifest import check_identity
from treeforge.printable import printable
from treeforge.recheck import own_checker
from treeforge.sample import Sample
from treeforge.search.growing import GrowingTree, request_base
from treeforge.search.strategies import start
from treeforge.store.given import open_given
from treeforge.store.imported import StepValues
from treeforge.store.journal import Journal
from treeforge.store.run import RunFolder
from treeforge.tree import TreeRecord
from treeforge.verdict import Judge
from treeforge.view.valued import ValuedTree

_log = logging.getLogger("treeforge.view")

MAX_SAMPLES = 40
"""Completions of one growing tree."""
_SAMPLE_CHARS = 2_000

Rows = dict[bytes, tuple[Sample, ...]]


def journal_rows(run: RunFolder, number: int) -> Rows:
    """All samples of a tree by request, in the order of writing; none without a journal."""
    file = run.path / "journal.sqlite"
    if not file.exists():
        return {}
    journal = Journal.open(file, read_only=True)
    try:
        return journal.rows(number)
    finally:
        journal.close()


def load_growing(run: RunFolder, number: int) -> ValuedTree | None:
    """The tree of one problem that has not ended; None where it has not begun."""
    rows = journal_rows(run, number)
    return Growing(run).tree(number, rows) if rows else None


class Growing:
    """Trees of one run that have not ended."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run
        self._judge: Judge = own_checker(run)
        self._given = open_given(run)
        self._ours = run.manifest.get("policy") is not None
        try:
            if self._ours:
                check_identity(run, run.manifest["policy"], self._judge)
        except RunError:
            self._ours = False

    def tree(self, number: int, rows: Rows) -> ValuedTree | None:
        """The tree that these rows give; None where they give none, or it cannot be grown here.

        So it is where `run` was given a judge or a scorer of the caller's own, which are not to be had.
        """
        run, problem = self._run, self._run.problems[number]
        if not self._ours or not rows:
            return None
        try:
            record = self._grown(number, rows)
        except Exception as error:  # noqa: BLE001 - as the search has it: whatever a tree's growth raises
            _log.info("tree %d cannot be grown from the journal: %s", number, error)
            return None
        if record.tree.size == 1 and not record.rollouts:
            return None
        config = convert(run.manifest["label"], LabelConfig)
        values = StepValues(run, config).of(number, record.tree, record.rollouts)
        return ValuedTree(
            number=number,
            problem=problem,
            record=record,
            values=values,
            hard=label_nodes(record.tree, values, config).hard,
            saved=False,
            config=config,
        )

    def _grown(self, number: int, rows: Rows) -> TreeRecord:
        recipe = convert(self._run.manifest["recipe"], Recipe)
        base = request_base(recipe, self._run.manifest["policy"])
        given = self._given.of(number) if self._given else ()
        growing = GrowingTree(number, self._run.problems[number], recipe, self._judge, base, given)
        strategy = start(growing, recipe.search, recipe.budget)
        replies: list[Sequence[Sample]] | None = None
        try:
            while True:
                wave = strategy.send(replies)  # type: ignore[arg-type]
                answered = [rows[request.digest] for request in wave if request.digest in rows]
                if len(answered) < len(wave):
                    break
                replies = list(answered)
        except StopIteration:
            pass  # It ended, and is about to be handed over.
        finally:
            strategy.close()
        tree, rollouts = growing.builder.freeze(), tuple(growing.rollouts)
        return TreeRecord(growing.problem.problem_id, tree, rollouts, "open", "")


def growing_data(rows: Rows) -> dict[str, Any]:
    """What the journal holds of a tree that has not ended: counts, and the completions that came last."""
    samples = [sample for row in rows.values() for sample in row]
    return {
        "requests": len(rows),
        "completions": len(samples),
        "tokens": sum(sample.tokens for sample in samples),
        "samples": [
            {
                "text": printable(sample.text[:_SAMPLE_CHARS]),
                "length": len(sample.text),
                "finish": sample.finish,
                "tokens": sample.tokens,
            }
            for sample in samples[: -MAX_SAMPLES - 1 : -1]
        ],
    }
