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
from collections.abc import Iterable, Sequence
from itertools import accumulate, pairwise
from typing import Any, NamedTuple

from treeforge.config import StepsConfig
from treeforge.errors import RequestFailedError
from treeforge.policy.base import FinishReason, Mode, Sample
from treeforge.policy.steps import clean_text, split_steps

_STOP = ("stop", "eos", "stop_sequence", "tool_calls", "function_call")
_LENGTH = ("length", "max_tokens")
_FILTERED = ("content_filter",)
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


class Stops(NamedTuple):
    """Where a completion has to stop."""

    mode: Mode
    delimiter: str
    stop: tuple[str, ...]
    markers: tuple[str, ...]

    @classmethod
    def of(cls, config: StepsConfig, mode: Mode) -> Stops:
        """Those of a step format."""
        return cls(mode, config.delimiter, config.stop, config.answer_markers)

    @property
    def strings(self) -> list[str]:
        """What to send as `stop`."""
        return list(dict.fromkeys((self.delimiter, *self.stop) if self.mode == "step" else self.stop))


def read_choices(reply: dict[str, Any], *, chat: bool, started: str = "", tells: bool = True) -> list[Choice]:
    """The completions of a reply, ordered by their `index`.

    `started`: the start of the assistant's message, taken off where the server repeats it. `tells`: this server's
    `stop_reason` can be relied on. Raises `RequestFailedError` (retryable) where a field is missing.
    """
    raw = reply.get("choices")
    if not isinstance(raw, list) or not raw:
        raise RequestFailedError("the reply holds no choices")
    if all(isinstance(choice, dict) and isinstance(choice.get("index"), int) for choice in raw):
        raw = sorted(raw, key=lambda choice: choice["index"])
    return [_choice(choice, chat, started, tells) for choice in raw]


def completion_tokens(reply: dict[str, Any]) -> int | None:
    """`usage.completion_tokens`: of all completions together, or of the first one alone (llama.cpp); None unknown."""
    usage = reply.get("usage")
    count = usage.get("completion_tokens") if isinstance(usage, dict) else None
    return min(count, _MOST_TOKENS) if isinstance(count, int) and count >= 0 else None


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
        (kept,) = _starting_before([len(text)], listed)
        listed, logprobs, unlisted = listed[:kept], logprobs[:kept], 0
    total = math.fsum(logprobs)
    if not _agree("".join(listed), text):
        return Sample(text=cleaned, finish=finish, tokens=tokens, logprob=total)
    step_tokens, step_logprobs = _by_step(split_steps(cleaned, stops.delimiter), listed, logprobs)
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
    hits = [(at, i) for i, string in enumerate(stops.strings) if (at := text.find(string)) >= 0]
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
    if not text.strip() or any(marker in text for marker in stops.markers):
        return text, "stop"
    return text, "delimiter"


def _choice(choice: Any, chat: bool, started: str, tells: bool) -> Choice:
    if not isinstance(choice, dict):
        raise RequestFailedError("a choice of the reply is not an object")
    if chat:
        message = choice.get("message")
        # null: there is nothing but hidden reasoning
        text = (message["content"] or "") if isinstance(message, dict) and "content" in message else None
    else:
        text = choice.get("text")
    reason = choice.get("finish_reason")
    if not isinstance(text, str) or not isinstance(reason, str):
        raise RequestFailedError("a choice of the reply lacks its text or finish_reason")
    if reason not in (*_STOP, *_LENGTH, *_FILTERED):  # `abort`: the server shuts down
        raise RequestFailedError(f"the server ended a completion with {clean_text(reason)[:40]!r}")
    if started and text.startswith(started):
        text = text[len(started) :]
    key = next((key for key in ("stop_reason", "matched_stop") if tells and key in choice), None)
    tokens, logprobs = _listed(choice.get("logprobs"), text)
    return Choice(text, reason, key is not None, choice[key] if key else None, tokens, logprobs)


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


def _starting_before(ends: Iterable[int], tokens: list[str]) -> list[int]:
    """How many tokens start before each of these positions of the text."""
    starts = list(accumulate(map(len, tokens[:-1]), initial=0)) if tokens else []
    return [bisect_left(starts, end) for end in ends]


def _by_step(steps: list[str], tokens: list[str], logprobs: list[float]) -> tuple[list[int], list[float]]:
    if not steps:
        return [], []
    cuts = [0, *_starting_before(accumulate(map(len, steps[:-1])), tokens), len(tokens)]
    spans = list(pairwise(cuts))
    return [end - start for start, end in spans], [math.fsum(logprobs[start:end]) for start, end in spans]
