"""What the scheduler keeps of a tree that grows, and the limits that end trees beside their own budget."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from treeforge.config import BudgetConfig
from treeforge.sample import Request, Sample
from treeforge.search.base import Strategy
from treeforge.search.growing import GrowingTree
from treeforge.search.progress import Progress

Rows = dict[bytes, tuple[Sample, ...]]


class SampleLog(Protocol):
    """What the scheduler needs of a journal."""

    def rows(self, tree: int) -> Rows:
        """All samples journaled for a tree, by request digest."""
        ...

    def record(self, request: Request, samples: tuple[Sample, ...]) -> None:
        """Take in a request's samples; durable at the latest after `flush`."""
        ...

    def flush(self) -> None:
        """Make everything recorded durable. Raises `StorageError`."""
        ...

    def cutoff(self, tree: int) -> tuple[int, str] | None:
        """(wave before which this tree stops, reason), as journaled."""
        ...

    def record_cutoff(self, tree: int, wave: int, reason: str) -> None:
        """Journal a cut-off, durably, before it acts."""
        ...


class OpenTree:
    """A tree that grows, and what its last wave still waits for."""

    __slots__ = ("cutoff", "growing", "missing", "nodes", "opened", "replies", "rows", "strategy", "waves")

    def __init__(
        self, growing: GrowingTree, strategy: Strategy, rows: Rows, cutoff: tuple[int, str] | None, opened: float
    ) -> None:
        self.growing, self.strategy, self.rows, self.cutoff, self.opened = growing, strategy, rows, cutoff, opened
        self.nodes = 0
        self.replies: list[tuple[Sample, ...] | None] = []
        self.missing = 0
        self.waves = 0


class Limits:
    """The limits on a tree's wall time and on the whole run. They act between waves, journaled before they do."""

    def __init__(self, budget: BudgetConfig, log: SampleLog, progress: Progress, clock: Callable[[], float]) -> None:
        self._budget, self._log, self._progress, self._clock = budget, log, progress, clock
        self._limited = any(budget.journaled)
        self._started = 0.0

    def start(self) -> None:
        """The search begins now."""
        self._started = self._clock()

    @property
    def seconds(self) -> float:
        """Since the search began."""
        return self._clock() - self._started

    def cut_off(self, tree: OpenTree, wave: list[Request]) -> str | None:
        """The reason why this tree stops before its next wave, journaled; None to go on."""
        if tree.cutoff is not None:
            return tree.cutoff[1] if tree.cutoff[0] <= tree.waves else None
        if not self._limited or all(request.digest in tree.rows for request in wave):
            return None
        reason = self._spent(tree)
        if reason is not None:
            self._log.record_cutoff(tree.growing.number, tree.waves, reason)
        return reason

    def _spent(self, tree: OpenTree) -> str | None:
        """Which limit on the clock or on the whole run is reached."""
        budget, progress, now = self._budget, self._progress, self._clock()
        if budget.seconds and now - tree.opened >= budget.seconds:
            return f"budget: {budget.seconds:g} seconds"
        if budget.run_nodes and progress.run_nodes >= budget.run_nodes:
            return f"run budget: {budget.run_nodes} nodes"
        if budget.run_rollouts and progress.run_completions >= budget.run_rollouts:
            return f"run budget: {budget.run_rollouts} rollouts"
        if budget.run_tokens and progress.run_tokens >= budget.run_tokens:
            return f"run budget: {budget.run_tokens} tokens"
        if budget.run_seconds and now - self._started >= budget.run_seconds:
            return f"run budget: {budget.run_seconds:g} seconds"
        return None
