"""The one async HTTP client: JSON over HTTP with bounds on time and size, and every failure as one of our exceptions.

It knows nothing of language models. One call is one attempt; who retries, and where, is the caller's business.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import time
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import msgspec

from treeforge.errors import ConfigError, MissingExtraError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.steps import clean_text

if TYPE_CHECKING:
    import httpx2

MAX_REPLY_BYTES = 64 << 20
"""A longer reply is refused while it arrives. 256 samples of 1,000 tokens with log-probabilities take about 50 MB."""

CONNECT_SECONDS = 10.0
"""Until a connection that does not come about counts as nobody there."""

IDLE_SECONDS = 3.0
"""An idle connection is closed after this: uvicorn and llama.cpp close theirs after 5 s, perhaps just as we write."""

_MESSAGE_CHARS = 300
_LOOPBACK = ("localhost", "127.0.0.1", "[::1]")
_GATEWAY = (HTTPStatus.BAD_GATEWAY, HTTPStatus.SERVICE_UNAVAILABLE, HTTPStatus.GATEWAY_TIMEOUT)
_RETRYABLE = (HTTPStatus.REQUEST_TIMEOUT, HTTPStatus.CONFLICT, HTTPStatus.TOO_EARLY, HTTPStatus.TOO_MANY_REQUESTS)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\s]+")


class UnreachableError(RequestFailedError):
    """Nobody answers at this address: refused, no such host, no connection in time."""


class ReplyError(RequestFailedError):
    """The request was sent and no usable reply came.

    `status` is the HTTP status, or 0 where none arrived. `doubtful`: perhaps nobody is there (a gateway's 502, 503 or
    504, a connection that was reset, a time-out), which only another request can tell.
    """

    def __init__(
        self,
        message: str,
        *,
        retryable: bool = True,
        retry_after: float | None = None,
        status: int = 0,
        doubtful: bool = False,
    ) -> None:
        super().__init__(message, retryable=retryable, retry_after=retry_after)
        self.status, self.doubtful = status, doubtful


class JsonClient:
    """Sends JSON, receives a JSON object. Keep-alive connections; at most `concurrency` posts in flight.

    `timeout`: seconds of one post, from connecting to the last byte received. `api_key` goes into the
    `Authorization` header and nowhere else: not into logs, exceptions or `repr`.
    """

    def __init__(
        self, *, api_key: str | None, timeout: float, concurrency: int, max_reply_bytes: int = MAX_REPLY_BYTES
    ) -> None:
        try:
            import httpx2
        except ImportError:
            raise MissingExtraError("the server policy", "server") from None
        self._key = (api_key or "").strip()
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigError("the API key holds characters that no HTTP header can carry; is it the right text?")
        self._timeout = timeout
        self._max_reply_bytes = max_reply_bytes
        # Posts are limited by slots, so that the clock of a request that waits for its turn does not run.
        self._slots = asyncio.Semaphore(concurrency)
        # One client a slot: a pool looks at each of its connections for every request, which with hundreds of them
        # costs more than the request. Last in, first out, so that the connections in use are the warm ones.
        self._idle: list[httpx2.AsyncClient] = []
        self._ssl = httpx2.create_ssl_context()

    async def post(self, url: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The reply's JSON object.

        Raises `UnreachableError`, `ReplyError`, `ConfigError` (401, 403: the key) or `PolicyUnavailableError`
        (402: the account is empty).
        """
        content = msgspec.json.encode(payload)
        async with self._slots:
            return await self._send("POST", url, content, self._timeout)

    async def get(self, url: str) -> dict[str, Any]:
        """The same for a short question; it takes no slot and waits `CONNECT_SECONDS` at most."""
        return await self._send("GET", url, None, min(CONNECT_SECONDS, self._timeout))

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        while self._idle:
            await self._idle.pop().aclose()

    def _new_client(self) -> httpx2.AsyncClient:
        import httpx2

        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        return httpx2.AsyncClient(
            headers=headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            timeout=httpx2.Timeout(None, connect=min(CONNECT_SECONDS, self._timeout)),
            limits=httpx2.Limits(keepalive_expiry=IDLE_SECONDS),
            # A proxy from the environment is for the world outside, never for a server on this machine.
            mounts=dict.fromkeys((f"all://{host}" for host in _LOOPBACK), None),
            verify=self._ssl,
        )

    async def _send(self, method: str, url: str, content: bytes | None, seconds: float) -> dict[str, Any]:
        import httpx2

        client = self._idle.pop() if self._idle else self._new_client()
        try:
            async with asyncio.timeout(seconds), client.stream(method, url, content=content) as response:
                body = await self._read(response)
        except (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.ProxyError) as error:
            raise UnreachableError(f"{url}: cannot be reached ({self._about(error)})") from None
        except (TimeoutError, httpx2.TimeoutException):
            raise ReplyError(f"{url}: no complete reply within {seconds:g} s", doubtful=True) from None
        except httpx2.RequestError as error:
            raise ReplyError(f"{url}: the connection broke ({self._about(error)})", doubtful=True) from None
        finally:
            self._idle.append(client)
        if response.status_code != HTTPStatus.OK:
            raise self._failure(url, response, body)
        reply = _decode(body)
        if not isinstance(reply, dict):
            raise ReplyError(f"{url}: the reply is not a JSON object: {self.one_line(_text(body))!r}")
        return reply

    async def _read(self, response: httpx2.Response) -> bytes:
        limit = self._max_reply_bytes
        announced = response.headers.get("Content-Length", "")
        size = int(announced) if announced.isdecimal() else 0
        chunks: list[bytes] = []
        if size <= limit:
            size = 0
            async for chunk in response.aiter_bytes():
                size += len(chunk)
                if size > limit:
                    break
                chunks.append(chunk)
        if size > limit:
            raise ReplyError(f"{response.url}: the reply is longer than {limit:,} bytes", status=response.status_code)
        return b"".join(chunks)

    def _failure(self, url: str, response: httpx2.Response, body: bytes) -> Exception:
        status = response.status_code
        said = self.one_line(error_message(_decode(body)) or _text(body))
        message = f"{url}: HTTP {status}" + (f": {said}" if said else "")
        if status in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
            return ConfigError(
                f"{message}. The server wants a valid API key: put it into the environment variable that "
                "machine.api_key_env names (TREEFORGE_API_KEY unless changed)"
            )
        if status == HTTPStatus.PAYMENT_REQUIRED:
            return PolicyUnavailableError(message)
        retryable = status in _RETRYABLE or status >= HTTPStatus.INTERNAL_SERVER_ERROR
        wait = retry_after(response.headers.get("Retry-After"), now=time.time()) if retryable else None
        return ReplyError(message, retryable=retryable, retry_after=wait, status=status, doubtful=status in _GATEWAY)

    def _about(self, error: Exception) -> str:
        return self.one_line(str(error)) or type(error).__name__

    def one_line(self, text: str) -> str:
        """One line for a person out of a stranger's text; a key that the server repeats is taken out."""
        if self._key:
            text = text.replace(self._key, "***")
        text = clean_text(_CONTROL.sub(" ", text)).strip()
        return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + "…"


