"""The real vLLM in runs: killed and resumed; as two servers that a run starts; and the same tokens either way.

`make test-vllm` runs this in its own environment. Engines start one after the other: each takes a minute and 2 GB.
"""

import asyncio
import importlib.util
import json
import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.request import Request as HttpRequest
from urllib.request import urlopen

import pytest

from treeforge.config import Machine, PolicyConfig, SamplingConfig
from treeforge.policy import models
from treeforge.policy.fleet import Patience
from treeforge.policy.prompts import PRESETS
from treeforge.problem import make_problem
from treeforge.sample import Request

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM: make test-vllm"),
]

MODEL = "smollm2-135m"
STEPS = PRESETS["smollm"].steps
QUESTIONS = [
    "Ann has 5 red cups and 3 blue cups. How many cups does Ann have?",
    "A box holds 4 pens. How many pens do 6 boxes hold?",
    "Tom had 9 nuts and ate 2. How many nuts are left?",
]
CONFIG = PolicyConfig(backend="vllm", model=MODEL, engine={"dtype": "float32", "max_model_len": 2048})
MACHINE = {"enforce_eager": True, "block_size": 32, "kv_cache_memory_bytes": 512 << 20}
GREEDY = SamplingConfig(temperature=0, max_tokens=24)


@pytest.fixture(scope="module", autouse=True)
def _converted() -> None:
    from treeforge.policy.convert import convert

    models.pull(MODEL)
    convert(MODEL)


def request(question: str, *, n: int = 1, tree: int = 0, seed: int = 7) -> Request:
    problem = make_problem(question, "8")
    return Request(problem=problem, prefix="", n=n, mode="rollout", seed=seed, digest=b"", tree=tree)


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


