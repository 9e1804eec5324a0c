"""Trainings that stop at bad moments, on a tiny model: what is left behind, and that the same command ends alike."""

import json
from functools import partial

import pytest
from support.tiny_base import training

from treeforge.errors import RunLockedError, StorageError
from treeforge.store.lock import take_lock

for name in ("torch", "transformers", "peft"):
    pytest.importorskip(name, reason="pip install 'treeforge[train]'")

pytestmark = pytest.mark.train

config = partial(training, epochs=1)


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


class Killed(BaseException):
    """In place of a signal."""


def killed(rows, out, settings, when):
    """Train until a line of progress that starts with `when` (an evaluation's, for a step)."""
    from treeforge.reward.train import train

    def report(line):
        if line.startswith(when):
            raise Killed

    with pytest.raises(Killed):
        train(rows, out, settings, report)


def test_a_checkpoint_that_is_half_written_is_not_gone_on_from(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    train(hrm_file, tmp_path / "whole", config(base))
    killed(hrm_file, tmp_path / "out", config(base), "step 12 ")
    (last,) = (tmp_path / "out" / "checkpoints").glob("checkpoint-8")
    for name, state in (("checkpoint-12", None), ("checkpoint-16", '{"global_step": 16, "epo')):
        half = last.with_name(name)
        half.mkdir(exist_ok=True)
        (half / "model.safetensors").write_bytes((last / "model.safetensors").read_bytes()[:100])
        if state is not None:
            (half / "trainer_state.json").write_text(state)
    lines = []
    train(hrm_file, tmp_path / "out", config(base), lines.append)
    assert "goes on from checkpoint-8" in lines
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")
    assert not {"checkpoints", ".lock"} & {path.name for path in (tmp_path / "out").iterdir()}


@pytest.mark.parametrize(
    "more",
    [{"epochs": 1.3}, {"patience": 1, "epochs": 3, "lr": 0.5, "warmup": 0.0, "evals": 12}, {"epochs": 1.3, "lora": 4}],
    ids=["within an epoch", "stopped early", "with LoRA"],
)
def test_a_training_that_was_killed_at_its_very_end(more, base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    settings = config(base, **more)
    whole = train(hrm_file, tmp_path / "whole", settings)
    killed(hrm_file, tmp_path / "out", settings, "writing the model")
    assert train(hrm_file, tmp_path / "out", settings) == whole
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_an_early_stop_is_as_early_where_the_training_was_killed_before(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    settings = config(base, patience=3, epochs=4, lr=0.5, warmup=0.0, evals=16)
    whole = train(hrm_file, tmp_path / "whole", settings)
    assert whole.steps < 64, "it stops early"
    killed(hrm_file, tmp_path / "out", settings, f"step {whole.steps} ")
    assert train(hrm_file, tmp_path / "out", settings) == whole
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


@pytest.mark.parametrize("error", [RuntimeError("inline_container.cc: unexpected pos 64 vs 0"), OSError(28, "full")])
def test_a_full_disk_is_said_and_the_same_command_goes_on(error, base, hrm_file, tmp_path, monkeypatch):
    import torch

    from treeforge.reward.train import train

    train(hrm_file, tmp_path / "whole", config(base))
    with monkeypatch.context() as patch:
        saved, calls = torch.save, []

        def save(*arguments, **named):
            calls.append(1)
            if len(calls) > 4:
                raise error
            saved(*arguments, **named)

        patch.setattr(torch, "save", save)
        with pytest.raises(StorageError, match="run the same command again"):
            train(hrm_file, tmp_path / "out", config(base))
    train(hrm_file, tmp_path / "out", config(base))
    assert weights(tmp_path / "out") == weights(tmp_path / "whole")


def test_two_trainings_at_once_in_one_folder(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    killed(hrm_file, tmp_path / "out", config(base), "step 4 ")
    with take_lock(tmp_path / "out"), pytest.raises(RunLockedError):
        train(hrm_file, tmp_path / "out", config(base))
    train(hrm_file, tmp_path / "out", config(base))


def test_what_a_kill_after_the_end_left_is_tidied_up(base, hrm_file, tmp_path):
    from treeforge.reward.train import train

    out = tmp_path / "out"
    first = train(hrm_file, out, config(base))
    (out / "checkpoints" / "checkpoint-4").mkdir(parents=True)
    assert train(hrm_file, out, config(base)) == first
    assert not (out / "checkpoints").exists()
    assert json.loads((out / "reward.json").read_text())["steps"] == first.steps
