"""The scheduler: thousands of trees over one pool of requests, without a barrier across trees.

A tree waits for its own wave only. Requests of all open trees share `concurrency` slots, older trees first; new trees
are opened whenever a slot would be idle. The results of a wave are applied in the order in which its requests were
made, so that the order of arrival leaves no trace. What the journal holds, and what an `ImmediatePolicy` can answer,
costs no event-loop turn.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any, Protocol

from treeforge.config import Machine, Recipe
from treeforge.errors import ScorerError, StorageError
from treeforge.given import GivenSolution
from treeforge.policy.base import ImmediatePolicy, Policy
from treeforge.problem import Problem
from treeforge.sample import Request, Sample
from treeforge.search.asking import Asker
from treeforge.search.growing import GrowingTree, request_base
from treeforge.search.progress import Progress
from treeforge.search.strategies import Scorer, Strategy, start
from treeforge.tree import TreeRecord
from treeforge.verdict import Judge

_log = logging.getLogger("treeforge.search")

_TURN_SECONDS = 0.02
"""The event loop gets its turn this often, for signals, progress and arriving replies."""

_COMMIT_SECONDS = 0.005
"""Answers are committed this often at most: a commit costs as much as several answers, and at most so much is lost."""

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


class _OpenTree:
    __slots__ = ("cutoff", "growing", "missing", "nodes", "opened", "replies", "rows", "strategy", "waves")

    def __init__(
        self, growing: GrowingTree, strategy: Strategy, rows: Rows, cutoff: tuple[int, str] | None, opened: float
    ) -> None:
        self.growing, self.strategy, self.rows, self.cutoff, self.opened = growing, strategy, rows, cutoff, opened
        self.nodes = 0
        self.replies: list[tuple[Sample, ...] | None] = []
        self.missing = 0
        self.waves = 0


class Forest:
    """Grows one run's trees. Make one, then `await forest.grow(problems)` once.

    `identity` is the policy's in the digests of requests; that of `policy` where it is not given. `scorer` is for the
    strategy `beam`, in place of the one that the recipe names; `given` gives a tree's solutions for `search.given`.
    """

    def __init__(
        self,
        recipe: Recipe,
        machine: Machine,
        policy: Policy,
        judge: Judge,
        journal: SampleLog,
        finished: Callable[[int, TreeRecord], None],
        *,
        identity: dict[str, Any] | None = None,
        progress: Progress | None = None,
        scorer: Scorer | None = None,
        given: Callable[[int], Sequence[GivenSolution]] | None = None,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.recipe, self.machine = recipe, machine
        self.judge, self.journal, self.finished = judge, journal, finished
        self.progress = progress or Progress()
        self._scorer, self._given = scorer, given
        self._clock = clock
        self._asker = Asker(policy, machine, self.progress, clock=clock, sleep=sleep)
        self._sample_now = policy.sample_now if isinstance(policy, ImmediatePolicy) else None
        self._base = request_base(recipe, policy.identity if identity is None else identity)
        self._waiting: list[tuple[int, int, int, _OpenTree, Request]] = []
        self._sequence = 0
        self._ready: deque[tuple[_OpenTree, Sequence[Sequence[Sample]] | None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self._more = True
        self._ended: list[tuple[int, TreeRecord]] = []
        self._limited = any(recipe.budget.journaled)
        self._started = 0.0
        self._settled = 0.0
        self._settling: asyncio.TimerHandle | None = None

    async def grow(self, problems: Iterator[tuple[int, Problem]]) -> None:
        """Grow a tree for every (number, problem); `finished` is called with each as it ends.

        Raises `PolicyUnavailableError` when an outage outlasts the retries and `StorageError` when nothing can be
        written; everything answered until then is in the journal. Cancelling leaves a journal to resume from.
        """
        self._started = self._clock()
        watchdog = asyncio.create_task(self._asker.watch())
        try:
            while True:
                worked_out = self._work(problems)
                if self._failure is not None:
                    raise self._failure
                if worked_out and not self._tasks:
                    self._settle()
                    return
                self._settle_soon()
                if worked_out:
                    self._wake.clear()
                    await self._wake.wait()
                else:
                    await asyncio.sleep(0)
        except BaseException:
            await self._stop()
            raise
        finally:
            self.progress.search_seconds = self._clock() - self._started
            watchdog.cancel()

    def _work(self, problems: Iterator[tuple[int, Problem]]) -> bool:
        """Do what can be done without waiting, for one turn; True when nothing of that kind is left.

        Requests that were launched start when the turn ends, so it ends before the next tree is worked on.
        """
        slots, most_open = self.machine.concurrency, self.machine.open_trees
        turn_ends = self._clock() + _TURN_SECONDS
        launched = False
        while self._failure is None and self._clock() < turn_ends:
            waiting, ready = self._waiting, self._ready
            if waiting and len(self._tasks) < slots and not (ready and ready[0][0].growing.number < waiting[0][0]):
                self._launch()
                launched = True
            elif launched:
                return False
            elif ready:
                self._advance(*ready.popleft())
            elif len(self._tasks) >= slots or waiting:
                return True
            elif self._more and self.progress.open < most_open:
                item = next(problems, None)
                if item is None:
                    self._more = False
                else:
                    self._open(*item)
            else:
                return True
        return False

    async def _stop(self) -> None:
        """Cancel what is in flight and keep what was answered."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(StorageError):
            self._settle()

    def _open(self, number: int, problem: Problem) -> None:
        given = self._given(number) if self._given is not None else ()
        growing = GrowingTree(number, problem, self.recipe, self.judge, self._base, given)
        strategy = start(growing, self.recipe.search, self.recipe.budget, self._scorer)
        tree = _OpenTree(growing, strategy, self.journal.rows(number), self.journal.cutoff(number), self._clock())
        self.progress.open += 1
        self._ready.append((tree, None))

    def _advance(self, tree: _OpenTree, replies: Sequence[Sequence[Sample]] | None) -> None:
        """Give a tree its last wave's replies and prepare the next wave; the tree may end instead."""
        growing, rows, sample_now = tree.growing, tree.rows, self._sample_now
        try:
            wave = tree.strategy.send(replies)  # type: ignore[arg-type]
        except StopIteration as stop:
            self._finish(tree, *stop.value)
            return
        except ScorerError:  # it would fail on the other trees as well
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tree's growth raises must not take the others down
            _log.exception("tree %d (problem %s) failed", growing.number, growing.problem.problem_id)
            self._finish(tree, "failed", f"internal error: {type(error).__name__}: {error}")
            return
        finally:
            size = growing.builder.size
            self.progress.run_nodes += size - tree.nodes
            tree.nodes = size
        if reason := self._cut_off(tree, wave):
            tree.strategy.close()
            self._finish(tree, "exhausted", reason)
            return
        tree.waves += 1
        answers: list[tuple[Sample, ...] | None] = []
        missing = 0
        for request in wave:
            samples = rows.pop(request.digest, None) if rows else None
            if samples is not None:
                self.progress.replayed += 1
            elif sample_now is not None and (samples := sample_now(request)) is not None:
                self._record(request, samples)
            else:
                missing += 1
            answers.append(samples)
        if not missing:
            self._ready.appendleft((tree, answers))  # type: ignore[arg-type]
            return
        tree.replies, tree.missing = answers, missing
        for slot, request in enumerate(wave):
            if answers[slot] is None:
                self._sequence += 1
                heapq.heappush(self._waiting, (growing.number, self._sequence, slot, tree, request))

    def _cut_off(self, tree: _OpenTree, wave: list[Request]) -> str | None:
        """The reason why this tree stops before its next wave, journaled; None to go on."""
        if tree.cutoff is not None:
            return tree.cutoff[1] if tree.cutoff[0] <= tree.waves else None
        if not self._limited or all(request.digest in tree.rows for request in wave):
            return None
        reason = self._spent(tree)
        if reason is not None:
            self.journal.record_cutoff(tree.growing.number, tree.waves, reason)
        return reason

    def _spent(self, tree: _OpenTree) -> str | None:
        """Which limit on the clock or on the whole run is reached."""
        budget, progress, now = self.recipe.budget, self.progress, self._clock()
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

    def _record(self, request: Request, samples: tuple[Sample, ...]) -> None:
        self.journal.record(request, samples)
        if samples[0].finish == "error":
            return
        progress, completions, tokens = self.progress, len(samples), sum([sample.tokens for sample in samples])
        progress.requests += 1
        progress.completions += completions
        progress.tokens += tokens
        progress.run_tokens += tokens
        progress.run_completions += completions

    def _finish(self, tree: _OpenTree, status: str, reason: str) -> None:
        growing = tree.growing
        if growing.errors and len(growing.errors) == growing.samples:
            status, reason = "failed", f"every request failed: {growing.errors[0]}"
        progress = self.progress
        progress.open -= 1
        progress.finished += 1
        progress.judged += growing.builder.visits[0]
        progress.correct += round(growing.builder.value_sum[0])
        record = TreeRecord(
            growing.problem.problem_id, growing.builder.freeze(), tuple(growing.rollouts), status, reason
        )
        self._ended.append((growing.number, record))

    def _settle_soon(self) -> None:
        """Settle, unless that was done a moment ago; then in a moment, whatever happens."""
        loop = asyncio.get_running_loop()
        rest = self._settled + _COMMIT_SECONDS - loop.time()
        if rest <= 0:
            self._settle()
            self._settled = loop.time()
        elif self._settling is None:
            self._settling = loop.call_later(rest, self._settle_now)

    def _settle_now(self) -> None:
        self._settling = None
        self._wake.set()

    def _settle(self) -> None:
        """Make this turn's answers durable, and only then hand over the trees that ended on them."""
        self.journal.flush()
        ended, self._ended = self._ended, []
        for number, record in ended:
            self.finished(number, record)

    def _launch(self) -> None:
        _, _, slot, tree, request = heapq.heappop(self._waiting)
        task = asyncio.get_running_loop().create_task(self._ask(tree, slot, request))
        self._tasks.add(task)
        self.progress.in_flight = len(self._tasks)

    async def _ask(self, tree: _OpenTree, slot: int, request: Request) -> None:
        """Get one request answered. The task that runs this takes itself off the list, which costs no further turn."""
        try:
            samples = await self._asker.sample(request)
            self._record(request, samples)
        except BaseException as error:  # `grow` raises it
            self._failure = self._failure or error
            if not isinstance(error, Exception):
                raise
        else:
            tree.replies[slot] = samples
            tree.missing -= 1
            if not tree.missing:
                replies, tree.replies = tree.replies, []
                self._ready.append((tree, replies))  # type: ignore[arg-type]
        finally:
            self._tasks.discard(asyncio.current_task())
            self.progress.in_flight = len(self._tasks)
            self._wake.set()
