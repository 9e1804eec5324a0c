"""Answers judged again by another policy: what changes, what follows it, and what must stay as it is."""

import json
import shutil

import polars as pl
import pytest
from msgspec.structs import replace
from support.folders import engine_error, write_run
from support.runs import EqualStringJudge, problems, scripted_config, table_bytes

import treeforge as tf
from treeforge.cli import invoke
from treeforge.config import JudgeConfig, LabelConfig
from treeforge.disputed import disputed_answers
from treeforge.label import PRESETS
from treeforge.recheck import endings, rejudged
from treeforge.recipes import named_check_policy
from treeforge.store.run import RunFolder
from treeforge.store.tables import VALUES
from treeforge.store.verdicts import NewVerdict
from treeforge.store.views import read_view, view_state
from treeforge.tree import Finish, Rollout, TreeBuilder, TreeRecord
from treeforge.verdict import Judgement, Verdict
from treeforge.view import load_tree

CORRECT, INCORRECT = int(Verdict.CORRECT), int(Verdict.INCORRECT)
ANSWERED, STOP, TRUNCATED = int(Finish.ANSWERED), int(Finish.STOP), int(Finish.TRUNCATED)
STRICT = PRESETS["strict"]


def ending(text, answer, verdict, node=1):
    return Rollout(node, ("so\n", text), answer, verdict, ANSWERED, 9, -1.0)


def lengths():
    """Gold answer `10 cm`, under `default`: 4 completions leave the unit out, 1 has it, 2 are wrong, 1 is cut off."""
    builder = TreeBuilder()
    builder.add(0, "Think.\n", token_count=2)
    short = builder.add(1, "The answer is 10.", token_count=5, finish=ANSWERED, answer="10", verdict=CORRECT)
    builder.multiplicity[short] = 3.0
    builder.add(1, "The answer is 10 cm.", token_count=6, finish=ANSWERED, answer="10 cm", verdict=CORRECT)
    builder.add(0, "The answer is 11.", token_count=5, finish=ANSWERED, answer="11", verdict=INCORRECT)
    builder.rollouts[1], builder.rollouts_correct[1], builder.rollouts_truncated[1] = 3, 1, 1
    rollouts = (
        ending("The answer is 10.", "10", CORRECT),
        ending("The answer is 12 cm.", "12 cm", INCORRECT),
        Rollout(1, ("and on\n",), "", int(Verdict.NO_ANSWER), TRUNCATED, 9, -1.0),
        engine_error(1),
    )
    return TreeRecord("length", builder.freeze(), rollouts, "done", "")


def plain():
    builder = TreeBuilder()
    builder.add(0, "The answer is 7.", token_count=5, finish=ANSWERED, answer="7", verdict=CORRECT)
    builder.add(0, "The answer is 8.", token_count=5, finish=ANSWERED, answer="8", verdict=INCORRECT)
    return TreeRecord("plain", builder.freeze(), (), "done", "")


@pytest.fixture
def crafted(tmp_path):
    """Three problems, one of them open, labelled and exported."""
    golds = {"length": "10 cm", "plain": "7", "open": "5"}
    asked = [tf.make_problem(f"Find {name}.", gold, problem_id=name) for name, gold in golds.items()]
    run = write_run(tmp_path / "run", [lengths(), plain(), None], problems=asked)
    folder = RunFolder.open(run)
    folder.manifest |= {"versions": {"treeforge": "0"}, "problems": {"source": "by hand"}}
    folder.write_manifest()
    tf.pipeline.compress(run)
    tf.pipeline.export(run)
    return run


def files(run):
    """Every file but the journal and the locks, by name."""
    found = (f for f in run.rglob("*") if f.is_file() and "journal" not in f.name and not f.name.endswith("lock"))
    return {str(f.relative_to(run)): f.read_bytes() for f in found}


def trees(run):
    return {name: content for name, content in files(run).items() if name.startswith("trees/")}


def test_the_difference_is_counted(crafted):
    report = tf.pipeline.recheck(crafted, STRICT)
    found = report["recheck"]
    assert (found["judged"], found["changed"], found["problems"]) == (9, 4, 1)
    (change,) = found["verdicts"]
    assert (change["before"], change["after"], change["completions"], change["answers"]) == (
        "correct",
        "incorrect",
        4,
        1,
    )
    (example,) = change["examples"]
    assert (example["completions"], example["problem_id"], example["answer"]) == (4, "length", "10")
    # Step 1 falls from (1 + 3 + 1) / 7 to 1 / 7, and `10` itself from 1 to 0.
    assert (found["steps"], found["values_changed"], found["labels_changed"]) == (4, 2, 2)
    assert found["labels"] == {"positive to negative": 2}
    table = pl.read_parquet(crafted / "labels" / "values-00000.parquet").filter(tree_id=0)
    assert table["value"].to_list() == pytest.approx([1 / 14, 1 / 7, 0.0, 1.0, 0.0])


