"""`--task policy`: self-training of a tiny random model, with the real transformers and peft."""

import json

import numpy as np
import pytest

from treeforge.errors import ConfigError, DataError
from treeforge.reward.settings import PolicyTraining
from treeforge.reward.trajectories import prompter, read_trajectories


def rows(value=1.0, count=24):
    return [
        {
            "prompt": [{"role": "user", "content": f"{n} + 1 = ?"}],
            "completion": [{"role": "assistant", "content": f"The answer is {n + 1}."}],
            "value": value,
            "problem_id": f"p{n}",
        }
        for n in range(count)
    ]


@pytest.fixture
def sft_file(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in [*rows(), *rows(0.5), *rows(None)]))
    return path


def test_trajectories_with_a_bad_step_are_left_out(sft_file):
    found = read_trajectories(sft_file, 0.9, 0.2)
    assert len(found.train) + len(found.validation) == 24
    assert found.left_out == 48
    assert not {row.problem_id for row in found.train} & {row.problem_id for row in found.validation}
    assert len(read_trajectories(sft_file, 0.5, 0).train) == 48


def test_too_few_trajectories(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows(0.3)))
    with pytest.raises(DataError, match=r"has 0 trajectories with a value of at least 0\.9"):
        read_trajectories(path, 0.9, 0.1)


def test_the_question_is_put_as_the_policy_is_asked(sft_file):
    text = prompter("smollm", sft_file)(None, "1 + 1 = ?")
    assert text.endswith("Question: 1 + 1 = ?\nAnswer:\n")
    with pytest.raises(ConfigError, match="there are chat"):
        prompter("smol", sft_file)


torch = pytest.importorskip("torch", reason="pip install 'treeforge[train]'")
pytest.importorskip("transformers", reason="pip install 'treeforge[train]'")

from treeforge.reward.self_training import train_policy  # noqa: E402


def settings(base, **more):
    return PolicyTraining(
        **(
            {"model": str(base), "prompt": "smollm", "epochs": 6, "lr": 1e-2, "window": 64, "evals": 3, "kl": 0.0}
            | more
        )
    )


@pytest.mark.train
@pytest.mark.parametrize(
    ("more", "gain"),
    [
        ({}, 0.5),
        ({"kl": 0.5}, 0.5),
        ({"kl": 0.5, "top_k": 4}, 0.5),
        ({"kl": 0.5, "lora": 4, "lr": 3e-2}, 0.05),  # random features: low ranks can do little
    ],
)
def test_the_policy_learns_its_solutions(more, gain, base, sft_file, tmp_path):
    random = train_policy(sft_file, tmp_path / "random", settings(base, lr=1e-9))
    found = train_policy(sft_file, tmp_path / "out", settings(base, **more))
    assert found.loss < random.loss - gain
    assert found.truncated == found.train.rows  # the few-shot prompt is longer than the window
    assert not list((tmp_path / "out").glob("reference*"))
    assert train_policy(sft_file, tmp_path / "out", settings(base, **more)) == found


@pytest.mark.train
def test_a_strong_reference_holds_the_policy_back(base, sft_file, tmp_path):
    free = train_policy(sft_file, tmp_path / "free", settings(base))
    held = train_policy(sft_file, tmp_path / "held", settings(base, kl=1000.0))
    assert held.train == free.train
    moved = [distance(base, tmp_path / name) for name in ("free", "held")]
    assert moved[1] < moved[0]


def distance(one, two):
    from safetensors.torch import load_file

    first, second = (load_file(folder / "model.safetensors") for folder in (one, two))
    return float(sum(((first[name] - second[name]) ** 2).sum() for name in first))


@pytest.mark.train
def test_the_cached_divergence_is_a_lower_bound_that_all_tokens_make_exact(base, tmp_path):
    from transformers import AutoModelForCausalLM

    from treeforge.reward.policy_loss import Reference, batch

    model = AutoModelForCausalLM.from_pretrained(base)
    other = AutoModelForCausalLM.from_pretrained(base)
    with torch.no_grad():
        for weight in other.parameters():
            weight.add_(torch.randn_like(weight) * 0.05)

    class Rows:
        rows = [([5, 6, 7, 8, 9, 10], 3), ([5, 11, 12], 2)]  # noqa: RUF012

        def __len__(self):
            return 2

    data = Rows()
    given = batch(
        [{"input_ids": ids, "solution": n, "place": (id(data), at)} for at, (ids, n) in enumerate(data.rows)], 0
    )
    labels, places = given.pop("labels"), given.pop("places")
    inside = (labels != -100).numpy()

    def divergence(top_k, name):
        reference = Reference.of(model, settings(base, kl=1.0, top_k=top_k), tmp_path / name, [data], lambda line: None)
        with torch.no_grad():
            logits = other(**given).logits[:, :-1]
            return reference.divergence(other, given, places, logits).numpy()[inside]

    for name in ("full", "some", "all"):
        (tmp_path / name).mkdir()
    full, some = divergence(0, "full"), divergence(5, "some")
    every = divergence(model.config.vocab_size, "all")
    assert (some < full).all()
    assert np.allclose(every, full, atol=1e-4)
