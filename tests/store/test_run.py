"""The run folder: blocks, spills, recovery, locking."""

import fcntl
import json
import os
import shutil
import subprocess
import sys

import pyarrow as pa
import pytest
from support.runs import EqualStringJudge, problems, scripted_config, table_bytes

import treeforge as tf
from treeforge.errors import DataError, RunError, RunLockedError, StorageError
from treeforge.manifest import new_manifest
from treeforge.store.parquet import read_table, write_table
from treeforge.store.run import OPEN, RunFolder
from treeforge.store.saved_problems import PROBLEMS
from treeforge.tree import TreeBuilder, TreeRecord


def record(problem, texts=("a\n",), status="done"):
    builder = TreeBuilder()
    for text in texts:
        builder.add(0, text)
    return TreeRecord(problem.problem_id, builder.freeze(), (), status, "for a test")


@pytest.fixture
def folder(tmp_path):
    run = RunFolder.create(tmp_path / "run", new_manifest(scripted_config(block=3), "test"), problems(7))
    yield run
    run.close()


def blocks(folder):
    return sorted(file.name for file in (folder.path / "trees").glob("nodes-*.parquet"))


def test_a_block_is_written_when_its_last_tree_ends_in_any_order(folder):
    for number in (2, 0, 4):
        folder.finish(number, record(folder.problems[number]))
    assert blocks(folder) == []
    folder.finish(1, record(folder.problems[1]))
    assert blocks(folder) == ["nodes-00000.parquet"]
    assert sorted(p.name for p in (folder.path / "trees" / "spill").iterdir()) == ["00000004.arrow"]
    folder.finish(6, record(folder.problems[6]))
    assert blocks(folder) == ["nodes-00000.parquet", "nodes-00002.parquet"]


def test_records_are_read_from_blocks_and_spills_while_the_run_goes_on(folder):
    for number in (4, 2, 1, 0):
        folder.finish(number, record(folder.problems[number], texts=(f"n{number}\n",)))
    reader = RunFolder.open(folder.path)
    assert [(n, r.tree.text[1], r.status) for n, r in reader.records()] == [
        (n, f"n{n}\n", "done") for n in (0, 1, 2, 4)
    ]
    assert [n for n, _ in reader.records([4, 1, 5])] == [1, 4]
    assert reader.statuses()[3] == OPEN


def test_problems_of_a_run_are_made_when_they_are_asked_for(folder):
    folder.close()
    found = RunFolder.open(folder.path).problems
    assert found == problems(7)
    assert found != problems(8)
    assert found != [*problems(6), tf.make_problem("other", "1")]
    assert (found[-1], found[2:5], len(found)) == (problems(7)[6], problems(7)[2:5], 7)
    with pytest.raises(IndexError, match="7 problems"):
        found[7]


def test_damaged_meta_of_a_problem_is_named(folder):
    folder.close()
    file = folder.path / "problems.parquet"
    table = read_table(file, PROBLEMS)
    meta = table["meta"].to_pylist()
    meta[5] = "{torn"
    write_table(table.set_column(5, PROBLEMS.field("meta"), pa.array(meta, pa.string())), file)
    run = RunFolder.open(folder.path)
    assert run.number_of("sum-6") == 6
    with pytest.raises(StorageError, match=r"problems.parquet.*meta of problem 5"):
        run.problems[5]


def test_a_reopened_tree_replaces_the_one_in_its_block(folder):
    for number in range(3):
        folder.finish(number, record(folder.problems[number]))
    folder.reopen([1])
    assert [n for n, _ in folder.records()] == [0, 2]
    folder.finish(1, record(folder.problems[1], texts=("new\n", "newer\n")))
    assert [r.tree.size for _, r in folder.records()] == [2, 3, 2]
    assert not list((folder.path / "trees" / "spill").iterdir())


def test_a_second_writer_is_refused_also_from_another_process(folder):
    with pytest.raises(RunLockedError, match="in use"):
        RunFolder.open(folder.path).lock()
    code = "import sys, pathlib, treeforge; treeforge.RunFolder.open(pathlib.Path(sys.argv[1])).lock()"
    done = subprocess.run([sys.executable, "-c", code, str(folder.path)], capture_output=True, text=True, check=False)
    assert "RunLockedError" in done.stderr
    folder.close()
    RunFolder.open(folder.path).lock()


