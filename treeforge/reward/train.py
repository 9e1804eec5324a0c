"""`treeforge train`: a reward model from training rows. The transformers `Trainer` does the training, peft LoRA."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from treeforge.configuration import to_dict
from treeforge.reward.data import TrainingData, read_data
from treeforge.reward.encode import padded
from treeforge.reward.heads import Judge, chances, need_transformers, open_judge
from treeforge.reward.measures import Measures, measure
from treeforge.reward.rows import Counts, Rows
from treeforge.reward.saved import DONE, Saved, begin, finish, read_saved, write_saved
from treeforge.reward.settings import TrainConfig

if TYPE_CHECKING:
    from treeforge.reward.trainer import Progress


def train(data: Path | str, out: Path, config: TrainConfig, progress: Callable[[str], None] | None = None) -> Saved:
    """Train a reward model on the rows of `data` (`treeforge.reward.data.read_data`) into the folder `out`.

    The folder is a plain model of transformers (LoRA is merged), with `reward.json` and a card. Stopped at any moment,
    the same call goes on from the last checkpoint; a finished one is returned as it is. The weights that are kept are
    those with the lowest loss on held-out problems.

    Raises `DataError` before a model is loaded (rows that cannot be read, too few, all of one label), `ConfigError`
    (settings, a base that is no model, `out` holds another training), `TrainingError` (no finite loss, no memory) and
    `MissingExtraError`.
    """
    report = progress or (lambda line: None)
    found = read_data(data, config.task, hnc=config.hnc, soft=config.head == "soft", eval_share=config.eval_share)
    for note in found.notes:
        report(note)
    found = found._replace(
        train=found.train.draw(config.limit, config.seed), validation=found.validation.first_problems(config.eval_limit)
    )
    with begin(out, config, found.files, DONE):
        if (done := read_saved(out)) is not None:
            report(f"{out} is trained already")
            finish(out)
            return done
        need_transformers()
        rows, held = len(found.train), len(found.validation)
        report(f"{rows:,} rows to learn from, {held:,} to measure by; loading {config.model}")
        judge = open_judge(config.model, config.head, config.window, seed=config.seed)
        return _train(judge, found, out, config, report)


def _train(judge: Judge, data: TrainingData, out: Path, config: TrainConfig, report: Progress) -> Saved:
    from treeforge.reward import trainer as training

    soft = config.head == "soft"
    train_set, held = _Encoded(data.train, judge, soft), _Encoded(data.validation, judge, soft)
    evaluate = len(held) > 0
    paths = data.validation.paths()
    kind = "CAUSAL_LM" if config.head == "token" else "SEQ_CLS"
    trainer = training.BucketTrainer(
        sizes=data.train.sizes(),
        model=training.with_lora(judge.model, config.lora, kind),
        args=training.arguments(config, out, len(train_set), evaluate=evaluate),
        data_collator=lambda rows: _batch(rows, judge),
        train_dataset=train_set,
        eval_dataset=held if evaluate else None,
        compute_loss_func=_loss(judge, config, data.train),
        compute_metrics=lambda found: _figures(_measured(data.validation, chances(found.predictions), paths)),
        preprocess_logits_for_metrics=lambda logits, labels: judge.narrow(
            logits[0] if isinstance(logits, tuple) else logits
        ),
        callbacks=training.callbacks(config, report, evaluate=evaluate),
    )
    training.run(trainer, out, report)
    report("writing the model")
    measured = _measured(data.validation, chances(trainer.predict(held).predictions), paths) if evaluate else None
    training.save(trainer, judge.tokenizer, out)
    saved = Saved(
        task=config.task,
        head=config.head,
        window=config.window,
        base=config.model,
        settings=to_dict(config),
        files=data.files,
        train=Counts.of(data.train),
        validation=Counts.of(data.validation),
        truncated=train_set.truncated(),
        steps=trainer.state.global_step,
        kept_step=training.kept_step(trainer),
        measures=measured or measure(np.zeros(0, dtype=np.int8), np.zeros(0)),
    )
    write_saved(out, saved)
    finish(out)
    return saved


class _Encoded:
    """Rows as the Trainer's dataset: encoded when they are asked for."""

    def __init__(self, rows: Rows, judge: Judge, soft: bool) -> None:
        self._rows, self._encoder = rows, judge.encoder
        self._labels = rows.soft if soft else rows.hard.astype(np.float64)

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        return self.__getitems__([place])[0]

    def __getitems__(self, places: list[int]) -> list[dict[str, Any]]:
        """A whole batch at once, as torch's loaders ask for it."""
        encoded = self._encoder.encode(self._rows.windows(places))
        return [
            {"input_ids": ids, "label": self._labels[place]} for (ids, _), place in zip(encoded, places, strict=True)
        ]

    def truncated(self) -> int:
        """Rows that are cut to the window."""
        starts = range(0, len(self._rows), 1024)
        return sum(cut for at in starts for _, cut in self._encoder.encode(self._rows.windows(slice(at, at + 1024))))


def _batch(rows: list[dict[str, Any]], judge: Judge) -> dict[str, Any]:
    import torch

    labels = torch.tensor([row["label"] for row in rows], dtype=torch.float32)
    return {**padded([row["input_ids"] for row in rows], judge.pad), "labels": labels, **judge.more_inputs}


def _loss(judge: Judge, config: TrainConfig, rows: Rows) -> Callable[..., Any]:
    """The loss of a batch, by the head."""
    import torch
    from torch.nn import functional

    from treeforge.reward.trainer import finite

    weights = [1.0, 1.0]
    if config.balance and config.head != "soft":
        counts = [int((rows.hard == label).sum()) for label in (0, 1)]
        weights = [len(rows) / (2 * count) for count in counts]

    def loss(outputs: Any, labels: Any, num_items_in_batch: Any = None) -> Any:
        if config.head == "soft":
            logits = judge.logits(outputs)[:, 0]
            if config.soft_loss == "bce":
                each = functional.binary_cross_entropy_with_logits(logits, labels, reduction="none")
            else:
                each = (torch.sigmoid(logits) - labels) ** 2
        else:
            wanted = labels.long()
            if judge.verdicts is not None:
                # Over the whole vocabulary, so that the model learns to answer with one of the two.
                vocabulary = outputs.logits[:, -1].float()
                tokens = torch.tensor(judge.verdicts, device=wanted.device)[wanted]
                each = functional.cross_entropy(vocabulary, tokens, reduction="none")
            else:
                each = functional.cross_entropy(judge.logits(outputs), wanted, reduction="none")
            each = each * torch.tensor(weights, device=each.device)[wanted]
        return finite(each.mean() if num_items_in_batch is None else each.sum() / num_items_in_batch)

    return loss


def _measured(rows: Rows, found: NDArray[np.float64], paths: list[list[int]]) -> Measures:
    """Against the hard labels; a soft label without one counts by the half that it is in."""
    labels = np.where(rows.hard >= 0, rows.hard, rows.soft > 0.5).astype(np.int8)
    return measure(labels, found, paths)


def _figures(measures: Measures) -> dict[str, float]:
    names = ("auc", "accuracy", "balanced_accuracy", "calibration_error", "first_error_f1")
    return {name: value for name in names if (value := getattr(measures, name)) is not None}
