"""The local page: a small read-only web server over one run folder.

It answers on the loopback interface unless told otherwise, and there only to requests that name a loopback host, so
that no web page elsewhere can reach it by DNS rebinding. Bound elsewhere, everything lies under a secret path. Pages
may load nothing but its own scripts and styles, and model text reaches the browser as JSON only.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
import secrets
import socket
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route

from treeforge.errors import ConfigError, TreeforgeError
from treeforge.view import api
from treeforge.view.routes import Data, run_data
from treeforge.view.web import WEB

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import ASGIApp, Receive, Scope, Send

    from treeforge.view.reader import RunReader

_log = logging.getLogger("treeforge.view")

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
    "form-action 'none'; frame-ancestors 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
)
_HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
    "cache-control": "no-store",
}
_LONGEST_PATH = 1000
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}


def make_app(reader: RunReader, *, host: str = "127.0.0.1", token: str = "") -> ASGIApp:
    """The page of one run as an ASGI application.

    `host` is what it is bound to: requests must name it, or an address of the same kind, in their Host header. With a
    `token` everything lies under `/TOKEN/`.
    """
    data = Data(reader)

    def answer(call: Callable[[Data, Request], Any]) -> Callable[[Request], Any]:
        async def respond(request: Request) -> Response:
            try:
                return _json(await run_in_threadpool(call, data, request))
            except ConfigError as error:
                return _json({"error": str(error)}, 404)
            except TreeforgeError as error:
                return _json({"error": str(error)}, 500)

        return respond

    routes = [
        Route("/", _page, name="page"),
        Route("/web/{name}", _file),
        *(Route(path, answer(call)) for path, call in run_data.items()),
    ]
    app: ASGIApp = Starlette(routes=[Mount(f"/{token}", routes=routes)] if token else routes)
    return _Guard(app, allowed_hosts(host), token)


def allowed_hosts(host: str) -> Callable[[str], bool]:
    """Which names a Host header may have where the server is bound to `host`.

    Never a name that somebody else's DNS could point here: on a loopback interface its addresses and `localhost`, else
    any address, `host` itself and this machine's name.
    """
    loopback = is_loopback(host)
    names = {"localhost"} if loopback else {"localhost", host.lower(), socket.gethostname().lower()}

    def allowed(name: str) -> bool:
        if name in names:
            return True
        try:
            address = ipaddress.ip_address(name)
        except ValueError:
            return False
        return address.is_loopback or not loopback

    return allowed


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach a server that is bound to `host`."""
    if host.lower() == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class _Guard:
    """Lets through what names an allowed host and knows the token, and adds the security headers to every answer."""

    def __init__(self, app: ASGIApp, allowed: Callable[[str], bool], token: str) -> None:
        self._app, self._allowed, self._token = app, allowed, token.encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        refusal = self._refusal(scope)
        app = self._app if refusal is None else refusal

        async def with_headers(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [
                    *message.get("headers", []),
                    *((name.encode(), value.encode()) for name, value in _HEADERS.items()),
                ]
            await send(message)

        await app(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> Response | None:
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if len(hosts) != 1 or not self._allowed(_host_name(hosts[0].decode("latin-1"))):
            return _text("This page is asked for by its own address only (the Host header names another).", 421)
        if self._token:
            first = scope["path"].split("/", 2)[1] if scope["path"].startswith("/") else ""
            if not hmac.compare_digest(first.encode("utf-8", "replace"), self._token):
                return _text("Open the address that `treeforge view` printed; it has the token in it.", 403)
        if len(scope["path"]) > _LONGEST_PATH:
            return _text("There is no page with so long an address.", 414)
        if scope["method"] not in ("GET", "HEAD"):
            return _text("This page is read-only.", 405)
        return None


def _host_name(header: str) -> str:
    """The name or address in a Host header, without the port and the brackets of IPv6."""
    if header.startswith("["):
        return header[1:].partition("]")[0].lower()
    return header.rpartition(":")[0].lower() if ":" in header else header.lower()


async def _page(request: Request) -> Response:
    return Response((WEB / "index.html").read_bytes(), media_type=_TYPES["html"])


async def _file(request: Request) -> Response:
    name = request.path_params["name"]
    kind = _TYPES.get(name.rpartition(".")[2])
    if kind is None or name not in {item.name for item in WEB.iterdir()}:
        return _text("There is no such file.", 404)
    return Response((WEB / name).read_bytes(), media_type=kind)


def _json(data: Any, status: int = 200) -> Response:
    return Response(api.encoded(data), status, media_type="application/json")


def _text(text: str, status: int) -> Response:
    return Response(text + "\n", status, media_type="text/plain")


def listen(host: str, port: int) -> socket.socket:
    """A listening socket. `ConfigError` that names the option where host or port cannot be had."""
    try:
        family, _, _, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)[0]
    except (OSError, UnicodeError) as error:
        raise ConfigError(f"--host {host}: there is no such host ({error})") from error
    found = socket.socket(family, socket.SOCK_STREAM)
    try:
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.bind(address)
        found.listen(128)
    except OSError as error:
        found.close()
        raise ConfigError(
            f"port {port} of {host} cannot be used: {error.strerror}. Choose another with --port (0: any free one)"
        ) from error
    return found


def address_of(host: str, port: int, token: str) -> str:
    """The URL to open."""
    shown = f"[{host}]" if ":" in host else host
    if host in ("0.0.0.0", "::"):
        shown = socket.gethostname()
    return f"http://{shown}:{port}/" + (f"{token}/" if token else "")


def new_token() -> str:
    """A secret for the URL: 192 bits."""
    return secrets.token_urlsafe(24)


def make_server(reader: RunReader, *, host: str = "127.0.0.1", token: str = "") -> uvicorn.Server:
    """The server of a run's page, for a socket from `listen`."""
    import uvicorn

    config = uvicorn.Config(
        make_app(reader, host=host, token=token),
        log_level="warning",
        access_log=False,  # Addresses hold the token.
        lifespan="off",
        ws="none",
        server_header=False,
        timeout_graceful_shutdown=2,
    )
    return uvicorn.Server(config)


def serve(reader: RunReader, listening: socket.socket, *, host: str, token: str) -> None:
    """Serve until Ctrl-C or SIGTERM."""
    try:
        make_server(reader, host=host, token=token).run(sockets=[listening])
    except KeyboardInterrupt:  # How uvicorn hands on the signal that it ended by.
        pass
