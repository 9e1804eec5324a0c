"""The Protocol of a language model."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from treeforge.sample import FinishReason, Mode, Request, Sample

__all__ = ["FinishReason", "ImmediatePolicy", "Mode", "Policy", "Request", "Sample"]


class Policy(Protocol):
    """A language model that continues prefixes. Open one with `treeforge.policy.open_policy`."""

    @property
    def identity(self) -> dict[str, Any]:
        """All that determines what this policy answers to a prompt, as JSON data: backend, model, digest, engine.

        Part of every request's digest. Known after `start`. Holds no address, path or secret.
        """
        ...

    async def start(self) -> None:
        """Load the model or reach the server. Raises `PolicyUnavailableError` or `ConfigError` saying what to do."""
        ...

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """`request.n` samples, in order. One attempt.

        Raises `RequestFailedError` (this request) or `PolicyUnavailableError` (nobody there). Retries are the
        scheduler's.
        """
        ...

    async def close(self) -> None:
        """Free the model or the connections; may be called twice."""
        ...


@runtime_checkable
class ImmediatePolicy(Protocol):
    """A policy that can answer without waiting; the scheduler then spends no event-loop turn on the request."""

    def sample_now(self, request: Request) -> tuple[Sample, ...] | None:
        """The samples, or None where this request has to wait (`Policy.sample` is used then)."""
        ...
