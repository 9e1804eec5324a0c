"""What an OpenAI-compatible server can do, found out by a few short requests.

Servers that call themselves compatible differ in what they take and in what they say. Known beforehand, a run neither
fails on an option nor believes what is not so.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from http import HTTPStatus
from typing import Any, TypeVar

import msgspec

from treeforge.config import SamplingConfig
from treeforge.errors import ConfigError, RequestFailedError
from treeforge.policy.http import JsonClient, ReplyError, error_message
from treeforge.policy.replies import THINK, Choice, Told, completion_tokens, read_choices
from treeforge.policy.wire import Wire

T = TypeVar("T")

_QUESTION = "List random numbers between 1 and 1000000."
_PREFIX = "Random numbers:"  # what follows has much entropy at once, whatever the model
_TOKENS = 12
_CLOSING_TOKENS = 2  # every chat template closes a message and opens the next one with more
_SEED = 1
_WAITS = (0.5, 2.0)
_LONGEST_WAIT = 10.0
_NO_LIST = (HTTPStatus.NOT_FOUND, HTTPStatus.METHOD_NOT_ALLOWED, HTTPStatus.NOT_IMPLEMENTED)


class Abilities(msgspec.Struct, frozen=True, kw_only=True):
    """What a server can do."""

    options: frozenset[str]
    """Options to send, out of `Wire.options`."""
    echoes: bool
    """A chat reply repeats the start of the assistant's message (llama.cpp)."""
    continues: bool
    """A chat's reply continues the assistant's message; also True where nothing tells."""
    apart: bool
    """A chat's reply keeps the model's reasoning apart."""
    repeats: bool
    """One seed gave one text. Never a promise: on a busy server, batching changes the last bits."""
    stops: bool
    """It stops at stop strings."""
    tells: bool
    """Its `stop_reason`, where there is one, can be relied on."""
    counts: bool
    """It counts tokens."""

    def __str__(self) -> str:
        found = {
            "samples a request": "n" if "n" in self.options else "one",
            "log-probabilities": "yes" if "logprobs" in self.options else "no",
            "seeds": "repeat" if self.repeats else "taken, without effect" if "seed" in self.options else "refused",
            "stop strings": "yes" if self.stops else "ignored (texts are cut here)",
            "steps": "continued" if self.continues else "answered anew",
            "token counts": "yes" if self.counts else "no",
        }
        return "; ".join(f"{what}: {value}" for what, value in found.items())


async def find_model(client: JsonClient, url: str, model: str) -> str:
    """The model's name as this server has it: `model` is an id, an alias, or the file name of an id that is a path.

    A server without `GET /models` is taken at our word. Raises `ConfigError` listing what it serves instead.
    """
    names = await served_models(client, url)
    if not names or model in names:
        return model
    for name in names:
        if model in (_last_part(name), re.sub(r"\.gguf$", "", _last_part(name), flags=re.IGNORECASE)):
            return name
    listed = ", ".join(client.one_line(name) for name in names[:20])
    raise ConfigError(f"policy.model: {url} serves no model {model!r}; it serves: {listed}")


async def served_models(client: JsonClient, url: str) -> list[str]:
    """The names of what this server serves; none where it has no `GET /models`."""
    try:
        return _model_names(await client.get(f"{url}/models"))
    except ReplyError as error:
        if error.status in _NO_LIST:
            return []
        raise


def model_label(served: str) -> str:
    """A served name for a policy's identity: a path (llama.cpp's default name) without its folders."""
    is_path = served.lower().endswith(".gguf") or re.match(r"/|[A-Za-z]:[\\/]", served)
    return _last_part(served) if is_path else served


