"""The scheduler: thousands of trees over one pool of requests, without a barrier across trees.

A tree waits for its own wave only. Requests of all open trees share `concurrency` slots, older trees first; new trees
are opened whenever a slot would be idle. The results of a wave are applied in the order in which its requests were
made, so that the order of arrival leaves no trace. What the journal holds, and what an `ImmediatePolicy` can answer,
costs no event-loop turn. With a scorer (a reward model, mostly) strategies go on in a thread of their own, so that the
policy is asked for other trees meanwhile.
"""

from __future__ import annotations

import asyncio
import contextlib
import heapq
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator, Sequence
from typing import Any

from treeforge.config import Machine, Recipe
from treeforge.errors import ScorerError, StorageError
from treeforge.given import GivenSolution
from treeforge.policy.base import ImmediatePolicy, Policy
from treeforge.problem import Problem
from treeforge.sample import Request, Sample
from treeforge.search.aside import Aside
from treeforge.search.asking import Asker
from treeforge.search.growing import GrowingTree, request_base
from treeforge.search.open_tree import Limits, OpenTree, SampleLog
from treeforge.search.progress import Progress
from treeforge.search.strategies import Scorer, start
from treeforge.tree import TreeRecord
from treeforge.verdict import Judge

_log = logging.getLogger("treeforge.search")

_TURN_SECONDS = 0.02
"""The event loop gets its turn this often, for signals, progress and arriving replies."""

_COMMIT_SECONDS = 0.005
"""Answers are committed this often at most: a commit costs as much as several answers, and at most so much is lost."""


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
        self._waiting: list[tuple[int, int, int, OpenTree, Request]] = []
        self._sequence = 0
        self._ready: deque[tuple[OpenTree, Sequence[Sequence[Sample]] | None]] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self._aside = Aside("scorer") if scorer is not None else None
        self._scoring: asyncio.Task[None] | None = None
        self._failure: BaseException | None = None
        self._wake = asyncio.Event()
        self._more = True
        self._ended: list[tuple[int, TreeRecord]] = []
        self._limits = Limits(recipe.budget, journal, self.progress, clock)
        self._settled = 0.0
        self._settling: asyncio.TimerHandle | None = None

    async def grow(self, problems: Iterator[tuple[int, Problem]]) -> None:
        """Grow a tree for every (number, problem); `finished` is called with each as it ends.

        Raises `PolicyUnavailableError` when an outage outlasts the retries and `StorageError` when nothing can be
        written; everything answered until then is in the journal. Cancelling leaves a journal to resume from.
        """
        self._limits.start()
        watchdog = asyncio.create_task(self._asker.watch())
        try:
            while True:
                worked_out = self._work(problems)
                if self._failure is not None:
                    raise self._failure
                if worked_out and not self._tasks and self._scoring is None:
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
            self.progress.search_seconds = self._limits.seconds
            watchdog.cancel()
            if self._aside is not None:
                self._aside.close()

    def _work(self, problems: Iterator[tuple[int, Problem]]) -> bool:
        """Do what can be done without waiting, for one turn; True when nothing of that kind is left.

        Requests that were launched start when the turn ends, so it ends before the next tree is worked on.
        """
        slots, most_open = self.machine.concurrency, self.machine.open_trees
        turn_ends, aside = self._clock() + _TURN_SECONDS, self._aside
        launched = False
        while self._failure is None and self._clock() < turn_ends:
            waiting, ready = self._waiting, self._ready
            # The thread has one tree at a time. Trees that wait for it hold up no request; meanwhile none is opened.
            goes_on = ready and (aside is None or self._scoring is None or ready[0][1] is None)
            if waiting and len(self._tasks) < slots and not (goes_on and ready[0][0].growing.number < waiting[0][0]):
                self._launch()
                launched = True
            elif launched:
                return False
            elif goes_on and (aside is None or ready[0][1] is None):
                tree, replies = ready.popleft()
                self._take(tree, self._next(tree, replies))
            elif goes_on:
                oldest = min(ready, key=lambda item: item[0].growing.number)
                ready.remove(oldest)
                self._scoring = asyncio.create_task(self._score(*oldest))
            elif ready or len(self._tasks) >= slots or waiting:
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
        tasks = [*self._tasks, *([self._scoring] if self._scoring is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(StorageError):
            self._settle()

    def _open(self, number: int, problem: Problem) -> None:
        given = self._given(number) if self._given is not None else ()
        growing = GrowingTree(number, problem, self.recipe, self.judge, self._base, given)
        strategy = start(growing, self.recipe.search, self.recipe.budget, self._scorer)
        tree = OpenTree(growing, strategy, self.journal.rows(number), self.journal.cutoff(number), self._clock())
        self.progress.open += 1
        self._ready.append((tree, None))

    async def _score(self, tree: OpenTree, replies: Sequence[Sequence[Sample]] | None) -> None:
        """Take a tree to its next wave in the thread."""
        assert self._aside is not None
        try:
            self._take(tree, await self._aside.run(self._next, tree, replies))
        except BaseException as error:  # `grow` raises it
            self._failure = self._failure or error
            if not isinstance(error, Exception):
                raise
        finally:
            self._scoring = None
            self._wake.set()

    def _next(self, tree: OpenTree, replies: Sequence[Sequence[Sample]] | None) -> list[Request] | tuple[str, str]:
        """Give a tree its last wave's replies: its next wave, or how it ended. Touches this tree only."""
        try:
            return tree.strategy.send(replies)  # type: ignore[arg-type]
        except StopIteration as stop:
            ended: tuple[str, str] = stop.value
            return ended
        except ScorerError:  # it would fail on the other trees as well
            raise
        except Exception as error:  # noqa: BLE001 - whatever a tree's growth raises must not take the others down
            growing = tree.growing
            _log.exception("tree %d (problem %s) failed", growing.number, growing.problem.problem_id)
            return "failed", f"internal error: {type(error).__name__}: {error}"

    def _take(self, tree: OpenTree, wave: list[Request] | tuple[str, str]) -> None:
        """Prepare a tree's next wave, or end the tree."""
        growing, rows, sample_now = tree.growing, tree.rows, self._sample_now
        size = growing.builder.size
        self.progress.run_nodes += size - tree.nodes
        tree.nodes = size
        if isinstance(wave, tuple):
            self._finish(tree, *wave)
            return
        if reason := self._limits.cut_off(tree, wave):
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

    def _finish(self, tree: OpenTree, status: str, reason: str) -> None:
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

    async def _ask(self, tree: OpenTree, slot: int, request: Request) -> None:
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
