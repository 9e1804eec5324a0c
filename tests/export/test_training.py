"""Every training format takes a real step in current trl or transformers, on a tiny model that knows nothing.

Needs the extra `train` (`make test-train`); skipped without it.
"""

import math
import os

import pytest
from support.runs import problems, scripted_config

import treeforge as tf

for name in ("torch", "transformers", "trl", "tokenizers"):
    pytest.importorskip(name, reason="pip install 'treeforge[train]'")

pytestmark = pytest.mark.slow

TEMPLATE = (
    "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}</s>{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory):
    """One token a byte, with special tokens; saved, so that it is also a folder for `--tokenizer`."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors
    from transformers import PreTrainedTokenizerFast

    special = ["<pad>", "<s>", "</s>"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    base = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    base.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    base.decoder = decoders.ByteLevel()
    base.post_processor = processors.TemplateProcessing(single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    made = PreTrainedTokenizerFast(
        tokenizer_object=base, pad_token="<pad>", bos_token="<s>", eos_token="</s>", chat_template=TEMPLATE
    )
    made.save_pretrained(tmp_path_factory.mktemp("tokenizer"))
    return made


@pytest.fixture(scope="module")
def dataset(tmp_path_factory, tokenizer):
    """The export of a scripted run, and how to load one format of it."""
    import datasets

    folder = tmp_path_factory.mktemp("training")
    tokenizer.save_pretrained(folder / "tokenizer")
    tf.run(
        problems(12), folder / "run", scripted_config(world={"depth": 3}, strategy="exhaustive", levels=4, children=3)
    )
    formats = ("tokens", "prm", "preference", "kto", "sft", "rl", "orm")
    config = tf.ExportConfig(formats=formats, tokenizer=str(folder / "tokenizer"), validation_share=0)
    tf.pipeline.export(folder / "run", config, out=folder / "out")
    os.environ["HF_DATASETS_CACHE"] = str(folder / "cache")

    def load(name, rows=16):
        loaded = datasets.load_dataset(str(folder / "out"), name, split="train", cache_dir=str(folder / "cache"))
        return loaded.select(range(min(rows, len(loaded))))

    return load


def config(tokenizer, **more):
    from transformers import LlamaConfig

    return LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=2048,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
        **more,
    )


@pytest.fixture
def model(tokenizer, tmp_path):
    """Loaded from a folder, since some trainers load it once more as their reference."""
    import torch
    from transformers import LlamaForCausalLM

    torch.manual_seed(0)
    LlamaForCausalLM(config(tokenizer)).save_pretrained(tmp_path / "model")
    return LlamaForCausalLM.from_pretrained(tmp_path / "model")


def settings(tmp_path, **more):
    """One step on the CPU, nothing saved or reported."""
    return {
        "output_dir": str(tmp_path),
        "max_steps": 1,
        "per_device_train_batch_size": 4,
        "learning_rate": 1e-2,
        "report_to": [],
        "save_strategy": "no",
        "use_cpu": True,
        "bf16": False,
        "logging_steps": 1,
    } | more


def assert_learned(trainer, model):
    """The step had a finite loss and moved the weights."""
    before = {name: weight.detach().clone() for name, weight in model.named_parameters()}
    assert math.isfinite(trainer.train().training_loss)
    assert any(not weight.equal(before[name]) for name, weight in model.named_parameters())


def test_tokens(dataset, tokenizer, tmp_path):
    from transformers import (
        DataCollatorForTokenClassification,
        LlamaForTokenClassification,
        Trainer,
        TrainingArguments,
    )

    rows, steps = dataset("tokens"), dataset("prm")
    for row, chain in zip(rows, steps, strict=True):
        text = f"{chain['prompt']}\n\n" + "".join(chain["completions"])
        assert tokenizer.decode(row["input_ids"], clean_up_tokenization_spaces=False) == "<s>" + text
        assert [bool(label) for label in row["labels"] if label != -100] == chain["labels"]
    model = LlamaForTokenClassification(config(tokenizer, num_labels=2))
    trainer = Trainer(
        model,
        TrainingArguments(**settings(tmp_path)),
        train_dataset=rows.select_columns(["input_ids", "labels"]),
        data_collator=DataCollatorForTokenClassification(tokenizer),
    )
    assert_learned(trainer, model)


def test_preference_trains_a_reward_model(dataset, tokenizer, tmp_path):
    from transformers import LlamaForSequenceClassification
    from trl import RewardConfig, RewardTrainer

    model = LlamaForSequenceClassification(config(tokenizer, num_labels=1))
    rows = dataset("preference")
    assert {"step", "solution"} >= set(rows["level"])
    trainer = RewardTrainer(model, RewardConfig(**settings(tmp_path)), train_dataset=rows, processing_class=tokenizer)
    assert_learned(trainer, model)


def test_preference_trains_by_dpo(dataset, tokenizer, model, tmp_path):
    from trl import DPOConfig, DPOTrainer

    trainer = DPOTrainer(
        model, args=DPOConfig(**settings(tmp_path)), train_dataset=dataset("preference"), processing_class=tokenizer
    )
    assert_learned(trainer, model)


def test_kto(dataset, tokenizer, model, tmp_path):
    from trl import KTOConfig, KTOTrainer

    rows = dataset("kto", 200)
    assert set(rows["label"]) == {True, False}
    trainer = KTOTrainer(model, args=KTOConfig(**settings(tmp_path)), train_dataset=rows, processing_class=tokenizer)
    assert_learned(trainer, model)


def test_sft(dataset, tokenizer, model, tmp_path):
    from trl import SFTConfig, SFTTrainer

    trainer = SFTTrainer(
        model, args=SFTConfig(**settings(tmp_path)), train_dataset=dataset("sft"), processing_class=tokenizer
    )
    assert_learned(trainer, model)


def test_rl(dataset, tokenizer, model, tmp_path):
    from trl import GRPOConfig, GRPOTrainer

    seen = []

    def reward(completions, reward_model, **columns):
        seen.extend(answer["ground_truth"] for answer in reward_model)
        return [float(number) for number, _ in enumerate(completions)]

    trainer = GRPOTrainer(
        model,
        reward_funcs=reward,
        args=GRPOConfig(**settings(tmp_path), num_generations=4, max_completion_length=4),
        train_dataset=dataset("rl"),
        processing_class=tokenizer,
    )
    assert_learned(trainer, model)
    assert seen
    assert all(answer.isdecimal() for answer in seen)
