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
from urllib.request import getproxies, proxy_bypass

import msgspec

from treeforge.errors import ConfigError, MissingExtraError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.steps import clean_text

if TYPE_CHECKING:
    import aiohttp

MAX_REPLY_BYTES = 64 << 20
"""A longer reply is refused while it arrives. 256 samples of 1,000 tokens with log-probabilities take about 50 MB."""

CONNECT_SECONDS = 10.0
"""Until a connection that does not come about counts as nobody there."""

IDLE_SECONDS = 3.0
"""An idle connection is closed after this: uvicorn and llama.cpp close theirs after 5 s, perhaps just as we write."""

_MESSAGE_CHARS = 300
_LOOPBACK = ("localhost", "127.0.0.1", "::1")
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
    """Sends JSON, receives a JSON object, over keep-alive connections.

    `timeout`: seconds of one post, from connecting to the last byte received. `api_key` goes into the
    `Authorization` header and nowhere else: not into logs, exceptions or `repr`.
    """

    def __init__(self, *, api_key: str | None, timeout: float, max_reply_bytes: int = MAX_REPLY_BYTES) -> None:
        try:
            import aiohttp  # noqa: F401
        except ImportError:
            raise MissingExtraError("the server policy", "server") from None
        self._key = (api_key or "").strip()
        if not (self._key.isascii() and self._key.isprintable()) or " " in self._key:
            raise ConfigError("the API key holds characters that no HTTP header can carry; is it the right text?")
        self._timeout = timeout
        self._max_reply_bytes = max_reply_bytes
        self._session: aiohttp.ClientSession | None = None
        self._proxies: dict[str, dict[str, Any]] = {}

    async def post(self, url: str, payload: dict[str, Any]) -> dict[str, Any]:
        """The reply's JSON object.

        Raises `UnreachableError`, `ReplyError`, `ConfigError` (401, 403: the key) or `PolicyUnavailableError`
        (402: the account is empty).
        """
        return await self._send("POST", url, msgspec.json.encode(payload), self._timeout)

    async def get(self, url: str) -> dict[str, Any]:
        """The same for a short question, which waits `CONNECT_SECONDS` at most."""
        return await self._send("GET", url, None, min(CONNECT_SECONDS, self._timeout))

    async def close(self) -> None:
        """Close all connections; may be called twice."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()

    def _open(self) -> aiohttp.ClientSession:
        """A session belongs to an event loop, so it is made by the first request."""
        import aiohttp

        headers = {"Content-Type": "application/json", "Accept": "application/json", "Accept-Encoding": "identity"}
        return aiohttp.ClientSession(
            headers=headers | ({"Authorization": f"Bearer {self._key}"} if self._key else {}),
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=min(CONNECT_SECONDS, self._timeout)),
            # How many requests are in flight is the caller's business.
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=IDLE_SECONDS),
            cookie_jar=aiohttp.DummyCookieJar(),
        )

    async def _send(self, method: str, url: str, content: bytes | None, seconds: float) -> dict[str, Any]:
        import aiohttp

        session = self._session
        if session is None:
            session = self._session = self._open()
        proxy = self._proxies.get(url)
        if proxy is None:
            proxy = self._proxies[url] = _proxy(url)
        try:
            async with (
                asyncio.timeout(seconds),
                session.request(method, url, data=content, allow_redirects=False, **proxy) as response,
            ):
                body = await self._read(response)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientHttpProxyError) as error:
            raise UnreachableError(f"{url}: cannot be reached ({self._about(error)})") from None
        except TimeoutError:
            raise ReplyError(f"{url}: no complete reply within {seconds:g} s", doubtful=True) from None
        except aiohttp.ClientError as error:
            raise ReplyError(f"{url}: the connection broke ({self._about(error)})", doubtful=True) from None
        if response.status != HTTPStatus.OK:
            raise self._failure(url, response, body)
        reply = _decode(body)
        if not isinstance(reply, dict):
            raise ReplyError(f"{url}: the reply is not a JSON object: {self.one_line(_text(body))!r}")
        return reply

    async def _read(self, response: aiohttp.ClientResponse) -> bytes:
        limit = self._max_reply_bytes
        size = response.content_length or 0
        chunks: list[bytes] = []
        if size <= limit:
            size = 0
            async for chunk in response.content.iter_any():
                size += len(chunk)
                if size > limit:
                    break
                chunks.append(chunk)
        if size > limit:
            response.close()  # what is left of it is not read to keep the connection
            raise ReplyError(f"{response.url}: the reply is longer than {limit:,} bytes", status=response.status)
        return b"".join(chunks)

    def _failure(self, url: str, response: aiohttp.ClientResponse, body: bytes) -> Exception:
        status = response.status
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
        return self.one_line(str(getattr(error, "os_error", error))) or type(error).__name__

    def one_line(self, text: str) -> str:
        """One line for a person out of a stranger's text; a key that the server repeats is taken out."""
        if self._key:
            text = text.replace(self._key, "***")
        text = clean_text(_CONTROL.sub(" ", text)).strip()
        return text if len(text) <= _MESSAGE_CHARS else text[:_MESSAGE_CHARS] + "…"


def _proxy(url: str) -> dict[str, Any]:
    """aiohttp's arguments for the environment's proxy to this address.

    Asked by ourselves, once an address: aiohttp asks in a thread for every request. A proxy is for the world outside,
    never for a server on this machine.
    """
    import aiohttp
    import yarl

    parts = urlsplit(url)
    host = parts.hostname or ""
    proxies = getproxies()
    address = proxies.get(parts.scheme) or proxies.get("all")
    if not address or host in _LOOPBACK or proxy_bypass(host):
        return {}
    proxy = yarl.URL(address if "://" in address else f"http://{address}")
    if proxy.scheme not in ("http", "https"):
        raise ConfigError(
            f"the environment's proxy for {host} is of the kind {proxy.scheme!r}; only http proxies are known here. "
            f"Name another, or put {host} into no_proxy"
        )
    found: dict[str, Any] = {"proxy": proxy.with_user(None)}
    if proxy.user is not None:
        login = {"Proxy-Authorization": aiohttp.encode_basic_auth(proxy.user, proxy.password or "")}
        # A proxy reads the request itself, or the CONNECT before an encrypted one.
        found["proxy_headers" if parts.scheme == "https" else "headers"] = login
    return found


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
