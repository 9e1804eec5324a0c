"""From the JSON of a completions or chat reply to samples. Pure; servers differ, and nothing in a reply is trusted.

Which of several stop strings ended a completion is what servers say least alike. In this order:

1. the text holds a stop string (a server that does not stop there, or shows it): the text is cut there;
2. `finish_reason` says that the token limit was reached;
3. `stop_reason` (vLLM) or `matched_stop` (SGLang): the stop string, or null or a token id at the end of the text;
4. the listed tokens end with one that has no text (llama.cpp's end-of-text token): end of the text;
5. nobody says: a step that is blank or holds an answer marker ended the text, any other one met the delimiter.
"""

from __future__ import annotations

import codecs
import math
from bisect import bisect_left
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from treeforge.config import StepsConfig
from treeforge.errors import RequestFailedError
from treeforge.policy.base import FinishReason, Mode, Sample
from treeforge.policy.steps import clean_text, split_text

_STOP = ("stop", "eos", "stop_sequence", "tool_calls", "function_call")
_LENGTH = ("length", "max_tokens")
_FILTERED = ("content_filter",)
THINK, END_THINK = "<think>", "</think>"
"""The tags that reasoning models put around what they think."""

_TAG_TOKENS = 8  # one where the tag is a token of its own
_MOST_TOKENS = 2**31 - 1  # a tree's token counts are int32


class Choice(NamedTuple):
    """One completion of a reply, as the server gave it: not cut, not cleaned."""

    text: str
    reason: str
    """`finish_reason`; one of those that are known here."""
    told: bool
    """`stop` says what stopped it."""
    stop: Any
    """The stop string; anything else is the end of the text."""
    tokens: list[str] | None
    """Texts of the sampled tokens; None where they are not listed."""
    logprobs: list[float] | None
    """Their log-probabilities in nats; None where one is missing or not finite."""
    hidden: int = 0
    """Characters of `text` that the server kept apart as reasoning, with their tags."""


class Stops(NamedTuple):
    """Where a completion has to stop, and how it is split into steps."""

    mode: Mode
    steps: StepsConfig
    strings: list[str]
    """What to send as `stop`."""

    @classmethod
    def of(cls, steps: StepsConfig, mode: Mode) -> Stops:
        """Those of a step format."""
        return cls(mode, steps, list(dict.fromkeys((steps.delimiter, *steps.stop) if mode == "step" else steps.stop)))

    @property
    def delimiter(self) -> str:
        """What ends a step."""
        return self.steps.delimiter


class Told(NamedTuple):
    """What is known of a server and of what it was asked, and has to be known to read its replies."""

    chat: bool
    started: str = ""
    """The start of the assistant's message, where the server repeats it."""
    tells: bool = True
    """Its `stop_reason` can be relied on."""
    apart: bool = False
    """It keeps reasoning apart."""
    thinking: bool = False
    """The start of the assistant's message ends inside a section of reasoning."""
    think_open: str = THINK
    think_close: str = END_THINK
    """The tags around such a section."""


def read_choices(reply: dict[str, Any], told: Told) -> list[Choice]:
    """The completions of a reply, ordered by their `index`.

    Reasoning that a server keeps apart (`reasoning_content` of DeepSeek, SGLang and vLLM, `reasoning` of newer vLLM and
    others) is put back where the model wrote it, before the content and between its tags: it was paid for, and what
    follows hangs on it. Where there is no content, the section was not ended.

    Raises `RequestFailedError` (retryable) where a field is missing.
    """
    raw = reply.get("choices")
    if not isinstance(raw, list) or not raw:
        raise RequestFailedError("the reply holds no choices")
    if all(isinstance(choice, dict) and isinstance(choice.get("index"), int) for choice in raw):
        raw = sorted(raw, key=lambda choice: choice["index"])
    return [_choice(choice, told) for choice in raw]


def completion_tokens(reply: dict[str, Any]) -> int | None:
    """`usage.completion_tokens`: of all completions together, or of the first one alone (llama.cpp); None unknown."""
    return _count(_object(reply, "usage"), "completion_tokens")


