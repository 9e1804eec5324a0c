"""The exported rows as the page reads them, also while another export takes the folder's place."""

import shutil

import pytest
from support.page import served_page
from support.runs import EqualStringJudge, problems, scripted_config

from treeforge import views
from treeforge.config import ExportConfig
from treeforge.errors import ConfigError, StorageError
from treeforge.pipeline import run as run_pipeline
from treeforge.view import shards
from treeforge.view.shards import shard_rows, shard_splits


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    path = tmp_path_factory.mktemp("shards") / "run"
    run_pipeline(problems(12), path, scripted_config(children=6), judge=EqualStringJudge())
    return path


@pytest.fixture
def run(exported, tmp_path):
    return shutil.copytree(exported, tmp_path / "run")


def test_a_format_has_its_folder_and_its_name(run):
    """The 404 of `format=hrm`: its rows lie in `data/`, by which alone they were found."""
    with served_page(run) as page:
        for split in page.json("dataset")["splits"]:
            rows = [
                page.json("dataset/rows", format=format, split=split["split"])["rows"]
                for format in (split["format"], split["name"])
            ]
            assert rows[0] == rows[1]
            assert rows[0]
        assert {split["name"] for split in page.json("dataset")["splits"]} == {"hrm", "nodes"}
        assert page.error("dataset/rows", format="prm", split="train")[0] == 404


@pytest.mark.parametrize("swap", [True, False], ids=["swapped", "renamed twice"])
@pytest.mark.parametrize("ask", [shard_splits, lambda dataset: shard_rows(dataset, "data", "train", 0, 5)])
def test_an_export_takes_the_folders_place_while_it_is_read(run, monkeypatch, ask, swap):
    dataset = run / "dataset"
    scan, turns = shards._scan, []

    def scan_after_an_export(files):
        if not turns:
            turns.append(1)
            if swap:
                views.export(run, ExportConfig(rows_per_shard=20))
            else:
                (run / ".other").mkdir()
                dataset.rename(run / ".dataset.old")
                shutil.copytree(run / ".dataset.old", run / ".other", dirs_exist_ok=True)
                (run / ".other").rename(dataset)
                shutil.rmtree(run / ".dataset.old")
        return scan(files)

    monkeypatch.setattr(shards, "_scan", scan_after_an_export)
    found = ask(dataset)
    assert turns
    assert found == ask(dataset)


def test_between_two_renames_the_old_folder_is_read(run):
    dataset = run / "dataset"
    before = shard_splits(dataset)
    dataset.rename(run / ".dataset.old")
    assert shard_splits(dataset) == before
    assert len(shard_rows(dataset, "hrm", "train", 0, 5)) == 5


def test_no_export_and_a_damaged_one(run):
    dataset = run / "dataset"
    next(dataset.glob("data/train-*")).write_bytes(b"PAR1 and no more")
    with pytest.raises(StorageError, match="treeforge export"):
        shard_splits(dataset)
    with pytest.raises(StorageError, match="treeforge export"):
        shard_rows(dataset, "hrm", "train", 0, 5)
    shutil.rmtree(dataset)
    assert shard_splits(dataset) == []
    with pytest.raises(ConfigError, match="no train rows of data"):
        shard_rows(dataset, "data", "train", 0, 5)
