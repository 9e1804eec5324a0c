"""A reward model behind an OpenAI-compatible server: vLLM's `/classify`, or the next token's log-probabilities."""

from __future__ import annotations

import asyncio
import math
import os
import random
from collections.abc import Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from pathlib import Path
from typing import Any, TypeVar, get_args
from urllib.parse import parse_qsl

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.errors import ConfigError, MissingExtraError, PolicyUnavailableError, RequestFailedError
from treeforge.hashing import digest_object, file_sha256
from treeforge.policy.http import JsonClient, ReplyError, base_url
from treeforge.policy.probe import find_model, model_label, served_models
from treeforge.reward.base import Task, Window
from treeforge.reward.encode import Encoder, verdict_tokens
from treeforge.reward.heads import chances
from treeforge.reward.prompts import PROMPT, RIGHT, WRONG, parts
from treeforge.reward.score import LoadedModel, saved_in
from treeforge.reward.settings import Head

API_KEY = "TREEFORGE_API_KEY"
"""The environment variable of the servers' API key."""
_AT_ONCE = 8  # requests
_BATCH = 32  # windows of one request
_TOP = 20  # most likely tokens that are asked for; vLLM's default limit
_ROUNDING = 0.02  # of chances that add up to 1, in bfloat16
_MOST_SECONDS = 30.0  # between two attempts
_FORM = "write http://HOST:PORT?folder=FOLDER, or http://HOST:PORT?task=prm&head=classifier"

T = TypeVar("T")


class Address(msgspec.Struct, frozen=True, kw_only=True):
    """Where a model is served, and what it is."""

    url: str
    """The base URL, with /v1."""
    task: Task
    head: Head
    model: str = ""
    """The server's name for it; '' where the server has one only."""
    folder: Path | None = None
    """Where `treeforge train` made it."""
    window: int = 0
    """Tokens; 0 where they are the server's to count."""


def read_address(text: str) -> Address:
    """`http://HOST:PORT?folder=FOLDER`, or `?task=TASK&head=HEAD` for a model whose folder is not here; `model=NAME`
    where the server has several. Raises `ConfigError`.
    """
    place, _, query = text.partition("?")
    try:
        url = base_url(place)
    except ConfigError as error:
        raise ConfigError(str(error).replace("machine.servers: ", "reward model: ")) from None
    options = dict(parse_qsl(query, keep_blank_values=True))
    if strange := sorted(options.keys() - {"folder", "task", "head", "model"}):
        raise ConfigError(f"{place}: there is no option {', '.join(strange)}; {_FORM}")
    if folder := options.get("folder"):
        if options.keys() & {"task", "head"}:
            raise ConfigError(f"{place}: folder= says what task and head are; leave those out")
        path = Path(folder).expanduser()
        saved = saved_in(path)
        name = options.get("model", "")
        return Address(url=url, task=saved.task, head=saved.head, model=name, folder=path, window=saved.window)
    try:
        return msgspec.convert({"head": "classifier", **options, "url": url}, Address)
    except msgspec.ValidationError:
        tasks, heads = (", ".join(get_args(kind)) for kind in (Task, Head))
        what = f"what is served there? task= is one of {tasks}, head= one of {heads}"
        raise ConfigError(f"{place}: {what}; {_FORM}") from None


