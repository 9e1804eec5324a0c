"""Whole runs through a server that misbehaves: every failure becomes a row, a retry, or a clean stop that resumes."""

import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from contextlib import ExitStack

import pytest
from support.misbehaving import MisbehavingServer

import treeforge as tf
from treeforge.errors import PolicyUnavailableError
from treeforge.policy import replica
from treeforge.policy import server as policy_server
from treeforge.recipes import load_config
from treeforge.tree import Finish
from treeforge.verdict import Verdict

PROBE = 3
"""Posts that a `ServerPolicy` sends when it starts."""


def problems(count=3):
    return [tf.make_problem(f"What is {i} + {i} - 1?", str(2 * i - 1), problem_id=f"p{i}") for i in range(1, count + 1)]


def config(server, *, retries=6, concurrency=4, **overrides):
    return load_config(
        None,
        [
            "budget.simulations=4",
            f"machine.servers=['{server.url}']",
            f"machine.concurrency={concurrency}",
            f"machine.retries={retries}",
            "machine.backoff=0.01",
            "machine.request_timeout=30",
            *(f"{key.replace('__', '.')}={value}" for key, value in overrides.items()),
        ],
        backend="server",
        model="world",
        preset="smollm",
    )


def command(folder, rows, *options, **environment):
    """`treeforge run` on the problems, in a process of its own."""
    lines = [{"id": p.problem_id, "question": p.question, "answer": p.gold_answer} for p in rows]
    (folder / "p.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    command = [sys.executable, "-m", "treeforge", "run", str(folder / "p.jsonl"), "--out", str(folder / "run")]
    command += ["--model", "world", "--preset", "smollm", "--quiet"]
    command += ["--set", "machine.backoff=0.01", "--concurrency", "2", *options]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ | environment)


def outcome_rows(path):
    return [rollout for _, record in tf.RunFolder.open(path).records() for rollout in record.rollouts]


@pytest.mark.parametrize(
    "faults",
    [
        {"500": 0.3},
        {"429:0": 0.3},
        {"html": 0.2, "not-object": 0.1, "no-choices": 0.1},
        {"cut": 0.15, "reset": 0.15},
    ],
    ids=lambda faults: "+".join(faults),
)
def test_transient_failures_leave_no_trace(tmp_path, faults):
    with MisbehavingServer() as good:
        calm = tf.run(problems(), tmp_path / "calm", config(good))
    with MisbehavingServer(faults, seed=3, after=PROBE) as bad:
        stormy = tf.run(problems(), tmp_path / "stormy", config(bad, retries=40))
    assert calm.statuses == stormy.statuses == {"done": 3}
    assert stormy.progress.retries > 0
    for table in ("nodes", "rollouts"):
        name = f"trees/{table}-00000.parquet"
        assert (tmp_path / "calm" / name).read_bytes() == (tmp_path / "stormy" / name).read_bytes()


@pytest.mark.parametrize("fault", ["empty", "nul", "surrogate", "huge"])
def test_strange_completions_are_rows(tmp_path, fault):
    with MisbehavingServer({fault: 0.5}, seed=1, after=PROBE) as server:
        result = tf.run(problems(), tmp_path / "run", config(server))
    assert result.statuses == {"done": 3}
    records = dict(tf.RunFolder.open(tmp_path / "run").records())
    texts = [text for record in records.values() for text in record.tree.text]
    texts += [step for record in records.values() for rollout in record.rollouts for step in rollout.steps]
    assert all(len(text) <= 20_000 and "\0" not in text for text in texts)
    "".join(texts).encode()
    if fault == "empty":
        assert any(r.steps == () and r.verdict == Verdict.NO_ANSWER for r in outcome_rows(tmp_path / "run"))


def test_a_refused_request_is_an_error_row_and_retry_errors_heals_it(tmp_path):
    with MisbehavingServer() as server:
        calm = tf.run(problems(), tmp_path / "calm", config(server))
    with MisbehavingServer(["413"] * 2, after=PROBE + 3) as server:
        tf.run(problems(), tmp_path / "run", config(server))
        errors = [row for row in outcome_rows(tmp_path / "run") if row.finish == Finish.ERROR]
        assert errors
        healed = tf.resume(tmp_path / "run", retry_errors=True, machine=config(server).machine)
    assert healed.statuses == calm.statuses
    assert not [row for row in outcome_rows(tmp_path / "run") if row.finish == Finish.ERROR]
    name = "trees/nodes-00000.parquet"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()