def wait_for(condition: Any, what: str, seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
        time.sleep(0.1)


def journaled(run: Path) -> dict[bytes, Any]:
    file = run / "journal.sqlite"
    if not file.exists():
        return {}
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
        try:
            return {row[0]: row for row in db.execute("SELECT digest, * FROM samples")}
        except sqlite3.OperationalError:
            return {}


def test_a_run_is_killed_and_resumed(tmp_path):
    problems, run = tmp_path / "problems.jsonl", tmp_path / "run"
    rows = [{"question": question, "answer": str(i)} for i, question in enumerate(QUESTIONS)]
    problems.write_text("".join(json.dumps(row) + "\n" for row in rows))
    settings = ["sampling.max_tokens=24", "search.children=2", "search.wave=2", "policy.engine.dtype=float32"]
    settings += [
        "policy.engine.max_model_len=2048",
        "machine.engine.enforce_eager=true",
        "machine.engine.block_size=32",
    ]
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
    wait_for(lambda: not any(map(alive, children)), f"the end of the engine {children}", 60)

    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The engine writes to its log: standard output is for scripts.
    told = json.loads(done.stdout)
    assert told["statuses"] == {"done": 3} or sum(told["statuses"].values()) == 3
    after = journaled(run)
    assert before.items() <= after.items()
    assert told["progress"]["replayed"] >= len(before)
    assert told["progress"]["requests"] == len(after) - told["progress"]["replayed"]
    manifest = json.loads((run / "manifest.json").read_text())
    assert manifest["policy"]["engine"] == "vllm 0.32.0"
    assert "prompt tokens from the prefix cache" in (run / "logs" / "run.log").read_text()
    assert (run / "logs" / "vllm.log").stat().st_size > 0


class Expected(NamedTuple):
    """What the engine in this process answers, greedily, one request at a time."""

    prompts: list[list[int]]
    ids: list[list[int]]
    texts: list[str]
    identity: dict[str, Any]


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> Expected:
    from treeforge.policy.vllm import VllmPolicy

    async def work() -> Expected:
        from vllm import SamplingParams
        from vllm.inputs.engine import tokens_input

        policy = VllmPolicy(CONFIG, STEPS, GREEDY, Machine(engine=MACHINE), logs=tmp_path_factory.mktemp("in-process"))
        try:
            await policy.start()
            prompts, ids, texts = [], [], []
            for number, question in enumerate(QUESTIONS):
                prompts.append(policy._prefixes.tokens(question, "")[0])
                parameters = SamplingParams(temperature=0, max_tokens=24)
                async for output in policy._engine.llm.generate(  # noqa: B007
                    tokens_input(prompts[-1]), parameters, f"test-{number}"
                ):
                    pass
                ids.append(list(output.outputs[0].token_ids))
                texts.append((await policy.sample(request(question)))[0].text)
            return Expected(prompts, ids, texts, policy.identity)
        finally:
            await policy.close()

    return asyncio.run(work())


@pytest.fixture(scope="module")
def replicas(expected: Expected, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[asyncio.Runner, Any]]:
    """Two servers; nothing of them is left afterwards. `expected` comes first, and its engine ends before."""
    from treeforge.policy.replicas import ReplicasPolicy

    machine = Machine(replicas=2, engine=MACHINE, concurrency=8)
    patience = Patience(check=0.5, backoff=0.1)
    logs = tmp_path_factory.mktemp("replicas")
    with asyncio.Runner() as runner:
        policy = ReplicasPolicy(CONFIG, STEPS, GREEDY, machine, logs=logs, patience=patience)
        before = descendants(os.getpid())
        runner.run(policy.start())
        try:
            yield runner, policy
            left = set(descendants(os.getpid())) - set(before)
        finally:
            runner.run(policy.close())
    assert all((logs / f"vllm-{i}.log").stat().st_size > 0 for i in range(2))
    assert left
    wait_for(lambda: not any(map(alive, left)), f"the end of the servers {left}", 60)


def test_replicas_give_the_tokens_of_the_engine_in_process(expected, replicas):
    runner, policy = replicas
    assert policy.identity == expected.identity
    assert all(len(ids) > 3 for ids in expected.ids)
    for url in policy._fleet.urls:
        assert [runner.run(greedy_ids(policy, url, prompt)) for prompt in expected.prompts] == expected.ids
    for tree in range(2):
        assert [ask(runner, policy, question, tree) for question in QUESTIONS] == expected.texts


def test_a_replica_that_dies_is_replaced_and_all_trees_are_served_meanwhile(expected, replicas):
    runner, policy = replicas
    servers = [pid for pid in descendants(os.getpid()) if "-m vllm.entrypoints" in command_of(pid)]
    servers = [pid for pid in servers if "keeper" not in command_of(pid)]
    assert len(servers) == 2
    os.kill(servers[0], signal.SIGKILL)
    for tree in range(4):
        assert ask(runner, policy, QUESTIONS[0], tree) == expected.texts[0]

    async def restarted() -> None:
        while not (policy._fleet.restarts == 1 and all(one.healthy for one in policy._fleet._servers)):
            await asyncio.sleep(0.2)

    runner.run(restarted())
    for url in policy._fleet.urls:
        assert runner.run(greedy_ids(policy, url, expected.prompts[0])) == expected.ids[0]


def ask(runner: asyncio.Runner, policy: Any, question: str, tree: int) -> str:
    found: str = runner.run(policy.sample(request(question, tree=tree)))[0].text
    return found


def command_of(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


async def greedy_ids(policy: Any, url: str, prompt: list[int]) -> list[int]:
    body = {"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 24, "return_token_ids": True}
    key = policy._fleet._servers[0].launch.environment["VLLM_API_KEY"]

    def post(headers: dict[str, str]) -> Any:
        headers = {"Content-Type": "application/json", **headers}
        with urlopen(HttpRequest(f"{url}/v1/completions", json.dumps(body).encode(), headers), timeout=300) as reply:
            return json.load(reply)

    with pytest.raises(HTTPError, match="401"):
        await asyncio.to_thread(post, {})
    found: list[int] = (await asyncio.to_thread(post, {"Authorization": f"Bearer {key}"}))["choices"][0]["token_ids"]
    return found
