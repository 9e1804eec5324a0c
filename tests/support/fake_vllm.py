"""A process that behaves like a server that was started for a run: `GET /health`, and what tests want to go wrong.

    fake_vllm.py PORT FOLDER

Files in FOLDER steer it, so that a test can act while it runs: `broken` (it ends at once, with an error), `crash` (it
ends at its next look), `silent` (it listens and does not answer), `stubborn` (it ignores SIGTERM). It starts a child of
its own, as vLLM does, and notes both process ids in `pids`, a line a start.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

_FOLDER = Path(sys.argv[2])


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        if (_FOLDER / "silent").exists():
            time.sleep(60)
        self.send_response(200 if self.path == "/health" else 404)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: object) -> None:
        pass


def main() -> None:
    if (_FOLDER / "broken").exists():
        print("Traceback (most recent call last):\nValueError: no room for the weights", file=sys.stderr, flush=True)
        sys.exit(1)
    if (_FOLDER / "stubborn").exists():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    with (_FOLDER / "pids").open("a", encoding="utf-8") as stream:
        stream.write(f"{os.getpid()} {child.pid}\n")
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    while not (_FOLDER / "crash").exists():
        time.sleep(0.05)
    print("RuntimeError: the card fell off the bus", file=sys.stderr, flush=True)
    os._exit(3)


if __name__ == "__main__":
    main()
