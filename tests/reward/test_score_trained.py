"""Scoring with tiny models that were really trained."""

import json

import numpy as np
import pytest
from support.runs import problems, scripted_config

from treeforge import pipeline
from treeforge.cli import invoke
from treeforge.errors import ConfigError, RecipeChangedError, TrainingError
from treeforge.reward.base import Window
from treeforge.reward.score import StepScorer, load_reward_model
from treeforge.store.run import RunFolder

for name in ("torch", "transformers", "peft"):
    pytest.importorskip(name, reason="pip install 'treeforge[train]'")

pytestmark = pytest.mark.train

HEADS = ["classifier", "soft", "token"]


def windows(count):
    """Of lengths from one to some hundred tokens."""
    return [Window(f"question {i}", "no 1\n" * (i % 7), f"{'yes' if i % 2 else 'no '} {i}\n") for i in range(count)]


@pytest.mark.parametrize("head", HEADS)
def test_a_trained_model_knows_right_steps(head, trained):
    model = load_reward_model(str(trained[head]))
    right, wrong = (model.score("question 3", [step]).single[0] for step in ("yes 1\n", "no  2\n"))
    assert right > 0.5 > wrong
    assert len(model.score("question 3", ["yes 1\n", "no  2\n", "yes 3\n"]).pairs) == 2


@pytest.mark.parametrize("head", HEADS)
def test_a_row_is_scored_alike_whatever_stands_beside_it(head, trained):
    every = windows(40)
    model = load_reward_model(str(trained[head]))
    alone = np.concatenate([model.probabilities([window]) for window in every])
    assert np.ptp(alone) > 0.05
    for batch in (None, 1, 3, 40):
        found = load_reward_model(str(trained[head]), batch=batch).probabilities(every)
        assert found == pytest.approx(alone, abs=1e-5)
    order = np.random.default_rng(0).permutation(40)
    assert model.probabilities([every[i] for i in order]) == pytest.approx(alone[order], abs=1e-5)


def test_no_windows(trained):
    assert load_reward_model(str(trained["classifier"])).probabilities([]).shape == (0,)


def test_what_is_too_long_is_cut_and_counted(trained, tmp_path, capsys):
    model = load_reward_model(str(trained["classifier"]))
    model.probabilities(windows(3))
    assert model.truncated == 0
    found = model.probabilities([Window("q", "no 1\n" * 999, "yes 1\n"), Window("q" * 999, "", "yes 1\n")])
    assert model.truncated == 2
    assert (found > 0.5).all()
    path = tmp_path / "s.jsonl"
    path.write_text(json.dumps({"question": "q", "steps": ["no 1\n" * 99, "yes 1\n"]}) + "\n")
    assert invoke(["score", str(trained["classifier"]), str(path), "--out", str(tmp_path / "o"), "--quiet"]) == 0
    assert "3 windows are longer than the model's: their oldest text was cut off" in capsys.readouterr().out


@pytest.mark.parametrize("batch", [None, 32])
def test_batches_are_halved_until_they_fit(batch, trained):
    import torch

    model = load_reward_model(str(trained["classifier"]), batch=batch)
    expected, sizes, forward = model.probabilities(windows(40)), [], model._judge.model.forward

    def small(input_ids, **more):
        sizes.append(input_ids.numel())
        if input_ids.numel() > 500:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB")
        return forward(input_ids=input_ids, **more)

    model._judge.model.forward = small
    assert model.probabilities(windows(40)) == pytest.approx(expected, abs=1e-5)
    assert sizes[0] > 500
    failed = sum(size > 500 for size in sizes)
    assert model.probabilities(windows(40)) == pytest.approx(expected, abs=1e-5)
    assert sum(size > 500 for size in sizes) == failed


def test_one_row_that_does_not_fit(trained):
    model = load_reward_model(str(trained["classifier"]))

    def never(**more):
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")

    model._judge.model.forward = never
    with pytest.raises(TrainingError, match=r"one window of \d+ tokens. Free some"):
        model.probabilities(windows(5))

    def wrong(**more):
        raise RuntimeError("mat1 and mat2 shapes cannot be multiplied")

    model._judge.model.forward = wrong
    with pytest.raises(RuntimeError, match="mat1"):
        model.probabilities(windows(5))


def test_its_identity_is_that_of_its_files(trained, tmp_path):
    import shutil

    folder = trained["classifier"]
    shutil.copytree(folder, tmp_path / "copy")
    (tmp_path / "copy" / "README.md").write_text("a remark")
    copy = load_reward_model(str(tmp_path / "copy"))
    assert copy.name == "copy"
    assert copy.identity == load_reward_model(str(folder)).identity
    assert copy.identity != load_reward_model(str(trained["soft"])).identity
    weights = tmp_path / "copy" / "model.safetensors"
    data = bytearray(weights.read_bytes())
    data[-1] ^= 1
    weights.write_bytes(data)
    assert load_reward_model(str(tmp_path / "copy")).identity != copy.identity


def test_a_model_whose_weights_are_gone(trained, tmp_path):
    import shutil

    shutil.copytree(trained["classifier"], tmp_path / "copy")
    (tmp_path / "copy" / "model.safetensors").unlink()
    with pytest.raises(ConfigError, match="is no model that can be loaded"):
        load_reward_model(str(tmp_path / "copy"))


def test_step_wise_greedy_search_by_a_trained_model(trained, tmp_path):
    """The HRM paper's inference: N next steps are sampled, the one that the HRM likes best is kept."""
    config = scripted_config(strategy="beam", children=4, beam={"width": 1})
    run = tmp_path / "run"
    model = load_reward_model(str(trained["classifier"]))
    assert pipeline.run(problems(3), run, config, scorer=StepScorer(model)).statuses == {"done": 3}
    scorer = StepScorer(load_reward_model(str(trained["classifier"])))
    kept = 0
    for number, record in RunFolder.open(run).records([0, 1, 2]):
        tree = record.tree
        path = [0]
        while (children := np.flatnonzero(tree.parent == path[-1]).tolist()) != []:
            before = [tree.text[node] for node in path[1:]]
            found = scorer.score_many(problems(3)[number], [[*before, tree.text[child]] for child in children])
            path.append(children[int(np.argmax(found))])
            kept += 1
        assert len(path) - 1 == tree.depth.max()
    assert kept > 3
    assert set(pipeline.replay(run, scorer=scorer).files.values()) == {"same"}
    with pytest.raises(RecipeChangedError, match="by --reward and --aggregate"):
        pipeline.replay(run, scorer=StepScorer(load_reward_model(str(trained["soft"]))))
