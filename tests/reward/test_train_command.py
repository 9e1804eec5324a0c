"""`treeforge train` on the command line."""

import json

import pytest

from treeforge.cli import invoke


def run(*arguments):
    return invoke(["train", *map(str, arguments)])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "--model is missing"),
        (["--model", "x", "--task", "rm"], "the values are orm, prm, hrm"),
        (["--model", "x", "--head", "big"], "the values are classifier, soft, token"),
        (["--model", "x", "--lr", "0"], "lr must be greater than 0"),
        (["--model", "x", "--set", "windw=5"], "the keys are model"),
        (["--model", "x", "--preset", "prm-paper"], "hrm-paper"),
        (["--model", "x", "--task", "policy", "--head", "soft"], "--task policy has no setting head"),
    ],
)
def test_settings_that_cannot_be(arguments, message, hrm_file, tmp_path, capsys):
    assert run(hrm_file, "--out", tmp_path / "out", *arguments) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_bad_data_comes_before_a_model(tmp_path, capsys):
    assert run(tmp_path / "nowhere.jsonl", "--out", tmp_path / "out", "--model", "x") == 2
    assert "there is no such file" in capsys.readouterr().err


@pytest.mark.train
def test_a_base_that_is_no_model_does_not_take_the_folder(base, hrm_file, tmp_path, capsys):
    out, options = tmp_path / "out", ["--epochs", 1, "--set", "evals=1", "--set", "window=64"]
    assert run(hrm_file, "--out", out, "--model", tmp_path / "typo", *options) == 2
    assert "there is no such folder" in capsys.readouterr().err
    assert not out.exists()
    assert run(hrm_file, "--out", out, "--model", base, *options) == 0
    assert (out / "model.safetensors").stat().st_mode == (out / "config.json").stat().st_mode


@pytest.mark.train
def test_which_weights_are_kept_is_said(base, hrm_file, tmp_path, capsys):
    # A rate that moves nothing: no evaluation is better than the first.
    options = ["--lr", "1e-30", "--epochs", 4, "--set", "evals=8", "--set", "patience=2", "--set", "window=64"]
    assert run(hrm_file, "--out", tmp_path / "out", "--model", base, *options) == 0
    assert "stopped early at step" in capsys.readouterr().err
    saved = json.loads((tmp_path / "out" / "reward.json").read_text())
    assert 0 < saved["kept_step"] < saved["steps"]
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"{saved['steps']:,} steps of the optimiser; the weights are those of step {saved['kept_step']:,}" in card


@pytest.mark.train
def test_from_rows_to_a_model(base, hrm_file, tmp_path, capsys):
    settings = tmp_path / "settings.toml"
    settings.write_text("epochs = 9\nwindow = 128\nbatch = 16\n")
    options = ["--model", base, "--config", settings, "--epochs", 2, "--lr", "5e-3", "--set", "evals=2"]
    assert run(hrm_file, "--out", tmp_path / "out", *options) == 0
    shown = capsys.readouterr()
    assert "AUC" in shown.out
    assert "step 8 of 16" in shown.err
    saved = json.loads((tmp_path / "out" / "reward.json").read_text())
    assert saved["settings"]["epochs"] == 2
    assert saved["settings"]["batch"] == 16

    assert run(hrm_file, "--out", tmp_path / "out", *options, "--json", "--quiet") == 0
    shown = capsys.readouterr()
    assert json.loads(shown.out) == saved
    assert shown.err == ""
