"""`treeforge annotate` from file to shards: the command, stops and replay, views, and what is refused."""

from __future__ import annotations

import asyncio
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from msgspec.structs import replace
from support.runs import problems, scripted_config, table_bytes

import treeforge as tf
from treeforge import pipeline, views
from treeforge.cli import invoke
from treeforge.config import CompressConfig, ExportConfig, LabelConfig, Machine, RunConfig
from treeforge.errors import ConfigError, RecipeChangedError, RunError, StorageError
from treeforge.label.check_policy import check_policy
from treeforge.policy import ScriptedPolicy, World
from treeforge.problem import Problem
from treeforge.recipes import load_config
from treeforge.sample import Request
from treeforge.stats import quality
from treeforge.store.given import GIVEN, GivenSolutions, given_table
from treeforge.store.parquet import read_table
from treeforge.tree import Finish
from treeforge.value import estimate

WORLD = {"error_rate": 0.2, "branching": 8}
STRATEGIES = ("step-rollouts", "omega", "adaptive")


def solutions_of(questions: list[Problem], count: int = 3) -> dict[str, list[str]]:
    """Solutions that another, worse policy wrote."""
    policy = ScriptedPolicy(World(error_rate=0.35, branching=8))
    requests = [
        Request(problem=p, prefix="", n=count, mode="rollout", seed=number, digest=b"", tree=0)
        for number, p in enumerate(questions)
    ]
    return {r.problem.problem_id: [sample.text for sample in policy.sample_now(r) or ()] for r in requests}


def config(strategy: str = "step-rollouts", *, world: dict[str, Any] | None = None, **options: Any) -> RunConfig:
    return scripted_config(strategy=strategy, world=WORLD | (world or {}), **options)


def annotate(path: Path, strategy: str = "step-rollouts", count: int = 5, **options: Any) -> Any:
    questions = problems(count)
    return tf.annotate(questions, solutions_of(questions), path, config(strategy, **options), source="given.jsonl")


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("annotate") / "run"
    annotate(path)
    return path


@pytest.fixture
def run(grown: Path, tmp_path: Path) -> Path:
    return shutil.copytree(grown, tmp_path / "run")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    questions = problems(5)
    file = tmp_path / "given.jsonl"
    with file.open("w") as stream:
        for question in questions:
            for text in solutions_of(questions)[question.problem_id]:
                row = {"id": question.problem_id, "question": question.question, "answer": question.gold_answer}
                stream.write(json.dumps(row | {"steps": text.split("\n")}) + "\n")
    return file


# From file to shards --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_command_labels_exports_and_replays(strategy: str, file: Path, tmp_path: Path, capsys: Any) -> None:
    out = tmp_path / "run"
    command = ["annotate", str(file), "--out", str(out), "--completer", "scripted", "--strategy", strategy]
    assert invoke([*command, "--children", "4", "--set", "policy.scripted.error_rate=0.2", "--quiet"]) == 0
    shown = capsys.readouterr().out
    assert "5 done" in shown
    assert "load_dataset" in shown
    rows = pl.read_parquet(out / "dataset" / "data" / "train-*.parquet")
    assert rows.height > 50
    assert set(rows["estimator"]) == {"smoothed" if strategy == "adaptive" else "policy_mean"}
    file.unlink()
    assert invoke(["replay", str(out)]) == 0
    assert "are the same bytes" in capsys.readouterr().out
    for words in (["show", str(out), "sum-1"], ["stats", str(out)], ["label", str(out), "--set", "threshold=0"]):
        assert invoke(words) == 0


def test_labels_are_what_the_worlds_true_values_say(tmp_path: Path) -> None:
    annotate(tmp_path / "run", count=20, children=64)
    policy, questions = ScriptedPolicy(World(**WORLD)), problems(20)
    errors = []
    for number, record in tf.RunFolder.open(tmp_path / "run").records():
        tree = record.tree
        values = estimate(tree)
        for row in range(1, tree.size):
            true = policy.true_value(questions[number], tree.prefix(row))
            if tree.finish[row] == Finish.OPEN:
                assert values.rollouts[row] == 64
                spread = (true * (1 - true) / 64) ** 0.5
                errors.append((values.value[row] - true) / spread if spread else 0.0)
            else:
                assert values.value[row] == true, "an end has its verdict"
    assert len(errors) > 250
    assert max(map(abs, errors)) < 5
    assert abs(np.mean(errors)) < 0.25
    assert 0.8 < np.std(errors) < 1.2


