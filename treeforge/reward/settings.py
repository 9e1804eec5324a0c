"""Settings of `treeforge train`, and the presets."""

from __future__ import annotations

from typing import Any, Literal

from treeforge.config.base import Config, at_most_one, not_negative, positive
from treeforge.reward.base import Task

Head = Literal["classifier", "soft", "token"]


class BaseTraining(Config, frozen=True, kw_only=True):
    """What training a reward model and a policy have in common. Libraries do the training: transformers and peft."""

    model: str
    """The base: a folder in Hugging Face's format, a name on the Hub, a `.gguf` file, or a model of
    `treeforge models`."""
    epochs: float = 1.0
    """Passes over the training rows; a part of one is allowed."""
    lr: float = 1e-5
    """The highest learning rate (AdamW, cosine schedule)."""
    batch: int = 8
    """Rows of one forward pass."""
    accumulate: int = 1
    """Forward passes of one step of the optimiser."""
    window: int = 1024
    """The most tokens of a row; the oldest context of a longer one is cut off, and counted."""
    lora: int = 0
    """Rank of LoRA on all linear layers (peft), scale 2; 0 trains all weights."""
    warmup: float = 0.03
    """Share of the steps, rounded down, over which the learning rate rises."""
    weight_decay: float = 0.01
    gradient_checkpointing: bool = False
    """Less memory for a third more time."""
    dtype: Literal["auto", "float32", "bfloat16"] = "auto"
    """`auto`: bfloat16 arithmetic on GPUs that have it, else float32. Weights stay float32."""
    seed: int = 0
    limit: int = 0
    """The most training rows, drawn by the seed; 0: all."""
    eval_limit: int = 2000
    """Held-out problems are measured until they have so many rows; 0: all."""
    eval_share: float = 0.1
    """Share of the problems that are held out for evaluation where the data has no validation split."""
    evals: int = 10
    """Evaluations over the whole training; a checkpoint is written at each."""
    patience: int = 3
    """Evaluations without an improvement after which the training stops; 0: never."""

    def __post_init__(self) -> None:
        positive(self, "epochs", "lr", "batch", "accumulate", "evals")
        not_negative(self, "lora", "warmup", "weight_decay", "patience", "eval_share", "seed", "limit", "eval_limit")
        at_most_one(self, "warmup")
        if not self.model.strip():
            raise ValueError("model must name one")
        if self.window < 16:
            raise ValueError(f"window must be at least 16 tokens, not {self.window}")
        if self.eval_share >= 1:
            raise ValueError(f"eval_share must be less than 1, not {self.eval_share!r}")


class TrainConfig(BaseTraining, frozen=True, kw_only=True):
    """A reward model's training."""

    task: Task = "hrm"
    head: Head = "classifier"
    """`classifier`: two classes, cross-entropy, on the last token (HRM paper); `soft`: one number for the soft label;
    `token`: the chance of `+` against `-` as the next token, as generative PRMs have it (Math-Shepherd, RLHFlow)."""
    soft_loss: Literal["bce", "mse"] = "bce"
    """Of the head `soft`: binary cross-entropy with the soft label as the target, or squared error."""
    hnc: bool = True
    """`hrm`: take the rows of compressed trees, too."""
    balance: bool = True
    """Weigh the classes so that both count alike, whatever their numbers (heads `classifier` and `token`)."""


class PolicyTraining(BaseTraining, frozen=True, kw_only=True):
    """Self-training of a policy on trajectories all of whose steps are good (HRM paper, Section 4)."""

    prompt: str = ""
    """How the question is put, which must be as the policy is asked later: a step preset's name (`smollm`,
    `qwen-math` …), or `chat` for the question alone in the tokenizer's chat template. '': as the run put it where the
    data is a run, else `chat`."""
    threshold: float = 0.9
    """The least value that each step of a trajectory must have."""
    kl: float = 0.1
    """Lambda: the loss is language modelling + lambda * log(1 + KL(reference || policy)); 0: no reference."""
    top_k: int = 0
    """Of the reference's next-token distribution, how many tokens are kept (their rest as one further token), computed
    once and cached; 0: the reference model runs beside the policy and nothing is cached."""

    def __post_init__(self) -> None:
        super().__post_init__()
        not_negative(self, "kl", "threshold", "top_k")
        at_most_one(self, "threshold")


PRESETS: dict[str, dict[str, Any]] = {
    "hrm-paper": {
        "task": "hrm",
        "head": "classifier",
        "model": "Qwen/Qwen2.5-Math-1.5B",
        "lr": 1e-5,
    },
}
"""By name: settings that a file's and the command line's go over. `hrm-paper`: HRM (arXiv 2503.13551), Section 5."""
