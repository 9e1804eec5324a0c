"""Options that could do nothing in a command as it is given are refused before anything is read or made."""

import pytest

from treeforge.cli import invoke

RUN = ["run", "problems.jsonl", "--out", "out", "--policy", "scripted"]
ANNOTATE = ["annotate", "given.jsonl", "--out", "out", "--policy", "scripted"]
IMPORT = ["import", "rows.jsonl", "--out", "out", "--format"]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([*RUN, "--keep", "0.1..0.9"], "--keep is about the solutions of --screen"),
        ([*ANNOTATE, "--labelled", "x.jsonl", "--dry-run"], "--labelled is written at the run's end"),
        ([*ANNOTATE, "--tag", "ки"], "--tag is for --format math-shepherd; plain rows have none"),
        ([*ANNOTATE, "--format", "prm", "--tag", "+"], "--tag is for --format math-shepherd; prm has none"),
        ([*ANNOTATE, "--format", "prm", "--unfinished"], "--unfinished is for plain rows"),
        ([*ANNOTATE, "--format", "prm", "--solution-field", "x"], "--solution-field is for plain rows"),
        ([*IMPORT, "prm", "--tag", "ки"], "--tag is for --format math-shepherd; prm has none"),
        ([*IMPORT, "math-shepherd", "--neutral", "skip"], "--neutral is for --format prm800k"),
        ([*IMPORT, "math-shepherd", "--finished-only"], "--finished-only is for --format prm800k"),
        (["push", "RUN", "owner/name", "--private", "--public"], "--private and --public"),
    ],
)
def test_refused(command, message, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke(command) == 2
    assert message in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "command",
    [
        [*RUN, "--keep", "0.1..0.9", "--screen", "4"],
        [*RUN, "--keep", "0.1..0.9", "--set", "search.screen=4"],
        [*ANNOTATE, "--format", "math-shepherd", "--tag", "+"],
        [*IMPORT, "prm800k", "--neutral", "positive", "--finished-only"],
        [*IMPORT, "math-shepherd", "--tag", "+"],
    ],
)
def test_where_they_mean_something_only_the_file_is_missing(command, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert invoke(command) == 2
    assert f"{command[1]}" in capsys.readouterr().err
