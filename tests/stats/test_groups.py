"""Groups: every node in one of them, and their sums those of the whole."""

import csv
import io
import json
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.folders import ended, engine_error, write_run
from support.runs import problems
from support.strategies import trees

from treeforge import views
from treeforge.cli import invoke
from treeforge.problem import make_problem
from treeforge.stats import summarise
from treeforge.stats.groups import groups
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict


def found(path, by):
    return groups([("run", RunFolder.open(path))], by)


@given(st.lists(trees(), min_size=1, max_size=5))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.slow
def test_groups_add_up_to_the_run(tmp_path_factory, some):
    path = write_run(tmp_path_factory.mktemp("groups") / "run", [*some, None], block=3)
    views.label(path)
    summary = summarise(RunFolder.open(path))
    labels, outcomes = summary.labels, summary.outcomes
    for by in ("depth", "problem", "strategy", "level"):
        rows = found(path, by)
        assert sum(row.nodes for row in rows) == summary.trees.nodes
        assert sum(row.completions for row in rows) == outcomes.completions
        assert sum(row.correct for row in rows) == outcomes.correct
        assert sum(row.positive for row in rows) == labels.positive
        assert sum(row.negative for row in rows) == labels.negative
        assert sum(row.unlabelled for row in rows) == labels.unlabelled
        truncated = sum((row.truncated_share or 0) * row.completions for row in rows)
        assert truncated == pytest.approx(outcomes.by_finish["truncated"])
    whole = found(path, "strategy")[0]
    assert whole.group == "mcts"
    assert whole.share_correct == outcomes.share_correct
    assert whole.accuracy == (pytest.approx(outcomes.pass_at[0].share) if outcomes.pass_at else None)
    assert whole.mean_interval == (pytest.approx(labels.interval_width) if labels.interval_width else None)
    depths = found(path, "depth")
    assert [row.nodes for row in depths] == list(summary.trees.nodes_by_depth)
    assert [row.problems for row in depths] == [
        sum(int(tree.depth.max()) >= depth for tree in some) for depth in range(len(depths))
    ]


def chain(depth, verdict, tokens=10):
    builder = TreeBuilder()
    node = 0
    for step in range(depth - 1):
        node = builder.add(node, f"{step}\n", token_count=tokens)
    builder.add(node, "7", token_count=1, finish=Finish.ANSWERED, answer="7", verdict=verdict)
    return builder.freeze()


@pytest.fixture
def by_hand(tmp_path):
    """Tree 2 is spilled, with an own rollout of 9 tokens; 3 is open, 4 failed."""
    builder = TreeBuilder()
    node = builder.add(0, "a\n", token_count=5)
    builder.multiplicity[node] = 2
    builder.rollouts[node] = 1
    failed = ended(TreeBuilder().freeze(), "failed", "HTTP 500\n\x1b[2J")
    failed = type(failed)(failed.problem_id, failed.tree, (engine_error(0),), failed.status, failed.reason)
    levels = ["Level 10", 2, "Level 10", None, ["odd"]]
    named = [
        make_problem(p.question, p.gold_answer, problem_id=p.problem_id, meta={"level": level})
        for p, level in zip(problems(5), levels, strict=True)
    ]
    some = [chain(2, Verdict.CORRECT), chain(3, Verdict.INCORRECT), builder.freeze(), None, failed]
    return write_run(tmp_path / "run", some, problems=named)


def test_depths_by_hand(by_hand):
    rows = found(by_hand, "depth")
    assert [(r.group, r.problems, r.nodes, r.completions, r.tokens) for r in rows] == [
        ("0", 4, 4, 0, 0),
        ("1", 3, 3, 1, 10 + 10 + 2 * 5 + 9),
        ("2", 2, 2, 1, 1 + 10),
        ("3", 1, 1, 1, 1),
    ]
    assert [row.share_correct for row in rows] == [None, 0.0, 1.0, 0.0]


def test_problems_have_their_status_and_reason(by_hand):
    rows = found(by_hand, "problem")
    assert [(r.group, r.status, r.nodes, r.tokens) for r in rows] == [
        ("sum-0", "done", 3, 11),
        ("sum-1", "done", 4, 21),
        ("sum-2", "done", 2, 19),
        ("sum-3", "open", 0, 0),
        ("sum-4", "failed", 1, 0),
    ]
    assert rows[4].reason == "HTTP 500 ↵ ␛[2J"
    assert [r.problems for r in rows] == [1, 1, 1, 0, 1]


def test_levels_in_order_and_without(by_hand):
    rows = found(by_hand, "level")
    assert [(r.group, r.problems, r.nodes) for r in rows] == [("2", 1, 4), ("10", 2, 5), ("none", 1, 1)]
    assert rows[1].share_correct == 0.5


def test_strategies_of_several_runs(by_hand, tmp_path):
    other = write_run(tmp_path / "other", [chain(2, Verdict.CORRECT)], strategy="best-of-n")
    more = write_run(tmp_path / "more", [chain(2, Verdict.CORRECT), chain(2, Verdict.CORRECT)])
    runs = [(path.name, RunFolder.open(path)) for path in (by_hand, other, more)]
    rows = groups(runs, "strategy")
    assert [(r.run, r.group, r.problems, r.correct) for r in rows] == [("", "mcts", 6, 3), ("other", "best-of-n", 1, 1)]
    assert rows[0].accuracy == pytest.approx((1 + 0 + 0 + 1 + 1) / 5)


def test_the_command_in_every_shape(by_hand, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert invoke(["stats", str(by_hand), "--by", "depth", "--json"]) == 0
    assert [row["nodes"] for row in json.loads(capsys.readouterr().out)] == [4, 3, 2, 1]
    assert invoke(["stats", str(by_hand), "--by", "problem", "--csv"]) == 0
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    assert Counter(row["status"] for row in rows) == {"done": 3, "open": 1, "failed": 1}
    assert rows[3]["share_correct"] == ""
    for by in ("depth", "problem", "level", "strategy"):
        assert invoke(["stats", str(by_hand), "--by", by]) == 0
        out = capsys.readouterr().out
        assert "\x1b" not in out
        assert "…" not in out
        assert max(map(len, out.splitlines())) <= 80
    other = write_run(tmp_path / "other", [chain(2, Verdict.CORRECT)])
    assert invoke(["stats", str(by_hand), str(other), "--by", "level"]) == 0
    assert {line.split()[0] for line in capsys.readouterr().out.splitlines()} >= {"run", "other"}


def test_long_lists_are_cut_and_told(tmp_path, capsys):
    path = write_run(tmp_path / "run", [None] * 405, block=405)
    assert invoke(["stats", str(path), "--by", "problem"]) == 0
    assert "5 more" in capsys.readouterr().err
