import json
import shutil
import sqlite3

import pytest
from support.runs import problems, scripted_config, table_bytes
from typer.testing import CliRunner

import treeforge as tf
from treeforge import pipeline
from treeforge.cli.app import app
from treeforge.config import Machine
from treeforge.errors import PolicyUnavailableError, RecipeChangedError, RunError
from treeforge.policy.scripted import ScriptedPolicy, World


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    path = tmp_path_factory.mktemp("replay") / "run"
    tf.run(problems(6), path, scripted_config(budget={"simulations": 8, "run_tokens": 5_000}))
    return path


@pytest.fixture
def run(grown, tmp_path):
    return shutil.copytree(grown, tmp_path / "run")


def test_the_same_tables_come_out_of_manifest_and_journal_alone(run, tmp_path):
    before = {file: file.read_bytes() for file in run.rglob("*") if file.is_file()}
    found = pipeline.replay(run, tmp_path / "again")
    assert found.same
    assert set(found.files.values()) == {"same"}
    assert {name.split("/")[0] for name in found.files} == {
        "problems.parquet",
        "trees",
        "labels",
        "compressed",
        "dataset",
    }
    assert (found.trees, found.unused) == (6, 0)
    assert table_bytes(tmp_path / "again") == table_bytes(run)
    assert {file: file.read_bytes() for file in run.rglob("*") if file.is_file()} == before


def test_cut_offs_are_replayed_from_the_journal(run):
    statuses = set(tf.RunFolder.open(run).statuses().values())
    assert any("run budget" in reason for _, reason in statuses)


def test_a_replayed_run_can_be_extended(run, tmp_path):
    pipeline.replay(run, tmp_path / "again")
    result = tf.extend(tmp_path / "again", problems=problems(8)[6:], budget={"run_tokens": 0})
    assert result.statuses == {"done": 8}


def test_a_check_leaves_nothing_behind(run, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    assert pipeline.replay(run).path is None
    assert list((tmp_path / "temporary").iterdir()) == []


def test_what_was_changed_or_lost_is_named(run):
    (run / "trees" / "nodes-00001.parquet").unlink()
    shutil.copy(run / "labels" / "values-00000.parquet", run / "labels" / "values-00001.parquet")
    (run / "labels" / "values-00009.parquet").write_bytes(b"no table")
    shutil.copytree(run / "dataset" / "data", run / "dataset" / "more")
    found = pipeline.replay(run)
    assert not found.same
    others = {name: how for name, how in found.files.items() if how != "same"}
    assert others["trees/nodes-00001.parquet"] == "missing"
    assert others["labels/values-00001.parquet"] == "differs"
    assert others["labels/values-00009.parquet"] == "extra"
    assert {how for name, how in others.items() if name.startswith("dataset/more")} == {"extra"}


def test_a_journal_with_a_hole_is_refused(run, tmp_path):
    with sqlite3.connect(run / "journal.sqlite") as db:
        db.execute("DELETE FROM samples WHERE rowid = (SELECT max(rowid) FROM samples WHERE tree = 1)")
    db.close()
    with pytest.raises(RunError, match=r"lacks a completion that tree 1 \(problem sum-1\)"):
        pipeline.replay(run)


def test_rows_that_no_tree_uses_are_counted(run):
    with sqlite3.connect(run / "journal.sqlite") as db:
        db.execute("INSERT INTO samples SELECT tree, x'00', tokens, completions, failed, payload FROM samples LIMIT 1")
    db.close()
    assert pipeline.replay(run).unused == 1


def test_a_run_that_goes_on_is_replayed_as_far_as_it_is(tmp_path):
    class Dies(ScriptedPolicy):
        def sample_now(self, request):
            if request.tree == 3:
                raise PolicyUnavailableError("gone")
            return super().sample_now(request)

    with pytest.raises(PolicyUnavailableError):
        tf.run(problems(5), tmp_path / "run", scripted_config(machine=Machine(open_trees=1)), policy=Dies(World()))
    found = pipeline.replay(tmp_path / "run")
    assert (found.trees, found.same) == (3, True)


def test_the_command(run, tmp_path):
    done = CliRunner().invoke(app, ["replay", str(run), "--json"])
    assert done.exit_code == 0
    assert json.loads(done.stdout)["same"] is True
    (run / "trees" / "nodes-00001.parquet").unlink()
    done = CliRunner().invoke(app, ["replay", str(run), "--out", str(tmp_path / "new")])
    assert done.exit_code == 1
    assert "trees/nodes-00001.parquet: missing" in done.stdout
    assert (tmp_path / "new" / "manifest.json").exists()
    with pytest.raises(RunError, match="holds a run already"):
        pipeline.replay(run, tmp_path / "new")


class Engine(ScriptedPolicy):
    def __init__(self, engine, model="scripted-world-2"):
        super().__init__(World())
        self.engine, self.model = engine, model

    @property
    def identity(self):
        return {"backend": "scripted", "model": self.model, "engine": self.engine}


def test_another_engine_is_refused_unless_accepted(tmp_path):
    config = scripted_config(budget={"simulations": 4})
    tf.run(problems(3), tmp_path / "run", config, policy=Engine("vllm 1"))
    more = {"budget": {"simulations": 8}}
    with pytest.raises(RecipeChangedError, match="--accept-engine"):
        tf.extend(tmp_path / "run", **more, policy=Engine("vllm 2"))
    with pytest.raises(RecipeChangedError, match="policy identity, model"):
        tf.resume(tmp_path / "run", policy=Engine("vllm 2", model="another"), accept_engine=True)
    policy = Engine("vllm 2")
    policy.asked = {}
    assert tf.resume(tmp_path / "run", policy=policy, accept_engine=True).statuses == {"done": 3}
    assert len(policy.asked) == 3 * 4  # the first four simulations of each came from the journal
    assert json.loads((tmp_path / "run" / "manifest.json").read_text())["engines"] == ["vllm 2"]
    tf.extend(tmp_path / "run", budget={"simulations": 9}, policy=Engine("vllm 2"))
    assert pipeline.replay(tmp_path / "run").same
