"""`Continuing`: a policy that goes on where the token limit cut a completion off."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec

from treeforge.config import StepsConfig
from treeforge.hashing import derive_seed
from treeforge.policy.base import Policy, PromptCache, Request, Sample, prompt_cache
from treeforge.policy.steps import split_text


class Continuing:
    """Wraps a policy: a whole completion that ended by the token limit is asked to go on, `times` times at most.

    The parts are one sample, and one row of the journal: a stop between them loses the first ones. Single steps are
    left as they are.
    """

    def __init__(self, policy: Policy, steps: StepsConfig, times: int) -> None:
        self._policy, self._steps, self._times = policy, steps, times

    @property
    def identity(self) -> dict[str, Any]:
        """That of the policy; how often it goes on is part of the sampling."""
        return self._policy.identity

    @property
    def prompt_cache(self) -> PromptCache | None:
        """That of the policy."""
        return prompt_cache(self._policy)

    async def start(self) -> None:
        """Start the policy."""
        await self._policy.start()

    async def close(self) -> None:
        """Close the policy."""
        await self._policy.close()

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """`request.n` samples, in order; as `Policy.sample`."""
        samples = await self._policy.sample(request)
        if request.mode == "step":
            return samples
        return tuple(await asyncio.gather(*(self._whole(request, i, sample) for i, sample in enumerate(samples))))

    async def _whole(self, request: Request, index: int, sample: Sample) -> Sample:
        for time in range(self._times):
            if sample.finish != "length" or not sample.text:
                break
            more = msgspec.structs.replace(
                request,
                prefix=request.prefix + sample.text,
                n=1,
                seed=derive_seed(request.seed, b"continue", str(index), time),
            )
            (part,) = await self._policy.sample(more)
            sample = join(sample, part, self._steps)
        return sample


def join(first: Sample, second: Sample, config: StepsConfig) -> Sample:
    """Two parts of one completion as one sample. What is unknown in one part is unknown in the whole."""
    text = first.text + second.text
    logprob = None if first.logprob is None or second.logprob is None else first.logprob + second.logprob
    parts = [len(split_text(part.text, config)) for part in (first, second)]
    steps = len(split_text(text, config))
    return Sample(
        text,
        second.finish,
        first.tokens + second.tokens,
        logprob,
        tuple(_by_step(first.step_tokens, second.step_tokens, parts, steps)),
        tuple(_by_step(first.step_logprobs, second.step_logprobs, parts, steps)),
    )


def _by_step(first: tuple[Any, ...], second: tuple[Any, ...], parts: list[int], steps: int) -> list[Any]:
    """Figures of each step of the whole from those of its parts; the step that the limit cut in two gets both."""
    if len(first) != parts[0] or len(second) != parts[1]:
        return []
    if steps == parts[0] + parts[1]:
        return [*first, *second]
    if steps == parts[0] + parts[1] - 1 and first and second:
        return [*first[:-1], first[-1] + second[0], *second[1:]]
    return []
