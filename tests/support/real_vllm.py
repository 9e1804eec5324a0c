"""The real vLLM on the CPU for tests: its model, its settings, and policies that live in a thread of their own."""

from __future__ import annotations

import asyncio
import copy
import os
import threading
import time
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec

from treeforge.config import Machine, PolicyConfig, SamplingConfig
from treeforge.policy.base import PromptCache, Request, Sample, prompt_cache
from treeforge.policy.prompts import PRESETS
from treeforge.problem import make_problem
from treeforge.sample import Mode

MODEL = "smollm2-135m"
# One example instead of the preset's eight: evaluating the eight takes most of a short test's time.
EXAMPLE = "Question: What is 7 * 8 - 15?\nAnswer:\nFirst, 7 * 8 = 56.\nThen, 56 - 15 = 41.\nThe answer is 41.\n\n"
STEPS = msgspec.structs.replace(PRESETS["smollm"].steps, prompt=EXAMPLE + "Question: {question}\nAnswer:\n")
QUICK = SamplingConfig(temperature=0.8, max_tokens=32, max_step_tokens=32)
GREEDY = SamplingConfig(temperature=0, max_tokens=24)
QUESTIONS = [
    "Ann has 5 red cups and 3 blue cups. How many cups does Ann have?",
    "A box holds 4 pens. How many pens do 6 boxes hold?",
    "Tom had 9 nuts and ate 2. How many nuts are left?",
]
MAX_LEN = 512
ENGINE = {"dtype": "float32", "max_model_len": MAX_LEN}
CONFIG = PolicyConfig(backend="vllm", model=MODEL, engine=ENGINE)
# 32 tokens a block, so that the short prompts of these tests fill some. `uni`: the model runs in the engine's process,
# not in one of its own (where VLLM_ENABLE_V1_MULTIPROCESSING=0 allows that), which saves 20 s of imports a start.
MACHINE: dict[str, Any] = {
    "enforce_eager": True,
    "block_size": 32,
    "max_num_seqs": 16,
    "kv_cache_memory_bytes": 256 << 20,
    "distributed_executor_backend": "uni",
}
PATIENCE_SECONDS = 900.0
"""Longer than anything here takes on the slowest machine: what waits so long hangs."""


def request(
    mode: Mode = "rollout", n: int = 2, prefix: str = "", seed: int = 7, question: str = QUESTIONS[0], tree: int = 0
) -> Request:
    return Request(problem=make_problem(question, "8"), prefix=prefix, n=n, mode=mode, seed=seed, digest=b"", tree=tree)


class Threaded:
    """A policy whose event loop runs in a thread: it starts while other things go on, and any loop may ask it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def work() -> Any:
            policy = make()
            await policy.start()
            return policy

        self._starting: Future[Any] = self.submit(work())

    @property
    def policy(self) -> Any:
        """The policy itself, once it has started."""
        return self._starting.result(PATIENCE_SECONDS)

    @property
    def identity(self) -> dict[str, Any]:
        found: dict[str, Any] = self.policy.identity
        return found

    @property
    def prompt_cache(self) -> PromptCache | None:
        return prompt_cache(self.policy)

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self.submit(work).result(PATIENCE_SECONDS)

    def end(self) -> None:
        """Close the policy; twice, which it allows."""
        self.run(self.policy.close())
        self.run(self.policy.close())

    def submit(self, work: Coroutine[Any, Any, Any]) -> Future[Any]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)


class InProcess(Threaded):
    """The engine of this process, and policies with other step formats or sampling over the same engine."""

    def __init__(self, adapter: Path, logs: Path) -> None:
        from treeforge.policy.vllm import VllmPolicy

        config = msgspec.structs.replace(CONFIG, adapter=str(adapter))
        super().__init__(lambda: VllmPolicy(config, STEPS, QUICK, Machine(engine=MACHINE), logs=logs))

    def variant(self, steps: Any = STEPS, sampling: SamplingConfig = QUICK, *, adapted: bool = False) -> Any:
        from treeforge.policy.checkpoint import Checkpoint
        from treeforge.policy.token_ids import PrefixTokens

        policy = copy.copy(self.policy)
        checkpoint = Checkpoint(MODEL, {})
        policy._steps, policy._sampling = steps, sampling
        policy._prefixes = PrefixTokens(checkpoint.as_completion(steps), checkpoint.encode, composes=True)
        policy._engine = copy.copy(self.policy._engine)
        if not adapted:
            policy._engine.adapter = None
        return policy

    def ask(self, *requests: Request, **options: Any) -> list[tuple[Sample, ...]]:
        """One request after the other."""

        async def work() -> list[tuple[Sample, ...]]:
            policy = self.variant(**options)
            return [await policy.sample(one) for one in requests]

        found: list[tuple[Sample, ...]] = self.run(work())
        return found


class Replicas(Threaded):
    """Two servers that a policy starts; `logs` holds what they write."""

    def __init__(self, logs: Path) -> None:
        from treeforge.policy.fleet import Patience
        from treeforge.policy.replicas import ReplicasPolicy

        self.logs = logs
        machine = Machine(replicas=2, engine=MACHINE, concurrency=8)
        patience = Patience(check=0.5, backoff=0.1)
        super().__init__(lambda: ReplicasPolicy(CONFIG, STEPS, GREEDY, machine, logs=logs, patience=patience))

    @property
    def urls(self) -> list[str]:
        found: list[str] = self.policy._fleet.urls
        return found

    @property
    def key(self) -> str:
        found: str = self.policy._fleet._servers[0].launch.environment["VLLM_API_KEY"]
        return found

    def sampled(self, question: str, tree: int) -> str:
        found: str = self.run(self.policy.sample(request(question=question, n=1, tree=tree)))[0].text
        return found


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def descendants(pid: int) -> list[int]:
    found = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found += [child, *descendants(child)]
    return found


def servers() -> list[int]:
    """The servers of this process's replicas, their keepers and what they started."""
    found = [pid for pid in descendants(os.getpid()) if "-m vllm.entrypoints" in command_of(pid)]
    return sorted({pid for one in found for pid in (one, *descendants(one))})


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def wait_for(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"not within {PATIENCE_SECONDS:g} s: {what}"
        time.sleep(0.1)
