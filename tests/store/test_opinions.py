"""Second opinions: what is taken in, what is refused, and what they do to labels."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pyarrow.parquet as pq
import pytest
from support.runs import problems, scripted_config

from treeforge import pipeline, views
from treeforge.cli import invoke
from treeforge.config import LabelConfig
from treeforge.errors import DataError
from treeforge.store.opinions import Opinions, add_opinions
from treeforge.store.run import RunFolder


@pytest.fixture(scope="module")
def grown(tmp_path_factory):
    path = tmp_path_factory.mktemp("opinions") / "run"
    pipeline.run(problems(3), path, scripted_config(strategy="step-rollouts"))
    return path


@pytest.fixture
def run(grown, tmp_path):
    shutil.copytree(grown, tmp_path / "run")
    return tmp_path / "run"


def write(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def hard_labels(path, tree):
    table = pq.read_table(path / "labels" / "values-00000.parquet", columns=["tree_id", "hard"])
    return [
        hard for number, hard in zip(*(column.to_pylist() for column in table.columns), strict=True) if number == tree
    ]


def contrary(path, tree, node):
    return float(not hard_labels(path, tree)[node])


def test_opinions_stand_beside_until_agreement_is_asked_for(run, tmp_path):
    before = hard_labels(run, 0)
    rows = [
        {"problem_id": "sum-0", "node_id": 1, "value": contrary(run, 0, 1)},
        {"tree_id": 0, "node_id": 2, "value": float(before[2])},
    ]
    report = views.second_opinions(run, write(tmp_path / "judge.jsonl", *rows))
    assert (report["second_agree"], report["second_disagree"], report["second_filtered"]) == (1, 1, 0)
    assert hard_labels(run, 0) == before

    report = views.label(run, LabelConfig(second="agree"))
    assert report["second_filtered"] == report["unlabelled"] == 1
    after = hard_labels(run, 0)
    assert after[1] is None
    assert after[2:] == before[2:]
    table = pq.read_table(run / "labels" / "values-00000.parquet", columns=["soft"])
    assert not np.isnan(table.column("soft").to_numpy()[1]), "the value is ours, and stays"


def test_new_opinions_make_labels_and_shards_stale(run, tmp_path):
    views.second_opinions(run, write(tmp_path / "a.jsonl", {"tree_id": 1, "node_id": 1, "value": contrary(run, 1, 1)}))
    views.label(run, LabelConfig(second="agree"))
    add_opinions(
        RunFolder.open(run), write(tmp_path / "b.jsonl", {"tree_id": 1, "node_id": 2, "value": contrary(run, 1, 2)})
    )
    views.export(run)
    assert hard_labels(run, 1)[1:3] == [None, None]


def test_a_source_is_replaced_and_others_stay(run, tmp_path):
    opened = RunFolder.open(run)
    assert add_opinions(opened, write(tmp_path / "a.jsonl", {"tree_id": 0, "node_id": 1, "value": 0.2})) == 1
    both = write(
        tmp_path / "b.jsonl",
        {"tree_id": 0, "node_id": 1, "value": True, "source": "a"},
        {"tree_id": 0, "node_id": 1, "value": 0.3, "source": "prm"},
    )
    assert add_opinions(opened, both) == 2
    rows = pq.read_table(run / "opinions" / "opinions.parquet").to_pylist()
    assert [(row["source"], row["value"]) for row in rows] == [("a", 1.0), ("prm", 0.3)]


def test_opinions_inside_the_band_say_nothing(run, tmp_path):
    add_opinions(
        RunFolder.open(run),
        write(tmp_path / "a.jsonl", *({"tree_id": 0, "node_id": n, "value": 0.45} for n in range(1, 5))),
    )
    opinions = Opinions(RunFolder.open(run), LabelConfig(band=0.1, second="agree"))
    hard = np.ones(40, dtype=np.int8)
    assert opinions.filter(0, hard) is hard
    assert opinions.filter(2, hard) is hard, "a tree without opinions"
    strict = Opinions(RunFolder.open(run), LabelConfig(second="agree"))
    assert strict.filter(0, hard)[:6].tolist() == [1, -1, -1, -1, -1, 1]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"problem_id": "sum-9", "node_id": 1, "value": 1}, "problem_id.*no problem of this run"),
        ({"node_id": 1, "value": 1}, "problem_id.*is missing"),
        ({"tree_id": 3, "node_id": 1, "value": 1}, "tree_id.*no tree of this run"),
        ({"tree_id": True, "node_id": 1, "value": 1}, "tree_id"),
        ({"tree_id": 0, "node_id": 0, "value": 1}, "node_id.*no step"),
        ({"tree_id": 0, "node_id": 5000, "value": 1}, "node_id.*there is no node 5000"),
        ({"tree_id": 0, "node_id": 1, "value": 1.5}, "value.*no value"),
        ({"tree_id": 0, "node_id": 1, "value": "good"}, "value.*no value"),
        ({"tree_id": 0, "node_id": 1}, "value"),
        ({"tree_id": 0, "node_id": 1, "value": 1, "source": ""}, "source"),
        ({"tree_id": 0, "node_id": 2, "value": 0.5}, "value.*another value of the same step"),
    ],
)
def test_rows_that_fit_no_step_are_named_and_nothing_is_taken_in(run, tmp_path, row, message):
    file = write(tmp_path / "bad.jsonl", {"tree_id": 0, "node_id": 2, "value": 0.1}, row)
    with pytest.raises(DataError, match=rf"bad\.jsonl:2: field '{message}"):
        add_opinions(RunFolder.open(run), file)
    assert not (run / "opinions").exists()


def test_an_empty_file_is_named(run, tmp_path):
    with pytest.raises(DataError, match="has no row"):
        add_opinions(RunFolder.open(run), write(tmp_path / "empty.jsonl"))


def test_the_command_takes_opinions_in(run, tmp_path, capsys):
    file = write(tmp_path / "judge.jsonl", {"tree_id": 0, "node_id": 1, "value": contrary(run, 0, 1)})
    assert invoke(["label", str(run), "--second", str(file), "--set", "second=agree", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["second_filtered"] == 1
    assert invoke(["label", str(run), "--second", str(file), "--no-recheck"]) == 2


def test_a_replay_has_the_same_opinions(run, tmp_path):
    views.second_opinions(run, write(tmp_path / "a.jsonl", {"tree_id": 1, "node_id": 1, "value": contrary(run, 1, 1)}))
    views.label(run, LabelConfig(second="agree"))
    views.export(run)
    assert set(pipeline.replay(run).files.values()) == {"same"}