def test_a_server_that_dies_stops_the_run_cleanly_and_the_run_goes_on_when_it_is_back(tmp_path):
    with MisbehavingServer() as server:
        tf.run(problems(6), tmp_path / "calm", config(server))
    with MisbehavingServer(latency=0.02) as server:
        settings = config(server, retries=1)

        def kill_after(posts):
            while len(server.posts) < posts:
                time.sleep(0.001)
            server.die()

        killer = threading.Thread(target=kill_after, args=(PROBE + 10,))
        killer.start()
        with pytest.raises(PolicyUnavailableError):
            tf.run(problems(6), tmp_path / "run", settings)
        killer.join()
        answered = {json.dumps(post.payload) for post in server.posts[PROBE:] if post.fault is None}
        server.revive()
        server.forget()
        result = tf.resume(tmp_path / "run", machine=settings.machine)
    assert result.statuses == {"done": 6}
    assert result.progress.replayed > 0
    asked_again = [post for post in server.posts[PROBE:] if json.dumps(post.payload) in answered]
    assert len(asked_again) <= settings.machine.concurrency, "only what was in flight when the server died"
    name = "trees/nodes-00000.parquet"
    assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "calm" / name).read_bytes()


@pytest.mark.slow
def test_the_command_says_what_to_do_when_the_server_dies(tmp_path):
    with MisbehavingServer(latency=0.02, after=PROBE + 6, schedule=["reset"] * 1000) as server:
        done = command(tmp_path, problems(6), "--server", server.url, "--set", "machine.retries=1")
    assert done.returncode == 3, done.stderr
    assert "resume" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("right", [True, False], ids=["right", "wrong"])
def test_no_key_is_written_anywhere(tmp_path, right):
    secret = "sk-not-to-be-found-anywhere"
    with MisbehavingServer({"500": 0.2}, seed=1, after=PROBE, api_key=secret if right else "sk-another") as server:
        options = ["--server", server.url, "--set", "machine.retries=20"]
        done = command(tmp_path, problems(2), *options, TREEFORGE_API_KEY=secret)
    assert done.returncode == (0 if right else 2), done.stderr
    assert right or "Incorrect API key provided: Bearer ***" in done.stderr
    assert secret not in done.stdout + done.stderr
    files = [file for file in tmp_path.rglob("*") if file.is_file()]
    assert len(files) > (8 if right else 1)
    for file in files:
        assert secret.encode() not in file.read_bytes(), file


def test_a_request_s_retries_end_after_its_total_time(tmp_path):
    with (
        MisbehavingServer(["429:100"] * 1000, after=PROBE + 4, latency=0.02) as server,
        pytest.raises(PolicyUnavailableError, match=r"in 2 attempts, the last time: .*429"),
    ):
        tf.run(problems(), tmp_path / "run", config(server, retries=1000, machine__request_total_timeout=0.2))
    assert {post.fault for post in server.posts} == {None, "429:100"}


# Several servers


def fleet_config(servers, **overrides):
    urls = [server.url for server in servers]
    return config(servers[0], machine__servers=urls, retries=60, **overrides)


@pytest.fixture
def impatient(monkeypatch):
    """Lost servers are looked for all the time."""
    monkeypatch.setattr(replica, "REST_SECONDS", 0.0)
    monkeypatch.setattr(policy_server, "TEND_SECONDS", 0.0)


def same_tables(one, other):
    return all(
        (one / f"trees/{table}-00000.parquet").read_bytes() == (other / f"trees/{table}-00000.parquet").read_bytes()
        for table in ("nodes", "rollouts")
    )


