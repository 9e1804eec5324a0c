"""Reward models' folders, outputs and servers that are not what they should be."""

import json

import pytest
from support.reward_server import RewardServer

from treeforge.cli import invoke
from treeforge.errors import ConfigError, DataError
from treeforge.reward.base import Window
from treeforge.reward.data import read_data
from treeforge.reward.saved import read_saved
from treeforge.reward.score import load_reward_model

WINDOWS = [Window("q", "", "a"), Window("q", "", "b")]


def entry(index, *probs):
    return {"index": index, "probs": list(probs)}


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ([entry(0, 0.5, 0.5), entry(-1, 0.5, 0.5)], "index -1 of 2 windows"),
        ([entry(0, 0.5, 0.5), entry(1, 0.5, 0.5), entry(0, 0.9, 0.1)], "there twice"),
        ([entry(True, 0.5, 0.5), entry(0, 0.5, 0.5)], "index True"),
        ([entry(0, 0, 10**400), entry(1, 0.5, 0.5)], "OverflowError"),
        ([entry(0, 0.2, 0.9), entry(1, 0.5, 0.5)], "do not add up to 1"),
    ],
)
def test_a_server_that_answers_nonsense(entries, said):
    with RewardServer(lambda inputs: [0.5 for _ in inputs], reply={"data": entries}) as server:
        model = load_reward_model(f"{server.url}?task=hrm")
        with pytest.raises(ConfigError, match=said):
            model.probabilities(WINDOWS)


def test_token_verdicts_that_are_too_large_for_a_number():
    choices = [{"index": 0, "logprobs": {"top_logprobs": [{"+": 10**400, "-": -1}]}}]
    with RewardServer(lambda inputs: [0.5 for _ in inputs], reply={"choices": choices}) as server:
        model = load_reward_model(f"{server.url}?task=hrm&head=token")
        with pytest.raises(ConfigError, match="OverflowError"):
            model.probabilities(WINDOWS[:1])


@pytest.mark.parametrize("text", ["[" * 100_000, '{"version": 1, "prompt": ' + "[" * 5_000 + "]" * 5_000 + "}"])
def test_a_card_that_is_nested_without_end_is_damaged(text, tmp_path):
    (tmp_path / "reward.json").write_text(text)
    with pytest.raises(DataError, match="is damaged"):
        read_saved(tmp_path)


@pytest.mark.parametrize("text", ["[]", "5", "null", "{", "\udcff", "[" * 100_000])
def test_a_folder_whose_training_cannot_be_read(text, hrm_file, tmp_path, capsys):
    out = tmp_path / "out"
    out.mkdir()
    (out / "training.json").write_text(text, errors="surrogateescape")
    assert invoke(["train", str(hrm_file), "--out", str(out), "--model", "x"]) == 2
    assert "training.json is damaged" in capsys.readouterr().err


def test_a_training_into_a_file(hrm_file, capsys):
    before = hrm_file.read_bytes()
    assert invoke(["train", str(hrm_file), "--out", str(hrm_file), "--model", "x"]) == 2
    assert "is a file; name another --out" in capsys.readouterr().err
    assert hrm_file.read_bytes() == before


def test_scores_are_not_written_over_the_model(tmp_path, capsys):
    model, rows = tmp_path / "model", tmp_path / "rows.jsonl"
    model.mkdir()
    weights = model / "model.safetensors"
    weights.write_bytes(b"weights")
    rows.write_text(json.dumps({"question": "q", "steps": ["a"]}) + "\n")
    for out in (weights, model / "x" / ".." / "new.jsonl"):
        assert invoke(["score", str(model), str(rows), "--out", str(out)]) == 2
        assert "is in the folder of the model" in capsys.readouterr().err
    assert weights.read_bytes() == b"weights"


@pytest.mark.parametrize("span", [3, 0, "1", None, True, [1]])
def test_a_span_that_is_none(span, hrm_file):
    lines = hrm_file.read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), "span": span})
    hrm_file.write_text("\n".join(lines))
    with pytest.raises(DataError, match=r"is neither 1 .* nor 2") as caught:
        read_data(hrm_file, "hrm")
    assert (caught.value.line, caught.value.field) == (3, "span")


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("compressed", "x", "the number of an HNC pass"),
        ("compressed", -1, "the number of an HNC pass"),
        ("current", "", "is empty"),
        ("soft", 1.5, "a number in"),
    ],
)
def test_a_field_of_another_kind(field, value, said, hrm_file):
    lines = hrm_file.read_text().splitlines()
    lines[2] = json.dumps({**json.loads(lines[2]), field: value})
    hrm_file.write_text("\n".join(lines))
    with pytest.raises(DataError, match=said) as caught:
        read_data(hrm_file, "hrm")
    assert (caught.value.line, caught.value.field) == (3, field)


def test_a_training_that_is_interrupted_says_how_it_goes_on(hrm_file, tmp_path, capsys, monkeypatch):
    def interrupted(*arguments, **named):
        raise KeyboardInterrupt

    monkeypatch.setattr("treeforge.reward.train.read_data", interrupted)
    assert invoke(["train", str(hrm_file), "--out", str(tmp_path / "out"), "--model", "x"]) == 130
    assert "The same command goes on with the training" in capsys.readouterr().err


@pytest.mark.train
def test_weights_that_are_cut_off(trained, tmp_path):
    pytest.importorskip("torch", reason="pip install 'treeforge[train]'")
    import shutil

    folder = shutil.copytree(trained["classifier"], tmp_path / "model")
    weights = folder / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:5000])
    with pytest.raises(ConfigError, match="is no model that can be loaded"):
        load_reward_model(str(folder))
