"""`LocalPolicy`: a GGUF model run by llama.cpp in this process, many requests in one batch."""

from __future__ import annotations

import asyncio
import math
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import msgspec

from treeforge.config import SamplingConfig, StepsConfig
from treeforge.errors import ConfigError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.base import FinishReason, PromptCache, Request, Sample
from treeforge.policy.hub import fetch, hub_file, pinned, published_sha256
from treeforge.policy.llamacpp import Chunk, Engine, StoppedError
from treeforge.policy.models import MODELS, find_model, model_digest
from treeforge.policy.prompts import QUESTION, render
from treeforge.policy.steps import clean_text, split_steps

# Sample i of a request gets seed + i in 32 bits; llama.cpp draws a seed of its own for 2^32 - 1, so room is left.
_SEEDS = 2**32 - 2**16
_QUESTION_TOKENS = 1024
_CHARS_PER_TOKEN = 3  # few texts have less; this only sizes the context
_CONTEXT_STEP = 256
_WARM_CHARS = 200


class LocalPolicy:
    """A GGUF model, by registry name, path or `hf://` name, in `slots` parallel sequences.

    The samples of one request share the evaluation of its prompt. Chat formats use the template in the model's file.
    """

    def __init__(
        self, model: str, steps: StepsConfig, sampling: SamplingConfig, *, slots: int, threads: int = 0
    ) -> None:
        self._model, self._steps, self._sampling = model, steps, sampling
        self._slots, self._threads = slots, threads
        self._format = steps
        self._engine: Engine | None = None
        self._identity: dict[str, Any] = {}
        self._cache = PromptCache()
        self._closing = threading.Event()
        self._pool = ThreadPoolExecutor(slots, thread_name_prefix="treeforge-local")

    @property
    def identity(self) -> dict[str, Any]:
        """Backend, model name, SHA-256 of its file and engine version; of a file of the Hub its commit too.

        Empty before `start`.
        """
        return self._identity

    @property
    def prompt_cache(self) -> PromptCache | None:
        """By llama.cpp's own figures; the samples that share the evaluation of a prompt count it once."""
        return self._cache if self._cache.prompt else None

    async def start(self) -> None:
        """Load the model; one by its `hf://` name is downloaded before.

        Raises `ConfigError` (unknown name, not downloaded, damaged, template that does not fit),
        `MissingExtraError` (no xllamacpp) or `PolicyUnavailableError` (llama.cpp refuses the file, no Hub).
        """
        await asyncio.to_thread(self._load)

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """`request.n` samples, in order; sample i has the seed `request.seed` + i.

        Not the same samples again for certain: rounding depends on what else is in the batch, and a token may then
        turn out otherwise. The journal, not the seed, is what reproduces a run. Raises `RequestFailedError`, not
        retryable where the prompt does not fit.
        """
        engine = self._engine
        if engine is None or self._closing.is_set():
            raise PolicyUnavailableError("the local policy is not started, or closed")
        given_up = threading.Event()
        loop = asyncio.get_running_loop()
        # A request of many samples in parts, since the server starts one only when as many slots are free at once.
        most = max(1, engine.slots // 2)
        parts = [
            loop.run_in_executor(
                self._pool, self._sample, engine, request, first, min(most, request.n - first), given_up
            )
            for first in range(0, request.n, most)
        ]
        try:
            answered = await asyncio.gather(*parts)
            for _, prompt in answered:
                self._cache.prompt += prompt.prompt
                self._cache.cached += prompt.cached
            return tuple(sample for samples, _ in answered for sample in samples)
        except StoppedError:
            raise PolicyUnavailableError("the local policy was closed") from None
        except asyncio.CancelledError:
            if self._closing.is_set() and not asyncio.current_task().cancelling():  # type: ignore[union-attr]
                raise PolicyUnavailableError("the local policy was closed") from None
            raise
        finally:
            given_up.set()

    async def close(self) -> None:
        """Give up what runs, wait for it to end, and free the model; may be called twice."""
        self._closing.set()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
        engine, self._engine = self._engine, None
        if engine is not None:
            engine.close()

    def _load(self) -> None:
        known, file = MODELS.get(self._model), hub_file(self._model)
        if file is not None:
            file = pinned(file)
            fetch(file)
        path = find_model(self._model if file is None else file.name)
        digest = model_digest(path)
        expected = known.sha256 if known is not None else published_sha256(path) if file is not None else None
        if expected not in (None, digest):
            raise ConfigError(
                f"{path.resolve()} is damaged (SHA-256 {digest}, not {expected}); remove it and pull "
                f"'{self._model}' again (treeforge models pull)"
            )
        engine = Engine(path, slots=self._slots, context=_context(self._steps, self._sampling), threads=self._threads)
        try:
            # From here on chat is completion too: the template's text before and after the question.
            if self._steps.template == "chat":
                prompt = engine.chat_prompt(self._steps.system, self._steps.prompt)
                self._format = msgspec.structs.replace(self._steps, prompt=prompt)
            head = self._format.prompt.partition(QUESTION)[0]
            if len(head) >= _WARM_CHARS:
                engine.warm(head)
        except RequestFailedError as error:
            engine.close()
            raise ConfigError(f"the step format '{self._steps.preset}' does not fit {path.name}: {error}") from error
        except BaseException:
            engine.close()
            raise
        self._identity = {
            "backend": "local",
            "model": path.name if file is None else file.place,
            "sha256": digest,
            "engine": engine.version,
        }
        if known is not None:
            self._identity["model"] = known.name
        if file is not None:
            self._identity["revision"] = file.revision
        self._engine = engine

    def _sample(
        self, engine: Engine, request: Request, first: int, n: int, given_up: threading.Event
    ) -> tuple[list[Sample], PromptCache]:
        steps, sampling = self._format, self._sampling
        delimiter = steps.delimiter if request.mode == "step" else None
        body = {
            "prompt": clean_text(render(steps, request.problem.question, request.prefix)),
            "n": n,
            "seed": request.seed % _SEEDS + first,
            "max_tokens": sampling.max_tokens if delimiter is None else sampling.max_step_tokens,
            # Where two stop strings begin at one place, llama.cpp reports the first of this list.
            "stop": [*([] if delimiter is None else [delimiter]), *steps.stop],
            "logprobs": 1,
            "return_tokens": True,
            # Nothing but these three, in the order of the Hugging Face and vLLM samplers.
            "samplers": ["temperature", "top_k", "top_p"],
            "temperature": sampling.temperature,
            "top_k": sampling.top_k,
            "top_p": sampling.top_p,
            "mirostat": 0,
        }
        chunks = engine.complete(body, lambda: given_up.is_set() or self._closing.is_set())
        streams = [_Stream(engine, steps.delimiter, request.mode == "step") for _ in range(n)]
        for chunk in chunks:
            streams[chunk["choices"][0]["index"]].add(chunk)
        return [stream.sample() for stream in streams], streams[0].prompt


class _Stream:
    """One completion as it came: its text, and where in it each token started.

    llama.cpp keeps text back while it may be the beginning of a stop string, and a token that ends inside a character
    until the character is whole; the next event then brings the text of several tokens.
    """

    def __init__(self, engine: Engine, delimiter: str, stops_at_delimiter: bool) -> None:
        self._engine, self._delimiter, self._stops_at_delimiter = engine, delimiter, stops_at_delimiter
        self._texts: list[str] = []
        self._length = 0
        self._starts: list[int] = []
        self._logprobs: list[float] = []
        self._kept_back: list[int] = []
        self._stop_type = self._stop_word = ""
        self.prompt = PromptCache()
        """What its prompt took; known at its end."""

    def add(self, chunk: Chunk) -> None:
        """Take the next event."""
        native = chunk["__verbose"]
        # More than one where tokens ended inside a character: those have no event, and so no log-probability.
        if new := native["tokens_predicted"] - len(self._starts):
            kept_back = sum(len(self._engine.token_text(token)) for token in self._kept_back)
            self._starts += [self._length + kept_back] * new
        self._logprobs += [entry["logprob"] for entry in native.get("completion_probabilities", ())]
        if text := native["content"]:
            self._texts.append(text)
            self._length += len(text)
            self._kept_back.clear()
        else:
            self._kept_back += native["tokens"]
        if native["stop"]:
            self._stop_type, self._stop_word = native["stop_type"], native["stopping_word"]
            if timings := native.get("timings"):
                self.prompt = PromptCache(timings["cache_n"] + timings["prompt_n"], timings["cache_n"])

    def sample(self) -> Sample:
        """The whole completion."""
        text = clean_text("".join(self._texts))
        tokens = len(self._starts)
        known = len(self._logprobs) == tokens and all(map(math.isfinite, self._logprobs))
        step_tokens, step_logprobs = self._by_step(text, self._logprobs if known else [0.0] * tokens)
        return Sample(
            text=text,
            finish=self._finish(),
            tokens=tokens,
            logprob=math.fsum(self._logprobs) if known else None,
            step_tokens=tuple(step_tokens),
            step_logprobs=tuple(step_logprobs) if known else (),
        )

    def _by_step(self, text: str, logprobs: list[float]) -> tuple[list[int], list[float]]:
        """Tokens and log-probability of each step.

        A token belongs to the step in which it starts; what follows the text (stop string, end of text) to the last.
        """
        steps = split_steps(text, self._delimiter)
        if not steps:
            return [], []
        counts, sums = [0] * len(steps), [0.0] * len(steps)
        at, last = 0, len(steps) - 1
        end = len(steps[0])
        for start, logprob in zip(self._starts, logprobs, strict=True):
            while start >= end and at < last:
                at += 1
                end += len(steps[at])
            counts[at] += 1
            sums[at] += logprob
        return counts, sums

    def _finish(self) -> FinishReason:
        match self._stop_type:
            case "limit":
                return "length"
            case "word" if self._stops_at_delimiter and self._stop_word == self._delimiter:
                return "delimiter"
            case "word" | "eos":
                return "stop"
        raise RequestFailedError("llama.cpp broke off a completion")


def _context(steps: StepsConfig, sampling: SamplingConfig) -> int:
    """Tokens of one slot: the template, a long question, the steps so far and a completion."""
    template = len(steps.system + steps.prompt + steps.assistant_start) // _CHARS_PER_TOKEN
    tokens = template + _QUESTION_TOKENS + 2 * sampling.max_tokens
    return math.ceil(tokens / _CONTEXT_STEP) * _CONTEXT_STEP
