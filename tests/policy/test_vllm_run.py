"""The real vLLM in runs, in process and as two servers that a run starts; and the same tokens either way.

`make test-vllm` runs this in its own environment; see `conftest.py`.
"""

import asyncio
import importlib.util
import json
import multiprocessing
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import msgspec
import pytest
from support.real_vllm import (
    CONFIG,
    GREEDY,
    MODEL,
    QUESTIONS,
    STEPS,
    InProcess,
    Replicas,
    alive,
    command_of,
    descendants,
    request,
    servers,
    wait_for,
)

import treeforge as tf
from treeforge.cli import invoke
from treeforge.config import BudgetConfig, Recipe, RunConfig, SamplingConfig, SearchConfig
from treeforge.errors import PolicyUnavailableError
from treeforge.policy.base import prompt_cache
from treeforge.policy.server import ServerPolicy
from treeforge.problem import make_problem

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM: make test-vllm"),
]

SHORT = SamplingConfig(temperature=0.8, max_tokens=24)
RECIPE = Recipe(
    policy=CONFIG,
    steps=STEPS,
    sampling=SHORT,
    search=SearchConfig(strategy="mcts", children=2, wave=2),
    budget=BudgetConfig(simulations=3),
)


def journaled(run: Path) -> dict[bytes, Any]:
    file = run / "journal.sqlite"
    if not file.exists():
        return {}
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
        try:
            return {row[0]: row for row in db.execute("SELECT digest, * FROM samples")}
        except sqlite3.OperationalError:
            return {}


class Variant:
    """A policy over the shared engine, for a run."""

    def __init__(self, loaded: InProcess) -> None:
        self._loaded, self._policy = loaded, loaded.variant(sampling=SHORT)

    @property
    def identity(self) -> dict[str, Any]:
        return self._policy.identity

    @property
    def prompt_cache(self) -> Any:
        return self._policy.prompt_cache

    async def start(self) -> None:
        pass

    async def sample(self, asked: Any) -> Any:
        return await asyncio.wrap_future(self._loaded.submit(self._policy.sample(asked)))

    async def close(self) -> None:
        pass


def test_a_run_from_problems_to_shards(loaded, tmp_path, capsys):
    problems = [make_problem(question, str(i), problem_id=f"p-{i}") for i, question in enumerate(QUESTIONS)]
    before = msgspec.structs.replace(loaded.prompt_cache)
    result = tf.run(problems, tmp_path / "run", RunConfig(recipe=RECIPE), policy=Variant(loaded))
    assert sum(result.statuses.values()) == 3
    assert not result.statuses.get("failed")
    assert result.progress.completions == result.progress.requests * 2 > 6
    assert result.dataset is not None
    assert sum(result.dataset.rows["nodes"].values()) > 6
    # The engine's own counts, each sample with its prompt; what grew from a step had that step's prompt there.
    assert result.progress.prompt_tokens > before.prompt
    assert result.progress.cached_tokens > before.cached
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["policy"]["engine"] == "vllm 0.32.0"
    assert invoke(["replay", str(tmp_path / "run")]) == 0, capsys.readouterr().err
    assert invoke(["stats", str(tmp_path / "run")]) == 0
    assert "from the prefix cache" in capsys.readouterr().out


class Expected(NamedTuple):
    """What the engine in this process answers, greedily, one request at a time."""

    prompts: list[list[int]]
    ids: list[list[int]]
    texts: list[str]
    identity: dict[str, Any]


@pytest.fixture(scope="module")
def expected(loaded: InProcess) -> Expected:
    async def work() -> Expected:
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input

        policy = loaded.variant(sampling=GREEDY)
        prompts, ids, texts = [], [], []
        for number, question in enumerate(QUESTIONS):
            prompts.append(policy._prefixes.tokens(question, "")[0])
            parameters = SamplingParams(temperature=0, max_tokens=24)
            async for output in policy._engine.llm.generate(  # noqa: B007
                tokens_input(prompts[-1]), parameters, f"test-{number}"
            ):
                pass
            ids.append(list(output.outputs[0].token_ids))
            texts.append((await policy.sample(request(question=question, n=1)))[0].text)
        identity = {key: value for key, value in policy.identity.items() if key != "adapter"}
        return Expected(prompts, ids, texts, identity)

    return loaded.run(work())


def greedy_ids(replicas: Replicas, url: str, prompt: list[int]) -> list[int]:
    body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 24, "return_token_ids": True}

    def post(headers: dict[str, str]) -> Any:
        headers = {"Content-Type": "application/json", **headers}
        with urlopen(HttpRequest(f"{url}/v1/completions", json.dumps(body).encode(), headers), timeout=300) as reply:
            return json.load(reply)

    with pytest.raises(HTTPError, match="401"):
        post({})
    found: list[int] = post({"Authorization": f"Bearer {replicas.key}"})["choices"][0]["token_ids"]
    return found