def test_whether_a_run_is_locked_is_seen_without_locking_it(folder):
    reader = RunFolder.open(folder.path)
    assert reader.is_locked() is True
    folder.close()
    assert reader.is_locked() is False
    with RunFolder.open(folder.path) as again:
        again.lock()
        assert reader.is_locked() is True
    (folder.path / ".lock").unlink()
    assert reader.is_locked() is False


def test_a_reader_that_looks_at_the_lock_keeps_no_writer_out(folder, monkeypatch):
    folder.close()
    looking = (folder.path / ".lock").open("rb")
    fcntl.flock(looking, fcntl.LOCK_SH)
    monkeypatch.setattr("treeforge.store.lock.time.sleep", lambda seconds: looking.close())
    with RunFolder.open(folder.path) as run:
        run.lock()
        assert run.is_locked() is True


def test_a_lost_spill_is_made_again(folder):
    folder.finish(4, record(folder.problems[4]))
    folder.finish(5, record(folder.problems[5]))
    folder.close()
    spills = folder.path / "trees" / "spill"
    (spills / "00000004.arrow").unlink()
    (spills / "00000005.arrow").write_bytes(b"half a file")
    (spills / "00000003.tmp").write_bytes(b"half a file")
    with RunFolder.open(folder.path) as again:
        again.lock()
        assert again.unfinished() == list(range(7))
        assert list(spills.iterdir()) == []


def test_a_merge_that_was_cut_short_is_finished(folder):
    for number in (0, 1, 2):
        folder.finish(number, record(folder.problems[number]))
    whole = table_bytes(folder.path)
    folder.reopen([0, 1, 2])
    for number in (0, 1, 2):
        folder._ended.pop(number, None)
    for table in (folder.path / "trees").glob("*.parquet"):
        table.unlink()
    merge, folder._merge = folder._merge, lambda block: None
    for number in (0, 1, 2):
        folder.finish(number, record(folder.problems[number]))
    folder._merge = merge
    folder.close()
    with RunFolder.open(folder.path) as again:
        again.lock()
        assert again.unfinished() == [3, 4, 5, 6]
    assert table_bytes(folder.path) == whole


def test_add_problems_skips_known_ones_and_refuses_another_text(folder):
    assert folder.add_problems(problems(9)) == 2
    assert len(folder.problems) == 9
    with pytest.raises(DataError, match="sum-3"):
        folder.add_problems([tf.make_problem("other", "1", problem_id="sum-3")])


def test_problems_are_found_by_id_start_or_number(folder):
    assert folder.number_of("sum-4") == 4
    assert folder.number_of("5") == 5
    with pytest.raises(RunError, match="start of 7 problems"):
        folder.number_of("sum")
    with pytest.raises(RunError, match="no problem"):
        folder.number_of("nothing")


def test_what_is_no_run_is_said_so(tmp_path):
    with pytest.raises(RunError, match="no run folder"):
        RunFolder.open(tmp_path)
    with pytest.raises(RunError, match="no run folder"):
        RunFolder.open(tmp_path / "absent")
    (tmp_path / "manifest.json").write_text("{broken")
    with pytest.raises(StorageError, match=r"manifest\.json"):
        RunFolder.open(tmp_path)
    (tmp_path / "manifest.json").write_text("[]")
    with pytest.raises(StorageError, match="holds no object"):
        RunFolder.open(tmp_path)
    (tmp_path / "manifest.json").write_text(json.dumps({"schema": 99}))
    with pytest.raises(RunError, match="schema 99"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"export": 5}, "export is no object"),
        ({"problems": []}, "problems is no object"),
        ({"policy": "x"}, "policy is no object"),
        ({"recipe": []}, "recipe is no object"),
        ({"recipe": {}}, "recipe has no search or block"),
        ({"recipe": {"search": {}, "block": 0}}, "recipe has no search or block"),
    ],
)
def test_a_manifest_with_a_section_of_another_kind(tmp_path, change, said):
    with RunFolder.create(tmp_path / "run", new_manifest(scripted_config(), "test"), problems(1)) as run:
        run.manifest |= change
        run.write_manifest()
    with pytest.raises(StorageError, match=said) as caught:
        RunFolder.open(tmp_path / "run")
    assert "manifest.json" in str(caught.value)


