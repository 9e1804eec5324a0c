"""Whole runs through a server that misbehaves: every failure becomes a row, a retry, or a clean stop that resumes."""

import json
import subprocess
import sys
import threading
import time

import pytest
from support.misbehaving import MisbehavingServer

import treeforge as tf
from treeforge.errors import PolicyUnavailableError
from treeforge.policy.prompts import PRESETS
from treeforge.recipes import load_config
from treeforge.tree import Finish
from treeforge.verdict import Verdict

PROBE = 3
"""Posts that a `ServerPolicy` sends when it starts."""


def problems(count=3):
    return [tf.make_problem(f"What is {i} + {i} - 1?", str(2 * i - 1), problem_id=f"p{i}") for i in range(1, count + 1)]


def config(server, *, retries=6, concurrency=4, **overrides):
    settings = load_config(
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
    assert settings.recipe.steps == PRESETS["smollm"].steps
    return settings


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


def test_the_command_says_what_to_do_when_the_server_dies(tmp_path):
    rows = [{"id": p.problem_id, "question": p.question, "answer": p.gold_answer} for p in problems(6)]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    with MisbehavingServer(latency=0.02, after=PROBE + 6, schedule=["reset"] * 1000) as server:
        command = [sys.executable, "-m", "treeforge", "run", str(tmp_path / "p.jsonl"), "--out", str(tmp_path / "run")]
        command += ["--server", server.url, "--model", "world", "--preset", "smollm", "--quiet"]
        command += ["--set", "machine.retries=1", "--set", "machine.backoff=0.01", "--concurrency", "2"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 3, done.stderr
    assert "resume" in done.stderr
    assert "Traceback" not in done.stderr


def test_no_key_is_written_anywhere(tmp_path, monkeypatch):
    secret = "sk-not-to-be-found-anywhere"
    monkeypatch.setenv("TREEFORGE_API_KEY", secret)
    with MisbehavingServer(api_key=secret) as server:
        tf.run(problems(2), tmp_path / "run", config(server))
    for file in (tmp_path / "run").rglob("*"):
        if file.is_file():
            assert secret.encode() not in file.read_bytes(), file
