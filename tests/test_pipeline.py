"""The library's surface: stages as functions, sync and async, with a policy and a judge of one's own."""

import asyncio
import json
import logging

import pytest
from support.runs import EqualStringJudge, problems, scripted_config, table_bytes

import treeforge as tf
from treeforge.errors import ConfigError, PolicyUnavailableError, RunLockedError
from treeforge.label import AnswerChecker
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
    checked, compared = table_bytes(tmp_path / "checker"), table_bytes(tmp_path / "string")
    del checked["dataset/README.md"], compared["dataset/README.md"]  # the cards name their judges
    assert checked == compared


def test_unreadable_golds_are_reported_before_any_call(tmp_path, caplog):
    odd = [tf.make_problem("What?", "\\frac{1}{", problem_id="odd"), *problems(2)]
    with caplog.at_level(logging.WARNING, logger="treeforge"):
        tf.run(odd, tmp_path / "run", scripted_config())
    assert "1 of 3 gold answers cannot be read" in caplog.text
    assert "odd" in caplog.text


def test_unreadable_golds_are_reported_with_file_and_line(tmp_path, caplog):
    odd = tf.make_problem("What?", "\\frac{1}{", problem_id="odd\x1b", source="odd.jsonl")
    tf.run(problems(1), tmp_path / "run", scripted_config())
    with caplog.at_level(logging.WARNING, logger="treeforge"):
        tf.extend(tmp_path / "run", problems=[odd], lines={"odd\x1b": 7})
    assert "odd.jsonl:7, problem odd␛: gold answer" in caplog.text


def test_the_sittings_say_what_the_checker_did_in_each(tmp_path):
    judge = AnswerChecker()
    for count in (3, 5):
        path = tmp_path / "run"
        if path.exists():
            tf.extend(path, problems=problems(count), judge=judge)
        else:
            tf.run(problems(count), path, scripted_config(), judge=judge)
    tf.run(problems(5), tmp_path / "other", scripted_config(), judge=EqualStringJudge())
    notes = [json.loads(line) for line in (tmp_path / "run" / "logs" / "run.jsonl").read_text().splitlines()]
    checks = [note["checker"] for note in notes]
    assert len(checks) == 2
    assert all(note["checks"] > 0 for note in checks)
    assert sum(note["checks"] for note in checks) == judge.statistics.checks
    assert sum(note["routes"].get("string", 0) for note in checks) == judge.statistics.routes["string"]
    assert "checker" not in (tmp_path / "other" / "logs" / "run.jsonl").read_text()
    run, other = (table_bytes(tmp_path / name) for name in ("run", "other"))
    del run["dataset/README.md"], other["dataset/README.md"]
    assert run == other


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


def test_settings_of_views_outlive_resume_and_extend(tmp_path):
    out = tmp_path / "run"
    tf.run(problems(3), out, scripted_config(), policy=tf.ScriptedPolicy())
    tf.pipeline.label(out, tf.LabelConfig(threshold=0.9))
    tf.pipeline.compress(out, tf.CompressConfig(probability=0.25))
    for go_on in (lambda: tf.resume(out), lambda: tf.extend(out, problems=problems(5))):
        go_on()
        manifest = tf.RunFolder.open(out).manifest
        assert (manifest["label"]["threshold"], manifest["compress"]["probability"]) == (0.9, 0.25)
        assert "threshold | 0.9" in (out / "dataset" / "README.md").read_text()


def test_another_judge_is_refused(tmp_path):
    out = tmp_path / "run"
    tf.run(problems(2), out, scripted_config(), judge=EqualStringJudge())
    with pytest.raises(tf.TreeforgeError, match=r"judge: the run has .*EqualStringJudge.*AnswerChecker"):
        tf.extend(out, problems=problems(3))


def test_a_run_that_never_started_does_not_stand_in_the_way(tmp_path):
    class Absent(tf.ScriptedPolicy):
        async def start(self):
            raise PolicyUnavailableError("nobody there")

    out = tmp_path / "run"
    with pytest.raises(PolicyUnavailableError):
        tf.run(problems(2), out, scripted_config(seed=1), policy=Absent())
    assert tf.run(problems(3), out, scripted_config(seed=2)).statuses == {"done": 3}


def test_a_policy_that_cannot_be_made_leaves_no_folder(tmp_path):
    with pytest.raises(ConfigError, match="--server"):
        tf.run(problems(2), tmp_path / "run", tf.load_config(backend="server", model="m"))
    with pytest.raises(ConfigError, match="preset 'scripted'"):
        tf.run(problems(2), tmp_path / "run", tf.load_config(backend="scripted", preset="hrm-paper"))
    assert not (tmp_path / "run").exists()


def test_a_policy_that_returns_something_else_is_an_error_that_says_so(tmp_path):
    class Texts(tf.ScriptedPolicy):
        def sample_now(self, request):
            return None

        async def sample(self, request):
            return ["text"] * request.n

    with pytest.raises(tf.TreeforgeError, match="where a Sample is due"):
        tf.run(problems(1), tmp_path / "run", scripted_config(), policy=Texts())


def test_contradictory_golds_are_reported(tmp_path, caplog):
    twice = [tf.make_problem("What is 1 + 1?", gold, problem_id=gold) for gold in ("2", "3")]
    with caplog.at_level(logging.WARNING, logger="treeforge"):
        tf.run(twice, tmp_path / "run", scripted_config())
    assert "several gold answers" in caplog.text


