"""A tiny random language model with a tokenizer of single characters, as a folder in Hugging Face's format."""

from pathlib import Path
from typing import Any

CHARACTERS = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,:;=+-*/()?!#'\n"


def training(base: Path, **more: Any) -> Any:
    """Settings that such a base learns by in seconds."""
    from treeforge.reward.settings import TrainConfig

    settings = {"model": str(base), "epochs": 4, "lr": 5e-3, "batch": 8, "window": 128, "evals": 4} | more
    return TrainConfig(**settings)


def tiny_base(folder: Path, *, pad: bool = True, seed: int = 0, width: int = 32, layers: int = 2) -> Path:
    """Write it; without `pad` its tokenizer has an end-of-text token only."""
    from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast, set_seed

    special = ["<pad>", "<s>", "</s>", "<unk>"]
    vocabulary = {token: number for number, token in enumerate([*special, *CHARACTERS])}
    base = Tokenizer(models.WordLevel(vocab=vocabulary, unk_token="<unk>"))
    base.pre_tokenizer = pre_tokenizers.Split(Regex(r"[\s\S]"), behavior="isolated")
    base.decoder = decoders.Fuse()
    more = {"pad_token": "<pad>"} if pad else {}
    PreTrainedTokenizerFast(
        tokenizer_object=base, bos_token="<s>", eos_token="</s>", unk_token="<unk>", **more
    ).save_pretrained(folder)
    set_seed(seed)
    LlamaForCausalLM(
        LlamaConfig(
            vocab_size=len(vocabulary),
            hidden_size=width,
            intermediate_size=2 * width,
            num_hidden_layers=layers,
            num_attention_heads=2,
            max_position_embeddings=1024,
            pad_token_id=0 if pad else None,
            bos_token_id=1,
            eos_token_id=2,
        )
    ).save_pretrained(folder)
    return folder
