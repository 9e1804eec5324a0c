"""An imported file is a run: the stages that need no model work on it, and those that need one say that they cannot."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from support.runs import problems, scripted_config, table_bytes

from treeforge import pipeline, views
from treeforge.cli import invoke
from treeforge.config import CompressConfig, LabelConfig
from treeforge.errors import ConfigError, RunError, StorageError
from treeforge.importing import import_file
from treeforge.store.run import RunFolder


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """Two problems of another engine: five continuations of one step each, with values."""
    file = tmp_path / "file.jsonl"
    with file.open("w") as stream:
        for question in ("P?", "Q?"):
            ends = [{"text": f"So \\boxed{{{n}}}", "mc_value": n / 4} for n in range(5)]
            first = {"text": "First.", "mc_value": 0.75, "children": ends}
            row = {"text": question, "mc_value": 0.5, "children": [first]}
            stream.write(json.dumps({"question": question, "final_answer": "3", "reasoning_steps": row}) + "\n")
    import_file(file, "openr", tmp_path / "run")
    return tmp_path / "run"


def test_the_same_file_gives_the_same_bytes(run: Path, tmp_path: Path) -> None:
    import_file(tmp_path / "file.jsonl", "openr", tmp_path / "again")
    assert table_bytes(tmp_path / "again") == table_bytes(run)


def test_labels_are_made_again_from_what_was_read(run: Path) -> None:
    before = table_bytes(run)
    for file in (run / "labels").iterdir():
        file.unlink()
    report = views.label(run)
    assert table_bytes(run) == before
    assert (report["positive"], report["negative"]) == (6, 6)
    # Another threshold is another view of the same values.
    assert views.label(run, LabelConfig(estimator="imported", threshold=0.8))["positive"] == 2


@pytest.mark.parametrize("estimator", ["policy_mean", "leaf_share", "visit_mean", "human"])
def test_values_that_it_does_not_have_are_refused(run: Path, estimator: str) -> None:
    before = table_bytes(run), (run / "manifest.json").read_text()
    assert invoke(["label", str(run), "--set", f"estimator={estimator}"]) == 2
    with pytest.raises(RunError):
        views.label(run, LabelConfig(estimator=estimator))  # type: ignore[arg-type]
    assert (table_bytes(run), (run / "manifest.json").read_text()) == before


def test_a_run_that_was_grown_has_no_such_labels(tmp_path: Path) -> None:
    config = scripted_config()
    pipeline.run(problems(2), tmp_path / "grown", config)
    with pytest.raises(RunError, match="no labels of the estimator 'imported'"):
        views.label(tmp_path / "grown", LabelConfig(estimator="imported"))
    from msgspec.structs import replace

    with pytest.raises(ConfigError, match=r"label\.estimator"):
        pipeline.run(problems(2), tmp_path / "other", replace(config, label=LabelConfig(estimator="human")))
    assert not (tmp_path / "other").exists()


def test_nothing_grows_it_or_takes_its_trees_away(run: Path) -> None:
    before = table_bytes(run)
    for command in (["extend", str(run), "--budget", "simulations=99"], ["replay", str(run)]):
        assert invoke(command) == 2
    assert invoke(["resume", str(run), "--quiet"]) == 0
    assert {name: content for name, content in table_bytes(run).items() if name in before} == before


def test_merges_move_no_value(run: Path) -> None:
    report = views.compress(run, CompressConfig(probability=1.0))
    assert report["merges"] == 2
    assert report["shift_max"] == report["hard_flips"] == 0
    nodes = pq.read_table(views.export(run).path / "nodes").to_pylist()
    before = {(row["tree_id"], row["node_id"]): row for row in nodes if row["compressed"] == 0}
    after = [row for row in nodes if row["compressed"] == 1]
    assert sum(bool(row["merged_from"]) for row in after) == 2
    for row in after:
        same = before[row["tree_id"], row["node_id"]]
        assert (row["value"], row["hard"], row["soft"]) == (same["value"], same["hard"], same["soft"])
        assert row["text"] == ("First.\n" if row["merged_from"] else "") + same["text"]


def test_an_export_says_where_its_labels_come_from(run: Path) -> None:
    summary = views.export(run)
    rows = pq.read_table(summary.path / "data").to_pylist()
    assert {row["estimator"] for row in rows} == {"imported"}
    assert {(row["rollouts"], row["low"], row["high"]) for row in rows} == {(0, None, None)}
    card = (summary.path / "README.md").read_text()
    assert "values that another engine gave" in card
    assert "sampled continuations" not in card
    assert "treeforge import FILE --format openr --out RUN" in card
    assert "temperature" not in card


def test_stats_and_show(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["stats", str(run), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["labels"]["config"]["estimator"] == "imported"
    assert (found["labels"]["positive"], found["outcomes"]["correct"]) == (6, 2)
    assert invoke(["show", str(run), "0"]) == 0
    assert "imported, labels from elsewhere" in capsys.readouterr().out
    assert invoke(["show", str(run), "0", "--node", "1"]) == 0
    shown = capsys.readouterr().out
    assert "0.75" in shown
    assert "nan" not in shown
    for file in (run / "labels").iterdir():
        file.unlink()
    assert invoke(["show", str(run), "0"]) == 0
    assert "0.75" in capsys.readouterr().out


def test_a_recheck_leaves_the_labels(run: Path) -> None:
    before = table_bytes(run)["labels/values-00000.parquet"]
    views.recheck(run)
    assert table_bytes(run)["labels/values-00000.parquet"] == before


def test_values_that_are_gone_are_named(run: Path) -> None:
    (run / "trees" / "values-00000.parquet").unlink()
    with pytest.raises(StorageError, match=r"values-00000\.parquet"):
        views.label(run, LabelConfig(estimator="imported", threshold=0.1))


def test_more_problems_than_a_block(tmp_path: Path) -> None:
    file = tmp_path / "file.jsonl"
    with file.open("w") as stream:
        for n in [*range(300), *range(300)]:  # a problem's rows need not stand together
            stream.write(json.dumps({"prompt": f"Q{n}?", "completions": ["a"], "labels": [n % 2]}) + "\n")
    report = import_file(file, "prm", tmp_path / "run")
    assert (report.problems, report.rows, report.positive) == (300, 600, 300)
    run = RunFolder.open(tmp_path / "run")
    assert len(list(run.records())) == 300
    assert all(record.tree.size == 3 for _, record in run.records())
    assert sorted(path.name for path in (tmp_path / "run" / "trees").iterdir()) == [
        f"{kind}-{block:05d}.parquet" for kind in ("nodes", "rollouts", "values") for block in (0, 1)
    ]