def test_the_manifest_and_the_file_say_what_was_given(grown: Path) -> None:
    folder = tf.RunFolder.open(grown)
    section = folder.manifest["given"]
    assert (section["solutions"], section["format"]) == (15, "rows")
    table = read_table(grown / "given.parquet", GIVEN)
    assert table.num_rows == section["steps"]
    questions = problems(5)
    texts = {i: solutions_of(questions)[p.problem_id] for i, p in enumerate(questions)}
    given = GivenSolutions(folder)
    for number in (0, 3, 1, 4, 9):
        assert ["".join(solution.steps) for solution in given.of(number)] == texts.get(number, [])


@pytest.mark.parametrize("source", ["rows", "steps", "texts"])
def test_the_same_solutions_give_the_same_trees_however_they_come(
    source: str, grown: Path, file: Path, tmp_path: Path
) -> None:
    questions = problems(5)
    written: Any = solutions_of(questions)
    if source == "rows":
        read = tf.read_solutions(file, config().recipe)
        questions, written = list(read.problems), read.solutions
    elif source == "steps":
        written = {name: [text.split("\n") for text in texts] for name, texts in written.items()}
    tf.annotate(questions, written, tmp_path / "run", config())
    name = "trees/nodes-00000.parquet"
    assert (tmp_path / "run" / name).read_bytes() == (grown / name).read_bytes()


def test_the_same_solution_twice_is_asked_once(tmp_path: Path) -> None:
    question = problems(1)
    written = solutions_of(question, 1)
    once = tf.annotate(question, written, tmp_path / "once", config())
    twice = tf.annotate(question, {name: texts * 2 for name, texts in written.items()}, tmp_path / "twice", config())
    assert once.progress.requests == twice.progress.requests == 7
    assert tf.RunFolder.open(tmp_path / "twice").manifest["given"]["solutions"] == 2


def test_answers_at_once_make_a_run_without_a_request(tmp_path: Path) -> None:
    question = problems(1)
    result = tf.annotate(question, {"sum-0": ["The answer is 0."]}, tmp_path / "run", config())
    assert (result.statuses, result.progress.requests) == ({"done": 1}, 0)
    assert result.dataset.rows["hrm"] == {"train": 1}


# Stops, resume, replay ------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_slots_and_failures_leave_no_trace(strategy: str, tmp_path: Path) -> None:
    for name, concurrency in (("one", 1), ("many", 64)):
        world = {"latency": 0.0005, "latency_sigma": 1.0, "failure_rate": 0.1}
        annotate(tmp_path / name, strategy, world=world, machine=Machine(concurrency=concurrency, backoff=0.001))
    assert table_bytes(tmp_path / "one") == table_bytes(tmp_path / "many")


def test_a_run_that_was_cut_short_goes_on_without_the_file_and_the_same_command_goes_on_too(
    grown: Path, tmp_path: Path
) -> None:
    questions = problems(5)
    limited = config(budget={"run_rollouts": 100})
    first = tf.annotate(questions, solutions_of(questions), tmp_path / "run", limited)
    assert first.statuses["exhausted"]
    result = tf.extend(tmp_path / "run", budget={"run_rollouts": 0})
    assert result.statuses == {"done": 5}
    before = table_bytes(tmp_path / "run")
    same = "trees/nodes-00000.parquet"
    assert before[same] == table_bytes(grown)[same]
    assert tf.resume(tmp_path / "run").progress.requests == 0
    assert table_bytes(tmp_path / "run") == before


def test_the_same_call_goes_on_and_other_solutions_are_refused(run: Path) -> None:
    questions = problems(5)
    before = table_bytes(run)
    result = tf.annotate(questions, solutions_of(questions), run, config())
    assert result.progress.requests == 0
    assert table_bytes(run) == before
    with pytest.raises(RecipeChangedError, match="given solutions: the run has '15 of"):
        tf.annotate(questions, solutions_of(questions, 2), run, config())
    with pytest.raises(RecipeChangedError, match=r"search\.given"):
        tf.run(questions, run, config())


def test_replay_brings_the_solutions_along(run: Path, tmp_path: Path) -> None:
    found = pipeline.replay(run, tmp_path / "again")
    assert set(found.files.values()) == {"same"}
    assert "given.parquet" in found.files
    assert tf.resume(tmp_path / "again").statuses == {"done": 5}