def test_a_replica_that_dies_in_the_middle_costs_what_was_in_flight_there(tmp_path):
    with MisbehavingServer() as server:
        calm = tf.run(problems(12), tmp_path / "calm", config(server))
    with ExitStack() as stack:
        servers = [stack.enter_context(MisbehavingServer(latency=0.02)) for _ in range(3)]

        def kill_after(posts):
            while len(servers[0].posts) < PROBE + posts:
                time.sleep(0.001)
            servers[0].die()

        killer = threading.Thread(target=kill_after, args=(8,))
        killer.start()
        result = tf.run(problems(12), tmp_path / "run", fleet_config(servers, concurrency=16))
        killer.join()
        asked = Counter(json.dumps(post.payload) for server in servers for post in server.posts[PROBE:])
        answered = sum((server.asked for server in servers), Counter())
    assert result.statuses == calm.statuses == {"done": 12}
    assert result.progress.errors == result.progress.retries == 0
    assert same_tables(tmp_path / "calm", tmp_path / "run")
    assert len(asked) == result.progress.requests
    twice = sum(count - 1 for count in asked.values())
    assert 0 < twice <= 16
    assert sum(count - 1 for count in answered.values()) <= twice + 2 * PROBE


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_a_fleet_in_a_storm_leaves_no_trace(tmp_path, impatient, seed):
    faults = {"500": 0.05, "429:0": 0.05, "html": 0.03, "cut": 0.05, "reset": 0.05, "slow:0.05": 0.05, "502": 0.02}
    with MisbehavingServer() as server:
        tf.run(problems(8), tmp_path / "calm", config(server))
    with ExitStack() as stack:
        storms = [MisbehavingServer(faults, seed=10 * seed + i, after=PROBE, latency=0.005) for i in range(3)]
        servers = [stack.enter_context(each) for each in storms]
        over = threading.Event()

        def shake():
            dice = random.Random(seed)
            while not over.is_set():
                victim = dice.choice(servers)
                victim.die()
                over.wait(dice.uniform(0.0, 0.05))
                victim.revive()
                over.wait(dice.uniform(0.0, 0.1))

        shaker = threading.Thread(target=shake)
        shaker.start()
        try:
            result = tf.run(problems(8), tmp_path / "run", fleet_config(servers, concurrency=8))
        finally:
            over.set()
            shaker.join()
    assert result.statuses == {"done": 8}
    assert result.progress.errors == 0
    assert same_tables(tmp_path / "calm", tmp_path / "run")


@pytest.mark.slow
def test_a_fleet_that_is_gone_stops_the_run_and_another_one_resumes_it(tmp_path):
    file = tmp_path / "fleet.txt"
    with MisbehavingServer() as server:
        tf.run(problems(6), tmp_path / "calm", config(server))
    with ExitStack() as stack:
        first = [stack.enter_context(MisbehavingServer(latency=0.02)) for _ in range(2)]
        file.write_text("".join(f"{server.url}\n" for server in first))

        def kill_after(posts):
            while sum(len(server.posts) for server in first) < posts:
                time.sleep(0.001)
            for server in first:
                server.die()

        killer = threading.Thread(target=kill_after, args=(2 * PROBE + 10,))
        killer.start()
        options = ["--servers-file", str(file), "--set", "machine.retries=1", "--set", "budget.simulations=4"]
        stopped = command(tmp_path, problems(6), *options)
        killer.join()
    assert stopped.returncode == 3, stopped.stderr
    assert "resume" in stopped.stderr
    assert "Traceback" not in stopped.stderr
    with MisbehavingServer() as new:
        file.write_text(f"# moved\n{new.url}\n")
        done = subprocess.run(
            [sys.executable, "-m", "treeforge", "resume", str(tmp_path / "run"), "--quiet"],
            capture_output=True,
            text=True,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    assert same_tables(tmp_path / "calm", tmp_path / "run")


def test_hidden_reasoning_is_in_the_trees(tmp_path):
    def write(prompt, rng):
        result = rng.choice((3, 4))
        lines = ["<think>", "Add them.", f"Is it {result}?", "</think>", f"The answer is {result}."]
        return "\n".join(lines[sum(f"{line}\n" in prompt for line in lines) :])

    with MisbehavingServer(write=write, reasoning="reasoning_content") as server:
        settings = config(server, steps__template="chat", steps__stop="[]", search__max_depth=3)
        result = tf.run([tf.make_problem("What is 1 + 3?", "4")], tmp_path / "run", settings)
    assert result.statuses == {"done": 1}
    ((_, record),) = tf.RunFolder.open(tmp_path / "run").records()
    assert any(text.startswith("<think>") for text in record.tree.text)
    assert record.tree.value_sum[0] > 0
    for rollout in record.rollouts:
        whole = record.tree.prefix(rollout.node) + "".join(rollout.steps)
        assert whole.startswith("<think>\nAdd them.\nIs it ")
        assert "</think>\nThe answer is" in whole
