"""What a run's journal holds and cost: completions, tokens, bytes, and what was paid for and brought little."""

from __future__ import annotations

from pathlib import Path

import msgspec

from treeforge.errors import RunError
from treeforge.store.journal import Journal


class JournalReport(msgspec.Struct, frozen=True):
    """Counts over all requests of a run. Tokens are sampled ones; prompts are not counted."""

    requests: int
    completions: int
    """Error samples included."""
    tokens: int
    given_up: int
    """Requests that failed for good and stand as `error` samples."""
    finish: dict[str, int]
    """Completions by finish reason."""
    truncated_tokens: int
    """Tokens of completions that a token limit cut off."""
    duplicate_completions: int
    """Completions that are byte for byte an earlier one of the same request."""
    duplicate_tokens: int
    bytes: int
    """Size on disk."""
    payload_bytes: int
    """Of these, samples as stored."""
    plain_bytes: int
    """The texts alone, not compressed (UTF-8)."""
    price: float | None
    """Given, in your currency a million tokens."""

    @property
    def bytes_per_completion(self) -> float:
        """NaN for an empty journal."""
        return self.bytes / self.completions if self.completions else float("nan")

    @property
    def cost(self) -> float | None:
        """Price times tokens."""
        return None if self.price is None else self.price * self.tokens / 1e6


def journal_report(run: Path, price: float | None = None) -> JournalReport:
    """Read the whole journal of a run folder, also while the run goes on (some 0.2 million completions a second).

    Raises `RunError` where there is none and `StorageError` where it is damaged.
    """
    path = run / "journal.sqlite"
    if not path.exists():
        raise RunError(f"{run} has no journal.sqlite: it is no run folder, or its journal was moved away")
    journal = Journal.open(path, read_only=True)
    finish: dict[str, int] = {}
    truncated = duplicates = duplicate_tokens = payload = plain = 0
    try:
        for _, samples, size in journal.payloads():
            payload += size
            seen: set[str] = set()
            for sample in samples:
                finish[sample.finish] = finish.get(sample.finish, 0) + 1
                plain += len(sample.text.encode())
                if sample.finish == "length":
                    truncated += sample.tokens
                if sample.finish != "error" and sample.text in seen:
                    duplicates += 1
                    duplicate_tokens += sample.tokens
                seen.add(sample.text)
        totals = journal.totals()
    finally:
        journal.close()
    return JournalReport(
        requests=totals.requests,
        completions=totals.completions,
        tokens=totals.tokens,
        given_up=totals.failed,
        finish=dict(sorted(finish.items())),
        truncated_tokens=truncated,
        duplicate_completions=duplicates,
        duplicate_tokens=duplicate_tokens,
        bytes=totals.bytes,
        payload_bytes=payload,
        plain_bytes=plain,
        price=price,
    )
