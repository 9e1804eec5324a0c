"""The page of a run on a real server on loopback, and a client that asks it."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from treeforge.view.reader import RunReader
from treeforge.view.server import address_of, listen, make_server


class Page:
    """Asks one server."""

    def __init__(self, port: int, token: str = "") -> None:
        self.port, self.token = port, token
        self.address = address_of("127.0.0.1", port, token)

    def ask(self, path: str, *, method: str = "GET", host: str | None = None) -> tuple[int, dict[str, str], bytes]:
        """(status, headers by lower-case name, body) of a path as it stands."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)
        try:
            connection.putrequest(method, path, skip_host=True)
            if host != "":
                connection.putheader("Host", host or f"127.0.0.1:{self.port}")
            connection.endheaders()
            reply = connection.getresponse()
            return reply.status, {name.lower(): value for name, value in reply.getheaders()}, reply.read()
        finally:
            connection.close()

    def json(self, path: str, **params: Any) -> Any:
        """The data at `api/PATH`, where all is well."""
        query = f"?{urlencode(params)}" if params else ""
        status, _, body = self.ask(f"/{self.token}/".replace("//", "/") + f"api/{path}{query}")
        assert status == 200, body
        return json.loads(body)

    def error(self, path: str, **params: Any) -> tuple[int, str]:
        """(status, message) of a refusal."""
        query = f"?{urlencode(params)}" if params else ""
        status, _, body = self.ask(f"/api/{path}{query}")
        return status, json.loads(body)["error"]


@contextmanager
def served_page(run: Path, *, host: str = "127.0.0.1", token: str = "") -> Iterator[Page]:
    """The page of the run folder, on a free port of loopback, as if it were bound to `host`."""
    listening = listen("127.0.0.1", 0)
    server = make_server(RunReader(run), host=host, token=token)
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    try:
        while not server.started:
            assert thread.is_alive()
            time.sleep(0.005)
        yield Page(listening.getsockname()[1], token)
    finally:
        server.should_exit = True
        thread.join()
        listening.close()
