"""A loopback server in the shapes of vLLM's `/classify` and `/v1/completions`, around any function that gives chances.

with RewardServer(lambda inputs: [0.5 for _ in inputs]) as server:
    server.script((429, {"Retry-After": "0"}), 500)    # what happens to the next posts; then all is well
    ...                                                # a ServedModel at server.url
"""

from __future__ import annotations

import json
import math
import threading
from collections import deque
from collections.abc import Callable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class RewardServer:
    """`chances`: from a request's inputs (texts, or lists of token ids) to the chance of each that it is right.

    `classes`: of `/classify`, which stands at `route`. `listed`: tokens that `/v1/completions` lists beside `+` and
    `-`. `dialect`: `vllm` or `llama.cpp`. `models`: names it serves; None: it has no `GET /v1/models`. `reply`: an
    answer of its own to every post.
    """

    def __init__(
        self,
        chances: Callable[[Sequence[Any]], Sequence[float]],
        *,
        classes: int = 2,
        route: str = "/classify",
        listed: Sequence[str] = ("+", "-", "x"),
        dialect: str = "vllm",
        models: Sequence[str] | None = ("hrm",),
        reply: Any = None,
    ) -> None:
        self.chances, self.classes, self.route, self.listed = chances, classes, route, listed
        self.dialect, self.models, self.reply = dialect, models, reply
        self.posts: list[tuple[str, dict[str, Any]]] = []
        self.keys: list[str | None] = []
        self._script: deque[tuple[int, dict[str, str]]] = deque()

    @property
    def url(self) -> str:
        """Without /v1."""
        return f"http://127.0.0.1:{self._http.server_port}"

    def script(self, *faults: int | tuple[int, dict[str, str]]) -> None:
        """Statuses, some with headers, of the next posts."""
        self._script.extend(fault if isinstance(fault, tuple) else (fault, {}) for fault in faults)

    def __enter__(self) -> RewardServer:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                if outer.models is None:
                    self._send(404, {"detail": "Not Found"})
                else:
                    self._send(200, {"object": "list", "data": [{"id": name} for name in outer.models]})

            def do_POST(self) -> None:
                payload = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                outer.posts.append((self.path, payload))
                outer.keys.append(self.headers.get("Authorization"))
                if self.path not in (outer.route, "/v1/completions"):
                    self._send(404, {"detail": "Not Found"})
                elif outer._script:
                    status, headers = outer._script.popleft()
                    self._send(status, {"error": {"message": f"told to answer {status}"}}, headers)
                else:
                    self._send(200, outer._answer(payload) if outer.reply is None else outer.reply)

            def _send(self, status: int, reply: Any, headers: dict[str, str] | None = None) -> None:
                body = json.dumps(reply).encode()
                self.send_response(status)
                for name, value in {"Content-Length": str(len(body)), **(headers or {})}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                pass

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()

    def _answer(self, payload: dict[str, Any]) -> dict[str, Any]:
        """What is right, in an order that is not that of the inputs."""
        if "input" in payload:
            chances = self.chances(payload["input"])
            entries = [{"index": i, "label": "?", "probs": self._classes(p)} for i, p in enumerate(chances)]
            return {"object": "list", "data": entries[::-1]}
        chances = self.chances(payload["prompt"])
        return {"choices": [{"index": i, "text": "+", "logprobs": self._top(p)} for i, p in enumerate(chances)][::-1]}

    def _classes(self, chance: float) -> list[float]:
        return {1: [chance], 2: [1 - chance, chance]}.get(self.classes, [1 / self.classes] * self.classes)

    def _top(self, chance: float) -> dict[str, Any]:
        """Nine tenths are the two verdicts'."""
        every = {"+": math.log(0.9 * chance), "-": math.log(0.9 * (1 - chance)), "x": math.log(0.001)}
        top = {token: every[token] for token in self.listed}
        if self.dialect == "vllm":
            return {"tokens": ["+"], "token_logprobs": [0.0], "top_logprobs": [top]}
        entries = [{"token": token, "logprob": value} for token, value in top.items()]
        return {"content": [{"token": "+", "logprob": 0.0, "top_logprobs": entries}]}
