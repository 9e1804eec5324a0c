"""Reward models behind the real vLLM on the CPU: the same scores as from their folders."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

import numpy as np
import pytest
from support.real_vllm import descendants, wait_for
from support.tiny_base import tiny_base

from treeforge.cli import invoke
from treeforge.reward.base import windows_of
from treeforge.reward.score import load_reward_model

pytestmark = [pytest.mark.vllm, pytest.mark.vllm_long]

WINDOWS = windows_of("Is it 7?", ["yes 1\n", "no 2\n", "yes 3\n"], "hrm")


def trained(folder: Path, head: str) -> Path:
    """An HRM of a few steps."""
    # vLLM's kernels take heads of 32 numbers and more.
    base = tiny_base(folder / "base", width=64)
    rows = [
        {
            "prompt": f"Is it {n}?",
            "previous": "",
            "current": f"{word} {n}\n" * span,
            "span": span,
            "hard": word == "yes",
        }
        for n in range(16)
        for span in (1, 2)
        for word in ("yes", "no")
    ]
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--task", "hrm", "--head", head, "--model", base, "--epochs", 2, "--lr", "5e-3", "--set", "window=128"]
    command = ["train", folder / "rows.jsonl", "--out", folder / head, *options, "--quiet"]
    assert invoke(list(map(str, command))) == 0
    return folder / head


def answers(url: str) -> bool:
    try:
        with urlopen(f"{url}/v1/models", timeout=5):
            return True
    except OSError:
        return False


@pytest.mark.parametrize("head", ["classifier", "soft", "token"])
def test_scores_are_those_of_the_folder(head: str, tmp_path: Path) -> None:
    folder = trained(tmp_path, head)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", folder, "--port", port]
    command += ["--host", "127.0.0.1", "--enforce-eager", "--dtype", "float32", "--max-model-len", 160]
    command += ["--max-num-seqs", 16, "--kv-cache-memory-bytes", 64 << 20, "--distributed-executor-backend", "uni"]
    environment = os.environ | {"HF_HUB_OFFLINE": "1"}
    url = f"http://127.0.0.1:{port}"
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(list(map(str, command)), stdout=log, stderr=log, env=environment)
    try:
        wait_for(lambda: answers(url) or server.poll() is not None, "vLLM serves the model")
        assert server.poll() is None, (tmp_path / "server.log").read_text()[-3000:]
        expected = load_reward_model(str(folder)).probabilities(WINDOWS)
        for place in (f"{url}?folder={folder}", f"{url}?task=hrm&head={head}"):
            found = load_reward_model(place).probabilities(WINDOWS)
            np.testing.assert_allclose(found, expected, atol=1e-4)
    finally:
        started = descendants(server.pid)
        server.terminate()
        try:
            server.wait(60)
        except subprocess.TimeoutExpired:
            server.kill()
        for pid in started:
            if Path(f"/proc/{pid}").exists():
                os.kill(pid, 9)
