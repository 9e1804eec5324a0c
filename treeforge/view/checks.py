"""How the answers at a node were judged: verdict, route and reason, worked out again by the run's checker."""

from __future__ import annotations

import threading
from typing import Any

from treeforge.disputed import differing_verdicts, other_checkers, why_disputed
from treeforge.printable import one_line
from treeforge.problem import Problem
from treeforge.recheck import current_checker, endings
from treeforge.store.run import RunFolder
from treeforge.tree import TreeRecord
from treeforge.verdict import Verdict

MAX_CHECKS = 60
"""Answers of one node."""
_CELLS = 200


class Checks:
    """Judges answers of one run, one at a time; remembers what it judged."""

    def __init__(self, run: RunFolder) -> None:
        self._checker = current_checker(run)
        self._others = other_checkers(self._checker)
        self._lock = threading.Lock()

    def of(self, problem: Problem, record: TreeRecord, node: int) -> list[dict[str, Any]]:
        """The answers that ended at this node or in its own rollouts, `MAX_CHECKS` at most.

        Each with the rollout's `place` (-1: the node itself), the present `verdict`, its `route` and `reason`, the
        verdict of the `search` and of every other preset where they differ, and why it is disputed. The routes of the
        search are written nowhere; judges are deterministic.
        """
        found = []
        for ending in endings(record):
            if ending.node != node:
                continue
            with self._lock:
                said = self._checker.judge(problem, ending.text)
                differing = differing_verdicts(said, ending.verdict, problem, ending.text, self._others)
            found.append(
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
            if len(found) == MAX_CHECKS:
                break
        return found

    @property
    def policy(self) -> str:
        """The name of the check policy."""
        return self._checker.policy.name
