"""Training rows out of exports and files of their shapes."""

import json

import pytest
from support.runs import problems, scripted_config

import treeforge as tf
from treeforge.errors import DataError
from treeforge.reward.base import Window
from treeforge.reward.data import read_data


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A run with all exports that are trained on."""
    folder = tmp_path_factory.mktemp("run") / "run"
    tf.run(problems(16), folder, scripted_config(world={"depth": 3}, strategy="exhaustive", levels=4, children=4))
    tf.pipeline.compress(folder, tf.CompressConfig(probability=1))
    tf.pipeline.export(folder, tf.ExportConfig(formats=("hrm", "nodes", "prm", "orm", "sft"), validation_share=0.2))
    return folder


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def rows_of(*labels, **more):
    return [
        {"prompt": f"q{n}", "previous": "", "current": f"s{n}", "span": 1, "hard": label, "problem_id": f"p{n}", **more}
        for n, label in enumerate(labels)
    ]


def test_what_each_task_reads_of_a_run(run):
    hrm = read_data(run, "hrm")
    plain = read_data(run, "hrm", hnc=False)
    prm = read_data(run, "prm")
    orm = read_data(run, "orm")
    assert len(hrm.train) > len(plain.train) > len(prm.train) > 0
    assert not hrm.train.problems() & hrm.validation.problems()
    assert len(hrm.validation) > 0
    assert all(not window.previous for window in orm.train.windows(slice(None)))
    assert len(hrm.train.paths()) > 0
    assert any(name.startswith("train: train-00000") for name in hrm.files)


def test_an_export_and_a_file_of_it_are_read_alike(run):
    folder = read_data(run / "dataset", "prm", eval_share=0)
    shard = next((run / "dataset" / "data").glob("train-*.parquet"))
    file = read_data(shard, "prm", eval_share=0)
    assert len(file.train) == len(folder.train)
    assert len(file.validation) == 0
    assert "no problem is held out" in file.notes[0]


def test_chains_become_steps_and_pairs(tmp_path):
    row = {
        "prompt": "q",
        "completions": ["a\n", "b\n", "c\n"],
        "labels": [True, False, True],
        "values": [0.9, 0.1, 0.8],
    }
    path = write(tmp_path / "rows.jsonl", [{**row, "prompt": f"q{n}"} for n in range(4)])
    found = read_data(path, "hrm", eval_share=0)
    assert found.train.windows([0, 1, 2, 3, 4]) == [
        Window("q0", "", "a\n"),
        Window("q0", "a\n", "b\n"),
        Window("q0", "", "a\nb\n"),
        Window("q0", "a\nb\n", "c\n"),
        Window("q0", "a\n", "b\nc\n"),
    ]
    assert found.train.hard[:5].tolist() == [1, 0, 0, 1, 1]
    assert found.train.soft[:5].tolist() == [0.9, 0.1, 0.1, 0.8, 0.8]
    assert len(read_data(path, "prm", eval_share=0).train) == 12


def test_problems_are_held_out_whole(tmp_path):
    rows = [{**row, "current": f"s{k}"} for row in rows_of(*[True, False] * 10) for k in range(3)]
    found = read_data(write(tmp_path / "rows.jsonl", rows), "prm", eval_share=0.3)
    assert len(found.validation) % 3 == 0
    assert 0 < len(found.validation.problems()) < 20
    assert not found.train.problems() & found.validation.problems()


def test_rows_without_the_label_are_left_out_and_counted(tmp_path):
    rows = rows_of(*[True, False] * 6) + rows_of(None, None, soft=0.4)
    path = write(tmp_path / "rows.jsonl", rows)
    found = read_data(path, "prm", eval_share=0)
    assert len(found.train) == 12
    assert "2 rows of train have no hard label" in found.notes[0]
    assert len(read_data(path, "prm", soft=True, eval_share=0).train) == 14


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([True] * 3, "has 3 training rows"),
        ([True] * 20, "labelled right"),
        ([False] * 20, "labelled wrong"),
        ([], "has 0 training rows"),
    ],
)
def test_too_little_to_learn_from(labels, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_data(write(tmp_path / "rows.jsonl", rows_of(*labels)), "prm", eval_share=0)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ({"text": "a"}, r"rows\.jsonl:1: has the columns text"),
        ({"prompt": 3, "previous": "", "current": "a", "span": 1, "hard": True}, r":1: field 'prompt'"),
        ({"prompt": "q", "previous": "", "current": "a", "span": 1, "hard": 7}, r":1: field 'hard'"),
        ({"prompt": "q", "previous": "", "span": 1, "hard": True}, r":1: field 'current': is missing"),
        ({"prompt": "q", "completions": ["a", "b"], "labels": [True]}, "1 labels for 2 steps"),
    ],
)
def test_a_row_of_another_shape(row, message, tmp_path):
    with pytest.raises(DataError, match=message):
        read_data(write(tmp_path / "rows.jsonl", [row]), "prm")


def test_a_file_that_is_no_json(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"prompt": "q", "prev')
    with pytest.raises(DataError, match=r"rows\.jsonl:1"):
        read_data(path, "prm")


def test_what_is_not_there(run, tmp_path):
    with pytest.raises(DataError, match="no such file"):
        read_data(tmp_path / "nowhere", "hrm")
    with pytest.raises(DataError, match="no file of rows"):
        read_data(tmp_path, "hrm")
    tf.pipeline.export(run, tf.ExportConfig(formats=("nodes",)), out=tmp_path / "nodes only")
    with pytest.raises(DataError, match="--format orm"):
        read_data(tmp_path / "nodes only", "orm")


def test_a_problem_in_both_splits(tmp_path):
    folder = tmp_path / "data"
    folder.mkdir()
    write(folder / "train-0.jsonl", rows_of(*[True, False] * 6))
    write(folder / "validation-0.jsonl", rows_of(True))
    with pytest.raises(DataError, match="both in train and in validation"):
        read_data(folder, "prm")


def test_a_part_of_the_rows_is_drawn_by_the_seed(run):
    rows = read_data(run, "hrm").train
    one, two, other = rows.draw(50, 1), rows.draw(50, 1), rows.draw(50, 2)
    assert len(one) == 50
    assert one.windows(slice(None)) == two.windows(slice(None)) != other.windows(slice(None))
    assert rows.draw(0, 1) is rows
    assert rows.draw(10**6, 1) is rows


def test_a_part_of_what_is_measured_has_whole_problems(run):
    rows = read_data(run, "prm").train
    part = rows.first_problems(60)
    assert 60 <= len(part) < len(rows)
    assert sum(len(rows.of_problems({problem})[1]) for problem in part.problems()) == len(part)
    assert rows.first_problems(0) is rows
