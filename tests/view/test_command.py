"""`treeforge show` end to end."""

import json

import pytest
from support.folders import write_run
from support.runs import EqualStringJudge, problems, scripted_config
from support.stopping import stopped

from treeforge import views
from treeforge.cli import invoke
from treeforge.pipeline import run as run_pipeline
from treeforge.problem import make_problem
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.value import estimate
from treeforge.verdict import Verdict
from treeforge.view import load_tree

HOSTILE = "\x1b[2J[red]\u202e\r\nשלום"


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    path = tmp_path_factory.mktemp("show") / "run"
    run_pipeline(problems(5), path, scripted_config(), judge=EqualStringJudge())
    return path


@pytest.fixture
def show(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")

    def call(*arguments):
        code = invoke(["show", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def one_answer(text="7", answer="7"):
    builder = TreeBuilder()
    builder.add(0, text, finish=Finish.ANSWERED, answer=answer, verdict=Verdict.CORRECT)
    return builder.freeze()


def test_without_a_problem_all_are_listed(show, finished):
    code, out, _ = show(finished)
    assert code == 0
    heading, *lines = out.splitlines()
    assert heading.split() == ["#", "id", "status", "nodes", "correct", "question"]
    assert [line.split()[:3] for line in lines] == [[str(n), f"sum-{n}", "done"] for n in range(5)]
    _, out, err = show(finished, "--lines", 2)
    assert len(out.splitlines()) == 3
    assert "3 more problems" in err


def test_the_list_as_json(show, finished):
    _, out, _ = show(finished, "--json")
    rows = json.loads(out)
    sizes = [record.tree.size for _, record in RunFolder.open(finished).records()]
    assert [row["nodes"] for row in rows] == sizes
    assert set(rows[0]) == {
        "number",
        "problem_id",
        "status",
        "reason",
        "nodes",
        "completions",
        "share_correct",
        "question",
    }


@pytest.mark.parametrize("name", ["sum-2", "2"])
def test_a_problem_is_drawn_with_its_best_path(show, finished, name):
    code, out, err = show(finished, name)
    assert (code, err) == (0, "")
    assert out.startswith("Problem 2  sum-2  done: 8 simulations\nquestion  What is 2 + 2?\ngold      4\n")
    assert "saved by `treeforge label`" in out
    assert "(the question)" in out
    best, worst = out.split("Best path")[1].split("Worst path")
    assert best.rstrip().endswith("✓ 4")
    assert "✗" in worst.splitlines()[-1]
    assert "\x1b" not in out


def test_a_problem_as_json_has_every_node(show, finished):
    record = dict(RunFolder.open(finished).records([2]))[2]
    _, out, _ = show(finished, "sum-2", "--json")
    data = json.loads(out)
    assert data["problem"]["gold_answer"] == "4"
    assert [node["parent_id"] for node in data["nodes"]] == record.tree.parent.tolist()
    assert [node["value"] for node in data["nodes"]] == pytest.approx(estimate(record.tree).value.tolist())
    assert len(data["rollouts"]) == len(record.rollouts)
    root = data["nodes"][0]
    assert {"text", "finish", "verdict", "low", "high", "hard", "multiplicity", "merged_from"} <= set(root)
    assert (root["finish"], root["verdict"], root["hard"]) == ("open", None, None)
    best = data["best_path"]
    assert best["nodes"] == record.tree.path(best["nodes"][-1])
    assert best["rollout"]["verdict"] == "correct"


def test_a_node_and_its_json(show, finished):
    _, out, _ = show(finished, "sum-2", "--node", 3)
    assert "Node 3" in out
    assert "Own rollouts" in out
    _, out, _ = show(finished, "sum-2", "--node", 3, "--json")
    data = json.loads(out)
    record = dict(RunFolder.open(finished).records([2]))[2]
    assert data["prefix"] == record.tree.prefix(3)
    assert data["node"]["node_id"] == 3
    assert len(data["rollouts"]) == record.tree.rollouts[3]


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["nobody"], "no problem 'nobody'"),
        (["sum"], "'sum' is the start of 5 problems' ids"),
        (["sum-1", "--node", 4_000], "has the nodes 0 to"),
    ],
)
def test_what_is_not_there_is_usage(show, finished, arguments, complaint):
    code, out, err = show(finished, *arguments)
    assert (code, out) == (2, "")
    assert complaint in err


def test_options_reach_the_outline(show, finished):
    _, out, _ = show(finished, "sum-2", "--depth", 0)
    assert out.count("├") == out.count("└") == 0
    assert "nodes are shown: down to depth 0." in out
    _, out, _ = show(finished, "sum-2", "--lines", 10)
    assert "--lines" in out


def test_a_tree_that_grows_is_shown_as_far_as_it_is(show, tmp_path):
    path = stopped(tmp_path / "run", 9)
    code, out, err = show(path, "sum-0")
    assert code == 0
    assert "├" in out
    assert "grows still" in err
    code, out, _ = show(path, "sum-0", "--json")
    assert (json.loads(out)["status"], len(json.loads(out)["nodes"]) > 1) == ("open", True)
    assert show(path, "sum-0", "--node", 1)[0] == 0


def test_a_tree_that_still_grows(show, tmp_path):
    path = write_run(tmp_path / "run", [one_answer(), None])
    code, out, err = show(path, "sum-1")
    assert code == 0
    assert "open" in out
    assert "has not begun yet" in err
    code, out, _ = show(path, "sum-1", "--json")
    assert json.loads(out)["status"] == "open"
    code, out, err = show(path, "sum-1", "--node", 0)
    assert (code, out) == (2, "")
    # Its neighbour is spilled, and has no labels yet.
    code, out, _ = show(path, "sum-0")
    assert code == 0
    assert "estimated now" in out


def test_saved_values_are_used_only_while_they_are_of_these_trees(tmp_path):
    path = write_run(tmp_path / "run", [one_answer(), None], block=4)
    views.label(path)
    assert load_tree(RunFolder.open(path), 0).saved
    with RunFolder.open(path) as run:
        run.lock()
        run.finish(1, next(record for _, record in run.records([0])))
    shown = load_tree(RunFolder.open(path), 0)
    assert not shown.saved
    assert shown.values.value.tolist() == [1.0, 1.0]
    assert shown.hard.tolist() == [-1, 1]


def test_hostile_problems_and_trees(show, tmp_path):
    problem = make_problem(HOSTILE, HOSTILE, problem_id=HOSTILE)
    path = write_run(tmp_path / "run", [one_answer(HOSTILE, HOSTILE)], problems=[problem])
    for arguments in ([], [0], [0, "--full"], [0, "--node", 1]):
        code, out, _ = show(path, *arguments)
        assert code == 0
        assert all(character.isprintable() or character == "\n" for character in out)
        assert "[red]" in out
        assert "שלום" in out
    _, out, _ = show(path, 0, "--json")
    assert json.loads(out)["nodes"][1]["text"] == HOSTILE
