"""Training on a tiny random model, with the real transformers and peft."""

import json
import os
import signal
import subprocess
import sys

import numpy as np
import pytest
from support.tiny_base import training

from treeforge.errors import ConfigError, DataError, TrainingError

for name in ("torch", "transformers", "peft"):
    pytest.importorskip(name, reason="pip install 'treeforge[train]'")

pytestmark = pytest.mark.train


def weights(folder):
    from safetensors.torch import load_file

    return load_file(folder / "model.safetensors")


@pytest.mark.parametrize("head", ["classifier", "soft", "token"])
def test_a_model_learns_what_a_right_step_looks_like(head, base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    saved = train(hrm_file, tmp_path / "out", training(base, head=head))
    assert saved.measures.auc > 0.95
    assert saved.train.rows + saved.validation.rows == 160
    assert saved.validation.problems >= 1
    assert (tmp_path / "out" / "README.md").read_text().startswith("---\n")
    assert not (tmp_path / "out" / "checkpoints").exists()


def test_lora_leaves_a_plain_model_behind(base, hrm_file, tmp_path):
    from transformers import AutoModelForSequenceClassification

    from treeforge.reward.train import train

    saved = train(hrm_file, tmp_path / "out", training(base, lora=4, lr=2e-2, epochs=8))
    assert saved.measures.auc > 0.95
    AutoModelForSequenceClassification.from_pretrained(tmp_path / "out")
    assert not any("lora" in name for name in weights(tmp_path / "out"))


def test_the_same_settings_give_the_same_weights(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    one, two = tmp_path / "one", tmp_path / "two"
    train(hrm_file, one, training(base))
    train(hrm_file, two, training(base))
    assert (one / "model.safetensors").read_bytes() == (two / "model.safetensors").read_bytes()
    train(hrm_file, tmp_path / "other", training(base, seed=1))
    assert (one / "model.safetensors").read_bytes() != (tmp_path / "other" / "model.safetensors").read_bytes()


KILLED = """
import os, signal, sys
from pathlib import Path
from treeforge.reward.settings import TrainConfig
from treeforge.reward.train import train
import msgspec

lines = []

def stop(line):
    lines.append(line)
    if sum(line.startswith("step ") for line in lines) == 5:  # a line before and one after each evaluation
        os.kill(os.getpid(), signal.SIGKILL)

train(Path(sys.argv[1]), Path(sys.argv[2]), msgspec.json.decode(sys.argv[3], type=TrainConfig), stop)
"""


def test_a_training_that_was_killed_ends_as_if_it_had_not_been(base, hrm_file, tmp_path):
    import msgspec

    from treeforge.reward.train import train

    settings = training(base, epochs=3)
    train(hrm_file, tmp_path / "whole", settings)
    arguments = [str(hrm_file), str(tmp_path / "killed"), msgspec.json.encode(settings).decode()]
    ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], env=os.environ, capture_output=True, text=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    lines = []
    train(hrm_file, tmp_path / "killed", settings, lines.append)
    assert any(line.startswith("goes on from checkpoint-") for line in lines)
    whole, killed = weights(tmp_path / "whole"), weights(tmp_path / "killed")
    for name, weight in whole.items():
        assert np.array_equal(weight.numpy(), killed[name].numpy()), name


def test_a_finished_training_is_not_done_again(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    first = train(hrm_file, tmp_path / "out", training(base, epochs=1))
    lines = []
    assert train(hrm_file, tmp_path / "out", training(base, epochs=1), lines.append) == first
    assert lines[-1].endswith("is trained already")
    with pytest.raises(ConfigError, match=r"settings\.lr: 0\.005 there, 0\.01 now"):
        train(hrm_file, tmp_path / "out", training(base, epochs=1, lr=0.01))


def test_a_folder_of_something_else_is_left_alone(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "thesis.txt").write_text("mine")
    with pytest.raises(ConfigError, match="holds no training"):
        train(hrm_file, tmp_path / "out", training(base))


def test_a_base_without_a_pad_token(hrm_file, tmp_path):
    from support.tiny_base import tiny_base

    from treeforge.reward.train import train

    base = tiny_base(tmp_path / "base", pad=False)
    assert train(hrm_file, tmp_path / "out", training(base)).measures.auc > 0.95


def test_what_is_too_long_is_cut_and_counted(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    assert train(hrm_file, tmp_path / "out", training(base, epochs=1)).truncated == 0
    short = train(hrm_file, tmp_path / "short", training(base, epochs=1, window=32))
    assert short.truncated == short.train.rows


@pytest.mark.parametrize("name", ["no/such-model-anywhere", "./nowhere"])
def test_a_path_that_is_no_model(name, hrm_file, tmp_path):
    from treeforge.reward.train import train

    with pytest.raises(ConfigError, match="no model"):
        train(hrm_file, tmp_path / "out", training(name))


def test_a_folder_that_is_no_model(hrm_file, tmp_path):
    from treeforge.reward.train import train

    with pytest.raises(ConfigError, match=r"config\.json"):
        train(hrm_file, tmp_path / "out", training(hrm_file.parent))


def test_a_loss_that_is_no_number_stops_the_training_and_keeps_the_last_checkpoint(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    with pytest.raises(TrainingError, match="lower --lr"):
        train(hrm_file, tmp_path / "out", training(base, lr=1e30, warmup=0, epochs=8))
    assert not (tmp_path / "out" / "reward.json").exists()


def test_bad_data_is_said_before_a_model_is_loaded(tmp_path):
    from treeforge.reward.train import train

    rows = tmp_path / "rows.jsonl"
    row = {"prompt": "q", "previous": "", "current": "a", "span": 1, "hard": True, "problem_id": "p"}
    rows.write_text((json.dumps(row) + "\n") * 20)
    with pytest.raises(DataError, match="labelled right"):
        train(rows, tmp_path / "out", training("./nowhere"))
    assert not (tmp_path / "out").exists()
