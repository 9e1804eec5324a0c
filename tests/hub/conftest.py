"""A Hub on this machine, and a run with a dataset to push."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.exports import write_dataset
from support.folders import write_run
from support.hub_server import WRITER, HubServer

from treeforge.tree import Finish, Tree, TreeBuilder
from treeforge.verdict import Verdict


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[HubServer]:
    """The real client, pointed at a server of ours, without waits and with a token that may write."""
    pytest.importorskip("huggingface_hub")
    from huggingface_hub import constants

    with HubServer() as server:
        monkeypatch.setattr(constants, "ENDPOINT", server.url)
        template = server.url + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_PROGRESS_BARS", True)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
        monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
        monkeypatch.setenv("HF_TOKEN", WRITER)
        for name in ("HUGGING_FACE_HUB_TOKEN", "HF_ENDPOINT"):
            monkeypatch.delenv(name, raising=False)
        clock = SimpleNamespace(sleep=lambda seconds: None, time=time.time, monotonic=time.monotonic)
        monkeypatch.setattr("huggingface_hub.utils._http.time", clock)
        monkeypatch.setattr("treeforge.export.hub_client.WAITS", (0.0, 0.0))
        yield server


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run of three trees with an exported dataset of two shards."""
    path = write_run(tmp_path / "run", [_tree("2"), _tree("3"), _tree("4")])
    write_dataset(path / "dataset", shards=2)
    return path


def _tree(answer: str) -> Tree:
    builder = TreeBuilder()
    step = builder.add(0, "Add.\n")
    builder.add(step, f"The answer is {answer}", finish=Finish.ANSWERED, answer=answer, verdict=Verdict.CORRECT)
    builder.add(step, "The answer is 9", finish=Finish.ANSWERED, answer="9", verdict=Verdict.INCORRECT)
    return builder.freeze()