class ServedModel(LoadedModel):
    """A reward model that a server runs: heads `classifier` and `soft` by `/classify`, `token` by `/v1/completions`.

    With `folder=` the server gets token ids, made by the model's own tokenizer as in training and cut to its window;
    else texts, which it tokenises itself: at the seams between question, reasoning and step that may give other tokens.

    Each call is one burst of requests: 8 at once, failed ones again with growing pauses. The API key, if any, stands in
    the environment variable `TREEFORGE_API_KEY`.
    """

    def __init__(
        self, address: str, *, batch: int | None = None, attempts: int = 6, backoff: float = 0.5, timeout: float = 600.0
    ) -> None:
        """Reach the server and find the model. `backoff`: seconds before the second of `attempts`, doubled each time;
        `timeout`: seconds of one. Raises `ConfigError` and `PolicyUnavailableError`.
        """
        self._at = at = read_address(address)
        self.task, self._batch = at.task, batch or _BATCH
        self._attempts, self._backoff, self._timeout = attempts, backoff, timeout
        self._encoder = None if at.folder is None else _encoder(at.folder, at)
        root = at.url.removesuffix("/v1")
        # vLLM has it at the root, SGLang below /v1.
        routes = ["/v1/completions"] if at.head == "token" else ["/classify", "/v1/classify"]
        self._routes = [root + route for route in routes]
        self._model = _run(self._find())
        self._label = model_label(self._model)
        self.name = self._label or root

    @property
    def identity(self) -> str:
        """Digest of the model's name on the server, what it is, and `reward.json`; not of the address."""
        at = self._at
        card = "" if at.folder is None else file_sha256(at.folder / "reward.json")
        return digest_object({"served": self._label, "is": [at.task, at.head, PROMPT, card]}).hex()

    def probabilities(self, windows: Sequence[Window]) -> NDArray[np.float64]:
        """See `RewardModel`. Raises `PolicyUnavailableError` where the attempts are spent, `ConfigError` for a server
        that refuses, or answers something else."""
        inputs: list[Any]
        if self._encoder is None:
            ask = self._at.head == "token"
            inputs = ["".join(parts(window, ask=ask)) for window in windows]
        else:
            encoded = self._encoder.encode(windows)
            self.truncated += sum(cut for _, cut in encoded)
            inputs = [ids for ids, _ in encoded]
        return np.array(_run(self._chances(inputs)), dtype=np.float64)

    def _client(self) -> JsonClient:
        return JsonClient(api_key=os.environ.get(API_KEY), timeout=self._timeout)

    async def _find(self) -> str:
        client, at = self._client(), self._at
        try:
            if at.model:
                return await find_model(client, at.url, at.model)
            names = await served_models(client, at.url)
        except RequestFailedError as error:
            raise PolicyUnavailableError(
                f"no reward model answers: {error}. Start its server, or correct the address"
            ) from None
        except ConfigError as error:
            raise ConfigError(str(error).replace("policy.model:", "reward model:")) from None
        finally:
            await client.close()
        if len(names) > 1:
            listed = ", ".join(client.one_line(name) for name in names[:20])
            raise ConfigError(f"{at.url} serves several models; name one by model=: {listed}")
        return names[0] if names else ""

    async def _chances(self, inputs: Sequence[Any]) -> list[float]:
        client, slots = self._client(), asyncio.Semaphore(_AT_ONCE)

        async def ask(batch: Sequence[Any]) -> list[float]:
            async with slots:
                return await self._ask(client, batch)

        try:
            starts = range(0, len(inputs), self._batch)
            found = await asyncio.gather(*(ask(inputs[start : start + self._batch]) for start in starts))
        finally:
            await client.close()
        return [chance for batch in found for chance in batch]

    async def _ask(self, client: JsonClient, batch: Sequence[Any]) -> list[float]:
        """The chances of one request's inputs."""
        payload: dict[str, Any] = {"model": self._model} if self._model else {}
        if self._at.head == "token":
            payload |= {"prompt": list(batch), "max_tokens": 1, "temperature": 0, "logprobs": _TOP}
        else:
            payload |= {"input": list(batch)}
        attempt = 0
        while True:
            url = self._routes[0]
            try:
                reply = await client.post(url, payload)
                break
            except RequestFailedError as error:
                status = error.status if isinstance(error, ReplyError) else 0
                if status == HTTPStatus.NOT_FOUND and url == self._routes[0] and len(self._routes) > 1:
                    del self._routes[0]
                if url != self._routes[0]:  # this request found out, or another one
                    continue
                if not error.retryable:
                    raise ConfigError(f"the reward model's server refuses: {error}. {self._advice(status)}") from None
                attempt += 1
                if attempt >= self._attempts:
                    raise PolicyUnavailableError(f"the reward model's server fails: {error}") from None
                pause = self._backoff * 2.0 ** (attempt - 1) * random.uniform(0.5, 1.0)
                wait = pause if error.retry_after is None else error.retry_after
                await asyncio.sleep(min(wait, _MOST_SECONDS))
        read = _verdicts if self._at.head == "token" else _classes
        try:
            return read(reply, len(batch), self._at.head)
        except (KeyError, IndexError, TypeError, ValueError, AttributeError, OverflowError) as error:
            said = client.one_line(str(reply))[:200]
            reason = f"{type(error).__name__}: {error}" if not isinstance(error, _UnfitError) else str(error)
            raise ConfigError(
                f"{url}: no answer of a reward model with the head {self._at.head} ({reason}): {said}"
            ) from None

    def _advice(self, status: int) -> str:
        if status == HTTPStatus.NOT_FOUND:
            return f"Serve the folder of a model with the head {self._at.head}: vllm serve FOLDER"
        if self._encoder is None:
            return "If a text is too long, name the model's folder by folder=, so that texts are cut to its window"
        return f"Its window must be at least {self._at.window + 1:,} tokens (--max-model-len)"


