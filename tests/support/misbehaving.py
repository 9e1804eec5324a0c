"""A loopback HTTP server of an OpenAI-compatible kind that fails on purpose, by a script or by seeded chance.

    with MisbehavingServer(seed=1) as server:
        server.script("429:2", "500", "cut")     # what happens to the next three posts; then all is well
        ...                                      # a policy that talks to server.url
        server.die(); server.revive()            # on the same port

Unless told otherwise it answers plausible steps of arithmetic, a function of (prompt, the request's seed, index) alone,
with token counts and log-probabilities. It runs in a thread of its own and can be asked from any event loop.

Faults, some with a value after a colon:

    429[:seconds|:date]  500 502 503 504 400 401 402 403 404 413 422     a status with OpenAI's error object
    html                 200 with a page instead of JSON
    not-object           200 with JSON that is no object
    no-choices           200 without `choices`
    no-text              200 whose choices lack their text
    no-reason            200 whose choices lack `finish_reason`
    abort                200 whose completions ended with `abort`
    empty                completions without text
    nul, surrogate, bad-utf8                                              broken text in a good reply
    huge                 completions of 1 MB
    endless              a body that never ends
    cut                  half a body, then the end of the connection
    reset                no reply, the connection is closed
    slow:seconds         a reply, later
    drip:seconds         a reply of which one byte arrives every so often
    hang                 no reply, and the connection stays open
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import random
import re
import threading
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from email.utils import formatdate
from http import HTTPStatus
from time import time
from typing import Any

_TOKEN = re.compile(r"\s*\S+|\s+")
_SUM = re.compile(r"(\d+)\s*([-+*×])\s*(\d+)(?!\s*=|\d)")
_NUMBER = re.compile(r"\d+")
_DONE = re.compile(r"=\s*(-?\d+)\D*$")


@dataclass
class Behaviour:
    """What kind of server it is, when it does not fail."""

    models: tuple[str, ...] = ("world",)
    """Names it serves; none: it has no `GET /models`."""
    api_key: str | None = None
    takes: frozenset[str] = frozenset({"n", "logprobs", "seed", "sampling", "continue"})
    """Options it takes; the others are refused with 400, or ignored where they stand in `ignores`."""
    ignores: frozenset[str] = frozenset()
    """Options without effect, `stop` and `usage` among them. Where it is `continue`, a chat closes the assistant's
    message and begins another one."""
    most: int = 1 << 30
    """`n` above this is refused, as by llama.cpp."""
    engine: str = "vllm"
    """How it says what stopped a completion: `vllm` (stop_reason), `llama.cpp` (an empty last token), `plain` (not),
    `proxy` (a stop_reason that is always null)."""
    echoes: bool = False
    """A chat reply repeats the start of the assistant's message, as llama.cpp's."""
    reasoning: str = ""
    """The field of a chat's message in which it keeps apart what stands before `</think>`; '' is nowhere. It finds it
    as the parsers of vLLM and SGLang do, whether or not the text begins with `<think>`."""
    away: bool = False
    """It is a gateway behind which nobody is there: 503 for everything."""
    cache: str = ""
    """How it says what its prefix cache did: `usage`, left out where nothing was cached; `timings`; '' is not. Half of
    a prompt that it knows is cached."""
    latency: float = 0.0
    """Seconds a good reply takes."""
    mistakes: float = 0.3
    """Chance that a step's result is wrong."""
    write: Callable[[str, random.Random], str] | None = None
    """The whole continuation of a prompt; a function of both arguments alone."""


_OPTION_KEYS = {
    "n": ("n",),
    "logprobs": ("logprobs", "top_logprobs"),
    "seed": ("seed",),
    "sampling": ("top_k", "min_p", "repetition_penalty"),
    "continue": ("continue_final_message", "add_generation_prompt"),
}


@dataclass
class Post:
    """One POST that arrived."""

    path: str
    payload: dict[str, Any]
    fault: str | None
    headers: dict[str, str] = field(repr=False, default_factory=dict)
    prompt_tokens: int = 0
    cached_tokens: int = 0
    """Of these, from the server's cache."""

    @property
    def prompt(self) -> str:
        """The text that is continued; messages are joined."""
        if "prompt" in self.payload:
            return str(self.payload["prompt"])
        return "\n".join(message["content"] for message in self.payload["messages"])


