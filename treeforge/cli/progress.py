"""Progress on stderr."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treeforge.search.progress import Progress

_TERMINAL_SECONDS, _LOG_SECONDS = 0.2, 10.0


def hide_bars() -> None:
    """Let the Hub's client, which is not imported yet, draw no progress bars where stderr is no terminal."""
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")


@contextmanager
def status_line(quiet: bool) -> Iterator[Callable[[Callable[[], str]], None] | None]:
    """A function that shows a text on stderr: in place on a terminal, a line every ten seconds elsewhere.

    It is given a function that makes the text, which is called where its turn has come; None where `quiet`.
    """
    if quiet:
        yield None
        return
    terminal = sys.stderr.isatty()
    last = 0.0 if terminal else time.monotonic()
    latest: Callable[[], str] | None = None

    def write(text: str) -> None:
        sys.stderr.write(f"\r\x1b[2K{text}" if terminal else text + "\n")
        sys.stderr.flush()

    def show(make: Callable[[], str]) -> None:
        nonlocal last, latest
        latest = make
        now = time.monotonic()
        if now - last >= (_TERMINAL_SECONDS if terminal else _LOG_SECONDS):
            last = now
            write(make())

    try:
        yield show
    finally:
        if terminal and latest is not None:
            write(latest() + "\n")


@contextmanager
def progress_line(quiet: bool) -> Iterator[Callable[[Progress], None] | None]:
    """A callback that shows how far a run is."""
    started = time.monotonic()
    finished_before: int | None = None

    with status_line(quiet) as write:
        if write is None:
            yield None
            return

        def show(progress: Progress) -> None:
            nonlocal finished_before
            if finished_before is None:
                finished_before = progress.finished
            seconds, before = time.monotonic() - started, finished_before
            write(lambda: progress_text(progress, seconds, before))

        yield show


@contextmanager
def count_line(quiet: bool, what: str) -> Iterator[Callable[[int, int], None] | None]:
    """A callback that shows how many of all `what` (in the plural) are done."""
    started = time.monotonic()
    with status_line(quiet) as write:
        if write is None:
            yield None
            return

        def show(done: int, all_: int) -> None:
            rate = done / max(time.monotonic() - started, 1e-9)
            write(lambda: f"{done:,} of {all_:,} {what} · {rate:,.1f} a second")

        yield show


def progress_text(progress: Progress, seconds: float, finished_before: int) -> str:
    """Trees done, completions/s, tokens/s, share of prompts from the prefix cache, share correct, time left."""
    seconds = max(seconds, 1e-9)
    done = progress.finished - finished_before
    left = (progress.trees - progress.finished) * seconds / done if done else None
    share = f"{progress.correct / progress.judged:.0%}" if progress.judged else "–"
    parts = [
        f"{progress.finished}/{progress.trees} trees",
        f"{progress.completions / seconds:.1f} completions/s",
        f"{progress.tokens / seconds:.0f} tokens/s",
        f"{share} correct",
        f"{progress.in_flight} in flight",
        "ETA " + ("–" if left is None else duration(left)),
    ]
    if progress.prompt_tokens:
        parts.insert(3, f"{cached_share(progress):.0%} of prompts from cache")
    if progress.replayed:
        parts.insert(1, f"{progress.replayed} requests from the journal")
    if progress.retries:
        parts.append(f"{progress.retries} retries")
    return " · ".join(parts)


def cached_share(progress: Progress) -> float:
    """The share of prompt tokens that came from the policy's prefix cache."""
    return (progress.cached_tokens or 0) / (progress.prompt_tokens or 1)


def duration(seconds: float) -> str:
    """`1:02:03`, or `2:03` under an hour."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
