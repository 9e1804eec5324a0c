"""`VllmPolicy`: vLLM's asynchronous engine in this process; all trees share one continuously batched engine."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
import multiprocessing
from pathlib import Path
from typing import Any

from treeforge.config import Machine, PolicyConfig, SamplingConfig, StepsConfig
from treeforge.errors import PolicyUnavailableError, RequestFailedError
from treeforge.policy.base import FinishReason, PromptCache, Request, Sample
from treeforge.policy.checkpoint import Checkpoint, model_identity
from treeforge.policy.replies import Stops
from treeforge.policy.steps import clean_text, split_steps
from treeforge.policy.token_ids import PrefixTokens, tokens_by_step
from treeforge.policy.vllm_engine import Engine, one_line
from treeforge.policy.vllm_options import engine_options, engine_version

_log = logging.getLogger(__name__)

# Sample i of a request gets seed + i, which has to fit into 63 bits.
_SEEDS = 2**62
# The text of a token can depend on what stands before it (SentencePiece's spaces, characters of several tokens).
_CONTEXT_TOKENS = 16


class VllmPolicy:
    """A model in Hugging Face's format, run by vLLM. Chat formats use the tokenizer's own template.

    `policy.model`: a folder, a Hub name, or a registry name that `treeforge models convert` was run for. The engine
    arguments in `policy.engine` and `machine.engine` are vLLM's own (`tensor_parallel_size`, `quantization`, …).
    `logs`: the folder for the engine's log, `vllm.log`.
    """

    def __init__(
        self,
        config: PolicyConfig,
        steps: StepsConfig,
        sampling: SamplingConfig,
        machine: Machine,
        *,
        logs: Path | None = None,
    ) -> None:
        self._version, self._on_cpu = engine_version()
        self._config, self._steps, self._sampling, self._logs = config, steps, sampling, logs
        self._options = engine_options(config, machine, on_cpu=self._on_cpu)
        self._identity: dict[str, Any] = {}
        self._engine: Engine | None = None
        self._prefixes: PrefixTokens | None = None
        self._tokenizer: Any = None
        self._numbers = itertools.count()

    @property
    def identity(self) -> dict[str, Any]:
        """See `model_identity`; empty before `start`."""
        return self._identity

    @property
    def prompt_cache(self) -> PromptCache | None:
        """The engine's own counts, in which each sample has a prompt; None where it has no prefix cache."""
        engine = self._engine
        return engine.cache if engine is not None and engine.cache.prompt else None

    async def start(self) -> None:
        """Load tokenizer and model.

        Raises `MissingExtraError` (no vLLM), `ConfigError` (unknown model or engine argument, a model that does not
        fit, a chat template that does not) or `PolicyUnavailableError` (vLLM cannot be imported).
        """
        checkpoint = await asyncio.to_thread(Checkpoint, self._config.model, self._options)
        steps = checkpoint.as_completion(self._steps)
        self._engine = await self._load(checkpoint.source)
        self._identity = model_identity(checkpoint, self._config, self._version)
        self._tokenizer = checkpoint.fast
        self._prefixes = PrefixTokens(steps, checkpoint.encode, composes=checkpoint.composes())

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """`request.n` samples, in order, as one request of the engine; sample i has the seed `request.seed` + i.

        At temperature 0 all are one and the same. Cancelling takes the request out of the engine. Raises
        `RequestFailedError`, not retryable where the prompt does not fit, or `PolicyUnavailableError` (engine dead).
        """
        engine, prefixes = self._engine, self._prefixes
        if engine is None or prefixes is None:
            raise PolicyUnavailableError("the vllm policy is not started, or closed")
        from vllm.exceptions import VLLMClientError
        from vllm.inputs.engine import tokens_input
        from vllm.v1.engine.exceptions import EngineDeadError

        ids, key = prefixes.tokens(request.problem.question, request.prefix)
        stops = Stops.of(self._steps, request.mode)
        n = request.n if self._sampling.temperature else 1  # vLLM refuses several greedy samples
        output = None
        try:
            async for output in engine.llm.generate(  # noqa: B007 - the last one is the whole of it
                tokens_input(ids),
                self._parameters(request, n, stops),
                str(next(self._numbers)),
                lora_request=engine.adapter,
            ):
                pass
        except EngineDeadError as error:
            raise PolicyUnavailableError(f"vLLM's engine died: {engine.words(error)}") from error
        except VLLMClientError as error:
            raise RequestFailedError(f"vLLM: {one_line(error)}", retryable=False) from error
        except Exception as error:  # the engine's own classes differ from version to version
            raise RequestFailedError(f"vLLM: {one_line(error.__cause__ or error)}") from error
        if output is None or len(output.outputs) != n:
            raise RequestFailedError("vLLM gave fewer completions than asked for")
        samples = [self._sample(completion, ids, key, stops) for completion in output.outputs]
        return tuple(samples * (request.n // n))

    async def close(self) -> None:
        """Say how the engine did, and take it down; may be called twice."""
        engine, self._engine = self._engine, None
        if engine is not None:
            _log.info("vLLM: %s", engine.cache)
            await asyncio.to_thread(engine.close)

    async def _load(self, source: str) -> Engine:
        before = set(multiprocessing.active_children())
        loading = asyncio.ensure_future(
            asyncio.to_thread(Engine, self._config, source, self._options, on_cpu=self._on_cpu, logs=self._logs)
        )
        try:
            return await asyncio.shield(loading)
        except asyncio.CancelledError:
            # The thread waits for the engine's process, so that ending this ends both.
            while not loading.done():
                for child in set(multiprocessing.active_children()) - before:
                    child.terminate()
                await asyncio.wait([loading], timeout=0.5)
            if not loading.cancelled() and loading.exception() is None:
                await asyncio.to_thread(loading.result().close)
            raise

    def _parameters(self, request: Request, n: int, stops: Stops) -> Any:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        sampling = self._sampling
        return SamplingParams(
            n=n,
            seed=request.seed % _SEEDS,
            temperature=sampling.temperature,
            top_p=sampling.top_p,
            top_k=sampling.top_k,
            max_tokens=sampling.max_step_tokens if request.mode == "step" else sampling.max_tokens,
            stop=stops.strings,
            logprobs=0,
            flat_logprobs=True,
            output_kind=RequestOutputKind.FINAL_ONLY,
        )

    def _sample(self, completion: Any, prompt: list[int], key: bytes, stops: Stops) -> Sample:
        ids = list(completion.token_ids)
        finish = _finish(completion.finish_reason, completion.stop_reason, stops)
        text = clean_text(completion.text)
        logprobs: list[float] = list(completion.logprobs.logprobs[: len(ids)]) if completion.logprobs else []
        known = len(logprobs) == len(ids) and all(map(math.isfinite, logprobs))
        starts = self._starts(prompt, ids, completion.text)
        spans = [] if starts is None else tokens_by_step(split_steps(text, stops.delimiter), starts)
        if starts is not None and self._prefixes is not None:
            whole = text + stops.delimiter if finish == "delimiter" else text
            self._prefixes.remember(key, whole, ids, starts)
        return Sample(
            text=text,
            finish=finish,
            tokens=len(ids),
            logprob=math.fsum(logprobs) if known else None,
            step_tokens=tuple(last - first for first, last in spans),
            step_logprobs=tuple(math.fsum(logprobs[first:last]) for first, last in spans) if known else (),
        )

    def _starts(self, prompt: list[int], ids: list[int], text: str) -> list[int] | None:
        """Where in the text each token starts, and where the last one ends; None where that cannot be told.

        Stop strings are part of the tokens and not of the text. A character of several tokens is the last one's.
        """
        if self._tokenizer is None:
            return None
        from tokenizers.decoders import DecodeStream

        # As vLLM's own detokenizer does it, so that the pieces are those of its text.
        stream = DecodeStream(ids=prompt[-_CONTEXT_TOKENS:], skip_special_tokens=True)
        starts, pieces, length = [], [], 0
        for token in ids:
            starts.append(length)
            if piece := stream.step(self._tokenizer, token):
                pieces.append(piece)
                length += len(piece)
        starts.append(length)
        return starts if "".join(pieces).startswith(text) else None


def _finish(reason: str, stop: Any, stops: Stops) -> FinishReason:
    if reason == "length":
        return "length"
    if reason != "stop":  # `abort`: the engine is being taken down
        raise RequestFailedError(f"vLLM broke off a completion ({reason})")
    return "delimiter" if stops.mode == "step" and stop == stops.delimiter else "stop"
