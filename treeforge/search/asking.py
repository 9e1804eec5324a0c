"""One request and all it takes to get it answered: retries, an end to what hangs, and a look at what came."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from typing import Any, get_args

import msgspec

from treeforge.config import Machine
from treeforge.errors import PolicyError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.base import Policy
from treeforge.policy.steps import clean_text
from treeforge.sample import FinishReason, Request, Sample
from treeforge.search.progress import Progress

_log = logging.getLogger("treeforge.search")

_PATIENCE = 3
"""A policy keeps `machine.request_timeout` itself, an attempt at a time and not counting its queue; one that hangs
nevertheless is cut off after this many times as long."""

_FINISH_REASONS = get_args(FinishReason)


class Asker:
    """Asks one policy for all trees. `watch` has to run as a task beside it."""

    def __init__(
        self,
        policy: Policy,
        machine: Machine,
        progress: Progress,
        *,
        clock: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]],
    ) -> None:
        self._policy, self._machine, self._progress = policy, machine, progress
        self._clock, self._sleep = clock, sleep
        self._patience = _PATIENCE * machine.request_timeout
        self._attempts: dict[asyncio.Task[Any], float] = {}
        self._overdue: set[asyncio.Task[Any]] = set()
        self._answered = 0

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """Ask until answered. A request that fails for good becomes error samples, an outage stops the run.

        The two are told apart by whether the policy answered anything else since this request first failed.
        """
        machine, progress = self._machine, self._progress
        answered_before: int | None = None
        attempt = 0
        started = self._clock()
        while True:
            try:
                samples = _checked(await self._attempt(request), request.n)
                self._answered += 1
                return samples
            except (RequestFailedError, PolicyUnavailableError) as raised:
                error = raised
            if answered_before is None:
                answered_before = self._answered
            alive = self._answered > answered_before
            delay = min(machine.backoff * 2.0**attempt, 30.0) * random.uniform(0.5, 1.0)
            if isinstance(error, RequestFailedError) and error.retry_after is not None:
                delay = max(delay, min(error.retry_after, 300.0))
            left = started + machine.request_total_timeout - self._clock()
            spent = attempt >= machine.retries or left <= 0
            if isinstance(error, RequestFailedError) and (not error.retryable or (spent and alive)):
                progress.errors += 1
                _log.warning("tree %d: request given up: %s", request.tree, error)
                return (Sample(str(error)[:500], "error"),) * request.n
            if spent:
                raise PolicyUnavailableError(
                    f"the policy answered nothing in {attempt + 1} attempts, the last time: {error}. "
                    "Everything answered before is in the journal; resume when it is back."
                ) from error
            attempt += 1
            progress.retries += 1
            delay = min(delay, left)
            _log.info("tree %d: attempt %d failed (%s); again in %.1f s", request.tree, attempt, error, delay)
            await self._sleep(delay)

    async def watch(self) -> None:
        """Cut off attempts that hang. One task for all of them: a timer each would cost more than the scheduling."""
        while True:
            await asyncio.sleep(max(self._patience / 20, 0.01))
            now = self._clock()
            for task, started in list(self._attempts.items()):
                if now - started > self._patience and task not in self._overdue:
                    self._overdue.add(task)
                    task.cancel()

    async def _attempt(self, request: Request) -> tuple[Sample, ...]:
        """Ask the policy once; an attempt that the watchdog cuts off is a failed request."""
        task = asyncio.current_task()
        assert task is not None
        self._attempts[task] = self._clock()
        try:
            return await self._policy.sample(request)
        except asyncio.CancelledError:
            if task in self._overdue:
                self._overdue.discard(task)
                if task.uncancel() == 0:  # else the run is being stopped as well
                    raise RequestFailedError(f"no answer within {self._patience:g} s") from None
            raise
        finally:
            del self._attempts[task]


def _checked(samples: Any, n: int) -> tuple[Sample, ...]:
    """What a policy gave, fit for the journal. Anybody's policy may stand behind it."""
    if not isinstance(samples, (tuple, list)):
        raise PolicyError(f"the policy gave {type(samples).__name__} where a tuple of Sample is due")
    plain = True
    for sample in samples:
        if not isinstance(sample, Sample):
            raise PolicyError(f"the policy gave {type(sample).__name__} where a Sample is due")
        text = sample.text
        if not isinstance(text, str) or sample.finish not in _FINISH_REASONS:
            raise PolicyError(f"the policy gave a sample without text, or with the finish reason {sample.finish!r}")
        if not 0 <= sample.tokens < 2**31:
            raise PolicyError(f"the policy gave a sample of {sample.tokens} tokens")
        plain = plain and text.isascii()
    if len(samples) != n:
        raise RequestFailedError(f"the policy gave {len(samples)} samples where {n} were asked")
    if plain:
        return tuple(samples)
    return tuple(msgspec.structs.replace(sample, text=clean_text(sample.text)) for sample in samples)