def prompt_tokens(reply: dict[str, Any]) -> tuple[int, int | None]:
    """Tokens of the prompt (0 unknown), and of these from the server's prefix cache (None unknown).

    By `usage.prompt_tokens_details.cached_tokens` (OpenAI, vLLM, SGLang, llama.cpp) or `timings.cache_n` (llama.cpp).
    """
    usage, timings = _object(reply, "usage"), _object(reply, "timings")
    cached = _count(_object(usage, "prompt_tokens_details"), "cached_tokens")
    cached = _count(timings, "cache_n") if cached is None else cached
    prompt = _count(usage, "prompt_tokens") or 0
    # Older versions of SGLang add up what the samples of a reply took, which have one prompt.
    return prompt, None if cached is None else min(cached, prompt)


def to_samples(choices: Sequence[Choice], stops: Stops, total: int | None) -> list[Sample]:
    """The samples of a reply's completions.

    Tokens of a completion: `total` (see `completion_tokens`) where it is alone; else as many as are listed; else a
    share of the total by length of text; 0 where nothing is known.
    """
    if len(choices) == 1:
        listed = choices[0].tokens
        return [_sample(choices[0], stops, total if total is not None else len(listed or ()))]
    characters = sum(len(choice.text) for choice in choices)
    samples, given, before = [], 0, 0
    for choice in choices:
        before += len(choice.text)
        share = (total or 0) * before // characters - given if characters else 0
        given += share
        samples.append(_sample(choice, stops, share if choice.tokens is None else len(choice.tokens)))
    return samples


def _sample(choice: Choice, stops: Stops, tokens: int) -> Sample:
    """A token belongs to the step in which it starts, and what follows the text (stop string, end of text) to the last.

    `logprob` sums what the server lists; llama.cpp leaves the tokens of a stop string out.
    """
    if choice.reason in _FILTERED:
        return Sample(text="the server's content filter ended the completion", finish="error", tokens=tokens)
    text, finish = _finish(choice, stops)
    listed, logprobs = choice.tokens, choice.logprobs
    cleaned = clean_text(text)
    if listed is None or logprobs is None:
        return Sample(text=cleaned, finish=finish, tokens=tokens)
    unlisted = max(0, tokens - len(listed))
    if len(text) < len(choice.text):  # cut here: what was sampled beyond is paid for, and no part of the text
        kept = bisect_left(_starts(listed), len(text))
        listed, logprobs, unlisted = listed[:kept], logprobs[:kept], 0
    total = math.fsum(logprobs)
    if not _agree("".join(listed), text):
        return Sample(text=cleaned, finish=finish, tokens=tokens, logprob=total)
    step_tokens, step_logprobs = _by_step(split_text(cleaned, stops.steps), listed, logprobs)
    if step_tokens:
        step_tokens[-1] += unlisted
    return Sample(
        text=cleaned,
        finish=finish,
        tokens=tokens,
        logprob=total,
        step_tokens=tuple(step_tokens),
        step_logprobs=tuple(step_logprobs),
    )


def _finish(choice: Choice, stops: Stops) -> tuple[str, FinishReason]:
    """The text before the first stop string, and what ended it: see the module's docstring."""
    text = choice.text
    # A server that keeps reasoning apart need not look for stop strings there; a rollout does not end in it.
    start = choice.hidden if stops.mode == "rollout" else 0
    hits = [(at, i) for i, string in enumerate(stops.strings) if (at := text.find(string, start)) >= 0]
    if hits:
        at, i = min(hits)
        return text[:at], "delimiter" if stops.mode == "step" and i == 0 else "stop"
    if choice.reason in _LENGTH:
        return text, "length"
    if stops.mode == "rollout":
        return text, "stop"
    if choice.told:
        return text, "delimiter" if choice.stop == stops.delimiter else "stop"
    if choice.tokens and not choice.tokens[-1]:
        return text, "stop"
    if not text.strip() or any(marker in text for marker in stops.steps.answer_markers):
        return text, "stop"
    return text, "delimiter"


