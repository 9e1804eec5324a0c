"""`ServerPolicy` against llama.cpp's own HTTP listener, in a process of its own, with a small real model."""

import asyncio
import logging
import subprocess
import sys
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from treeforge.config import SamplingConfig
from treeforge.errors import ConfigError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.base import Mode, Request, Sample
from treeforge.policy.models import pull
from treeforge.policy.prompts import PRESETS
from treeforge.policy.server import ServerPolicy
from treeforge.policy.steps import split_steps
from treeforge.problem import make_problem

pytest.importorskip("xllamacpp")
pytestmark = pytest.mark.slow

KEY = "sk-local"
SLOTS = 2
LISTENER = """
import sys, threading, xllamacpp
params = xllamacpp.CommonParams()
params.model.path, key, slots = sys.argv[1:]
params.api_keys, params.n_parallel = [key], int(slots)
params.n_ctx, params.cpuparams.n_threads = 2048, 1
server = xllamacpp.Server(params)
print(server.listening_address, flush=True)
threading.Event().wait()
"""


class Listener(msgspec.Struct):
    url: str
    process: subprocess.Popen[str]


@contextmanager
def listening(model: Path) -> Iterator[Listener]:
    process = subprocess.Popen(
        [sys.executable, "-c", LISTENER, str(model), KEY, str(SLOTS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield Listener(process.stdout.readline().strip(), process)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


@pytest.fixture(scope="module")
def model() -> Path:
    return pull("smollm2-135m")


@pytest.fixture(scope="module")
def listener(model: Path) -> Iterator[Listener]:
    with listening(model) as listener:
        yield listener


def make(listener: Listener, path: Path, preset: str, **options: Any) -> ServerPolicy:
    chosen = PRESETS[preset]
    sampling = msgspec.structs.replace(chosen.sampling, max_tokens=40, max_step_tokens=40)
    options = {"model": path.name, "sampling": sampling, "api_key": KEY} | options
    return ServerPolicy(steps=chosen.steps, servers=(listener.url,), timeout=300.0, concurrency=SLOTS, **options)


def request(mode: Mode, n: int, prefix: str = "", seed: int = 5, question: str = "What is 6 + 7?") -> Request:
    problem = make_problem(question, "13")
    return Request(problem=problem, prefix=prefix, n=n, mode=mode, seed=seed, digest=b"", tree=0)


def ask(policy: ServerPolicy, *requests: Request) -> list[tuple[Sample, ...]]:
    async def run() -> list[tuple[Sample, ...]]:
        try:
            await policy.start()
            return [await policy.sample(request) for request in requests]
        finally:
            await policy.close()

    return asyncio.run(run())


def test_completions_are_steps_with_counts_and_logprobs(listener, model, caplog):
    caplog.set_level(logging.INFO, "treeforge.policy.server")
    policy = make(listener, model, "smollm")
    rollouts, steps = ask(policy, request("rollout", 5), request("step", 2))
    assert policy.identity == {"backend": "server", "model": model.name}
    assert "samples a request: n; log-probabilities: yes; seeds: repeat; stop strings: yes" in caplog.text
    assert len(rollouts) == 5  # more than the listener has slots
    assert len({sample.text for sample in rollouts}) > 1
    for sample in (*rollouts, *steps):
        assert sample.text
        assert "Question:" not in sample.text
        assert sample.logprob is not None
        assert sample.logprob < 0
        assert sum(sample.step_tokens) == sample.tokens
        assert len(sample.step_tokens) == len(sample.step_logprobs) == len(split_steps(sample.text, "\n"))
    assert all("\n" not in sample.text for sample in steps)
    assert {"delimiter"} <= {sample.finish for sample in steps}


def test_a_prefix_is_continued(listener, model):
    policy = make(listener, model, "smollm", sampling=SamplingConfig(temperature=0.0, max_tokens=40))
    (greedy,) = ask(policy, request("rollout", 1, prefix="6 + 7 = 13.\nThe answer is"))
    assert greedy[0].text == " 13."
    assert greedy[0].finish == "stop"


def test_chat_continues_the_assistant_s_message(listener, model):
    prefix = "Step 1: 6 + 7 = 13.\n\nStep 2: The final answer is"
    (samples,) = ask(make(listener, model, "qwen-chat"), request("rollout", 2, prefix=prefix))
    for sample in samples:
        assert not sample.text.startswith("Step 1")  # llama.cpp repeats what it continues
        assert sample.text[:1].isspace() or not sample.text  # and goes on in the middle of the line
        assert sum(sample.step_tokens) == sample.tokens


def test_the_end_of_a_text_is_told_from_the_delimiter(listener, model):
    sampling = SamplingConfig(temperature=0.0, max_step_tokens=40)
    policy = make(listener, model, "qwen-chat", sampling=sampling)
    prefix = "2 + 3 = 5.\n\nSo the sum is"
    (step,) = ask(policy, request("step", 1, prefix=prefix, question="What is 2 + 3? One line."))
    assert step[0].finish == "stop"


def test_the_same_seed_gives_the_same_text(listener, model):
    same = request("rollout", 2)
    _, first, second, other = ask(  # the first one warms the cache: a cold prompt's logits differ in their last bits
        make(listener, model, "smollm"), same, same, same, request("rollout", 2, seed=6)
    )
    assert [sample.text for sample in first] == [sample.text for sample in second]
    assert [sample.text for sample in first] != [sample.text for sample in other]


def test_what_is_wrong_is_said(listener, model):
    with pytest.raises(ConfigError, match=f"serves no model 'llama'; it serves: .*{model.name}"):
        ask(make(listener, model, "smollm", model="llama"))
    with pytest.raises(ConfigError, match="TREEFORGE_API_KEY") as caught:
        ask(make(listener, model, "smollm", api_key="sk-wrong"))
    assert "sk-wrong" not in str(caught.value)
    with pytest.raises(RequestFailedError, match="context size") as too_long:
        ask(make(listener, model, "smollm"), request("rollout", 2, prefix="1 + 1 = 2, " * 2000))
    assert not too_long.value.retryable


def test_a_killed_server_is_nobody_there(model):
    with listening(model) as listener:

        async def run() -> None:
            policy = make(listener, model, "smollm")
            try:
                await policy.start()
                asked: Coroutine[Any, Any, Any] = policy.sample(request("rollout", 2))
                task = asyncio.create_task(asked)
                await asyncio.sleep(0.2)
                listener.process.kill()
                with pytest.raises(PolicyUnavailableError):
                    await task
            finally:
                await policy.close()

        asyncio.run(run())
