"""`treeforge pull`, and what else reads a pushed dataset back: the real clients against a Hub on this machine."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from support.exports import write_dataset
from support.hub_server import WRITER, HubServer
from support.runs import problems, scripted_config, table_bytes

from treeforge import pipeline, views
from treeforge.cli import invoke
from treeforge.config import Machine
from treeforge.configuration import to_dict
from treeforge.errors import ConfigError, HubError, RunError, StorageError
from treeforge.export.hub import push
from treeforge.export.hub_pull import pull
from treeforge.importing import import_file
from treeforge.labelled import labelled_solutions
from treeforge.store.parquet import read_table, write_table
from treeforge.store.run import RunFolder
from treeforge.store.tables import NODES

REPO = "owner/trees"


def test_a_runs_trees_come_back(hub: HubServer, run: Path, tmp_path: Path) -> None:
    push(run, REPO, trees=True)
    back = pull(REPO, tmp_path / "back")
    original = RunFolder.open(run)
    assert back.problems == original.problems
    assert back.statuses() == original.statuses()
    trees = {name: content for name, content in table_bytes(run).items() if name.startswith("trees/")}
    assert {n: c for n, c in table_bytes(back.path).items() if n.startswith("trees/")} == trees
    assert views.label(back.path) == views.label(run)
    assert sorted(path.name for path in tmp_path.iterdir() if "back" in path.name) == ["back"]


def test_an_imported_run_comes_back_with_its_labels(hub: HubServer, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_text(json.dumps({"prompt": "P?", "completions": ["a", "b"], "labels": [0.25, 1]}) + "\n")
    import_file(file, "prm", tmp_path / "run")
    views.export(tmp_path / "run")
    push(tmp_path / "run", REPO, trees=True)
    back = pull(REPO, tmp_path / "back").path
    assert views.label(back) == views.label(tmp_path / "run")
    assert {n: c for n, c in table_bytes(back).items() if n.startswith(("trees", "labels"))} == {
        n: c for n, c in table_bytes(tmp_path / "run").items() if n.startswith(("trees", "labels"))
    }


def test_an_annotated_run_comes_back_with_the_solutions_that_it_labels(hub: HubServer, tmp_path: Path) -> None:
    chosen = problems(3)
    solutions = {p.problem_id: ["Step 1: going way 1 we get 17.\nThe answer is 1."] for p in chosen}
    config = scripted_config(strategy="step-rollouts", children=2, given=True)
    run = pipeline.annotate(chosen, solutions, tmp_path / "run", config).path
    push(run, REPO, trees=True)
    back = pull(REPO, tmp_path / "back").path
    assert (back / "given.parquet").read_bytes() == (run / "given.parquet").read_bytes()
    assert views.label(back) == views.label(run)
    labelled = [list(labelled_solutions(path)) for path in (run, back)]
    assert labelled[0] == labelled[1] != []


def test_a_run_that_came_back_can_be_looked_at_and_exported(
    hub: HubServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    push(pipeline.run(problems(3), tmp_path / "grown", scripted_config()).path, REPO, trees=True)
    back = str(pull(REPO, tmp_path / "back").path)
    for command in (["label", back], ["compress", back], ["stats", back], ["show", back, "0"], ["export", back]):
        assert invoke(command) == 0, capsys.readouterr().err
    assert table_bytes(tmp_path / "back") == table_bytes(tmp_path / "grown")


def test_a_run_that_came_back_cannot_be_grown(hub: HubServer, run: Path, tmp_path: Path) -> None:
    manifest = json.loads((run / "manifest.json").read_text()) | {"policy": {"backend": "scripted"}}
    (run / "manifest.json").write_text(json.dumps(manifest))
    push(run, REPO, trees=True)
    back = pull(REPO, tmp_path / "back")
    with pytest.raises(StorageError, match=r"journal\.sqlite is gone"):
        back.lock()


def test_a_pull_that_is_interrupted_goes_on(hub: HubServer, run: Path, tmp_path: Path) -> None:
    push(run, REPO, trees=True)
    hub.fail("GET", r"/resolve/.*nodes-00001", 404, times=10**6)
    with pytest.raises(HubError, match="lacks a file that it lists"):
        pull(REPO, tmp_path / "back")
    assert not (tmp_path / "back").exists()
    hub.faults.clear()
    hub.requests.clear()
    pull(REPO, tmp_path / "back")
    fetched = [path for method, path in hub.requests if method == "GET" and "/resolve/" in path]
    assert any("nodes-00001" in path for path in fetched)
    assert not any("nodes-00000" in path for path in fetched)


def test_what_a_pull_of_another_dataset_left_is_not_taken(hub: HubServer, run: Path, tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    file.write_text(json.dumps({"prompt": "P?", "completions": ["a", "b"], "labels": [0.25, 1]}) + "\n")
    import_file(file, "prm", tmp_path / "imported")
    views.export(tmp_path / "imported")
    push(tmp_path / "imported", "owner/imported", trees=True)
    push(run, REPO, trees=True)
    hub.fail("GET", r"/resolve/.*rollouts", 404, times=10**6)
    with pytest.raises(HubError):
        pull("owner/imported", tmp_path / "back")
    assert (tmp_path / ".back.pull").exists()
    hub.faults.clear()
    back = pull(REPO, tmp_path / "back").path
    assert sorted(path.name for path in (back / "trees").iterdir()) == sorted(
        path.name for path in (run / "trees").glob("*.parquet")
    )


def changed(hub: HubServer, files: dict[str, bytes | None]) -> None:
    """Commit the dataset with some files replaced, added or, where None, taken out."""
    found = hub.files(REPO) | files
    hub.upload(REPO, {path: content for path, content in found.items() if content is not None})


def test_only_what_a_run_has_is_taken(hub: HubServer, run: Path, tmp_path: Path) -> None:
    push(run, REPO, trees=True)
    strange = ("journal.sqlite", "x.sh", "labels/values-00000.parquet", "trees/x.parquet", "../../evil.parquet")
    changed(hub, {f"run/{name}": b"junk" for name in strange})
    pull(REPO, tmp_path / "back")
    push(run, "owner/plain", trees=True)
    pull("owner/plain", tmp_path / "plain")
    found = [sorted(p.relative_to(f).as_posix() for p in f.rglob("*")) for f in (tmp_path / "back", tmp_path / "plain")]
    assert found[0] == found[1]
    assert not list(tmp_path.rglob("evil*"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("trees/nodes-00000.parquet", b"junk"),
        ("trees/nodes-00000.parquet", None),
        ("trees/rollouts-00000.parquet", None),
        ("trees/nodes-00000.parquet", "trees/nodes-00001.parquet"),
        ("manifest.json", b"[]"),
        ("manifest.json", b'{"schema": 1}'),
        ("problems.parquet", b"junk"),
    ],
)
def test_what_is_no_whole_run_is_not_taken(
    hub: HubServer, run: Path, tmp_path: Path, name: str, content: bytes | str | None
) -> None:
    push(run, REPO, trees=True)
    if isinstance(content, str):
        content = hub.files(REPO)[f"run/{content}"]
    changed(hub, {f"run/{name}": content})
    with pytest.raises(RunError, match=r"^owner/trees holds no (whole )?run"):
        pull(REPO, tmp_path / "back")
    assert not [path for path in tmp_path.iterdir() if "back" in path.name]


def unordered(table: pa.Table) -> pa.Table:
    return table.take(list(range(table.num_rows))[::-1])


def without_parents(table: pa.Table) -> pa.Table:
    parents = pa.array([-1 if row == 0 else 2**31 - 1 for row in table["node_id"].to_pylist()], pa.int32())
    return table.set_column(2, table.schema.field("parent_id"), parents)


@pytest.mark.parametrize("spoil", [unordered, without_parents])
def test_trees_that_are_none_are_not_taken(hub: HubServer, run: Path, tmp_path: Path, spoil: Any) -> None:
    push(run, REPO, trees=True)
    file = tmp_path / "nodes.parquet"
    write_table(spoil(read_table(run / "trees" / "nodes-00000.parquet", NODES)), file)
    changed(hub, {"run/trees/nodes-00000.parquet": file.read_bytes()})
    with pytest.raises(RunError, match=r"nodes-00000\.parquet is missing or damaged"):
        pull(REPO, tmp_path / "back")


def test_out_may_be_here_or_a_link(hub: HubServer, run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    push(run, REPO, trees=True)
    for name in ("here", "there"):
        (tmp_path / name).mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "there")
    monkeypatch.chdir(tmp_path / "here")
    pull(REPO, ".")
    pull(REPO, tmp_path / "link")
    assert table_bytes(tmp_path / "here") == table_bytes(tmp_path / "there") != {}


@pytest.mark.slow
@pytest.mark.parametrize("revision", ["", "../x", "a\nb", "-x"])
def test_revisions_that_cannot_be(hub: HubServer, run: Path, tmp_path: Path, revision: str) -> None:
    push(run, REPO, trees=True)
    with pytest.raises(ConfigError, match="is no branch, tag"):
        pull(REPO, tmp_path / "back", revision=revision)
    with pytest.raises(ConfigError, match="is no branch, tag"):
        push(run, REPO, revision=revision)


@pytest.mark.parametrize("name", ["manifest.json", "problems.parquet"])
def test_a_dataset_without_a_run(hub: HubServer, run: Path, tmp_path: Path, name: str) -> None:
    push(run, REPO, trees=True)
    changed(hub, {f"run/{name}": None})
    with pytest.raises(HubError, match="holds no run; one gets there by"):
        pull(REPO, tmp_path / "back")


def test_a_connection_that_is_cut_is_made_again(hub: HubServer, run: Path, tmp_path: Path) -> None:
    push(run, REPO, trees=True)
    hub.fail("GET", r"/resolve/.*nodes-00000", -1)
    hub.fail("GET", r"/api/datasets/", 500)
    pull(REPO, tmp_path / "back")
    assert table_bytes(tmp_path / "back")["trees/nodes-00000.parquet"] == table_bytes(run)["trees/nodes-00000.parquet"]


def test_a_hub_that_goes_away_leaves_no_run(hub: HubServer, run: Path, tmp_path: Path) -> None:
    push(run, REPO, trees=True)
    (tmp_path / ".back.pull" / "run").mkdir(parents=True)  # what an earlier pull left
    (tmp_path / ".back.pull" / "run" / "manifest.json").write_text("{}")
    hub.fail("GET", r"/api/datasets/.*/tree/", 500, times=10**6, skip=1)
    hub.fail("GET", r"/resolve/", 500, times=10**6)
    with pytest.raises(HubError):
        pull(REPO, tmp_path / "back")
    assert not (tmp_path / "back").exists()


def test_a_run_from_elsewhere_does_not_say_what_this_machine_talks_to(
    hub: HubServer, run: Path, tmp_path: Path
) -> None:
    push(run, REPO, trees=True)
    repo = hub.repos[REPO]
    files = dict(repo.commits[repo.refs["main"]])
    manifest = json.loads(hub.blobs[files["run/manifest.json"]])
    manifest["machine"]["servers"] = ["http://elsewhere.example/v1"]
    files["run/manifest.json"] = hub.store(json.dumps(manifest).encode(), lfs=False)
    hub.commit(repo, "main", files, "theirs")
    assert pull(REPO, tmp_path / "back").manifest["machine"] == to_dict(Machine())


def test_what_cannot_be_pulled(hub: HubServer, run: Path, tmp_path: Path) -> None:
    with pytest.raises(HubError, match="no dataset owner/trees"):
        pull(REPO, tmp_path / "back")
    push(run, REPO)
    with pytest.raises(HubError, match="push RUN owner/trees --trees"):
        pull(REPO, tmp_path / "back")
    with pytest.raises(HubError, match="no such revision"):
        pull(REPO, tmp_path / "back", revision="v9")
    with pytest.raises(RunError, match="holds something"):
        pull(REPO, run)


def loaded(hub: HubServer, tmp_path: Path, program: str) -> str:
    """What a program prints that has the Hub's address and token, and imports `datasets` as such."""
    pytest.importorskip("datasets")
    settings = {"HF_ENDPOINT": hub.url, "HF_TOKEN": WRITER, "HF_HOME": str(tmp_path / "home")}
    settings |= {"HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_HUB_DISABLE_TELEMETRY": "1"}
    done = subprocess.run(
        [sys.executable, "-c", f"import datasets; {program}"],
        env=os.environ | settings,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
def test_load_dataset_reads_what_was_pushed(hub: HubServer, run: Path, tmp_path: Path) -> None:
    write_dataset(run / "dataset", shards=2, rows=30)
    push(run, REPO, private=True, trees=True)
    program = (
        f"found = datasets.load_dataset({REPO!r}, split='train');"
        "print(found.num_rows, found[31]['prompt'], found.column_names)"
    )
    assert loaded(hub, tmp_path, program) == "60 question 1 1 ['prompt', 'hard']\n"


@pytest.mark.slow
def test_load_dataset_reads_every_configuration_of_a_runs_export(hub: HubServer, tmp_path: Path) -> None:
    result = pipeline.run(problems(6), tmp_path / "grown", scripted_config())
    assert result.dataset is not None
    push(result.path, REPO, trees=True)
    program = (
        f"print({{name: {{split: len(rows) for split, rows in datasets.load_dataset({REPO!r}, name).items()}}"
        " for name in ('hrm', 'nodes')})"
    )
    assert loaded(hub, tmp_path, program) == f"{result.dataset.rows}\n"
    plots = {f"plots/{file.name}" for file in (result.path / "dataset" / "plots").iterdir()}
    assert plots == {name for name in hub.files(REPO) if name.startswith("plots/")}
    assert all(f"]({name})" in hub.files(REPO)["README.md"].decode() for name in plots)
    assert plots


def test_the_commands(hub: HubServer, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["push", str(run), REPO, "--trees", "--dry-run"]) == 0
    assert "would be in owner/trees" in capsys.readouterr().out
    assert invoke(["push", str(run), REPO, "--trees", "--private", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["changed"] is True
    assert invoke(["push", str(run), REPO, "--trees"]) == 0
    assert "nothing was committed" in capsys.readouterr().out
    assert invoke(["pull", REPO, "--out", str(tmp_path / "back")]) == 0
    assert "3 problems" in capsys.readouterr().out
    assert invoke(["pull", "owner/nothing", "--out", str(tmp_path / "other")]) == 1
    assert "no dataset owner/nothing" in capsys.readouterr().err
    assert invoke(["push", str(run), "no name"]) == 2
