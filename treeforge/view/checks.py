"""How the answers at a node were judged: verdict, route and reason, worked out again by the run's checker."""

from __future__ import annotations

import threading
from itertools import islice
from typing import Any

from treeforge.disputed import differing_verdicts, other_checkers, why_disputed
from treeforge.printable import one_line
from treeforge.recheck import current_checker, endings_at
from treeforge.store.run import RunFolder
from treeforge.verdict import Verdict
from treeforge.view.reader import PageTree

MAX_CHECKS = 60
"""Answers of one node."""
_CELLS = 200


class Checks:
    """Judges answers of one run, one at a time; remembers what it judged."""

    def __init__(self, run: RunFolder) -> None:
        self._checker = current_checker(run)
        self._others = other_checkers(self._checker)
        self._lock = threading.Lock()

    def of(self, found: PageTree, node: int) -> list[dict[str, Any]]:
        """The answers that ended at this node or in its own rollouts, `MAX_CHECKS` at most.

        Each with the rollout's `place` (-1: the node itself), the present `verdict`, its `route` and `reason`, the
        verdict of the `search` and of every other preset where they differ, and why it is disputed. The routes of the
        search are written nowhere; judges are deterministic.
        """
        problem, tree = found.shown.problem, found.shown.record.tree
        answers: list[dict[str, Any]] = []
        for ending in islice(endings_at(tree, node, found.rollouts.get(node, ())), MAX_CHECKS):
            with self._lock:
                said = self._checker.judge(problem, ending.text)
                differing = differing_verdicts(said, ending.verdict, problem, ending.text, self._others)
            answers.append(
                {
                    "place": ending.rollout,
                    "verdict": Verdict(said.verdict).name.lower(),
                    "answer": one_line(said.answer, _CELLS),
                    "route": said.route,
                    "reason": one_line(said.reason, _CELLS),
                    "others": differing,
                    "why": list(why_disputed(said, differing)),
                }
            )
        return answers

    @property
    def policy(self) -> str:
        """The name of the check policy."""
        return self._checker.policy.name