def test_the_trees_stay_and_the_same_recheck_gives_the_same_bytes(crafted):
    grown = trees(crafted)
    tf.pipeline.recheck(crafted, STRICT)
    first = files(crafted)
    assert trees(crafted) == grown
    assert "verdicts/verdicts-00000.parquet" in first
    shutil.rmtree(crafted / "verdicts")
    shutil.rmtree(crafted / "labels")
    tf.pipeline.recheck(crafted, STRICT)
    assert files(crafted) == first


@pytest.mark.parametrize("back", ["recheck", "own_verdicts"])
def test_the_own_policy_gives_every_byte_back(crafted, back):
    before = files(crafted)
    tf.pipeline.recheck(crafted, STRICT)
    tf.pipeline.export(crafted)
    assert files(crafted) != before
    report = getattr(tf.pipeline, back)(crafted)
    tf.pipeline.export(crafted)
    assert "recheck" not in report
    assert files(crafted) == before


def test_export_follows_the_recheck_and_says_so(crafted):
    def exported():
        table = pl.read_parquet(crafted / "dataset" / "nodes" / "*.parquet").filter(
            (pl.col("problem_id") == "length") & (pl.col("compressed") == 0)
        )
        return table.sort("node_id")

    before = exported()
    tf.pipeline.recheck(crafted, STRICT)
    tf.pipeline.export(crafted)
    after = exported()
    assert before["hard"].to_list() == [None, True, True, True, False]
    assert after["hard"].to_list() == [None, False, False, True, False]
    assert before["rollouts_correct"][1] == 1
    assert after["rollouts_correct"][1] == 0
    card = (crafted / "dataset" / "README.md").read_text()
    assert "rechecked by policy | strict" in card
    assert "treeforge label RUN --recheck --preset strict\n" in card
    compressed = view_state(RunFolder.open(crafted), "compressed")["config"]
    assert compressed["recheck"]["policy"]["name"] == "strict"


def test_the_manifest_names_policy_and_digest(crafted):
    tf.pipeline.recheck(crafted, named_check_policy("default", ["units=exact"]))
    section = RunFolder.open(crafted).manifest["recheck"]
    assert (section["policy"]["name"], section["policy"]["units"]) == ("custom", "exact")
    assert len(section["digest"]) == 12
    tf.pipeline.export(crafted)
    card = (crafted / "dataset" / "README.md").read_text()
    assert 'treeforge label RUN --recheck --preset default --set check.units="exact"\n' in card


def test_settings_of_the_labels_and_the_recheck_are_independent(crafted):
    tf.pipeline.recheck(crafted, STRICT)
    tf.pipeline.label(crafted, LabelConfig(threshold=0.1))
    table = pl.read_parquet(crafted / "labels" / "values-00000.parquet").filter(tree_id=0)
    assert table["hard"].to_list() == [None, True, False, True, False]  # 1 / 7 > 0.1


def test_a_recheck_that_was_cut_short_is_made_up_for(crafted):
    tf.pipeline.recheck(crafted, STRICT)
    tf.pipeline.export(crafted)
    whole = files(crafted)
    for left in ("verdicts/view.json", "labels/view.json"):
        (crafted / left).unlink()
        tf.pipeline.export(crafted)
        assert files(crafted) == whole, left


def test_trees_that_end_later_are_rechecked_too(tmp_path):
    class Never(EqualStringJudge):
        def judge(self, problem, text):
            return Judgement(Verdict.INCORRECT, super().judge(problem, text).answer, "string")

    run = tmp_path / "run"
    tf.run(problems(3), run, scripted_config(), judge=Never())
    tf.pipeline.recheck(run)
    tf.extend(run, problems=problems(5), judge=Never())
    added = read_view(RunFolder.open(run), "labels", "values", VALUES, 1)
    assert set(added["tree_id"].to_pylist()) == {4}
    assert any(added["hard"].to_pylist())


def test_a_tree_that_was_grown_again_is_judged_again(crafted):
    """As after `resume --retry-errors`: another tree under the same number, with the same status and reason."""
    tf.pipeline.recheck(crafted, STRICT)
    with RunFolder.open(crafted) as folder:
        folder.lock()
        folder.reopen([0])
        folder.finish(0, plain())
    tf.pipeline.export(crafted)
    values = pl.read_parquet(crafted / "labels" / "values-00000.parquet").filter(tree_id=0)
    assert len(values) == plain().tree.size
    changed = pl.read_parquet(crafted / "verdicts" / "verdicts-00000.parquet").filter(tree_id=0)
    assert changed["answer"].to_list() == ["7"]  # right for the other problem, and wrong for this one


