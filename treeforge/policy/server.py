"""`ServerPolicy`: a language model behind one or several OpenAI-compatible servers (vLLM, SGLang, llama.cpp, …)."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from treeforge.config import SamplingConfig, StepsConfig
from treeforge.errors import ConfigError, PolicyError, PolicyUnavailableError, RequestFailedError
from treeforge.hashing import digest, encode_text
from treeforge.policy.base import Request, Sample
from treeforge.policy.http import JsonClient, UnreachableError, base_url
from treeforge.policy.probe import model_label
from treeforge.policy.replica import Replica
from treeforge.policy.steps import clean_text

logger = logging.getLogger(__name__)


class ServerPolicy:
    """A model served over HTTP: `/v1/completions`, or `/v1/chat/completions` with the steps so far to be continued.

    `model`: the name that the servers know it by (`GET /v1/models`), or the file name of a path that they give as
    name. `servers`: base URLs, all with this model. `timeout`: seconds of one attempt. `concurrency`: HTTP requests in
    flight, over all servers. The API key goes into the `Authorization` header and nowhere else.

    A tree's requests go to one server, so that its prefix cache hits; where nobody is there, to the tree's next one.
    Seeds are sent, and served models answer them alike only as far as batching lets them: the journal is what repeats.
    """

    def __init__(
        self,
        model: str,
        steps: StepsConfig,
        sampling: SamplingConfig,
        *,
        servers: tuple[str, ...],
        api_key: str | None,
        timeout: float,
        concurrency: int,
    ) -> None:
        urls = list(dict.fromkeys(base_url(server) for server in servers))
        if not urls:
            raise ConfigError("machine.servers is empty; name at least one server, as in http://127.0.0.1:8000/v1")
        self._model = clean_text(model)
        self._client = JsonClient(api_key=api_key, timeout=timeout, concurrency=concurrency)
        self._replicas = [Replica(url, self._model, steps, sampling, self._client) for url in urls]
        self._label: str | None = None

    def __repr__(self) -> str:
        return f"ServerPolicy({self._model!r}, servers={[replica.url for replica in self._replicas]!r})"

    @property
    def identity(self) -> dict[str, Any]:
        """Backend and model as the servers name it."""
        if self._label is None:
            raise PolicyError("a server's identity is known once the policy has started")
        return {"backend": "server", "model": self._label}

    async def start(self) -> None:
        """Reach the servers, find the model and probe what they can do; what was found is logged.

        Servers that cannot be reached are left for later where another one can. Raises `PolicyUnavailableError` (none),
        `ConfigError` (unknown model, key, refused prompt; different models).
        """
        results = await asyncio.gather(*(replica.ready() for replica in self._replicas), return_exceptions=True)
        failures: list[RequestFailedError] = []
        for result in results:
            if isinstance(result, RequestFailedError):
                failures.append(result)
            elif result is not None:
                raise result
        if len(failures) == len(self._replicas):
            raise _unavailable(failures)
        for failure in failures:
            logger.warning("going on without one server: %s", failure)
        reached = [replica for replica in self._replicas if replica.served]
        self._label = model_label(reached[0].served)
        for replica in reached:
            self._check(replica)

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """`request.n` samples, in order: one attempt on the tree's server, and on its next ones where nobody is there.

        Raises `RequestFailedError` (a server is there), `PolicyUnavailableError` (none is) or `ConfigError` (the key,
        or the model, is no longer accepted).
        """
        failures: list[RequestFailedError | ConfigError] = []
        for replica in self._order(request.tree):
            try:
                await replica.ready()
                self._check(replica)
                return tuple(await replica.ask(request, 0, request.n))
            except (UnreachableError, ConfigError) as error:
                failures.append(error)
        for failure in failures:
            if isinstance(failure, ConfigError):
                raise failure
        raise _unavailable(failures)

    async def close(self) -> None:
        """Close the connections; may be called twice."""
        for replica in self._replicas:
            await replica.close()
        await self._client.close()

    def _check(self, replica: Replica) -> None:
        """A server that is reached later than at the start must not bring another model into the trees."""
        label = model_label(replica.served)
        if self._label is not None and label != self._label:
            raise ConfigError(f"machine.servers: {replica.url} serves {label!r}, the others {self._label!r}")

    def _order(self, tree: int) -> list[Replica]:
        """A tree's servers, the first choice first: rendezvous hashing, so that a lost server moves its trees only."""
        if len(self._replicas) == 1:
            return self._replicas
        key = tree.to_bytes(8, "little", signed=True)
        ranked = sorted(self._replicas, key=lambda replica: digest(encode_text(replica.url), key))
        return sorted(ranked, key=lambda replica: replica.resting)


def _unavailable(failures: list[Any]) -> PolicyUnavailableError:
    lines = "\n".join(f"  {failure}" for failure in failures)
    return PolicyUnavailableError(
        f"no server answers:\n{lines}\nStart the server, or correct its address (--server http://HOST:PORT/v1)"
    )
