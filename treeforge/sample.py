"""What is asked of a language model and what it answered: the two structs that policies, search and journal share."""

from __future__ import annotations

from typing import Literal

import msgspec

from treeforge.problem import Problem

Mode = Literal["rollout", "step"]
"""`rollout`: complete to the end; `step`: stop at the first step delimiter."""

FinishReason = Literal["stop", "delimiter", "length", "error"]


class Request(msgspec.Struct, frozen=True, gc=False):
    """`n` samples that continue one prefix."""

    problem: Problem
    prefix: str
    """The steps so far, concatenated; '' at the root. `policy.prompts.render` makes the exact prompt of it."""
    n: int
    mode: Mode
    seed: int
    """63 bits. A policy gives sample i of a request a seed of its own, a function of (seed, i)."""
    digest: bytes
    """The request's key in the journal."""
    tree: int
    """The tree's number in the run: its requests go to one replica, so that prefix caches hit."""


class Sample(msgspec.Struct, frozen=True, array_like=True, gc=False, omit_defaults=True):
    """One completion, as the model gave it. This is what the journal keeps."""

    text: str
    """Without the stop string or the end-of-text token; in mode `step` without the delimiter."""
    finish: FinishReason
    """`stop`: end of text or a stop string; `delimiter`: mode `step` met the delimiter; `length`: token limit;
    `error`: the engine failed for good, and `text` says how."""
    tokens: int = 0
    """Tokens sampled."""
    logprob: float | None = None
    """Sum of the sampled tokens' log-probabilities in nats, at temperature 1; None unknown."""
    step_tokens: tuple[int, ...] = ()
    """Tokens of each step as `policy.steps.split_steps` splits `text`; () unknown."""
    step_logprobs: tuple[float, ...] = ()
    """The same for log-probabilities; () unknown."""
