"""A run folder read by the page: while it grows, labelled anew, before and after HNC, and folders that are none."""

import json
import shutil

import pytest
from support.folders import ended, write_run
from support.hand_drawn import P, hand_drawn
from support.runs import EqualStringJudge, problems, scripted_config

from treeforge import views
from treeforge.config import CompressConfig, LabelConfig
from treeforge.errors import ConfigError, RunError, StorageError
from treeforge.pipeline import run as run_pipeline
from treeforge.store.run import RunFolder
from treeforge.tree import TreeBuilder
from treeforge.view import reader as reader_module
from treeforge.view.reader import RunReader


@pytest.fixture(autouse=True)
def look_at_once(monkeypatch):
    monkeypatch.setattr(reader_module, "_LOOK_AGAIN", 0.0)
    monkeypatch.setattr(reader_module, "_PATIENCE", 0.0)


def finish(path, number, tree):
    with RunFolder.open(path) as run:
        run.lock()
        run.finish(number, ended(tree))


def test_a_tree_is_seen_when_it_ends(tmp_path):
    path = write_run(tmp_path / "run", [hand_drawn(), None], block=4)
    reader = RunReader(path)
    assert reader.tree(1) is None
    assert reader.index()["status"].to_list() == ["done", "open"]
    finish(path, 1, hand_drawn())
    assert reader.tree(1).shown.record.tree.size == 15
    assert reader.index()["status"].to_list() == ["done", "done"]


def test_an_empty_run(tmp_path):
    reader = RunReader(write_run(tmp_path / "run", [None, None]))
    assert reader.index()["nodes"].to_list() == [0, 0]
    assert reader.tree(0) is None
    assert reader.passes == 0


def test_labels_that_are_made_anew_are_seen(tmp_path):
    path = write_run(tmp_path / "run", [hand_drawn(), hand_drawn()])
    views.label(path, LabelConfig(threshold=0.1))
    reader = RunReader(path)
    before = reader.tree(0)
    assert before is reader.tree(0)
    views.label(path, LabelConfig(threshold=0.99))
    after = reader.tree(0)
    assert before.shown.hard[P] == 1
    assert after.shown.hard[P] == 0
    assert (before.shown.saved, after.shown.saved) == (True, True)


def test_before_and_after_hnc(tmp_path):
    path = tmp_path / "run"
    run_pipeline(problems(3), path, scripted_config(children=6), judge=EqualStringJudge())
    views.compress(path, CompressConfig(min_children=2, probability=1.0))
    reader = RunReader(path)
    assert reader.passes == 1
    grown, merged = reader.tree(0), reader.tree(0, 1)
    tree = merged.shown.record.tree
    assert not any(grown.shown.record.tree.merged_from)
    assert any(tree.merged_from)
    assert tree.size == grown.shown.record.tree.size
    # The merged node's text joins those of the nodes it came from.
    node = next(row for row, parts in enumerate(tree.merged_from) if parts)
    assert tree.text[node] == "".join(grown.shown.record.tree.text[row] for row in tree.merged_from[node])
    with pytest.raises(ConfigError, match="no HNC pass 2"):
        reader.tree(0, 2)


def test_compressed_trees_that_are_stale_are_not_shown(tmp_path):
    path = write_run(tmp_path / "run", [hand_drawn(), None], block=4)
    views.compress(path)
    reader = RunReader(path)
    assert reader.passes == 1
    finish(path, 1, hand_drawn())
    assert reader.passes == 0
    with pytest.raises(ConfigError, match="no HNC pass 1"):
        reader.tree(0, 1)


def test_problems_that_are_not_there(tmp_path):
    reader = RunReader(write_run(tmp_path / "run", [hand_drawn()]))
    for number in (-1, 1):
        with pytest.raises(ConfigError, match=f"no problem {number}"):
            reader.tree(number)


def test_few_trees_stay_in_memory(tmp_path, monkeypatch):
    monkeypatch.setattr(reader_module, "CACHED_NODES", 20)
    reader = RunReader(write_run(tmp_path / "run", [hand_drawn()] * 3))
    first = reader.tree(0)
    assert reader.tree(0) is first
    reader.tree(1)
    assert reader.tree(0) is not first


def test_the_first_error_of_each_path(tmp_path):
    builder = TreeBuilder()
    good = builder.add(0, "good\n")
    bad = builder.add(good, "bad\n")
    worse = builder.add(bad, "worse\n")
    builder.rollouts[good], builder.rollouts_correct[good] = 9, 9
    builder.rollouts[worse] = 5
    path = write_run(tmp_path / "run", [builder.freeze()])
    assert RunReader(path).tree(0).first_error.tolist() == [False, False, True, False]


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(RunError, match="is no run folder"):
        RunReader(tmp_path)


def test_another_schema_is_refused(tmp_path):
    path = write_run(tmp_path / "run", [hand_drawn()])
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps(manifest | {"schema": 0}))
    with pytest.raises(RunError, match="was written with schema 0, and this treeforge reads"):
        RunReader(path)


def test_half_written_files(tmp_path):
    path = write_run(tmp_path / "run", [hand_drawn(), None], block=4)
    spill = next((path / "trees" / "spill").glob("*.arrow"))
    (spill.parent / "00000001.tmp").write_bytes(b"half")
    (path / "trees" / ".nodes-00000.parquet.tmp").write_bytes(b"half")
    assert RunReader(path).tree(0).shown.record.tree.size == 15
    spill.write_bytes(spill.read_bytes()[:300])
    with pytest.raises(StorageError, match="is damaged"):
        RunReader(path).tree(0)


def test_nothing_is_written(tmp_path):
    path = write_run(tmp_path / "run", [hand_drawn(), None])
    shutil.copytree(path, tmp_path / "copy")
    before = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in path.rglob("*") if file.is_file()}
    reader = RunReader(path)
    reader.index()
    reader.tree(0)
    after = {file: (file.stat().st_mtime_ns, file.stat().st_size) for file in path.rglob("*") if file.is_file()}
    # sqlite's own bookkeeping of readers apart.
    assert {f: s for f, s in after.items() if "journal" not in f.name} == {
        f: s for f, s in before.items() if "journal" not in f.name
    }
