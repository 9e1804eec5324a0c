"""One OpenAI-compatible server: whether somebody is there, and samples from it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any

from treeforge.config import SamplingConfig, StepsConfig
from treeforge.errors import ConfigError
from treeforge.hashing import derive_seed
from treeforge.policy.balance import Health
from treeforge.policy.base import Mode, PromptCache, Request, Sample
from treeforge.policy.http import JsonClient, ReplyError, UnreachableError
from treeforge.policy.probe import Abilities, Probe, choices_of, find_model, patiently
from treeforge.policy.replies import END_THINK, THINK, Stops, Told, completion_tokens, prompt_tokens, to_samples
from treeforge.policy.steps import ends_thinking, starts_thinking
from treeforge.policy.wire import Wire

logger = logging.getLogger("treeforge.policy.server")

REST_SECONDS = 5.0
"""A server that could not be reached is left alone for this long, while there are others."""

REFUSED_SECONDS = 60.0
"""The same where it refused the key or has another model."""

_NO_LIMIT = 1 << 30
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


class Replica:
    """One server with one model. `slots`: HTTP requests in flight at it, at most.

    `said`: what was already said of servers like this one, and `cache`: what they tell of their prefix caches, which
    all replicas of a fleet share.
    """

    def __init__(
        self,
        url: str,
        model: str,
        steps: StepsConfig,
        sampling: SamplingConfig,
        client: JsonClient,
        *,
        slots: int,
        said: set[str],
        cache: PromptCache,
    ) -> None:
        self.url = url
        self.health = Health()
        self.served = ""
        """The model's name at this server; '' until the server was reached."""
        self._model, self._steps, self._sampling, self._client = model, steps, sampling, client
        self._said, self._cache = said, cache
        self._untold: int | None = 0  # prompt tokens until the server first says what its cache did
        # A request that waits here for its turn has no clock running.
        self._slots = asyncio.Semaphore(slots)
        self._wire = Wire(steps)
        modes: tuple[Mode, ...] = ("rollout", "step")
        self._stops = {mode: Stops.of(steps, mode) for mode in modes}
        self._abilities: Abilities | None = None
        self._most = _NO_LIMIT  # samples in one HTTP request
        self._rest_until = 0.0
        self._preparing: asyncio.Task[None] | None = None

    @property
    def alive(self) -> bool:
        """It was reached and probed, and not lost since."""
        return self._abilities is not None

    @property
    def busy(self) -> bool:
        """Somebody waits for it."""
        return self.health.in_flight > 0 or (self._preparing is not None and not self._preparing.done())

    async def ready(self) -> None:
        """Reach the server, find the model and probe it, unless done. All that wait share one attempt.

        Raises `UnreachableError`, `RequestFailedError` (it answers, not as it should) or `ConfigError`.
        """
        if self._abilities is None:
            await asyncio.shield(self._prepared())

    def look(self) -> None:
        """Look whether a lost server is back, unless that was done a moment ago. Nobody waits for it."""
        if self._abilities is None and time.monotonic() >= self._rest_until:
            self._prepared()

    def refuse(self, error: ConfigError) -> None:
        """It answers, and cannot be used: nobody asks it for a while."""
        if self._abilities is not None:
            logger.warning("it gets no requests: %s", error)
        self._rest(REFUSED_SECONDS)

    async def ask(self, request: Request, kept: dict[int, Sample]) -> tuple[Sample, ...]:
        """A request's samples, in as few HTTP requests as the server allows.

        `kept`: samples by index that an earlier attempt was answered. They are not asked for again, and what this
        attempt is answered is put there, also where it fails in the end. Raises `UnreachableError` (nobody is there),
        `RequestFailedError` or `ConfigError` (the key).
        """
        missing = [i for i in range(request.n) if i not in kept]
        starts = [i for i in missing if i - 1 not in missing]
        ends = [i + 1 for i in missing if i + 1 not in missing]
        await _all([self._fill(request, start, end - start, kept) for start, end in zip(starts, ends, strict=True)])
        return tuple(kept[i] for i in range(request.n))

    async def _fill(self, request: Request, first: int, n: int, kept: dict[int, Sample]) -> None:
        """Get samples `first` to `first + n - 1`."""
        most = self._most
        if n > most:
            await _all([self._fill(request, i, min(most, first + n - i), kept) for i in range(first, first + n, most)])
            return
        try:
            samples = await self._ask(request, first, n)
        except ReplyError as error:
            if n == 1 or error.status not in _REFUSED:
                raise
            half = n // 2  # llama.cpp takes n up to its number of slots; if n is not the reason, n = 1 fails as well
            await self._fill(request, first, half, kept)
            await self._fill(request, first + half, n - half, kept)
            self._most = min(self._most, n - half)
            return
        kept.update(enumerate(samples[:n], first))
        if len(samples) < n:
            self._most = min(self._most, len(samples))
            await self._fill(request, first + len(samples), n - len(samples), kept)

    async def close(self) -> None:
        """End an attempt to reach the server."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.gather(self._preparing, return_exceptions=True)

    async def _ask(self, request: Request, first: int, n: int) -> list[Sample]:
        abilities = self._abilities
        if abilities is None:
            raise UnreachableError(f"{self.url}: was lost while the request waited")
        stops = self._stops[request.mode]
        payload = self._wire.payload(
            request.problem.question,
            request.prefix,
            self._sampling,
            model=self.served,
            options=abilities.options,
            n=n,
            seed=derive_seed(request.seed, b"sample", "server", first) >> 32,  # 31 bits: llama.cpp's seeds have 32
            max_tokens=self._sampling.max_step_tokens if request.mode == "step" else self._sampling.max_tokens,
            stop=stops.strings,
        )
        try:
            async with self._slots:
                reply = await self._client.post(self.url + self._wire.path, payload)
        except UnreachableError as error:
            self._lost(error)
            raise
        except ReplyError as error:
            if (error.doubtful or error.status == HTTPStatus.NOT_FOUND) and not await self._alive():
                self._lost(error)
                raise UnreachableError(str(error)) from None
            raise
        choices = choices_of(self._client, self.url, reply, self._told(request.prefix, abilities))
        self._count(*prompt_tokens(reply))
        return to_samples(choices, stops, completion_tokens(reply))

    def _count(self, prompt: int, cached: int | None) -> None:
        """Some servers say nothing where nothing was cached: a prompt before or after one that they tell of is such."""
        if self._untold is not None:
            self._untold += prompt
            if cached is None:
                return
            prompt, self._untold = self._untold, None
        self._cache.prompt += prompt
        self._cache.cached += cached or 0

    def _told(self, prefix: str, abilities: Abilities) -> Told:
        """What has to be known to read the reply to a request that continues `prefix`."""
        if not self._wire.chat:
            return Told(False, tells=abilities.tells)
        steps = self._steps
        return Told(
            True,
            self._wire.started(prefix) if abilities.echoes else "",
            abilities.tells,
            abilities.apart,
            bool(steps.think_close) and ends_thinking(prefix, steps, thinking=starts_thinking(steps)),
            steps.think_open or THINK,
            steps.think_close or END_THINK,
        )

    def _prepared(self) -> asyncio.Task[None]:
        """The attempt to reach the server that is under way, or a new one."""
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare())
            self._preparing.add_done_callback(_take_notice)
        return self._preparing

    async def _prepare(self) -> None:
        try:
            self.served = await patiently(lambda: find_model(self._client, self.url, self._model))
            abilities = await Probe(self._client, self.url, self.served, self._wire, self._sampling).abilities()
        except ReplyError as error:
            self._lost(error)
            if error.doubtful:
                raise UnreachableError(str(error)) from None
            raise
        except UnreachableError as error:
            self._lost(error)
            raise
        except ConfigError as error:
            self.refuse(error)
            raise
        self._most = _NO_LIMIT if "n" in abilities.options else 1
        self.health.reset(time.monotonic())
        self._abilities = abilities
        self._say(abilities)

    async def _alive(self) -> bool:
        """Somebody serves our model there, under the same name. Where that was just denied, it is not asked again."""
        if self._abilities is None:
            return False
        try:
            return await find_model(self._client, self.url, self._model) == self.served
        except ReplyError as error:
            return not error.doubtful
        except (UnreachableError, ConfigError):
            return False

    def _lost(self, error: Exception) -> None:
        if self._abilities is not None:
            logger.warning("nobody is there any more: %s", error)
        self._rest(REST_SECONDS)

    def _rest(self, seconds: float) -> None:
        self._abilities = None
        self._rest_until = time.monotonic() + seconds

    def _say(self, abilities: Abilities) -> None:
        logger.info("%s serves %s; %s", self.url, self.served, abilities)
        if "sampling" not in abilities.options:
            self._warn("takes no top_k, min_p and repetition_penalty: its own defaults hold")
        if "seed" not in abilities.options:
            self._warn("takes no seeds: what it answers cannot be repeated but from the journal")
        if "logprobs" not in abilities.options:
            self._warn("gives no log-probabilities: they are unknown in the tables")
        if "n" not in abilities.options:
            self._warn("gives one sample a request: each is asked for alone, and its prompt paid for each time")
        if not abilities.continues:
            self._warn(
                "does not continue the assistant's message: it answers the steps anew, so that trees make no sense"
            )
        elif self._wire.chat and "continue" not in abilities.options and not abilities.echoes:
            self._warn("knows no continue_final_message: it may answer the steps, not continue them")
        if not abilities.counts:
            self._warn("counts no tokens: token budgets have no effect")

    def _warn(self, what: str) -> None:
        """Once for all replicas alike, and not again when a server comes back."""
        if what not in self._said:
            self._said.add(what)
            logger.warning("%s %s", self.url, what)


def _take_notice(task: asyncio.Task[None]) -> None:
    """Where nobody waited for the attempt, its failure is no news: the server is still lost."""
    if not task.cancelled():
        task.exception()


async def _all(coroutines: list[Coroutine[Any, Any, None]]) -> None:
    """Run together, and raise the first failure when all are over: what the others are answered is paid for."""
    if len(coroutines) == 1:
        await coroutines[0]
        return
    for result in await asyncio.gather(*coroutines, return_exceptions=True):
        if isinstance(result, BaseException):
            raise result
