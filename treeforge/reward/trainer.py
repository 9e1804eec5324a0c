"""The transformers `Trainer` as both kinds of training use it: arguments, batches of like lengths, guards, resuming.

Imports torch: only what trains imports this module.
"""

from __future__ import annotations

import math
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from safetensors import SafetensorError
from transformers.trainer_utils import get_last_checkpoint

from treeforge.errors import StorageError, TrainingError
from treeforge.reward.heads import is_memory
from treeforge.reward.saved import CHECKPOINTS
from treeforge.reward.settings import BaseTraining
from treeforge.store.files import storage_error

Progress = Callable[[str], None]
_STATE = "trainer_state.json"
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

    def _save_checkpoint(self, *arguments: Any, **named: Any) -> None:
        with _saving(Path(self.args.output_dir)):
            super()._save_checkpoint(*arguments, **named)


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


class EarlyStop(transformers.EarlyStoppingCallback):  # type: ignore[misc]
    """Goes on counting where a training goes on: the Trainer's own would begin anew, and stop later."""

    def on_train_begin(self, args: Any, state: Any, control: Any, **rest: Any) -> None:
        """Take up the count of the checkpoint."""
        super().on_train_begin(args, state, control, **rest)
        self.early_stopping_patience_counter = _without_improvement(state)


def _without_improvement(state: Any) -> int:
    """Evaluations without one, up to this checkpoint's."""
    kept = state.stateful_callbacks.get(EarlyStop.__name__) or {}
    return int(kept.get("attributes", {}).get("early_stopping_patience_counter", 0))


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
        warmup_steps=int(config.warmup * steps),
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
        found.append(EarlyStop(early_stopping_patience=config.patience))
    return found


def with_lora(model: Any, rank: int, kind: str) -> Any:
    """The model with LoRA on all linear layers but the head, which is trained in full; itself where `rank` is 0."""
    if not rank:
        return model
    import peft

    # peft asks models for an attribute whose name transformers 5 changed.
    warnings.filterwarnings("ignore", category=FutureWarning, module="transformers")
    heads = ["score"] if kind == "SEQ_CLS" and hasattr(model, "score") else None
    settings = peft.LoraConfig(
        task_type=kind, r=rank, lora_alpha=2 * rank, target_modules="all-linear", modules_to_save=heads
    )
    return peft.get_peft_model(model, settings)


def merged(model: Any) -> Any:
    """The plain model, LoRA worked into its weights."""
    return model.merge_and_unload() if hasattr(model, "merge_and_unload") else model


def save(trainer: Any, tokenizer: Any, out: Path) -> None:
    """Write the trained model, plain, with its tokenizer. Raises `StorageError`."""
    model = merged(trainer.model)
    with _saving(out):
        model.save_pretrained(out)
        tokenizer.save_pretrained(out)
        for weights in out.glob("*.safetensors"):  # safetensors writes files that nobody else can read
            shutil.copymode(out / "config.json", weights)


@contextmanager
def _saving(place: Path) -> Iterator[None]:
    """What torch and safetensors raise where a disk is full, as `StorageError`."""
    try:
        yield
    except OSError as error:
        raise storage_error(error, place) from error
    except (RuntimeError, SafetensorError) as error:
        if is_memory(error):
            raise
        reason = " ".join(str(error).split())[:200]
        free = f"{shutil.disk_usage(place).free / 2**20:,.0f} MiB are free there"
        raise StorageError(
            f"{place} cannot be written ({reason}); {free}. Make room, then run the same command again"
        ) from error


def run(trainer: Any, out: Path, report: Progress) -> None:
    """Train, from the last checkpoint where there is one. A training that had ended is not gone on with: its weights
    are loaded.

    Raises `TrainingError`: where the loss is no number (the checkpoints stay), and where memory does not suffice.
    `StorageError` where a checkpoint cannot be written.
    """
    place = out / CHECKPOINTS
    last = last_whole(place)
    try:
        if last is not None:
            report(f"goes on from {last.name}")
            if _take_ended(trainer, last):
                return
        trainer.train(resume_from_checkpoint=None if last is None else str(last))
        _tell_kept(trainer, report)
    except NotFiniteError as error:
        kept = last_whole(place)
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


def _tell_kept(trainer: Any, report: Progress) -> None:
    """Where the training stopped early, or the weights that are kept are not the last ones."""
    step, kept, all_ = trainer.state.global_step, kept_step(trainer), trainer.args.max_steps
    if kept != all_:
        stopped = f"stopped early at step {step:,} of {all_:,}; " if step < all_ else ""
        report(f"{stopped}kept: the weights of step {kept:,}, with the lowest held-out loss")


def kept_step(trainer: Any) -> int:
    """The step whose weights an ended training kept: the one with the lowest held-out loss, where that was measured."""
    best = trainer.state.best_global_step if trainer.args.load_best_model_at_end else None
    return int(best or trainer.state.global_step)


def last_whole(place: Path) -> Path | None:
    """The last checkpoint in a folder. What a kill or a full disk left half-written is removed: the Trainer would load
    it. The state is what it writes last."""
    while place.is_dir() and (name := get_last_checkpoint(str(place))) is not None:
        found = Path(name)
        try:
            transformers.TrainerState.load_from_json(str(found / _STATE))
        except (OSError, ValueError, TypeError):
            shutil.rmtree(found, ignore_errors=True)
            if found.exists():
                raise StorageError(f"{found} is half-written and cannot be removed; remove it by hand") from None
        else:
            return found
    return None


def _take_ended(trainer: Any, last: Path) -> bool:
    """Whether the training had ended with its last checkpoint; then the trainer has its state and weights."""
    state = transformers.TrainerState.load_from_json(str(last / _STATE))
    stops = (one for one in trainer.callback_handler.callbacks if isinstance(one, EarlyStop))
    stopped = any(_without_improvement(state) >= one.early_stopping_patience for one in stops)
    if state.global_step < trainer.args.max_steps and not stopped:
        return False
    best = state.best_global_step if trainer.args.load_best_model_at_end else None
    trainer.state = state
    trainer._load_from_checkpoint(str(last.with_name(f"checkpoint-{best}") if best else last))
    return True