@pytest.mark.parametrize("harm", ["lost", "damaged", "changed"])
def test_a_file_of_solutions_that_is_not_the_runs_own_is_noticed(harm: str, run: Path) -> None:
    path = run / "given.parquet"
    if harm == "lost":
        path.unlink()
    elif harm == "damaged":
        content = bytearray(path.read_bytes())
        content[len(content) // 3] ^= 255
        path.write_bytes(content)
    else:
        from treeforge.store.parquet import write_table

        table = read_table(path, GIVEN)
        write_table(table.slice(0, table.num_rows - 1), path)
    with pytest.raises(StorageError, match=r"given\.parquet is missing, damaged or changed"):
        pipeline.replay(run)
    assert views.label(run)["nodes"] > 0, "what was grown can still be used"


def test_a_run_in_the_place_of_one_that_never_started_leaves_no_solutions_behind(tmp_path: Path) -> None:
    questions = problems(2)

    class NoStart(ScriptedPolicy):
        async def start(self) -> None:
            raise tf.TreeforgeError("no model")

    with pytest.raises(tf.TreeforgeError, match="no model"):
        tf.annotate(questions, solutions_of(questions), tmp_path / "run", config(), policy=NoStart())
    assert (tmp_path / "run" / "given.parquet").exists()
    tf.run(questions, tmp_path / "run", scripted_config())
    assert not (tmp_path / "run" / "given.parquet").exists()
    assert pipeline.replay(tmp_path / "run").same


# The stages after it --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("estimator", ["policy_mean", "leaf_share", "visit_mean", "smoothed"])
def test_every_estimator_labels_every_given_step(estimator: Any, run: Path) -> None:
    report = views.label(run, LabelConfig(estimator=estimator))
    assert report["unlabelled"] == 0
    assert views.export(run).rows["hrm"]


def test_all_formats_of_the_labelled_solutions(run: Path) -> None:
    names = ("prm", "math-shepherd", "processbench", "prm800k", "nodes", "hrm", "orm", "sft", "preference", "kto", "rl")
    rows = views.export(run, ExportConfig(formats=names, validation_share=0.0)).rows
    assert rows["prm"] == rows["math-shepherd"] == rows["processbench"] == {"train": 15}
    assert all(rows[name] for name in names)
    prm = pl.read_parquet(run / "dataset" / "data" / "train-*.parquet")
    questions = problems(5)
    texts = {"".join(steps) for steps in prm["completions"].to_list()}
    assert texts == {text for written in solutions_of(questions).values() for text in written}
    bench = pl.read_parquet(run / "dataset" / "processbench" / "train-*.parquet")
    assert set(bench["generator"]) == {"given.jsonl"}, "the policy did not write them"
    card = (run / "dataset" / "README.md").read_text()
    assert "Given solutions" in card
    assert "given.jsonl" in card


@pytest.mark.parametrize("merge", [True, False])
def test_labels_go_back_to_the_rows_they_came_from(merge: bool, tmp_path: Path) -> None:
    first, second = problems(2)
    begin = "Step 1: going way 1 we get 17."
    rows = [
        (first, [begin, "Step 2: going way 1 we get 27.", "The answer is 0."]),
        (second, ["Step 1: going way 2 we get 14.", "The answer is 7."]),
        (first, [begin, "The answer is 0."]),
        (first, [begin, "Step 2: going way 1 we get 27.", "The answer is 0."]),
        (first, ["The answer is 0.", "Then we look whether that can be so."]),
    ]
    file = tmp_path / "given.jsonl"
    lines = [json.dumps({"question": p.question, "answer": p.gold_answer, "steps": steps}) for p, steps in rows]
    file.write_text("\n".join(lines))
    command = ["annotate", str(file), "--out", str(tmp_path / "run"), "--policy", "scripted", "--quiet"]
    command += ["--set", f"search.merge_duplicates={str(merge).lower()}", "--labelled", str(tmp_path / "out.jsonl")]
    assert invoke(command) == 0
    found = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [line["row"] for line in found] == [1, 3, 4, 5, 2]
    trees = {record.problem_id: record.tree for _, record in tf.RunFolder.open(tmp_path / "run").records()}
    for line in found:
        question, steps = rows[line["row"] - 1]
        assert (line["prompt"], line["completions"]) == (question.question, steps)
        tree = trees[line["problem_id"]]
        values = estimate(tree)
        assert [tree.text[node].strip() for node in line["nodes"]] == steps
        assert line["values"] == values.value[line["nodes"]].tolist()
        assert line["labels"] == [value > 0.5 for value in line["values"]]
        assert line["rollouts"] == values.rollouts[line["nodes"]].tolist()
    assert [line["correct"] for line in found] == [True, True, True, None, False]
    assert (found[0]["nodes"] == found[2]["nodes"]) is merge
    again = tf.read_solutions(tmp_path / "out.jsonl", format="prm")
    assert [len(solutions) for solutions in again.solutions.values()] == [4, 1]


def test_labels_of_rows_never_go_over_what_was_read(file: Path, tmp_path: Path, capsys: Any) -> None:
    """Said before anything is asked, not after hours."""
    (tmp_path / "folder").mkdir()
    (tmp_path / "link.jsonl").hardlink_to(file)
    (tmp_path / "golds.jsonl").write_text(json.dumps({"question": "Q?", "answer": "3"}) + "\n")
    before = file.read_bytes()
    command = ["annotate", str(file), "--out", str(tmp_path / "run"), "--policy", "scripted", "-q"]
    command += ["--problems", str(tmp_path / "golds.jsonl"), "--labelled"]
    for name, why in (
        ("given.jsonl", "is read by this command"),
        ("link.jsonl", "is read by this command"),
        ("golds.jsonl", "is read by this command"),
        ("folder", "is a folder"),
        ("run/manifest.json", "would be among the run's own files"),
        ("run/dataset/data/train-00000-of-00001.parquet", "would be among the run's own files"),
    ):
        assert invoke([*command, str(tmp_path / name)]) == 2
        assert f"--labelled: {tmp_path / name} {why}" in capsys.readouterr().err
    assert file.read_bytes() == before
    assert not (tmp_path / "run").exists()
    assert invoke([*command, str(tmp_path / "run" / "labelled.jsonl")]) == 0
    assert (tmp_path / "run" / "labelled.jsonl").exists()


def test_labels_of_rows_need_given_solutions_and_labels(run: Path, tmp_path: Path) -> None:
    shutil.rmtree(run / "labels")
    with pytest.raises(RunError, match="treeforge label"):
        list(tf.labelled_solutions(run))
    tf.run(problems(1), tmp_path / "other", scripted_config())
    with pytest.raises(RunError, match="no given solutions"):
        list(tf.labelled_solutions(tmp_path / "other"))


def test_hnc_merges_nothing(tmp_path: Path) -> None:
    """A step with many next ones: its value does not rest on them, so that none can take its evidence away."""
    question = problems(1)
    written = {"sum-0": [["a", f"b{n}", f"c{n}", "The answer is 0."] for n in range(6)]}
    tf.annotate(question, written, tmp_path / "run", config())
    report = views.compress(tmp_path / "run", CompressConfig(probability=1.0))
    assert report["merges"] == 0


def test_a_recheck_turns_given_ends_too(tmp_path: Path) -> None:
    question = problems(2)[1]
    written = {question.problem_id: [["Step 1: going way 1 we get 17.", "The answer is 2 cm."]]}
    tf.annotate([question], written, tmp_path / "run", config())
    report = views.recheck(tmp_path / "run", check_policy("strict"))
    assert report["negative"] >= 1
    assert views.own_verdicts(tmp_path / "run")["nodes"] == 2


def test_labels_are_compared_with_peoples(tmp_path: Path) -> None:
    question = problems(1)[0]
    steps = ["Step 1: going way 1 we get 17.", "Step 2: going way 1 we get 24.", "The answer is 1."]
    row = {"problem": question.question, "steps": steps, "label": 1, "final_answer_correct": False}
    file = tmp_path / "bench.jsonl"
    file.write_text(json.dumps(row) + "\n")
    read = tf.read_solutions(file, config().recipe, format="processbench", problems=[question])
    settings = replace(config(children=32), label=LabelConfig(threshold=0.5))
    tf.annotate(read.problems, read.solutions, tmp_path / "run", settings, format=read.format)
    found = quality.quality(tmp_path / "run", file)
    assert found.first_errors.solutions == 1
    assert found.steps.steps == 2


def test_a_dry_run_is_the_beginning_of_the_run(file: Path, tmp_path: Path, capsys: Any) -> None:
    command = ["annotate", str(file), "--out", str(tmp_path / "run"), "--policy", "scripted", "--quiet", "--json"]
    assert invoke([*command, "--dry-run", "--limit", "6"]) == 0
    assert json.loads(capsys.readouterr().out)["pilot_problems"] == 2
    assert invoke([*command, "--limit", "6"]) == 0
    assert json.loads(capsys.readouterr().out)["progress"]["requests"] == 0


# What is refused ------------------------------------------------------------------------------------------------------


def test_strategies_that_sample_their_own_are_refused_by_name(file: Path, tmp_path: Path, capsys: Any) -> None:
    command = ["annotate", str(file), "--out", str(tmp_path / "run"), "--policy", "scripted", "--strategy", "mcts"]
    assert invoke(command) == 2
    error = capsys.readouterr().err
    assert "step-rollouts, omega, adaptive" in error
    assert not (tmp_path / "run").exists()
    questions = problems(1)
    with pytest.raises(ConfigError, match="step-rollouts, omega, adaptive"):
        tf.annotate(questions, solutions_of(questions), tmp_path / "run", scripted_config())


def test_bad_rows_are_named_or_skipped(file: Path, tmp_path: Path, capsys: Any) -> None:
    with file.open("a") as stream:
        stream.write(json.dumps({"question": "Q?", "answer": None, "solution": "a"}) + "\n")
    command = ["annotate", str(file), "--out", str(tmp_path / "run"), "--policy", "scripted", "--quiet"]
    assert invoke(command) == 2
    assert "given.jsonl:16: field 'answer'" in capsys.readouterr().err
    assert invoke([*command, "--skip-bad-rows"]) == 0
    assert "given.jsonl:16" in capsys.readouterr().err


def test_gold_answers_from_another_file(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "golds.jsonl").write_text(json.dumps({"id": "p", "question": "Q?", "answer": "3"}) + "\n")
    row = {"question": "Q?", "solution": "Step 1: going way 1 we get 17.\nThe answer is 3."}
    (tmp_path / "given.jsonl").write_text(json.dumps(row) + "\n")
    command = ["annotate", str(tmp_path / "given.jsonl"), "--out", str(tmp_path / "run"), "--policy", "scripted", "-q"]
    assert invoke(command) == 2
    assert "given.jsonl:1: there is no answer field" in (told := capsys.readouterr().err)
    assert "gold answers by --problems" in told
    assert invoke([*command, "--id-field", "key"]) == 2
    assert "--problems" not in capsys.readouterr().err
    assert invoke([*command, "--problems", str(tmp_path / "golds.jsonl")]) == 0
    assert tf.RunFolder.open(tmp_path / "run").problems[0].problem_id == "p"


def test_problems_without_solutions_cannot_be_added(run: Path) -> None:
    with pytest.raises(ConfigError, match="treeforge annotate"):
        tf.extend(run, problems=problems(6))
    with pytest.raises(ConfigError, match=r"search\.given"):
        tf.run(problems(1), run.parent / "other", replace_given(config()))


def test_problems_with_their_solutions_are_added_and_make_the_trees_of_one_run(tmp_path: Path) -> None:
    questions = problems(7)
    written = solutions_of(questions)
    whole, run = tmp_path / "whole", tmp_path / "run"
    tf.annotate(questions, written, whole, config())
    tf.annotate(questions[:5], {p.problem_id: written[p.problem_id] for p in questions[:5]}, run, config())

    result = tf.extend(run, problems=questions, solutions=written)
    assert result.statuses == {"done": 7}
    assert result.progress.finished == 7
    made, once = table_bytes(run), table_bytes(whole)
    assert made.keys() == once.keys()
    assert {n for n in made if made[n] != once[n]} <= {"dataset/README.md"}, "the card counts the extension"
    assert read_table(run / "given.parquet", GIVEN).equals(read_table(whole / "given.parquet", GIVEN))
    section = tf.RunFolder.open(whole).manifest["given"] | {"source": "", "format": "rows"}
    assert tf.RunFolder.open(run).manifest["given"] == section
    assert pipeline.replay(run).same
    again = tf.annotate(questions, written, run, config())
    assert (again.statuses, again.progress.requests) == ({"done": 7}, 0)
    with pytest.raises(ConfigError, match="nothing to add"):
        tf.extend(run, problems=questions[:2], solutions={p.problem_id: written[p.problem_id] for p in questions[:2]})


def test_further_solutions_of_a_problem_are_refused_under_whatever_id(run: Path) -> None:
    known = problems(1)[0]
    other = tf.make_problem(known.question, known.gold_answer, problem_id="other")
    with pytest.raises(ConfigError, match="problem 'other' has other solutions"):
        tf.extend(run, problems=[other], solutions={"other": ["The answer is 0."]})
    same = {"other": solutions_of([known])["sum-0"]}
    with pytest.raises(ConfigError, match="nothing to add"):
        tf.extend(run, problems=[other], solutions=same)


def test_solutions_cannot_be_added_to_a_run_that_samples_its_own(tmp_path: Path) -> None:
    tf.run(problems(1), tmp_path / "run", scripted_config())
    with pytest.raises(ConfigError, match="treeforge extend"):
        tf.extend(tmp_path / "run", problems=problems(2), solutions=solutions_of(problems(2)))


def test_an_extension_that_was_killed_between_its_files_is_made_again(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(Exception):
        pass

    def killed(self: Any) -> None:
        raise Killed

    questions = problems(7)
    before = table_bytes(run)
    for method in ("write_manifest", "write_problems"):
        with monkeypatch.context() as patch:
            patch.setattr(tf.RunFolder, method, killed)
            with pytest.raises(Killed):
                tf.extend(run, problems=questions, solutions=solutions_of(questions))
        assert tf.resume(run).statuses == {"done": 5}, "the run is what it was"
        assert pipeline.replay(run).same
        after = table_bytes(run)
        assert all(after[name] == before[name] for name in after if name.startswith(("trees/", "dataset/data/")))
    only = {"sum-5": solutions_of(questions)["sum-5"]}
    assert tf.extend(run, problems=questions[5:6], solutions=only).statuses == {"done": 6}
    assert tf.RunFolder.open(run).manifest["given"]["solutions"] == 18


def test_the_command_adds_the_problems_of_a_longer_file(file: Path, tmp_path: Path, capsys: Any) -> None:
    rows = file.read_text().splitlines(keepends=True)
    command = ["annotate", str(file), "--out", str(tmp_path / "run"), "--policy", "scripted", "-q"]
    file.write_text("".join(rows[:6]))
    assert invoke(command) == 0
    file.write_text("".join(rows))
    assert invoke(command) == 2
    assert "--extend" in capsys.readouterr().err
    assert invoke([*command, "--extend", "--labelled", str(tmp_path / "labelled.jsonl")]) == 0
    assert [json.loads(line)["row"] for line in (tmp_path / "labelled.jsonl").open()] == list(range(1, 16))
    assert invoke([*command, "--extend", "--strategy", "omega"]) == 2
    assert "search.strategy" in capsys.readouterr().err


def replace_given(settings: RunConfig) -> RunConfig:
    recipe = settings.recipe
    return replace(settings, recipe=replace(recipe, search=replace(recipe.search, given=True)))


def test_a_preset_of_its_own_search_gives_way(tmp_path: Path) -> None:
    search = load_config(preset="hrm-paper", given=True).recipe.search
    assert (search.strategy, search.children, search.merge_duplicates, search.given) == ("step-rollouts", 8, True, True)
    chosen = load_config(overrides=["search.strategy=adaptive", "label.estimator=policy_mean"], given=True)
    assert chosen.label.estimator == "policy_mean"
    assert (search.wave, chosen.recipe.search.wave) == (32, 4)


def test_from_a_running_event_loop(tmp_path: Path) -> None:
    questions = problems(2)

    async def main() -> Any:
        with pytest.raises(RunError, match="annotate_async"):
            tf.annotate(questions, solutions_of(questions), tmp_path / "other", config())
        return await tf.annotate_async(questions, solutions_of(questions), tmp_path / "run", config())

    assert asyncio.run(main()).statuses == {"done": 2}


def test_a_table_of_many_solutions_is_read_in_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treeforge.store.given._BATCH_ROWS", 5)
    questions = problems(9)
    tf.annotate(questions, solutions_of(questions), tmp_path / "run", config())
    given = GivenSolutions(tf.RunFolder.open(tmp_path / "run"))
    texts = [["".join(solution.steps) for solution in given.of(number)] for number in range(9)]
    assert texts == [solutions_of(questions)[p.problem_id] for p in questions]
    assert given_table([given.of(number) for number in range(9)]).equals(
        read_table(tmp_path / "run" / "given.parquet", GIVEN)
    )
