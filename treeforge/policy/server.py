"""`ServerPolicy`: a language model behind one or several OpenAI-compatible servers (vLLM, SGLang, llama.cpp, …)."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from http import HTTPStatus
from pathlib import Path
from typing import Any

from treeforge.config import SamplingConfig, StepsConfig
from treeforge.errors import ConfigError, PolicyError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.addresses import ServersFile
from treeforge.policy.balance import Balancer, Outcome
from treeforge.policy.base import PromptCache, Request, Sample
from treeforge.policy.http import JsonClient, ReplyError, UnreachableError, base_url
from treeforge.policy.probe import model_label
from treeforge.policy.replica import Replica
from treeforge.policy.steps import clean_text

logger = logging.getLogger(__name__)

TEND_SECONDS = 1.0
"""Lost servers are looked for, and the file of servers is looked at, this often at most."""

_MOST_KEPT = 4096  # requests of which some samples came; given up, they are never asked for again

START_SECONDS = 30.0
"""A start waits so long for one more server, once it has one."""

Failure = RequestFailedError | ConfigError


class ServerPolicy:
    """A model served over HTTP: `/v1/completions`, or `/v1/chat/completions` with the steps so far to be continued.

    `model`: the name that the servers know it by (`GET /v1/models`), or the file name of a path that they give as
    name. `servers`: base URLs, all with this model; or `servers_file`, which lists them and may change (see
    `ServersFile`). `timeout`: seconds of one attempt. `concurrency`: requests in flight over all servers, and HTTP
    requests at one of them. The API key goes into the `Authorization` header and nowhere else.

    Which server takes a request: see `balance`. What a server that is lost had not answered is asked of the next one.
    Seeds are sent, and served models answer them alike only as far as batching lets them: the journal is what repeats.
    """

    def __init__(
        self,
        model: str,
        steps: StepsConfig,
        sampling: SamplingConfig,
        *,
        servers: tuple[str, ...] = (),
        servers_file: Path | None = None,
        api_key: str | None,
        timeout: float,
        concurrency: int,
    ) -> None:
        if servers and servers_file is not None:
            raise ConfigError("machine.servers and machine.servers_file are both given; name the servers in one place")
        self._file = None if servers_file is None else ServersFile(servers_file)
        urls = list(dict.fromkeys(base_url(server) for server in servers)) if self._file is None else self._file.urls
        if not urls:
            raise ConfigError("machine.servers is empty; name at least one server, as in http://127.0.0.1:8000/v1")
        self._model = clean_text(model)
        self._steps, self._sampling, self._concurrency = steps, sampling, concurrency
        self._client = JsonClient(api_key=api_key, timeout=timeout)
        self._said: set[str] = set()
        self._cache = PromptCache()
        self._gone: list[Replica] = []
        self._balancer = Balancer([self._replica(url) for url in urls], concurrency)
        self._kept: dict[tuple[int, bytes, int], dict[int, Sample]] = {}
        self._tended = 0.0
        self._label: str | None = None

    def __repr__(self) -> str:
        return f"ServerPolicy({self._model!r}, servers={[replica.url for replica in self._balancer.members]!r})"

    @property
    def identity(self) -> dict[str, Any]:
        """Backend and model as the servers name it."""
        if self._label is None:
            raise PolicyError("a server's identity is known once the policy has started")
        return {"backend": "server", "model": self._label}

    @property
    def prompt_cache(self) -> PromptCache | None:
        """By those servers' replies that tell it, in which the samples of one reply share a prompt; None where none do.

        vLLM tells it with `--enable-prompt-tokens-details`, SGLang with `--enable-cache-report`, llama.cpp always.
        """
        return self._cache if self._cache.prompt else None

    async def start(self) -> None:
        """Reach the servers, find the model and probe what they can do; what was found is logged.

        Servers that cannot be reached are left for later where another one can. Raises `PolicyUnavailableError` (none),
        `ConfigError` (unknown model, key, refused prompt; different models).
        """
        replicas = self._balancer.members
        waiting = {asyncio.create_task(replica.ready()): replica for replica in replicas}
        failures: list[Failure] = []
        try:
            while waiting:
                # One that hangs must not keep those back that are there.
                seconds = START_SECONDS if any(replica.alive for replica in replicas) else None
                done, _ = await asyncio.wait(waiting, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
                if not done:
                    break
                for task in done:
                    del waiting[task]
                    error = task.exception()
                    if isinstance(error, RequestFailedError):
                        failures.append(error)
                    elif error is not None:
                        raise error
        finally:
            for task in waiting:
                task.cancel()
        reached = [replica for replica in replicas if replica.alive]
        if not reached:
            raise _unavailable(failures)
        for why in (*failures, *(f"{replica.url}: has not answered yet" for replica in waiting.values())):
            logger.warning("going on without one server: %s", why)
        self._label = model_label(reached[0].served)
        for replica in reached:
            self._check(replica)

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """`request.n` samples, in order: one attempt on the tree's server, and on its next ones where nobody is there.

        A server that is there and fails is not left for another one, unless it says that it is too busy: what to
        repeat, and when, is the scheduler's. Raises `RequestFailedError` (a server is there), `PolicyUnavailableError`
        (none is) or `ConfigError` (the key, or the model, is no longer accepted).
        """
        self._tend()
        key = request.tree, request.digest, request.seed
        kept = self._kept.pop(key, {})
        try:
            return await self._sample(request, kept)
        finally:
            if kept and len(kept) < request.n:
                self._kept[key] = kept
                if len(self._kept) > _MOST_KEPT:
                    del self._kept[next(iter(self._kept))]

    async def _sample(self, request: Request, kept: dict[int, Sample]) -> tuple[Sample, ...]:
        balancer = self._balancer
        failures: list[Failure] = []
        tried: list[Replica] = []
        while (replica := balancer.choose(request.tree, time.monotonic(), tried)) is not None:
            tried.append(replica)
            samples = await self._try(replica, request, kept, failures)
            if samples is not None:
                return samples
        if not any(isinstance(failure, ReplyError) for failure in failures):
            for replica in balancer.ranked(request.tree):
                if replica in tried:
                    continue
                try:
                    await replica.ready()
                except (RequestFailedError, ConfigError) as error:
                    failures.append(error)
                    continue
                samples = await self._try(replica, request, kept, failures)
                if samples is not None:
                    return samples
        raise _what_counts(failures)

    async def _try(
        self, replica: Replica, request: Request, kept: dict[int, Sample], failures: list[Failure]
    ) -> tuple[Sample, ...] | None:
        """The samples, or None where another replica has to be asked; why is added to `failures`."""
        try:
            return await self._ask(replica, request, kept)
        except (UnreachableError, ConfigError) as error:
            failures.append(error)
        except ReplyError as error:
            if error.status != HTTPStatus.TOO_MANY_REQUESTS:
                raise
            failures.append(error)
        return None

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        for replica in (*self._balancer.members, *self._gone):
            await replica.close()
        await self._client.close()

    async def _ask(self, replica: Replica, request: Request, kept: dict[int, Sample]) -> tuple[Sample, ...]:
        self._check(replica)
        balancer, began = self._balancer, time.monotonic()
        outcome: Outcome = "neither"
        balancer.begin(replica, began)
        try:
            samples = await replica.ask(request, kept)
            outcome = "answered"
            return samples
        except RequestFailedError as error:
            busy = isinstance(error, ReplyError) and error.status == HTTPStatus.TOO_MANY_REQUESTS
            if error.retryable and not busy and not isinstance(error, UnreachableError):
                outcome = "failed"
            raise
        except ConfigError as error:
            replica.refuse(error)
            raise
        finally:
            balancer.end(replica, began, time.monotonic(), outcome)

    def _replica(self, url: str) -> Replica:
        return Replica(
            url,
            self._model,
            self._steps,
            self._sampling,
            self._client,
            slots=self._concurrency,
            said=self._said,
            cache=self._cache,
        )

    def _check(self, replica: Replica) -> None:
        """A server that is reached later than at the start must not bring another model into the trees."""
        label = model_label(replica.served)
        if self._label is not None and label != self._label:
            error = ConfigError(f"machine.servers: {replica.url} serves {label!r}, the others {self._label!r}")
            replica.refuse(error)
            raise error

    def _tend(self) -> None:
        """Look for lost servers, which nobody waits for, and at the file of servers."""
        now = time.monotonic()
        if now < self._tended + TEND_SECONDS:
            return
        self._tended = now
        if self._file is not None and self._file.changed():
            self._take(self._file.urls)
        for replica in self._balancer.members:
            replica.look()

    def _take(self, urls: Sequence[str]) -> None:
        """These servers from now on. One that is no longer named answers what it was asked."""
        before = {replica.url: replica for replica in self._balancer.members}
        gone = [replica for url, replica in before.items() if url not in urls]
        self._gone = [replica for replica in self._gone if replica.busy] + gone
        self._balancer.replace([before.get(url) or self._replica(url) for url in urls])
        logger.warning(
            "the list of servers changed: %d servers, %d of them new, %d gone",
            len(urls),
            sum(url not in before for url in urls),
            len(gone),
        )


def _what_counts(failures: Sequence[Failure]) -> Exception:
    """Which of several replicas' failures to raise: somebody is there, busy or failing; what a person has to mend."""
    replies = [failure for failure in failures if isinstance(failure, ReplyError)]
    if replies:
        return min(replies, key=lambda error: error.retry_after or 0.0)
    mend = [failure for failure in failures if isinstance(failure, ConfigError)]
    return mend[0] if mend else _unavailable(failures)


def _unavailable(failures: Sequence[Exception]) -> PolicyUnavailableError:
    lines = "\n".join(f"  {failure}" for failure in failures)
    return PolicyUnavailableError(
        f"no server answers:\n{lines}\nStart the server, or correct its address (--server http://HOST:PORT/v1)"
    )
