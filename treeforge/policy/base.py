"""The Protocol of a language model."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

import msgspec

from treeforge.sample import FinishReason, Mode, Request, Sample

__all__ = ["CachingPolicy", "FinishReason", "ImmediatePolicy", "Mode", "Policy", "PromptCache", "Request", "Sample"]


class PromptCache(msgspec.Struct):
    """Tokens of prompts since a policy's start, as its engine or its servers count them; updated in place."""

    prompt: int = 0
    """Of all prompts."""
    cached: int = 0
    """Of these, found in a prefix cache and not evaluated again."""

    def __str__(self) -> str:
        share = self.cached / self.prompt if self.prompt else 0.0
        return f"{self.cached:,} of {self.prompt:,} prompt tokens from the prefix cache ({share:.1%})"


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


@runtime_checkable
class CachingPolicy(Protocol):
    """A policy that knows what its prefix cache does: a run shows it while it goes on."""

    @property
    def prompt_cache(self) -> PromptCache | None:
        """The counts so far; None where nothing is known."""
        ...


def prompt_cache(policy: Policy) -> PromptCache | None:
    """What is known of a policy's prefix cache; None where it is no `CachingPolicy` either."""
    return policy.prompt_cache if isinstance(policy, CachingPolicy) else None