class _UnfitError(ValueError):
    """A reply that is well formed and not that of such a head."""


def _classes(reply: dict[str, Any], count: int, head: Head) -> list[float]:
    """Of `/classify`: the chance of the class that is right."""
    wanted = 2 if head == "classifier" else 1
    found = [math.nan] * count
    for entry in reply["data"]:
        probs = entry["probs"]
        if len(probs) != wanted:
            raise _UnfitError(f"{len(probs)} classes, not {wanted}")
        chances_ = [float(chance) for chance in probs]
        if wanted > 1 and abs(sum(chances_) - 1) > _ROUNDING:
            raise _UnfitError("the chances of the classes do not add up to 1")
        found[_place(found, entry["index"])] = chances_[-1]
    return _whole(found)


def _verdicts(reply: dict[str, Any], count: int, head: Head) -> list[float]:
    """Of `/v1/completions`: the chance of `RIGHT` against `WRONG` as the next token."""
    found = [math.nan] * count
    for choice in reply["choices"]:
        logprobs = choice["logprobs"]
        if "top_logprobs" in logprobs:
            top = logprobs["top_logprobs"][0]
        else:  # llama.cpp
            top = {entry["token"]: entry["logprob"] for entry in logprobs["content"][0]["top_logprobs"]}
        if RIGHT not in top and WRONG not in top:
            raise _UnfitError(f"neither {RIGHT} nor {WRONG} is among the likeliest tokens")
        # One that is not listed is at most as likely as the last that is.
        least = min(top.values())
        verdict = [[float(top.get(token, least)) for token in (WRONG, RIGHT)]]
        found[_place(found, choice["index"])] = float(chances(np.array(verdict))[0])
    return _whole(found)


def _place(found: Sequence[float], index: Any) -> int:
    """Where an answer belongs, which no other one has."""
    if type(index) is not int or not 0 <= index < len(found) or not math.isnan(found[index]):
        raise _UnfitError(f"index {str(index)[:20]} of {len(found)} windows is none, or there twice")
    return index


def _whole(found: list[float]) -> list[float]:
    if missing := sum(map(math.isnan, found)):
        raise _UnfitError(f"{missing} of {len(found)} windows have no answer")
    if not all(0 <= chance <= 1 for chance in found):
        raise _UnfitError("what should be chances is not within [0, 1]")
    return found


def _encoder(folder: Path, at: Address) -> Encoder:
    try:
        import transformers
    except ImportError:
        raise MissingExtraError("the tokenizer of a served reward model", "train") from None
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, KeyError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
        raise ConfigError(f"{folder} has no tokenizer that can be loaded: {reason}") from None
    ask = at.head == "token"
    if ask:
        verdict_tokens(tokenizer, str(folder))
    return Encoder(tokenizer, at.window, ask=ask)


def _run(work: Coroutine[Any, Any, T]) -> T:
    """Run it to its end, also where an event loop runs in this thread: as under `beam`."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    with ThreadPoolExecutor(1) as pool:
        return pool.submit(asyncio.run, work).result()