class Probe:
    """Short requests to one server."""

    def __init__(self, client: JsonClient, url: str, model: str, wire: Wire, sampling: SamplingConfig) -> None:
        self._client, self._url, self._model, self._wire = client, url, model, wire
        self._top_k = sampling.top_k
        # Greedy stays greedy: vLLM refuses several samples then.
        temperature = max(1.0, sampling.temperature) if sampling.temperature else 0.0
        self._sampling = SamplingConfig(temperature=temperature)

    async def abilities(self) -> Abilities:
        """Three requests with one seed, the last with a stop string that the text before holds; a chat takes two more.

        The first is to be accepted, and warms the prefix cache: the last bits of a cold prompt's logits are others.
        Raises `ConfigError` (refused prompt or sampling) or what `JsonClient.post` raises.
        """
        options, reply = await self._accepted()
        if self._top_k and "sampling" not in options:
            raise ConfigError(f"sampling.top_k: {self._url} takes no top_k; set it to 0")
        started = self._wire.started(_PREFIX)
        echoes = bool(started) and all(choice.text.startswith(started) for choice in self._choices(reply, ""))
        started = started if echoes else ""
        first = self._choices(await self._post(options), started)
        text = first[0].text.removeprefix(THINK)
        mark = next((char for char in text[1:] if char.isalnum() and char != text[0]), "")
        second = self._choices(await self._post(options, [mark] if mark else []), started)
        again = second[0].text.removeprefix(THINK)
        # Without a start of the message a model that reasons does so.
        fresh = await self._post(options, prefix=None) if self._wire.chat else None
        stopped = bool(mark) and again == text.partition(mark)[0]
        if len(first) < 2 or (self._sampling.temperature and _all_alike(first) and _all_alike(second)):
            options -= {"n"}  # ignored, or one seed for all samples of a request
        if first[0].logprobs is None:
            options -= {"logprobs"}
        return Abilities(
            options=options,
            echoes=echoes,
            continues=fresh is None or await self._continues(options, fresh, reply),
            apart=fresh is not None and any(choice.hidden for choice in (*self._choices(fresh, ""), *first)),
            repeats="seed" in options and (stopped or again == text),
            stops=not mark or mark not in again,
            tells=not (stopped and second[0].told and second[0].stop != mark),
            counts=completion_tokens(reply) is not None or first[0].tokens is not None,
        )

    async def _accepted(self) -> tuple[frozenset[str], dict[str, Any]]:
        """The options that the server does not refuse, and its reply to a request with them."""
        try:
            return self._wire.options, await self._post(self._wire.options)
        except ReplyError as error:
            if error.retryable:
                raise
        try:
            await self._post(frozenset())
        except ReplyError as error:
            if error.retryable:
                raise
            raise ConfigError(f"the server refuses the plainest request: {error}") from None
        options: frozenset[str] = frozenset()
        for option in sorted(self._wire.options):
            try:
                await self._post(frozenset({option}))
                options |= {option}
            except ReplyError as error:
                if error.retryable:
                    raise
        return options, await self._post(options)

    async def _continues(self, options: frozenset[str], fresh: dict[str, Any], reply: dict[str, Any]) -> bool:
        """Whether the assistant's message is left open, told by the lengths of prompts.

        Twice the message is longer than the message by the message alone. If the message is longer than none by more,
        the template closed it and began another one, which the model then writes from its start.
        """
        none, once = _prompt_tokens(fresh), _prompt_tokens(reply)
        twice = _prompt_tokens(await self._post(options, prefix=_PREFIX + self._wire.started(_PREFIX)))
        if none is None or once is None or twice is None:
            return True
        return once - none < twice - once + _CLOSING_TOKENS

    async def _post(
        self, options: frozenset[str], stop: list[str] | None = None, prefix: str | None = _PREFIX
    ) -> dict[str, Any]:
        """A reply with choices."""
        payload = self._wire.payload(
            _QUESTION,
            prefix,
            self._sampling,
            model=self._model,
            options=options,
            n=2 if "n" in options else 1,
            seed=_SEED,
            max_tokens=_TOKENS,
            stop=stop or [],
        )

        async def post() -> dict[str, Any]:
            reply = await self._client.post(self._url + self._wire.path, payload)
            self._choices(reply, "")
            return reply

        return await patiently(post)

    def _choices(self, reply: dict[str, Any], started: str) -> list[Choice]:
        return choices_of(self._client, self._url, reply, Told(self._wire.chat, started))


async def patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask again where a server that is there is just busy: a start is not in the hands of who retries requests."""
    for wait in _WAITS:
        try:
            return await ask()
        except ReplyError as error:
            if error.doubtful or not error.retryable:
                raise
            await asyncio.sleep(min(error.retry_after or wait, _LONGEST_WAIT))
    return await ask()


def choices_of(client: JsonClient, url: str, reply: dict[str, Any], told: Told) -> list[Choice]:
    """`replies.read_choices`, whose failure names the server and what it said instead."""
    try:
        return read_choices(reply, told)
    except RequestFailedError as error:
        said = client.one_line(error_message(reply))
        raise ReplyError(f"{url}: {error}" + (f": {said}" if said else "")) from None


def _prompt_tokens(reply: dict[str, Any]) -> int | None:
    usage = reply.get("usage")
    count = usage.get("prompt_tokens") if isinstance(usage, dict) else None
    return count if isinstance(count, int) else None


def _all_alike(choices: list[Choice]) -> bool:
    return len({choice.text for choice in choices}) == 1


def _model_names(reply: dict[str, Any]) -> list[str]:
    data = reply.get("data")
    names: dict[str, None] = {}
    for entry in data if isinstance(data, list) else []:
        if isinstance(entry, dict):
            aliases = entry.get("aliases")
            for name in (entry.get("id"), *(aliases if isinstance(aliases, list) else [])):
                if isinstance(name, str):
                    names[name] = None
    return list(names)


def _last_part(name: str) -> str:
    return re.split(r"[\\/]", name.rstrip("\\/"))[-1]