def base_url(text: str) -> str:
    """`host:port`, `http://host:port` or `http://host:port/v1` as `http://host:port/v1`; another path is kept.

    Raises `ConfigError` for anything else, a user name or password in the address included.
    """
    address = text.strip()
    if "://" not in address:
        address = f"http://{address}"
    try:
        parts = urlsplit(address)
        port = parts.port
        host = (parts.hostname or "").encode("idna").decode()
    except (ValueError, UnicodeError):
        parts, port, host = urlsplit(""), None, ""
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            f"machine.servers: the address of {host} holds a user name or password, which would end up in logs; "
            "give an API key through the environment variable that machine.api_key_env names"
        )
    if parts.scheme not in ("http", "https") or not host or parts.query or parts.fragment or re.search(r"\s", address):
        shown = re.split(r"[?#]", text.rpartition("@")[2])[0]  # what is left out may be a secret
        raise ConfigError(f"machine.servers: {shown!r} is no address of a server; write http://HOST:PORT/v1")
    if ":" in host:
        host = f"[{host}]"
    netloc = host if port is None else f"{host}:{port}"
    return f"{parts.scheme}://{netloc}{parts.path.rstrip('/') or '/v1'}"


def retry_after(header: str | None, *, now: float) -> float | None:
    """Seconds to wait by a `Retry-After` header (RFC 9110, 10.2.3: seconds or a date); None where it says nothing."""
    if header is None:
        return None
    try:
        seconds = float(header)
    except ValueError:
        try:
            seconds = parsedate_to_datetime(header).timestamp() - now
        except (ValueError, TypeError, OverflowError):
            return None
    return max(0.0, seconds) if math.isfinite(seconds) else None


def error_message(reply: Any) -> str:
    """What an error reply says: OpenAI's `error.message`, `message`, or FastAPI's `detail`; '' where nothing."""
    if not isinstance(reply, dict):
        return ""
    said = reply.get("error") or reply.get("message") or reply.get("detail") or ""
    if isinstance(said, dict):
        said = said.get("message") or said
    return said if isinstance(said, str) else json.dumps(said)


def _decode(body: bytes) -> Any:
    """The JSON value, or None. Lone surrogates, NaN and bytes that are not UTF-8 get through: others clean them up."""
    try:
        return msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        pass
    try:
        return json.loads(_text(body))
    except (ValueError, RecursionError):
        return None


def _text(body: bytes) -> str:
    return body.decode("utf-8", "replace")
