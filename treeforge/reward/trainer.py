"""The transformers `Trainer` as both kinds of training use it: arguments, batches of like lengths, guards, resuming.

Imports torch: only what trains imports this module.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from transformers.trainer_utils import get_last_checkpoint

from treeforge.errors import TrainingError
from treeforge.reward.heads import is_memory
from treeforge.reward.settings import BaseTraining

Progress = Callable[[str], None]
CHECKPOINTS = "checkpoints"
_BUCKET = 64
"""Batches within which rows are sorted by length."""
_CHECKPOINTING = next(
    name
    for name in ("activation_checkpointing", "gradient_checkpointing")
    if name in transformers.TrainingArguments.__dataclass_fields__
)
"""Its name was changed in transformers 5."""


class LengthBuckets:
    """The order of an epoch: shuffled, then sorted by length within every `_BUCKET` batches, whose order is shuffled
    again; so that little of a batch is padding. A function of the seed and the epoch alone, so that a training that is
    resumed goes on in the same order.
    """

    def __init__(self, sizes: NDArray[np.integer[Any]], batch: int, seed: int) -> None:
        self._sizes, self._batch, self._seed, self._epoch = sizes, batch, seed, 0

    def set_epoch(self, epoch: int) -> None:
        """The epoch that begins; called by accelerate."""
        self._epoch = epoch

    def __len__(self) -> int:
        return len(self._sizes)

    def __iter__(self) -> Iterator[int]:
        rng = np.random.default_rng((self._seed, self._epoch))
        order = rng.permutation(len(self._sizes))
        bucket = _BUCKET * self._batch
        batches: list[NDArray[np.intp]] = []
        for start in range(0, len(order), bucket):
            part = order[start : start + bucket]
            part = part[np.argsort(self._sizes[part], kind="stable")]
            batches += [part[at : at + self._batch] for at in range(0, len(part), self._batch)]
        last = [batch for batch in batches if len(batch) < self._batch]
        whole = [batch for batch in batches if len(batch) == self._batch]
        for place in rng.permutation(len(whole)).tolist():
            yield from whole[place].tolist()
        for batch in last:
            yield from batch.tolist()


class BucketTrainer(transformers.Trainer):  # type: ignore[misc]
    """Batches by `LengthBuckets`."""

    def __init__(self, *, sizes: NDArray[np.integer[Any]], **more: Any) -> None:
        super().__init__(**more)
        self.remove_callback(transformers.PrinterCallback)  # standard output is for data
        self._buckets = LengthBuckets(sizes, self.args.train_batch_size, self.args.seed)

    def _get_train_sampler(self, train_dataset: Any = None) -> LengthBuckets:
        return self._buckets


class Guard(transformers.TrainerCallback):  # type: ignore[misc]
    """Stops before a checkpoint with weights that are no numbers is written, and tells how it goes."""

    def __init__(self, report: Progress) -> None:
        self._report = report

    def on_step_end(self, args: Any, state: Any, control: Any, model: Any = None, **rest: Any) -> None:
        """Before the checkpoint of this step."""
        if control.should_save and not all(torch.isfinite(weight).all() for weight in model.parameters()):
            raise NotFiniteError(state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, float] | None = None, **rest: Any) -> None:
        """One line."""
        shown = {name: value for name, value in (logs or {}).items() if name in _SHOWN and value is not None}
        if shown:
            figures = ", ".join(f"{_SHOWN[name]} {value:.4g}" for name, value in shown.items())
            self._report(f"step {state.global_step:,} of {state.max_steps:,}: {figures}")


_SHOWN = {
    "loss": "loss",
    "learning_rate": "rate",
    "eval_loss": "held-out loss",
    "eval_auc": "AUC",
    "eval_accuracy": "accuracy",
    "eval_calibration_error": "calibration error",
    "eval_first_error_f1": "first-error F1",
}


class NotFiniteError(Exception):
    """The loss or a weight is no number."""

    def __init__(self, step: int | None = None) -> None:
        super().__init__(step)
        self.step = step


def finite(loss: Any) -> Any:
    """The loss, where it is a number."""
    if not torch.isfinite(loss).all():
        raise NotFiniteError
    return loss


def arguments(config: BaseTraining, out: Path, rows: int, *, evaluate: bool) -> Any:
    """`TrainingArguments` for a training of `rows` rows in the folder `out`. With `evaluate`, the weights with the
    lowest loss on held-out rows are kept: AUC alone would keep an early model that ranks well and states no chances."""
    steps = max(1, math.ceil(config.epochs * math.ceil(math.ceil(rows / config.batch) / config.accumulate)))
    every = max(1, math.ceil(steps / config.evals))
    cuda = torch.cuda.is_available()
    bf16 = config.dtype == "bfloat16" or (config.dtype == "auto" and cuda and torch.cuda.is_bf16_supported())
    return transformers.TrainingArguments(
        output_dir=str(out / CHECKPOINTS),
        max_steps=steps,
        per_device_train_batch_size=config.batch,
        per_device_eval_batch_size=2 * config.batch,
        gradient_accumulation_steps=config.accumulate,
        learning_rate=config.lr,
        lr_scheduler_type="cosine",
        warmup_steps=math.ceil(config.warmup * steps),
        weight_decay=config.weight_decay,
        **({_CHECKPOINTING: True} if config.gradient_checkpointing else {}),
        bf16=bf16,
        seed=config.seed,
        eval_strategy="steps" if evaluate else "no",
        eval_steps=every,
        save_strategy="steps",
        save_steps=every,
        save_total_limit=2,
        load_best_model_at_end=evaluate,
        metric_for_best_model="eval_loss" if evaluate else None,
        greater_is_better=False if evaluate else None,
        logging_steps=every,
        logging_nan_inf_filter=False,
        remove_unused_columns=False,
        label_names=["labels"],
        report_to="none",
        disable_tqdm=True,
        use_cpu=not cuda and not torch.backends.mps.is_available(),
        dataloader_pin_memory=cuda,
    )


def callbacks(config: BaseTraining, report: Progress, *, evaluate: bool) -> list[Any]:
    """The guard and, where there is something to measure it by, the early stop."""
    found: list[Any] = [Guard(report)]
    if evaluate and config.patience:
        found.append(transformers.EarlyStoppingCallback(early_stopping_patience=config.patience))
    return found


def with_lora(model: Any, rank: int, kind: str) -> Any:
    """The model with LoRA on all linear layers but the head, which is trained in full; itself where `rank` is 0."""
    if not rank:
        return model
    import peft

    heads = ["score"] if kind == "SEQ_CLS" and hasattr(model, "score") else None
    settings = peft.LoraConfig(
        task_type=kind, r=rank, lora_alpha=2 * rank, target_modules="all-linear", modules_to_save=heads
    )
    return peft.get_peft_model(model, settings)


def merged(model: Any) -> Any:
    """The plain model, LoRA worked into its weights."""
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model


def run(trainer: Any, out: Path, report: Progress) -> None:
    """Train, from the last checkpoint where there is one.

    Raises `TrainingError`: where the loss is no number (the checkpoints stay), and where memory does not suffice.
    """
    place = out / CHECKPOINTS
    last = get_last_checkpoint(str(place)) if place.is_dir() else None
    if last is not None:
        report(f"goes on from {Path(last).name}")
    try:
        trainer.train(resume_from_checkpoint=last)
    except NotFiniteError as error:
        kept = get_last_checkpoint(str(place)) if place.is_dir() else None
        where = f"the last good checkpoint is {kept}" if kept else "no checkpoint was written yet"
        step = trainer.state.global_step if error.step is None else error.step
        raise TrainingError(
            f"the loss or a weight is no finite number after {step:,} steps; {where}. Train again with a lower --lr "
            "(a tenth) and another --out"
        ) from None
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if not is_memory(error):
            raise
        raise TrainingError(
            "memory does not suffice. Halve --batch (and double --accumulate to keep the steps alike), train with "
            "--lora 16, with --gradient-checkpointing, or a shorter --window; the same command then needs another --out"
        ) from error


def history(trainer: Any) -> Sequence[dict[str, float]]:
    """What was logged, a mapping an entry."""
    return [dict(entry) for entry in trainer.state.log_history]
