"""`hf://OWNER/NAME@REVISION` as a reward model: the real client fetches the repository from a Hub on this machine."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.hub_server import HubServer

from treeforge.cli import invoke
from treeforge.errors import ConfigError, PolicyUnavailableError
from treeforge.reward.score import model_folder, saved_in

FILES = {"config.json": b"{}", "model.safetensors": b"weights", "nested/tokenizer.json": b"[]"}
NAME = "hf://owner/judge"


def found(place: str) -> dict[str, bytes]:
    folder = model_folder(place)
    assert folder is not None
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_repository_and_its_revisions(hub: HubServer) -> None:
    first = hub.upload("owner/judge", FILES)
    assert found(NAME) == FILES
    second = hub.upload("owner/judge", FILES | {"config.json": b'{"a": 1}'}, "v2")
    assert found(f"{NAME}@v2") == found(f"{NAME}@{second}") == FILES | {"config.json": b'{"a": 1}'}
    assert found(f"{NAME}@{first}") == FILES


def test_what_the_cache_has_needs_no_hub(hub: HubServer) -> None:
    hub.upload("owner/judge", FILES)
    found(NAME)
    hub.fail("GET", ".*", 0, times=1000)
    hub.fail("HEAD", ".*", 0, times=1000)
    assert found(NAME) == FILES


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("hf://owner/other", "there is no model owner/other on the Hub"),
        (f"{NAME}@v9", "no revision 'v9'"),
        ("hf://owner", "write hf://OWNER/NAME@REVISION"),
        (f"{NAME}/reward.json", "write hf://OWNER/NAME@REVISION"),
        ("hf://owner/../judge", "write hf://OWNER/NAME@REVISION"),
    ],
)
def test_names_of_nothing(hub: HubServer, place: str, said: str) -> None:
    hub.upload("owner/judge", FILES)
    with pytest.raises(ConfigError, match=r"^the reward model: ") as caught:
        model_folder(place)
    assert said in str(caught.value)


def test_a_hub_out_of_reach(hub: HubServer) -> None:
    hub.upload("owner/judge", FILES)
    hub.fail("GET", ".*", 0, times=1000)
    with pytest.raises(PolicyUnavailableError, match="give the path of a folder"):
        model_folder(NAME)


def test_a_repository_that_holds_no_reward_model(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.upload("owner/judge", FILES)
    folder = model_folder(NAME)
    assert folder is not None
    with pytest.raises(ConfigError, match=r"a model without a reward\.json"):
        saved_in(folder)
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"question": "q", "steps": ["a"]}\n')
    assert invoke(["score", NAME, str(rows)]) == 2
    assert "a model without a reward.json" in capsys.readouterr().err
