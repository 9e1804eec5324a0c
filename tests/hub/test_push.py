"""`treeforge push` with huggingface_hub's own client against a Hub on this machine."""

from __future__ import annotations

import json
import logging
import os
from pathlib import Path
from typing import Any

import pytest
from support.exports import write_dataset
from support.folders import write_run
from support.hub_server import READER, HubServer

from treeforge.errors import ConfigError, HubError, RunError
from treeforge.export.hub import push
from treeforge.tree import TreeBuilder

REPO = "owner/trees"
CARD, SHARDS = "README.md", ["data/train-00000-of-00002.parquet", "data/train-00001-of-00002.parquet"]


def test_the_dataset_arrives_as_it_is(hub: HubServer, run: Path) -> None:
    report = push(run, REPO)
    there = hub.files(REPO)
    assert sorted(there) == [".gitattributes", CARD, *SHARDS]
    for name in (CARD, *SHARDS):
        assert there[name] == (run / "dataset" / name).read_bytes()
    assert report.changed
    assert report.url.startswith(f"{hub.url}/datasets/{REPO}/commit/")
    assert report.files == {name: len(there[name]) for name in (CARD, *SHARDS)}
    assert not hub.repos[REPO].private


def test_an_exported_folder_can_be_pushed_without_its_run(hub: HubServer, run: Path) -> None:
    push(run / "dataset", REPO, private=True)
    assert CARD in hub.files(REPO)
    assert hub.repos[REPO].private


def test_the_same_bytes_again_commit_and_upload_nothing(hub: HubServer, run: Path) -> None:
    push(run, REPO, trees=True)
    commits, uploads = list(hub.repos[REPO].messages), list(hub.uploads)
    report = push(run, REPO, trees=True)
    assert not report.changed
    assert (hub.repos[REPO].messages, hub.uploads) == (commits, uploads)


def test_shards_that_are_gone_are_deleted_and_other_files_stay(hub: HubServer, run: Path) -> None:
    push(run, REPO)
    repo = hub.repos[REPO]
    theirs = dict(repo.commits[repo.refs["main"]]) | {"data/notes.txt": hub.store(b"mine", lfs=False)}
    hub.commit(repo, "main", theirs, "by hand")
    write_dataset(run / "dataset", shards=1)
    push(run, REPO)
    assert sorted(hub.files(REPO)) == [".gitattributes", CARD, "data/notes.txt", "data/train-00000-of-00001.parquet"]


def test_a_run_pushed_with_its_trees_tells_nothing_of_this_machine(hub: HubServer, run: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text())
    manifest["machine"] |= {"servers": ["http://10.0.0.7:8000/v1"], "prometheus": "/home/me/metrics"}
    (run / "manifest.json").write_text(json.dumps(manifest))
    push(run, REPO, trees=True)
    there = hub.files(REPO)
    assert sorted(name for name in there if name.startswith("run/")) == [
        "run/manifest.json",
        "run/problems.parquet",
        "run/trees/nodes-00000.parquet",
        "run/trees/nodes-00001.parquet",
        "run/trees/rollouts-00000.parquet",
        "run/trees/rollouts-00001.parquet",
    ]
    everything = b"".join(there.values())
    assert b"10.0.0.7" not in everything
    assert b"/home/me" not in everything


def test_a_pull_request(hub: HubServer, run: Path) -> None:
    push(run, REPO)
    before = hub.files(REPO)
    write_dataset(run / "dataset", shards=1)
    report = push(run, REPO, pr=True)
    assert report.url == f"{hub.url}/datasets/{REPO}/discussions/1"
    assert hub.files(REPO) == before
    assert "data/train-00000-of-00001.parquet" in hub.files(REPO, "refs/pr/1")
    # Going on with it: the same bytes change nothing.
    assert not push(run, REPO, revision="refs/pr/1").changed


def test_a_branch_is_made_where_it_is_missing(hub: HubServer, run: Path) -> None:
    push(run, REPO, revision="v1")
    assert CARD in hub.files(REPO, "v1")
    assert CARD not in hub.files(REPO)