def test_a_view_with_a_missing_file_is_made_again(tmp_path):
    out = tmp_path / "run"
    tf.run(problems(6), out, scripted_config(block=2))
    whole = table_bytes(out)
    for folder in ("labels", "compressed"):
        next((out / folder).glob("*-00001.parquet")).unlink()
    tf.pipeline.export(out)
    assert table_bytes(out) == whole


def test_a_lost_journal_stops_the_run(tmp_path):
    out = tmp_path / "run"
    tf.run(problems(2), out, scripted_config())
    for file in out.glob("journal.sqlite*"):
        file.unlink()
    with pytest.raises(tf.TreeforgeError, match=r"journal\.sqlite is gone"):
        tf.resume(out)


def test_one_id_with_two_texts_is_an_error_and_repeats_count_once(tmp_path):
    with pytest.raises(tf.TreeforgeError, match="different texts"):
        tf.run([*problems(2), tf.make_problem("?", "1", problem_id="sum-0")], tmp_path / "a", scripted_config())
    assert tf.run([*problems(2), *problems(2)], tmp_path / "b", scripted_config()).statuses == {"done": 2}


def test_an_answer_that_breaks_the_checker_costs_no_tree(tmp_path, monkeypatch):
    import treeforge.label.checker as checker

    def broken(*arguments, **options):
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(checker, "check", broken)
    tf.run(problems(1), tmp_path / "run", scripted_config())
    ((_, record),) = tf.RunFolder.open(tmp_path / "run").records()
    assert record.status == "done"
    assert record.tree.rollouts_undecided.sum() > 0


def test_trees_that_failed_by_a_bug_grow_again_from_the_journal(tmp_path):
    class Fragile(EqualStringJudge):
        broken = True

        def judge(self, problem, text):
            if self.broken and problem.problem_id == "sum-1":
                raise ZeroDivisionError("a bug")
            return super().judge(problem, text)

    out, judge = tmp_path / "run", Fragile()
    assert tf.run(problems(4), out, scripted_config(), judge=judge).statuses == {"done": 3, "failed": 1}
    judge.broken = False
    assert tf.resume(out, judge=judge).statuses == {"done": 3, "failed": 1}

    healed = tf.resume(out, retry_errors=True, judge=judge)
    assert healed.statuses == {"done": 4}
    assert healed.progress.replayed > 0
    tf.run(problems(4), tmp_path / "calm", scripted_config(), judge=judge)
    trees, calm = (table_bytes(folder) for folder in (out, tmp_path / "calm"))
    assert {n: b for n, b in trees.items() if n.startswith("trees/")} == {
        n: b for n, b in calm.items() if n.startswith("trees/")
    }
    nothing = tf.resume(out, retry_errors=True, judge=judge)
    assert (nothing.statuses, nothing.progress.requests, nothing.progress.replayed) == ({"done": 4}, 0, 0)


@pytest.mark.parametrize("strategy", ["step-rollouts", "adaptive", "best-of-n", "beam", "exhaustive"])
def test_more_simulations_are_refused_where_a_strategy_counts_none(tmp_path, strategy):
    out = tmp_path / "run"
    tf.run(problems(1), out, scripted_config(strategy=strategy, levels=2))
    with pytest.raises(ConfigError, match=f"{strategy} counts none"):
        tf.extend(out, budget={"simulations": 64})
    assert tf.extend(out, budget={"nodes": 0}, problems=problems(2)).statuses == {"done": 2}


@pytest.mark.parametrize("override", ["judge.policy=zzz", "export.formats=['x']", "seed=99999999999999999999999"])
def test_what_can_be_refused_before_the_search_is(tmp_path, override):
    with pytest.raises(ConfigError):
        tf.run(problems(1), tmp_path / "run", tf.load_config(overrides=[override], backend="scripted"))
    assert not (tmp_path / "run").exists()


def test_a_symbolic_worker_that_cannot_start_stops_a_run_that_may_need_it(tmp_path, monkeypatch):
    def broken(self):
        raise tf.TreeforgeError("the symbolic worker did not start")

    monkeypatch.setattr("treeforge.label.workers.SymbolicWorker.start", broken)
    numbers = [tf.make_problem("What is 1 + 1?", "2"), tf.make_problem("And 1,000.5?", " -1,000.5")]
    assert tf.run(numbers, tmp_path / "numbers", scripted_config()).statuses == {"done": 2}
    with pytest.raises(tf.TreeforgeError, match="did not start"):
        tf.run([*numbers, tf.make_problem("Half of x?", "\\frac{x}{2}")], tmp_path / "letters", scripted_config())


def test_settings_of_the_run_s_own_dataset_are_kept(tmp_path):
    run = tmp_path / "run"
    tf.run(problems(6), run, scripted_config())
    tf.pipeline.export(run, tf.ExportConfig(formats=("prm", "sft")))
    tf.pipeline.export(run, tf.ExportConfig(formats=("nodes",)), out=tmp_path / "elsewhere")
    made = {str(file.relative_to(run)) for file in (run / "dataset").rglob("*.parquet")}
    assert tf.pipeline.replay(run).same
    tf.resume(run)
    assert {str(file.relative_to(run)) for file in (run / "dataset").rglob("*.parquet")} == made