def _choice(choice: Any, told: Told) -> Choice:
    if not isinstance(choice, dict):
        raise RequestFailedError("a choice of the reply is not an object")
    thoughts = ""
    if told.chat:
        message = choice.get("message")
        thoughts = _reasoning(message)
        # null or missing: there is nothing but reasoning
        text = (
            (message.get("content") or "") if isinstance(message, dict) and ("content" in message or thoughts) else None
        )
    else:
        text = choice.get("text")
    reason = choice.get("finish_reason")
    if not isinstance(text, str) or not isinstance(reason, str):
        raise RequestFailedError("a choice of the reply lacks its text or finish_reason")
    if reason not in (*_STOP, *_LENGTH, *_FILTERED):  # `abort`: the server shuts down
        raise RequestFailedError(f"the server ended a completion with {clean_text(reason)[:40]!r}")
    if told.started and text.startswith(told.started):
        text = text[len(told.started) :]
    tag = ""
    if thoughts:
        tag = "" if told.thinking else told.think_open
        thoughts = tag + thoughts + (told.think_close if text else "")
    elif told.thinking and told.apart and text:  # the first thing that the model wrote was the end of its reasoning
        tag = thoughts = told.think_close
    key = next((key for key in ("stop_reason", "matched_stop") if told.tells and key in choice), None)
    text = thoughts + text
    tokens, logprobs = _listed(choice.get("logprobs"), text.removeprefix(tag))
    if tokens and tag and not "".join(tokens[:_TAG_TOKENS]).startswith(tag):
        tokens[0] = tag + tokens[0]  # not sampled (a chat template wrote it), or not listed
    return Choice(text, reason, key is not None, choice[key] if key else None, tokens, logprobs, len(thoughts))


def _object(data: dict[str, Any], key: str) -> dict[str, Any]:
    found = data.get(key)
    return found if isinstance(found, dict) else {}


def _count(data: dict[str, Any], key: str) -> int | None:
    """A number of tokens; None where there is none that could be."""
    found = data.get(key)
    return min(found, _MOST_TOKENS) if isinstance(found, int) and found >= 0 else None


def _reasoning(message: Any) -> str:
    """What the server kept apart; '' where nothing."""
    for key in ("reasoning_content", "reasoning"):
        found = message.get(key) if isinstance(message, dict) else None
        if isinstance(found, str) and found:
            return found
    return ""


def _listed(listing: Any, text: str) -> tuple[list[str] | None, list[float] | None]:
    """Tokens and log-probabilities out of either shape: `content` (chat; llama.cpp always) or `token_logprobs`."""
    tokens: Any
    values: Any
    if not isinstance(listing, dict):
        return None, None
    entries = listing.get("content")
    if isinstance(entries, list) and all(isinstance(entry, dict) for entry in entries):
        tokens = [entry.get("token") for entry in entries]
        values = [entry.get("logprob") for entry in entries]
    else:
        entries, tokens, values = [], listing.get("tokens"), listing.get("token_logprobs")
    if not isinstance(tokens, list) or not isinstance(values, list) or len(tokens) != len(values):
        return None, None
    if not {str}.issuperset(map(type, tokens)):
        return None, None
    if entries and not _agree("".join(tokens), text):
        tokens = _from_bytes(entries) or tokens
    known = {float, int}.issuperset(map(type, values)) and math.isfinite(sum(values))
    return tokens, values if known else None


def _from_bytes(entries: list[dict[str, Any]]) -> list[str] | None:
    """Texts of tokens out of their bytes; a character that is spread over several tokens is the last one's."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    tokens = []
    for entry in entries:
        part = entry.get("bytes")
        if not isinstance(part, list) or not all(isinstance(byte, int) and 0 <= byte < 256 for byte in part):
            return None
        tokens.append(decoder.decode(bytes(part)))
    return tokens


def _agree(tokens: str, text: str) -> bool:
    """The listed tokens are the text, perhaps with a stop string more, or with a last token less (llama.cpp)."""
    return tokens.startswith(text) or text.startswith(tokens)


def _starts(tokens: list[str]) -> list[int]:
    """Where each token starts in the text."""
    return list(accumulate(map(len, tokens), initial=0))[:-1]


def _by_step(steps: list[str], tokens: list[str], logprobs: list[float]) -> tuple[list[int], list[float]]:
    """Tokens and log-probabilities of each step; a token belongs to the step in which it starts."""
    if not steps:
        return [], []
    starts, counts, sums = _starts(tokens), [], []
    first = end = 0
    for step in steps[:-1]:
        end += len(step)
        last = bisect_left(starts, end, first)
        counts.append(last - first)
        sums.append(math.fsum(logprobs[first:last]))
        first = last
    return [*counts, len(tokens) - first], [*sums, math.fsum(logprobs[first:])]