def test_a_dry_run_asks_nothing_and_needs_no_token(hub: HubServer, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    report = push(run, REPO, trees=True, dry_run=True)
    assert set(report.files) >= {CARD, *SHARDS, "run/manifest.json"}
    assert not hub.requests


@pytest.mark.parametrize("status", [429, 500])
def test_a_fault_that_passes_is_waited_for(hub: HubServer, run: Path, status: int) -> None:
    hub.fail("POST", "/api/repos/create", status)
    hub.fail("POST", "/preupload/", status)
    hub.fail("PUT", "/lfs/", status)
    hub.fail("POST", "/commit/", status)
    push(run, REPO)
    assert set(hub.files(REPO)) >= {CARD, *SHARDS}
    assert len(hub.repos[REPO].messages) == 2  # the repository's first commit, and ours


def test_a_commit_whose_answer_was_lost_is_not_made_twice(hub: HubServer, run: Path) -> None:
    hub.fail("POST", "/commit/", 0, after=True)
    push(run, REPO)
    assert len(hub.repos[REPO].messages) == 2


def test_another_commit_at_the_same_time_is_waited_for(hub: HubServer, run: Path) -> None:
    hub.fail("POST", "/commit/", 409)
    assert push(run, REPO).changed


def test_an_interrupted_push_goes_on(hub: HubServer, run: Path) -> None:
    write_dataset(run / "dataset", shards=4)
    hub.fail("PUT", "/lfs/", 0, times=10**6, skip=2)
    with pytest.raises(HubError, match="cannot be reached"):
        push(run, REPO)
    first = list(hub.uploads)
    assert len(first) == 2
    hub.faults.clear()
    push(run, REPO)
    # What had arrived is not sent again.
    assert sorted(hub.uploads) == sorted({*hub.uploads})
    assert len(hub.uploads) == 4
    assert len(hub.files(REPO)) == 6


@pytest.mark.slow
@pytest.mark.parametrize(
    ("status", "match"),
    [
        (429, "too many requests"),
        (500, "HTTP 500"),
        (409, "another commit"),
        (403, "no right"),
        (422, r"refuses that \(HTTP 422"),
        (0, "cannot be reached"),
    ],
)
def test_a_fault_that_stays_is_an_error_that_says_what_to_do(
    hub: HubServer, run: Path, status: int, match: str
) -> None:
    hub.fail("POST", "/commit/", status, times=10**6)
    with pytest.raises(HubError, match=match):
        push(run, REPO)
    assert len(hub.repos[REPO].messages) == 1


def test_no_token(hub: HubServer, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HF_TOKEN")
    with pytest.raises(HubError, match="HF_TOKEN, or log in with `hf auth login`"):
        push(run, REPO)
    assert not hub.requests


def test_a_wrong_token_and_one_without_the_right(hub: HubServer, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "hf_nonsense")
    with pytest.raises(HubError, match="does not accept the token"):
        push(run, REPO)
    monkeypatch.setenv("HF_TOKEN", READER)
    with pytest.raises(HubError, match="no right"):
        push(run, REPO)
    assert not hub.repos


def test_the_token_is_nowhere(
    hub: HubServer, run: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    secret = "hf_SecretSecretSecret"
    monkeypatch.setenv("HF_TOKEN", secret)
    before = set(run.rglob("*"))
    with caplog.at_level(logging.DEBUG), pytest.raises(HubError) as error:
        push(run, REPO)
    assert secret not in str(error.value) + caplog.text
    assert set(run.rglob("*")) == before


@pytest.mark.parametrize(
    "name", ["trees", "owner/two/parts", "owner/spaces in it", "owner/..", "", "owner/-x-", "a" * 120]
)
def test_a_name_that_cannot_be(hub: HubServer, run: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="no name on the Hub"):
        push(run, name)
    assert not hub.requests


def test_no_network(hub: HubServer, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(HubError, match="cannot be reached"):
        push(run, REPO)
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(HubError, match="HF_HUB_OFFLINE"):
        push(run, REPO)


def test_private_means_private(hub: HubServer, run: Path) -> None:
    push(run, REPO)
    write_dataset(run / "dataset", shards=3)
    with pytest.raises(HubError, match="exists and is public"):
        push(run, REPO, private=True)
    assert "data/train-00002-of-00003.parquet" not in hub.files(REPO)


def test_what_is_not_there_to_push(hub: HubServer, run: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(RunError, match="neither a run nor an exported dataset"):
        push(tmp_path / "empty", REPO)
    with pytest.raises(RunError, match="has no trees"):
        push(run / "dataset", REPO, trees=True)
    (run / "dataset" / CARD).unlink()
    with pytest.raises(RunError, match="treeforge export"):
        push(run, REPO)
    with pytest.raises(ConfigError, match="--revision"):
        push(run, REPO, pr=True, revision="v1")
    assert not hub.requests


def test_trees_that_have_not_ended_stay_here(hub: HubServer, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [TreeBuilder().freeze(), None])
    write_dataset(run / "dataset", shards=1)
    with pytest.raises(RunError, match="1 of 2 trees have not ended"):
        push(run, REPO, trees=True)
    assert not hub.requests
    assert push(run, REPO).changed


def test_a_dataset_that_is_older_than_its_labels_is_told_of(hub: HubServer, run: Path, caplog: Any) -> None:
    push(run, REPO)
    assert "is older" not in caplog.text
    view = run / "labels" / "view.json"
    view.parent.mkdir(exist_ok=True)
    trees = json.dumps({"config": {}, "report": {}, "files": [], "trees": "of another day"})
    for text, seconds, told in ((trees, -60, True), (None, 60, True), (None, -60, False)):
        if text is not None:
            view.write_text(text)
        else:
            view = run / "compressed" / "view.json"
            view.parent.mkdir(exist_ok=True)
            view.write_text("{}")
            (run / "labels" / "view.json").unlink(missing_ok=True)
        then = (run / "dataset" / CARD).stat().st_mtime + seconds
        os.utime(view, (then, then))
        caplog.clear()
        push(run, REPO)
        assert (f"`treeforge export {run}` makes it anew" in caplog.text) is told


def test_plots_go_up_and_those_of_an_earlier_push_go(hub: HubServer, run: Path) -> None:
    plots = run / "dataset" / "plots"
    plots.mkdir()
    for name in ("values.svg", "pairs.svg"):
        (plots / name).write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    push(run, REPO)
    assert {"plots/values.svg", "plots/pairs.svg"} <= set(hub.files(REPO))
    (plots / "pairs.svg").unlink()
    push(run, REPO)
    assert [name for name in hub.files(REPO) if name.startswith("plots/")] == ["plots/values.svg"]