@pytest.mark.skipif(
    os.geteuid() == 0, reason="root may write anywhere; the command-line tests cover a read-only folder"
)
def test_a_read_only_folder_is_a_clear_error(tmp_path):
    (tmp_path / "ro").mkdir(mode=0o500)
    with pytest.raises(StorageError, match="No right"):
        RunFolder.create(tmp_path / "ro" / "run", new_manifest(scripted_config(), ""), problems(1))


def test_extend_pays_for_nothing_twice_and_equals_one_run(tmp_path):
    judge = EqualStringJudge()
    tf.run(problems(10), tmp_path / "once", scripted_config(budget={"simulations": 12}, wave=2), judge=judge)
    grown, policy = tmp_path / "grown", tf.ScriptedPolicy()
    policy.asked = {}
    tf.run(problems(6), grown, scripted_config(budget={"simulations": 4}, wave=2), judge=judge, policy=policy)
    tf.extend(grown, problems=problems(10), judge=judge, policy=policy)
    result = tf.extend(grown, budget={"simulations": 12}, judge=judge, policy=policy)
    assert result.statuses == {"done": 10}
    assert max(policy.asked.values()) == 1
    assert table_bytes(grown) == table_bytes(tmp_path / "once") | {
        "dataset/README.md": (grown / "dataset/README.md").read_bytes()
    }


def test_extend_lifts_a_run_budget(tmp_path):
    judge, out = EqualStringJudge(), tmp_path / "run"
    first = tf.run(problems(8), out, scripted_config(budget={"simulations": 8, "run_tokens": 4000}), judge=judge)
    assert first.statuses["exhausted"] > 0
    assert tf.resume(out, judge=judge).statuses == first.statuses
    assert tf.extend(out, budget={"run_tokens": 0}, judge=judge).statuses == {"done": 8}


def test_extend_refuses_less_and_nothing(tmp_path):
    judge, out = EqualStringJudge(), tmp_path / "run"
    tf.run(problems(2), out, scripted_config(), judge=judge)
    with pytest.raises(tf.TreeforgeError, match="can only grow"):
        tf.extend(out, budget={"simulations": 3}, judge=judge)
    with pytest.raises(tf.TreeforgeError, match="nothing to add"):
        tf.extend(out, problems=problems(2), judge=judge)
    with pytest.raises(tf.TreeforgeError, match="simulatons"):
        tf.extend(out, budget={"simulatons": 30}, judge=judge)


def test_another_recipe_or_policy_is_refused_naming_the_keys(tmp_path):
    judge, out = EqualStringJudge(), tmp_path / "run"
    tf.run(problems(2), out, scripted_config(), judge=judge)
    with pytest.raises(tf.TreeforgeError, match=r"search\.wave: the run has 4, this command has 2"):
        tf.run(problems(2), out, scripted_config(wave=2), judge=judge)
    with pytest.raises(tf.TreeforgeError, match="problems"):
        tf.run(problems(3), out, scripted_config(), judge=judge)
    shutil.rmtree(out / "trees")
    with pytest.raises(tf.TreeforgeError, match="policy identity, world"):
        tf.resume(out, judge=judge, policy=tf.ScriptedPolicy.from_options({"depth": 3}))


def test_lost_tables_are_made_again_from_the_journal(tmp_path):
    judge, out = EqualStringJudge(), tmp_path / "run"
    tf.run(problems(5), out, scripted_config(), judge=judge)
    whole = table_bytes(out)
    for folder in ("trees", "labels", "compressed", "dataset"):
        shutil.rmtree(out / folder)
    policy = tf.ScriptedPolicy()
    tf.resume(out, judge=judge, policy=policy)
    assert table_bytes(out) == whole
    assert policy.requests == 0


def test_an_extend_killed_between_its_two_files_is_counted_on_resume(tmp_path):
    judge, out = EqualStringJudge(), tmp_path / "run"
    tf.run(problems(3), out, scripted_config(), judge=judge)
    before = (out / "manifest.json").read_bytes()
    with RunFolder.open(out) as folder:
        folder.lock()
        folder.add_problems(problems(5))
        folder.write_problems()
    (out / "manifest.json").write_bytes(before)
    assert tf.resume(out, judge=judge).statuses == {"done": 5}
    folder = RunFolder.open(out)
    assert folder.manifest["problems"]["count"] == 5
    assert folder.manifest["problems"]["digest"] == folder.problems_digest()
