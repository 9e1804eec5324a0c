"""The library's surface: stages as functions, sync and async, with a policy and a judge of one's own."""

import asyncio
import logging

import pytest
from support.runs import EqualStringJudge, problems, scripted_config, table_bytes

import treeforge as tf
from treeforge.errors import ConfigError, RunLockedError
from treeforge.store.run import RunFolder
from treeforge.store.views import view_lock


def test_async_and_sync_make_the_same_bytes(tmp_path):
    async def stage_by_stage(out):
        await tf.run_async(problems(4), out, scripted_config())
        await tf.pipeline.search_async(out)
        await tf.pipeline.label_async(out)
        await tf.pipeline.compress_async(out)
        return await tf.pipeline.export_async(out)

    tf.run(problems(4), tmp_path / "sync", scripted_config())
    summary = asyncio.run(stage_by_stage(tmp_path / "async"))
    assert summary.path == tmp_path / "async" / "dataset"
    assert table_bytes(tmp_path / "sync") == table_bytes(tmp_path / "async")


def test_the_sync_functions_say_so_inside_an_event_loop(tmp_path):
    async def wrong():
        tf.run(problems(1), tmp_path / "run", scripted_config())

    with pytest.raises(tf.TreeforgeError, match="run_async"):
        asyncio.run(wrong())


def test_progress_is_reported(tmp_path):
    seen = []
    tf.run(problems(3), tmp_path / "run", scripted_config(), on_progress=lambda p: seen.append(p.finished))
    assert seen[-1] == 3


def test_a_judge_of_ones_own_decides(tmp_path):
    class Nothing(EqualStringJudge):
        def judge(self, problem, text):
            return tf.Judgement(tf.Verdict.INCORRECT, "", "string")

    result = tf.run(problems(3), tmp_path / "run", scripted_config(), judge=Nothing())
    assert result.progress.judged > 0 == result.progress.correct


def test_the_real_checker_and_the_string_judge_agree_on_plain_numbers(tmp_path):
    tf.run(problems(3), tmp_path / "checker", scripted_config())
    tf.run(problems(3), tmp_path / "string", scripted_config(), judge=EqualStringJudge())
    assert table_bytes(tmp_path / "checker") == table_bytes(tmp_path / "string")


def test_unreadable_golds_are_reported_before_any_call(tmp_path, caplog):
    odd = [tf.make_problem("What?", "\\frac{1}{", problem_id="odd"), *problems(2)]
    with caplog.at_level(logging.WARNING, logger="treeforge"):
        tf.run(odd, tmp_path / "run", scripted_config())
    assert "1 of 3 gold answers cannot be read" in caplog.text
    assert "odd" in caplog.text


def test_no_problems_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match="no problems"):
        tf.run([], tmp_path / "run", scripted_config())


def test_truncation_is_warned_about(tmp_path, caplog):
    with caplog.at_level(logging.WARNING, logger="treeforge"):
        tf.run(problems(2), tmp_path / "run", scripted_config(max_steps=5, max_depth=5))
    assert "truncated" in caplog.text


def test_views_are_made_by_one_process_at_a_time(tmp_path):
    tf.run(problems(2), tmp_path / "run", scripted_config())
    with view_lock(RunFolder.open(tmp_path / "run")), pytest.raises(RunLockedError):
        tf.pipeline.export(tmp_path / "run")


def test_labels_are_brought_up_to_date_by_export(tmp_path):
    out = tmp_path / "run"
    tf.run(problems(2), out, scripted_config())
    tf.extend(out, problems=problems(4))
    (out / "labels" / "view.json").unlink()
    (out / "labels" / "values-00000.parquet").unlink()
    before = table_bytes(out)["dataset/data/train-00000-of-00001.parquet"]
    tf.pipeline.export(out)
    assert table_bytes(out)["dataset/data/train-00000-of-00001.parquet"] == before
    assert (out / "labels" / "view.json").exists()


def test_policy_values_are_close_to_the_truth(tmp_path):
    """The world knows every prefix's true value; estimates from many samples must come close, with honest intervals."""
    policy = tf.ScriptedPolicy()
    config = scripted_config(budget={"simulations": 60}, children=8)
    tf.run(problems(6), tmp_path / "run", config, policy=policy)
    inside = total = 0
    for number, record in tf.RunFolder.open(tmp_path / "run").records():
        values = tf.estimate(record.tree, confidence=0.9)
        problem = problems(6)[number]
        for row in range(record.tree.size):
            if values.rollouts[row] >= 20:
                truth = policy.true_value(problem, record.tree.prefix(row))
                inside += values.low[row] <= truth <= values.high[row]
                total += 1
    assert total > 50
    assert inside / total > 0.75
