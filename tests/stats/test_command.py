"""`treeforge stats` end to end."""

import json

import msgspec
import pytest
from support.folders import ended, write_run
from support.runs import EqualStringJudge, problems, scripted_config

from treeforge.cli import invoke
from treeforge.pipeline import run as run_pipeline
from treeforge.stats import Summary, summarise
from treeforge.store.run import RunFolder
from treeforge.tree import TreeBuilder


@pytest.fixture
def finished(tmp_path):
    run_pipeline(problems(4), tmp_path / "run", scripted_config(), judge=EqualStringJudge())
    return tmp_path / "run"


def test_json_is_the_summary_and_nothing_else(finished, capsys):
    assert invoke(["stats", str(finished), "--json"]) == 0
    captured = capsys.readouterr()
    assert captured.err == ""
    data = json.loads(captured.out)
    summary = msgspec.convert(data, Summary)
    assert summary == summarise(RunFolder.open(finished))
    assert list(data) == list(Summary.__struct_fields__)
    assert data["problems"]["by_status"] == {"done": 4}


def test_the_table_has_no_colours_where_there_is_no_terminal(finished, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    assert invoke(["stats", str(finished)]) == 0
    out = capsys.readouterr().out
    assert "Completions" in out
    assert "\x1b" not in out


def test_warnings_go_to_stderr(tmp_path, capsys):
    path = write_run(tmp_path / "run", [ended(TreeBuilder().freeze(), "failed", "no\x1b model"), None])
    assert invoke(["stats", str(path)]) == 0
    captured = capsys.readouterr()
    assert "warning: 1 of 2 problems failed" in captured.err
    assert "no␛ model" in captured.out
    assert "none yet: treeforge label" in captured.out


def test_what_the_checker_did_is_shown(tmp_path, capsys):
    run_pipeline(problems(4), tmp_path / "run", scripted_config())
    assert invoke(["stats", str(tmp_path / "run"), "--json"]) == 0
    checker = json.loads(capsys.readouterr().out)["checker"]
    assert checker["checks"] == sum(checker["routes"].values()) == sum(checker["verdicts"].values()) > 0
    assert len(checker["slowest"]) > 0
    assert invoke(["stats", str(tmp_path / "run")]) == 0
    out = capsys.readouterr().out
    assert "Answer checks" in out
    assert "slowest" in out
