"""How a language model says whether a window is right: the three heads, and opening a base for one of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from treeforge.errors import ConfigError, MissingExtraError
from treeforge.policy.convert import convert
from treeforge.policy.hub import hub_file
from treeforge.policy.models import MODELS
from treeforge.reward.encode import Encoder, pad_token, verdict_tokens
from treeforge.reward.settings import Head

HEADS: tuple[Head, ...] = ("classifier", "soft", "token")


class Judge:
    """A model with its tokenizer and head: from batches to logits, and from logits to chances of being right."""

    def __init__(self, model: Any, tokenizer: Any, head: Head, window: int, name: str) -> None:
        self.model, self.tokenizer, self.head = model, tokenizer, head
        self.pad = pad_token(tokenizer, name)
        self.verdicts = verdict_tokens(tokenizer, name) if head == "token" else None
        self.encoder = Encoder(tokenizer, window, ask=head == "token")
        model.config.pad_token_id = self.pad
        model.config.use_cache = False

    @property
    def more_inputs(self) -> dict[str, Any]:
        """What the model is given beside a batch: for `token`, to compute the last token's logits only."""
        return {"logits_to_keep": 1} if self.head == "token" else {}

    def logits(self, outputs: Any) -> Any:
        """The head's own logits: float[rows, 2] (wrong, right), or float[rows, 1] of the head `soft`."""
        return self.narrow(outputs.logits).float()

    def narrow(self, logits: Any) -> Any:
        """The same out of the model's."""
        if self.verdicts is None:
            return logits
        return logits[:, -1, list(self.verdicts)]


def chances(logits: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """float64[rows]: the chances of being right, of logits as `Judge.logits` gives them."""
    values = logits.astype(np.float64)
    margin = values[:, 0] if values.shape[1] == 1 else values[:, 1] - values[:, 0]
    return np.exp(-np.logaddexp(0, -margin))


def open_judge(place: str, head: Head, window: int, *, seed: int | None = None) -> Judge:
    """Load a model from a folder or the Hub for a head. With `seed`, to train it: a new head then says one half of all,
    as one drawn at random would begin with chances of nearly 0 and 1 on a large model.

    Raises `MissingExtraError` without torch or transformers, and `ConfigError` where there is no such model.
    """
    transformers = need_transformers()
    kinds = {"classifier": "AutoModelForSequenceClassification", "soft": "AutoModelForSequenceClassification"}
    kind = getattr(transformers, kinds.get(head, "AutoModelForCausalLM"))
    labels = {"classifier": {"num_labels": 2}, "soft": {"num_labels": 1}}.get(head, {})
    if seed is not None:
        transformers.set_seed(seed)
    model, tokenizer = load_model(place, kind, **labels)
    is_new = not any("SequenceClassification" in name for name in model.config.architectures or ())
    if seed is not None and is_new and hasattr(model, "score"):
        model.score.weight.data.zero_()
    return Judge(model, tokenizer, head, window, place)


def need_transformers() -> Any:
    """The library, quiet; `MissingExtraError` where it, torch or peft is missing."""
    try:
        import accelerate  # noqa: F401 - what the Trainer runs on
        import peft  # noqa: F401
        import torch  # noqa: F401
        import transformers
    except ImportError:
        raise MissingExtraError("training and loading reward models", "train") from None
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers


def is_memory(error: BaseException) -> bool:
    """Whether an error of torch says that memory does not suffice."""
    import torch

    text = str(error).lower()
    return isinstance(error, torch.OutOfMemoryError | MemoryError) or "out of memory" in text or "allocate" in text


def load_model(place: str, kind: Any, **more: Any) -> tuple[Any, Any]:
    """(model, tokenizer) of `place` as weights in float32: a folder, a name on the Hub, a GGUF file, a known model."""
    import torch

    transformers = need_transformers()
    from safetensors import SafetensorError

    folder = resolve(place)
    try:
        tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
        model = kind.from_pretrained(folder, dtype=torch.float32, **more)
    except (OSError, ValueError, KeyError, RuntimeError, ImportError, SafetensorError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0][:300].rstrip(".")
        fix = "Name a folder in Hugging Face's format, a model on the Hub, a .gguf file, or one of `treeforge models`"
        raise ConfigError(f"{place} is no model that can be loaded: {reason}. {fix}") from error
    return model, tokenizer


def resolve(place: str) -> str:
    """The folder of a model that is named in our own ways (a known model, a GGUF file); else the name itself."""
    path = Path(place).expanduser()
    if place in MODELS or path.suffix == ".gguf":
        if hub_file(place):
            raise ConfigError(f"{place}: convert it first: treeforge models convert {place} --out FOLDER")
        return str(convert(place))
    if path.is_dir():
        if not (path / "config.json").exists():
            raise ConfigError(f"{place} is a folder without a config.json, and so no model in Hugging Face's format")
        return str(path)
    if path.exists() or place.startswith((".", "/", "~")):
        raise ConfigError(f"{place} is no model: there is no such folder")
    return place