def test_a_recheck_is_what_the_search_would_have_judged(tmp_path):
    """An exhaustive tree grows alike whatever its verdicts are, so growing it with another judge is the oracle."""

    class Backwards(EqualStringJudge):
        def judge(self, problem, text):
            said = super().judge(problem, text)
            turned = {Verdict.CORRECT: Verdict.UNDECIDED, Verdict.INCORRECT: Verdict.CORRECT}
            return Judgement(turned.get(said.verdict, said.verdict), said.answer, "string")

    config = scripted_config(strategy="exhaustive", levels=3, children=3)
    tf.run(problems(6), tmp_path / "checker", config)
    tf.run(problems(6), tmp_path / "other", config, judge=Backwards())
    wanted, wrong = (table_bytes(tmp_path / name) for name in ("checker", "other"))
    tf.pipeline.recheck(tmp_path / "other")
    tf.pipeline.export(tmp_path / "other")
    found = table_bytes(tmp_path / "other")
    followed = [name for name in wanted if name.startswith(("labels/", "compressed/", "dataset/data/"))]
    assert len(followed) >= 4
    for name in followed:
        assert found[name] == wanted[name] != wrong[name], name


def test_the_own_checker_changes_nothing_in_a_grown_run(tmp_path):
    for strategy in ("mcts", "exhaustive"):
        run = tmp_path / strategy
        tf.run(problems(4), run, scripted_config(strategy=strategy))
        before = files(run)
        assert "recheck" not in tf.pipeline.recheck(run)
        tf.pipeline.export(run)
        assert files(run) == before


def test_the_recipes_own_policy_is_the_default(tmp_path):
    config = scripted_config()
    recipe = replace(config.recipe, judge=JudgeConfig(policy="strict"))
    tf.run(problems(2), tmp_path / "run", replace(config, recipe=recipe))
    assert "recheck" not in tf.pipeline.recheck(tmp_path / "run")
    assert tf.pipeline.recheck(tmp_path / "run", PRESETS["default"])["recheck"]["changed"] == 0


def test_a_stop_with_an_answer_is_answered():
    builder = TreeBuilder()
    builder.add(0, "It is 7", finish=STOP, verdict=int(Verdict.NO_ANSWER))
    builder.rollouts[0] = 1
    stopped = Rollout(0, ("7",), "", int(Verdict.NO_ANSWER), STOP, 1, 0.0)
    record = TreeRecord("p", builder.freeze(), (stopped,), "done", "")
    new = [NewVerdict(1, -1, CORRECT, "7", "string", ""), NewVerdict(0, 0, CORRECT, "7", "string", "")]
    after = rejudged(record, new)
    after.tree.check()
    assert (after.tree.finish[1], after.tree.answer[1], after.tree.rollouts_correct[0]) == (ANSWERED, "7", 1)
    assert (after.rollouts[0].finish, after.rollouts[0].answer) == (ANSWERED, "7")
    assert record.tree.finish[1] == STOP


def test_only_what_was_judged_is_judged_again():
    found = list(endings(lengths()))
    assert [(e.node, e.rollout, e.completions) for e in found] == [
        (2, -1, 3),
        (3, -1, 1),
        (4, -1, 1),
        (1, 0, 1),
        (1, 1, 1),
    ]


def test_a_run_without_trees_says_so(tmp_path):
    run = write_run(tmp_path / "run", [None])
    with pytest.raises(tf.TreeforgeError, match="no finished tree"):
        tf.pipeline.recheck(run, STRICT)
    assert "recheck" not in RunFolder.open(run).manifest


def test_show_has_the_new_verdicts(crafted):
    assert load_tree(RunFolder.open(crafted), 0).record.tree.verdict[2] == CORRECT
    tf.pipeline.recheck(crafted, STRICT)
    shown = load_tree(RunFolder.open(crafted), 0)
    assert (shown.record.tree.verdict[2], shown.values.value[2]) == (INCORRECT, 0.0)


# The command line -----------------------------------------------------------------------------------------------------


