"""A thread for calls that take long and hold up no event loop."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from typing import Any


class Aside:
    """Makes calls one after another in a thread. One that hangs keeps no program from ending, as a pool's would."""

    def __init__(self, name: str) -> None:
        self._calls: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def run(self, call: Callable[..., Any], *arguments: Any) -> asyncio.Future[Any]:
        """What `call` returns or raises, once it has; to be awaited in the loop that asks."""
        loop = asyncio.get_running_loop()
        answer: asyncio.Future[Any] = loop.create_future()

        def work() -> None:
            settle: Callable[[Any], None] = answer.set_result
            try:
                found = call(*arguments)
            except BaseException as error:  # noqa: BLE001 - whoever awaits it raises it
                settle, found = answer.set_exception, error
            with suppress(RuntimeError):  # The loop is closed: nobody waits any more.
                loop.call_soon_threadsafe(_settle, answer, settle, found)

        if not self._thread.is_alive():
            self._thread.start()
        self._calls.put(work)
        return answer

    def close(self) -> None:
        """Take no more calls. What is being called goes on, and is not waited for."""
        self._calls.put(None)

    def _work(self) -> None:
        while (call := self._calls.get()) is not None:
            call()


def _settle(answer: asyncio.Future[Any], settle: Callable[[Any], None], value: Any) -> None:
    if not answer.done():
        settle(value)
