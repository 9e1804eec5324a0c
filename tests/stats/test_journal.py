import json
import shutil

import pytest
from support.runs import problems, scripted_config, table_bytes
from typer.testing import CliRunner

import treeforge as tf
from treeforge.cli.app import app
from treeforge.errors import RunError
from treeforge.sample import Request, Sample
from treeforge.stats.journal import journal_report
from treeforge.store.journal import Journal


def test_counts_by_hand(tmp_path):
    journal = Journal.open(tmp_path / "journal.sqlite")
    rows = [
        (Sample("a b", "stop", 3), Sample("a b", "stop", 4), Sample("é", "length", 10)),
        (Sample("a b", "stop", 5), Sample("", "delimiter", 1)),
        (Sample("HTTP 500", "error"), Sample("HTTP 500", "error")),
    ]
    for number, samples in enumerate(rows):
        request = Request(
            problem=problems(1)[0], prefix="", n=len(samples), mode="rollout", seed=0, digest=bytes([number]), tree=0
        )
        journal.record(request, samples)
    journal.close()
    report = journal_report(tmp_path, price=2.0)
    assert (report.requests, report.completions, report.tokens, report.given_up) == (3, 7, 23, 1)
    assert report.finish == {"delimiter": 1, "error": 2, "length": 1, "stop": 3}
    assert (report.truncated_tokens, report.duplicate_completions, report.duplicate_tokens) == (10, 1, 4)
    assert report.plain_bytes == 3 + 3 + 2 + 3 + 8 + 8
    assert report.cost == pytest.approx(23 * 2 / 1e6)
    assert report.bytes >= report.payload_bytes > 0


def test_no_journal(tmp_path):
    with pytest.raises(RunError, match=r"no journal\.sqlite"):
        journal_report(tmp_path)


def test_the_command_compacts_a_run_that_then_goes_on(tmp_path):
    run = tmp_path / "run"
    tf.run(problems(12), run, scripted_config())
    shutil.copytree(run, tmp_path / "other")
    before = CliRunner().invoke(app, ["journal", str(run), "--json"])
    after = CliRunner().invoke(app, ["journal", str(run), "--compact", "--json"])
    assert (before.exit_code, after.exit_code) == (0, 0)
    assert json.loads(after.stdout)["payload_bytes"] < json.loads(before.stdout)["payload_bytes"]
    assert json.loads(after.stdout)["plain_bytes"] == json.loads(before.stdout)["plain_bytes"]
    for path in (run, tmp_path / "other"):
        tf.extend(path, budget={"simulations": 10})
    assert table_bytes(run) == table_bytes(tmp_path / "other")
    shown = CliRunner().invoke(app, ["journal", str(run), "--price", "1.5"])
    assert "cost" in shown.stdout
