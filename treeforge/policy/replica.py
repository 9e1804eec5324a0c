"""One OpenAI-compatible server: whether somebody is there, and samples from it."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Coroutine
from http import HTTPStatus
from typing import Any, TypeVar

from treeforge.config import SamplingConfig, StepsConfig
from treeforge.errors import ConfigError
from treeforge.hashing import derive_seed
from treeforge.policy.base import Request, Sample
from treeforge.policy.http import JsonClient, ReplyError, UnreachableError
from treeforge.policy.probe import Abilities, Probe, choices_of, find_model, patiently
from treeforge.policy.replies import Stops, completion_tokens, to_samples
from treeforge.policy.wire import Wire

logger = logging.getLogger("treeforge.policy.server")

T = TypeVar("T")

REST_SECONDS = 5.0
"""A server that could not be reached is asked after the others for this long."""

_NO_LIMIT = 1 << 30
_REFUSED = (HTTPStatus.BAD_REQUEST, HTTPStatus.UNPROCESSABLE_ENTITY)


class Replica:
    """One server with one model."""

    def __init__(self, url: str, model: str, steps: StepsConfig, sampling: SamplingConfig, client: JsonClient) -> None:
        self.url = url
        self.served = ""
        """The model's name at this server; '' until the server was reached."""
        self._model, self._steps, self._sampling, self._client = model, steps, sampling, client
        self._wire = Wire(steps)
        self._abilities: Abilities | None = None
        self._most = _NO_LIMIT  # samples in one HTTP request
        self._rest_until = 0.0
        self._preparing: asyncio.Task[None] | None = None

    @property
    def resting(self) -> bool:
        """It could not be reached a moment ago."""
        return time.monotonic() < self._rest_until

    async def ready(self) -> None:
        """Reach the server, find the model and probe it, unless done. All that wait share one attempt.

        Raises `UnreachableError`, `RequestFailedError` (it answers, not as it should) or `ConfigError`.
        """
        if self._abilities is not None:
            return
        if self._preparing is None or self._preparing.done():
            self._preparing = asyncio.create_task(self._prepare())
        await asyncio.shield(self._preparing)

    async def ask(self, request: Request, first: int, n: int) -> list[Sample]:
        """Samples `first` to `first + n - 1` of a request, in as few HTTP requests as the server allows.

        Raises `UnreachableError` (nobody is there), `RequestFailedError`, `ConfigError` (the key).
        """
        most = self._most
        if n > most:
            parts = [self.ask(request, i, min(most, first + n - i)) for i in range(first, first + n, most)]
            return [sample for part in await _all(parts) for sample in part]
        try:
            samples = await self._ask(request, first, n)
        except ReplyError as error:
            if n == 1 or error.status not in _REFUSED:
                raise
            half = n // 2  # llama.cpp takes n up to its number of slots; if n is not the reason, n = 1 fails as well
            samples = [*await self.ask(request, first, half), *await self.ask(request, first + half, n - half)]
            self._most = min(self._most, n - half)
            return samples
        if len(samples) < n:
            self._most = min(self._most, len(samples))
            samples += await self.ask(request, first + len(samples), n - len(samples))
        return samples[:n]

    async def close(self) -> None:
        """End an attempt to reach the server."""
        if self._preparing is not None:
            self._preparing.cancel()
            await asyncio.gather(self._preparing, return_exceptions=True)

    async def _ask(self, request: Request, first: int, n: int) -> list[Sample]:
        abilities = self._abilities
        if abilities is None:
            raise UnreachableError(f"{self.url}: was lost while the request waited")
        stops = Stops.of(self._steps, request.mode)
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
            reply = await self._client.post(self.url + self._wire.path, payload)
        except UnreachableError as error:
            self._lost(error)
            raise
        except ReplyError as error:
            if (error.doubtful or error.status == HTTPStatus.NOT_FOUND) and not await self._alive():
                self._lost(error)
                raise UnreachableError(str(error)) from None
            raise
        started = self._wire.started(request.prefix) if abilities.echoes else ""
        choices = choices_of(
            self._client, self.url, reply, chat=self._wire.chat, started=started, tells=abilities.tells
        )
        return to_samples(choices, stops, completion_tokens(reply))

    async def _prepare(self) -> None:
        try:
            self.served = await patiently(lambda: find_model(self._client, self.url, self._model))
            abilities = await Probe(self._client, self.url, self.served, self._wire, self._sampling).abilities()
        except UnreachableError as error:
            self._lost(error)
            raise
        except ReplyError as error:
            if not error.doubtful:
                raise
            self._lost(error)
            raise UnreachableError(str(error)) from None
        self._most = _NO_LIMIT if "n" in abilities.options else 1
        self._rest_until = 0.0
        self._abilities = abilities
        self._say(abilities)

    async def _alive(self) -> bool:
        """Somebody is there who serves our model. Where that was just denied, it is not asked again."""
        if self._abilities is None:
            return False
        try:
            await find_model(self._client, self.url, self._model)
        except ReplyError as error:
            return not error.doubtful
        except (UnreachableError, ConfigError):
            return False
        return True

    def _lost(self, error: Exception) -> None:
        if self._abilities is not None:
            logger.warning("nobody is there any more: %s", error)
        self._abilities = None
        self._rest_until = time.monotonic() + REST_SECONDS

    def _say(self, abilities: Abilities) -> None:
        logger.info("%s serves %s; %s", self.url, self.served, abilities)
        if "sampling" not in abilities.options:
            logger.warning("%s takes no top_k, min_p and repetition_penalty: its own defaults hold", self.url)
        if self._wire.chat and "continue" not in abilities.options and not abilities.echoes:
            logger.warning("%s knows no continue_final_message: it may answer the steps, not continue them", self.url)
        if not abilities.counts:
            logger.warning("%s counts no tokens: token budgets have no effect", self.url)


async def _all(coroutines: list[Coroutine[Any, Any, T]]) -> list[T]:
    """Run together. The first failure cancels the others, whose work nobody would get."""
    tasks = [asyncio.ensure_future(coroutine) for coroutine in coroutines]
    try:
        return await asyncio.gather(*tasks)
    except BaseException:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        raise