def test_replicas_give_the_tokens_of_the_engine_in_process(expected, replicas):
    assert replicas.identity == expected.identity
    assert all(len(ids) > 3 for ids in expected.ids)
    for url in replicas.urls:
        assert [greedy_ids(replicas, url, prompt) for prompt in expected.prompts] == expected.ids
    for tree in range(2):
        assert [replicas.sampled(question, tree) for question in QUESTIONS] == expected.texts


def test_a_server_of_vllm_gives_them_too(expected, replicas):
    """The `server` policy, as with `vllm serve`: text in, and seeds that repeat."""

    async def work() -> None:
        servers = {"servers": (replicas.urls[0],), "api_key": replicas.key, "timeout": 300.0, "concurrency": 8}
        greedy = ServerPolicy(MODEL, STEPS, GREEDY, **servers)
        drawn = ServerPolicy(MODEL, STEPS, SHORT, **servers)
        try:
            await greedy.start()
            await drawn.start()
            asked = [request(question=question, n=1) for question in QUESTIONS]
            assert [(await greedy.sample(one))[0].text for one in asked] == expected.texts
            once, again, other = [await drawn.sample(request(n=3, seed=seed)) for seed in (7, 7, 8)]
            assert [one.text for one in again] == [one.text for one in once] != [one.text for one in other]
            assert all(sum(one.step_tokens) == one.tokens and one.logprob < 0 for one in once)
            found = prompt_cache(drawn)
            assert 0 < found.cached < found.prompt
        finally:
            await greedy.close()
            await drawn.close()

    asyncio.run(work())


@pytest.mark.vllm_long
def test_a_replica_that_dies_is_replaced_and_all_trees_are_served_meanwhile(expected, replicas):
    policy = replicas.policy
    found = [pid for pid in servers() if "-m vllm.entrypoints" in command_of(pid) and "keeper" not in command_of(pid)]
    assert len(found) == 2
    os.kill(found[0], signal.SIGKILL)
    for tree in range(4):
        assert replicas.sampled(QUESTIONS[0], tree) == expected.texts[0]
    wait_for(lambda: policy._fleet.restarts == 1 and all(one.healthy for one in policy._fleet._servers), "a restart")
    for url in replicas.urls:
        assert greedy_ids(replicas, url, expected.prompts[0]) == expected.ids[0]


def test_nothing_is_left_of_the_servers(replicas):
    """The last test of the servers, which it ends."""
    assert replicas.prompt_cache is not None
    left = servers()
    assert len(left) >= 4
    replicas.end()
    assert all((replicas.logs / f"vllm-{i}.log").stat().st_size > 0 for i in range(2))
    wait_for(lambda: not any(map(alive, left)), f"the end of the servers {left}")


def test_a_dead_engine_is_an_outage_in_its_own_words(loaded):
    """The last test of the engine, which it kills."""

    async def work() -> None:
        policy = loaded.variant(sampling=SamplingConfig(max_tokens=300))
        task = asyncio.create_task(policy.sample(request(n=2)))
        while not policy._engine.llm.get_num_unfinished_requests():
            await asyncio.sleep(0.01)
        for child in multiprocessing.active_children():
            child.kill()
        with pytest.raises(PolicyUnavailableError, match=r"vLLM's engine died: .*vllm\.log"):
            await task
        with pytest.raises(PolicyUnavailableError, match="vLLM's engine died"):
            await policy.sample(request())

    loaded.run(work())


@pytest.mark.vllm_long
def test_a_run_is_killed_and_resumed(folder, tmp_path):
    problems, run = tmp_path / "problems.jsonl", tmp_path / "run"
    rows = [{"question": question, "answer": str(i)} for i, question in enumerate(QUESTIONS)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ["sampling.max_tokens=24", "search.children=2", "search.wave=2", "policy.engine.dtype=float32"]
    settings += ["policy.engine.max_model_len=2048"]
    settings += ["machine.engine.enforce_eager=true", "machine.engine.block_size=32"]
    command = [sys.executable, "-m", "treeforge", "run", str(problems), "--out", str(run), "--policy", "vllm"]
    command += ["--model", MODEL, "--simulations", "3", "--concurrency", "2", "--json", "--quiet"]
    command += [f"--set={setting}" for setting in settings]

    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    wait_for(lambda: len(journaled(run)) >= 2 or process.poll() is not None, "two answers")
    assert process.poll() is None, process.communicate()[1]
    children = descendants(process.pid)
    assert children
    before = journaled(run)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    wait_for(lambda: not any(map(alive, children)), f"the end of the engine {children}")

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The engine writes to its log: standard output is for scripts.
    told = json.loads(done.stdout)
    assert sum(told["statuses"].values()) == 3
    after = journaled(run)
    assert before.items() <= after.items()
    assert told["progress"]["replayed"] >= len(before)
    assert told["progress"]["requests"] == len(after) - told["progress"]["replayed"]
    assert told["progress"]["cached_tokens"] > 0
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["policy"]["engine"] == "vllm 0.32.0"
    assert "prompt tokens from the prefix cache" in (run / "logs" / "run.log").read_text()
    assert (run / "logs" / "vllm.log").stat().st_size > 0