class MisbehavingServer:
    """See the module's docstring.

    `schedule`: a sequence of faults (None: all is well) for the first posts, or a mapping from fault to its chance at
    every post, drawn with `seed`. `after`: posts that are answered well before the schedule begins; the start of a
    `ServerPolicy` takes 3. The other arguments are fields of `Behaviour`.
    """

    def __init__(
        self,
        schedule: Iterable[str | None] | Mapping[str, float] = (),
        *,
        seed: int = 0,
        after: int = 0,
        **behaviour: Any,
    ) -> None:
        self.behaviour = Behaviour(**behaviour)
        self.posts: list[Post] = []
        self.asked: Counter[str] = Counter()
        """Well-answered posts by digest of their payload: above 1 where something was paid for twice."""
        self.connections = 0
        """Connections so far."""
        self.busiest = 0
        """The most posts that were in work at once."""
        self.port = 0
        self._chances = dict(schedule) if isinstance(schedule, Mapping) else {}
        self._script: deque[str | None] = deque([None] * after)
        self._script.extend(() if isinstance(schedule, Mapping) else schedule)
        self._random = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="misbehaving-server", daemon=True)
        self._server: asyncio.Server | None = None
        self._handlers: set[asyncio.Task[None]] = set()
        self._in_work = 0

    @property
    def url(self) -> str:
        """The base URL, with /v1."""
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def samples(self) -> int:
        """Completions that were asked for."""
        return sum(post.payload.get("n", 1) for post in self.posts)

    def script(self, *faults: str | None) -> None:
        """What happens to the next posts."""
        self._script.extend(faults)

    def forget(self) -> None:
        """Forget the posts so far, such as the probe's."""
        self.posts.clear()
        self.asked.clear()

    def die(self) -> None:
        """Close the port and cut every connection."""
        self._call(self._close())

    def revive(self) -> None:
        """Come back on the same port."""
        self._call(self._open())

    def __enter__(self) -> MisbehavingServer:
        self._thread.start()
        self.revive()
        return self

    def __exit__(self, *_: object) -> None:
        self.die()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, coroutine: Any) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(timeout=10)

    async def _open(self) -> None:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=64 << 20)
        self.port = self._server.sockets[0].getsockname()[1]

    async def _close(self) -> None:
        if self._server is not None:
            self._server.close()
            self._server = None
        for handler in self._handlers:
            handler.cancel()
        await asyncio.gather(*self._handlers)

    # HTTP

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        handler = asyncio.current_task()
        assert handler is not None
        self._handlers.add(handler)
        self.connections += 1
        try:
            while await self._exchange(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass  # the client went away, or `die` was called
        finally:
            self._handlers.discard(handler)
            writer.transport.abort()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request and its reply; False where the connection ends."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        method, path, _ = head[0].split(" ", 2)
        headers = {k.lower(): v.strip() for k, _, v in (line.partition(":") for line in head[1:] if line)}
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if self.behaviour.away:
            return await self._send(writer, 503, b"<html>no upstream</html>")
        if self.behaviour.api_key and headers.get("authorization") != f"Bearer {self.behaviour.api_key}":
            said = f"Incorrect API key provided: {headers.get('authorization', 'none')}"
            return await self._send(writer, 401, _error(said))
        if method == "GET":
            return await self._models(writer, path)
        post = Post(path, json.loads(body), self._next_fault(), headers)
        self.posts.append(post)
        self._in_work += 1
        self.busiest = max(self.busiest, self._in_work)
        try:
            return await self._misbehave(writer, post) if post.fault else await self._answer(writer, post)
        finally:
            self._in_work -= 1

    def _next_fault(self) -> str | None:
        if self._script:
            return self._script.popleft()
        faults = list(self._chances)
        chances = [self._chances[fault] for fault in faults]
        return self._random.choices([*faults, None], [*chances, max(0.0, 1 - sum(chances))])[0]

    async def _send(
        self, writer: asyncio.StreamWriter, status: int, body: bytes, *extra: str, pause: float = 0.0
    ) -> bool:
        head = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}", f"Content-Length: {len(body)}", *extra]
        writer.write(("\r\n".join(head) + "\r\n\r\n").encode())
        for i in range(0, len(body), 1 if pause else len(body) or 1):
            writer.write(body[i : i + 1] if pause else body)
            await writer.drain()
            if pause:
                await asyncio.sleep(pause)
        return True

    async def _models(self, writer: asyncio.StreamWriter, path: str) -> bool:
        if not path.endswith("/models") or not self.behaviour.models:
            return await self._send(writer, 404, _error("Not Found"))
        data = [{"id": name, "object": "model"} for name in self.behaviour.models]
        return await self._send(writer, 200, json.dumps({"object": "list", "data": data}).encode())

    async def _misbehave(self, writer: asyncio.StreamWriter, post: Post) -> bool:
        kind, _, value = (post.fault or "").partition(":")
        if kind.isdecimal():
            extra = (
                [f"Retry-After: {formatdate(time() + 20, usegmt=True) if value == 'date' else value}"] if value else []
            )
            return await self._send(writer, int(kind), _error(f"a scripted {kind}"), *extra)
        if kind == "reset":
            return False
        if kind == "html":
            return await self._send(writer, 200, b"<html><body>Welcome to the coffee machine</body></html>")
        if kind == "not-object":
            return await self._send(writer, 200, b'["fine", 200]')
        if kind == "endless":
            writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            while True:
                writer.write(b"10000\r\n" + b" " * 65536 + b"\r\n")
                await writer.drain()
        if kind == "hang":
            await asyncio.Event().wait()
        if kind == "slow":
            await asyncio.sleep(float(value))
        reply = self._reply(post)
        for choice in reply["choices"]:
            _spoil(kind, choice)
        if kind == "no-choices":
            del reply["choices"]
        body = json.dumps(reply).encode()
        if kind == "bad-utf8":
            body = body.replace(b"BROKEN", b"\xff\xfe")
        if kind == "cut":
            writer.write(f"HTTP/1.1 200 OK\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body[: len(body) // 2])
            await writer.drain()
            return False
        return await self._send(writer, 200, body, pause=float(value) if kind == "drip" else 0.0)

    # A language model, of a sort

    async def _answer(self, writer: asyncio.StreamWriter, post: Post) -> bool:
        be, payload = self.behaviour, post.payload
        if not post.path.endswith("/completions"):
            return await self._send(writer, 404, _error("Not Found"))
        if be.models and payload.get("model") not in be.models:
            return await self._send(writer, 404, _error(f"The model {payload.get('model')!r} does not exist."))
        for option, keys in _OPTION_KEYS.items():
            if option not in be.takes | be.ignores and any(key in payload for key in keys):
                return await self._send(writer, 400, _error(f"Unrecognized request argument: {option}"))
        if payload.get("n", 1) > be.most and "n" in be.takes:
            return await self._send(writer, 400, _error(f"n must be at most {be.most}"))
        if be.latency:
            await asyncio.sleep(be.latency)
        self.asked[hashlib.sha256(json.dumps(payload, sort_keys=True).encode()).hexdigest()] += 1
        return await self._send(writer, 200, json.dumps(self._reply(post)).encode())

    def _reply(self, post: Post) -> dict[str, Any]:
        be, payload = self.behaviour, post.payload
        n = payload.get("n", 1) if "n" in be.takes else 1
        seed = payload.get("seed", 0) if "seed" in be.takes else len(self.posts)
        chat = "messages" in payload
        choices, total = [], 0
        for i in range(n):
            rng = random.Random(f"{seed + i}/{post.prompt}")
            choice, count = self._choice(post, rng, chat)
            total += count
            choices.append(choice | {"index": i})
        reply: dict[str, Any] = {"object": "text_completion", "model": payload.get("model"), "choices": choices}
        if "usage" not in be.ignores:
            reply["usage"] = {"completion_tokens": total, "prompt_tokens": self._prompt_tokens(post)}
            self._tell_cache(post, reply)
        return reply

    def _tell_cache(self, post: Post, reply: dict[str, Any]) -> None:
        tokens = reply["usage"]["prompt_tokens"]
        known = any(post.prompt.startswith(other.prompt) for other in self.posts if other is not post)
        cached = tokens // 2 if known else 0
        post.prompt_tokens, post.cached_tokens = tokens, cached
        if self.behaviour.cache == "timings":
            reply["timings"] = {"cache_n": cached, "prompt_n": tokens - cached}
        elif self.behaviour.cache:
            reply["usage"]["prompt_tokens_details"] = {"cached_tokens": cached} if cached else None

    def _prompt_tokens(self, post: Post) -> int:
        """As by a chat template that opens a message with three tokens and closes it with two."""
        count = len(_TOKEN.findall(post.prompt))
        if "messages" not in post.payload:
            return count
        last = post.payload["messages"][-1]["role"]
        continued = last == "assistant" and "continue" not in self.behaviour.ignores
        return count + 5 * len(post.payload["messages"]) + (-2 if continued else 3)

    def _choice(self, post: Post, rng: random.Random, chat: bool) -> tuple[dict[str, Any], int]:
        be, payload = self.behaviour, post.payload
        whole = (be.write or self._steps)(post.prompt, rng)
        stops = payload.get("stop", []) if "stop" not in be.ignores else []
        hits = sorted((at, -len(stop), stop) for stop in stops if (at := whole.find(stop)) >= 0)
        hit = hits[0][2] if hits else None
        text = whole[: hits[0][0]] if hits else whole
        tokens = _TOKEN.findall(text)
        reason = "stop"
        if len(tokens) > payload["max_tokens"]:
            tokens, reason, hit = tokens[: payload["max_tokens"]], "length", None
            text = "".join(tokens)
        ending = [] if reason == "length" or (hit and be.engine == "llama.cpp") else [hit or _EOS[be.engine]]
        listed = [token for token in tokens + ending if token is not None]
        choice: dict[str, Any] = {"finish_reason": reason}
        if chat:
            last = payload["messages"][-1]
            started = last["content"] if be.echoes and last["role"] == "assistant" else ""
            choice["message"] = {"role": "assistant", "content": started + text}
            if be.reasoning and "</think>" in whole:
                thought, ended, said = text.partition("</think>")
                choice["message"] |= {"content": said or None, be.reasoning: thought.removeprefix("<think>")}
                if not thought and not ended:
                    del choice["message"][be.reasoning]
        else:
            choice["text"] = text
        if be.engine in ("vllm", "proxy"):
            choice["stop_reason"] = hit if be.engine == "vllm" else None
        if payload.get("logprobs") and "logprobs" in be.takes:
            values = [round(-rng.expovariate(2.0), 4) for _ in listed]
            if chat or be.engine == "llama.cpp":
                content = zip(listed, values, strict=True)
                choice["logprobs"] = {
                    "content": [{"token": t, "logprob": v, "bytes": list(t.encode())} for t, v in content]
                }
            else:
                choice["logprobs"] = {"tokens": listed, "token_logprobs": values}
        return choice, len(tokens) + (reason == "stop")

    def _steps(self, prompt: str, rng: random.Random) -> str:
        """The rest of a solution: one step for the last sum in the prompt, and the answer."""
        done = _DONE.search(prompt.rstrip().rpartition("\n")[2])
        if done:
            return f"The answer is {done.group(1)}.\n\nQuestion: "
        sums = _SUM.findall(prompt)
        numbers = _NUMBER.findall(prompt) or ["0"]
        a, sign, b = sums[-1] if sums else (numbers[-2 if len(numbers) > 1 else -1], "+", numbers[-1])
        result = {"+": int(a) + int(b), "-": int(a) - int(b)}.get(sign, int(a) * int(b))
        if rng.random() < self.behaviour.mistakes:
            result += rng.choice((-2, -1, 1, 2, 10))
        opening = rng.choice(("First,", "So", "We get", "Now"))
        return f"{opening} {a} {sign} {b} = {result}\nThe answer is {result}.\n\nQuestion: "


_EOS: dict[str, str | None] = {"vllm": "<eos>", "llama.cpp": "", "plain": None, "proxy": None}


def _spoil(kind: str, choice: dict[str, Any]) -> None:
    """Make one good choice a bad one."""
    where, key = (choice["message"], "content") if "message" in choice else (choice, "text")
    if kind == "no-text":
        del where[key]
    elif kind == "no-reason":
        del choice["finish_reason"]
    elif kind == "abort":
        choice["finish_reason"] = "abort"
    texts = {
        "empty": "",
        "nul": "a\0b",
        "surrogate": "a\ud800b",
        "bad-utf8": "aBROKENb",
        "huge": "2 + 2 = 4, " * 100_000,
    }
    if kind in texts:
        where[key] = texts[kind]
        choice["logprobs"] = None


def _error(message: str) -> bytes:
    return json.dumps({"error": {"message": message, "type": "scripted", "code": None}}).encode()