def test_label_recheck_prints_the_difference(crafted, capsys):
    assert invoke(["label", str(crafted), "--recheck", "--preset", "strict"]) == 0
    out = capsys.readouterr().out
    assert "4 of 9 completions changed, in 1 problems" in out
    assert "2 positive to negative" in out
    assert "treeforge export" in out
    assert invoke(["label", str(crafted), "--recheck", "--set", "check.units=exact", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["recheck"]["verdicts"][0]["examples"][0]["gold_answer"] == "10 cm"
    assert report["positive"] == 2
    assert invoke(["label", str(crafted)]) == 0
    assert "Rechecked by the policy custom" in capsys.readouterr().out
    assert invoke(["label", str(crafted), "--no-recheck"]) == 0
    assert "Rechecked" not in capsys.readouterr().out
    assert invoke(["stats", str(crafted)]) == 0
    assert "rechecked" not in capsys.readouterr().out


def test_stats_names_the_recheck(crafted, capsys):
    invoke(["label", str(crafted), "--recheck", "--preset", "strict"])
    capsys.readouterr()
    assert invoke(["stats", str(crafted), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["labels"]["recheck"]["policy"]["name"] == "strict"
    invoke(["stats", str(crafted)])
    assert "4 of 9 answers changed" in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--preset", "strict"], "add --recheck"),
        (["--set", "check.units=exact"], "add --recheck"),
        (["--no-recheck", "--preset", "strict"], "add --recheck"),
        (["--recheck", "--preset", "loose"], "presets are default, strict"),
        (["--recheck", "--set", "check.units=some"], "exact, optional"),
        (["--recheck", "--set", "unit=some"], "unknown field `unit`"),
        (["--disputed", "--recheck"], "leave --recheck"),
    ],
)
def test_what_cannot_be_is_refused_and_changes_nothing(crafted, capsys, options, says):
    before = files(crafted)
    assert invoke(["label", str(crafted), *options]) == 2
    assert says in capsys.readouterr().err
    assert files(crafted) == before


# Disputed answers -----------------------------------------------------------------------------------------------------


@pytest.fixture
def disputed(tmp_path):
    """One problem a kind, with the answer that makes it so."""
    rows = [
        ("unit", "10 cm", "10", 5, CORRECT),
        ("digits", "\\pi", "3.1416", 4, CORRECT),
        ("garbled", "7", "\\frac{\x1b[31m", 3, int(Verdict.UNPARSABLE)),
        ("gold", "\\frac{1}{", "2", 2, int(Verdict.UNDECIDED)),
        ("other judge", "8", "8", 1, INCORRECT),
        ("clear", "9", "9", 9, CORRECT),
    ]
    records = []
    for _, _, answer, count, verdict in rows:
        builder = TreeBuilder()
        text = f"The answer is \\boxed{{{answer}}}." if "frac" not in answer else f"$${answer}$$"
        node = builder.add(0, text, token_count=5, finish=ANSWERED, answer=answer, verdict=verdict)
        builder.multiplicity[node] = float(count)
        records.append(TreeRecord("", builder.freeze(), (), "done", ""))
    asked = [tf.make_problem(f"{name}?", gold, problem_id=name) for name, gold, *_ in rows]
    return write_run(tmp_path / "run", records, problems=asked)


def test_disputed_answers_come_most_frequent_first(disputed):
    before = files(disputed)
    report = disputed_answers(RunFolder.open(disputed))
    assert files(disputed) == before
    assert (report.judged, report.disputed, report.policy) == (24, 15, "default")
    assert [(a.problem_id, a.completions, a.why) for a in report.answers] == [
        ("unit", 5, ("preset",)),
        ("digits", 4, ("numeric", "preset")),
        ("garbled", 3, ("unparsable",)),
        ("gold", 2, ("undecided",)),
        ("other judge", 1, ("changed",)),
    ]
    assert report.answers[0].others == {"strict": "incorrect"}
    assert report.answers[4].others == {"search": "incorrect"}
    assert report.by_why == {"preset": 9, "numeric": 4, "unparsable": 3, "undecided": 2, "changed": 1}


def test_the_same_answer_to_the_same_gold_is_one_row(tmp_path):
    builder = TreeBuilder()
    builder.add(0, "The answer is 10.", finish=ANSWERED, answer="10", verdict=CORRECT)
    record = TreeRecord("", builder.freeze(), (), "done", "")
    asked = [tf.make_problem(f"{i}?", "10 cm", problem_id=f"p{i}") for i in range(3)]
    run = write_run(tmp_path / "run", [record] * 3, problems=asked)
    (answer,) = disputed_answers(RunFolder.open(run)).answers
    assert (answer.completions, answer.problem_id) == (3, "p0")


def test_after_a_recheck_its_policy_is_the_measure(disputed):
    tf.pipeline.recheck(disputed, STRICT)
    report = disputed_answers(RunFolder.open(disputed))
    unit = next(answer for answer in report.answers if answer.problem_id == "unit")
    assert (report.policy, unit.verdict) == ("strict", "incorrect")
    assert unit.others["default"] == unit.others["search"] == "correct"


def test_label_disputed_prints_safely(disputed, capsys):
    assert invoke(["label", str(disputed), "--disputed", "--limit", "3"]) == 0
    captured = capsys.readouterr()
    assert "\x1b" not in captured.out
    assert "15 of 24 completions are disputed under the policy default" in captured.out
    assert "2 more answers" in captured.err
    assert invoke(["label", str(disputed), "--disputed", "--limit", "2", "--json"]) == 0
    assert [a["problem_id"] for a in json.loads(capsys.readouterr().out)["answers"]] == ["unit", "digits"]
