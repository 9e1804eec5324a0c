"""`treeforge train --task policy`: the policy learns from its own trajectories all of whose steps are good.

HRM paper (arXiv 2503.13551), Section 4: loss = language modelling + lambda * log(1 + KL(reference || policy)), on the
solution's tokens only; the reference is the policy as it was.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from treeforge.configuration import to_dict
from treeforge.errors import DataError
from treeforge.reward.encode import pad_token
from treeforge.reward.heads import load_model, need_transformers
from treeforge.reward.rows import Counts
from treeforge.reward.saved import POLICY, begin, finish, write_text
from treeforge.reward.settings import PolicyTraining
from treeforge.reward.trajectories import Prompter, Trajectories, Trajectory, prompter, read_trajectories


class TrainedPolicy(msgspec.Struct, frozen=True, kw_only=True):
    """`policy.json`: where a trained policy comes from."""

    base: str
    settings: dict[str, Any]
    files: dict[str, str]
    train: Counts
    validation: Counts
    left_out: int
    """Trajectories with a step below the threshold, or without values."""
    truncated: int
    """Trajectories that are longer than the window: they lost the beginning of the prompt."""
    steps: int
    loss: float | None
    """On held-out problems, in nats a token; None where none is held out."""

    def figures(self) -> list[tuple[str, float | None]]:
        """What is measured, with its name."""
        return [("held-out loss (nats a token)", self.loss)]


def train_policy(
    data: Path | str, out: Path, config: PolicyTraining, progress: Callable[[str], None] | None = None
) -> TrainedPolicy:
    """Train on the good trajectories of `data`, an export with `sft` rows, into the folder `out`.

    The folder is a plain model of transformers with `policy.json` and a card. Resumes, and raises, as
    `treeforge.reward.train.train` does.
    """
    report = progress or (lambda line: None)
    found = read_trajectories(data, config.threshold, config.eval_share)
    found = found._replace(
        train=_draw(found.train, config.limit, config.seed), validation=_draw(found.validation, config.eval_limit, 0)
    )
    ask = prompter(config.prompt, data)
    with begin(out, config, found.files, POLICY):
        if (out / POLICY).exists():
            report(f"{out} is trained already")
            finish(out)
            return _read(out)
        return _train(found, ask, out, config, report)


def _train(
    found: Trajectories, ask: Prompter, out: Path, config: PolicyTraining, report: Callable[[str], None]
) -> TrainedPolicy:
    transformers = need_transformers()
    report(f"{len(found.train):,} trajectories to learn from ({found.left_out:,} left out); loading {config.model}")
    transformers.set_seed(config.seed)
    model, tokenizer = load_model(config.model, transformers.AutoModelForCausalLM)
    pad = pad_token(tokenizer, config.model)
    train, held = (_Encoded(rows, tokenizer, ask, config.window) for rows in (found.train, found.validation))

    from treeforge.reward import policy_loss
    from treeforge.reward import trainer as training

    reference = policy_loss.Reference.of(model, config, out, [train, held], report)
    trainer = policy_loss.PolicyTrainer(
        reference=reference,
        kl=config.kl,
        sizes=train.sizes(),
        model=training.with_lora(model, config.lora, "CAUSAL_LM"),
        args=training.arguments(config, out, len(train), evaluate=len(held) > 0),
        data_collator=lambda rows: policy_loss.batch(rows, pad),
        train_dataset=train,
        eval_dataset=held if len(held) else None,
        callbacks=training.callbacks(config, report, evaluate=len(held) > 0),
    )
    training.run(trainer, out, report)
    report("writing the model")
    trainer.remove_callback(training.Guard)  # it has told this figure already
    loss = trainer.evaluate()["eval_loss"] if len(held) else None
    training.save(trainer, tokenizer, out)
    saved = TrainedPolicy(
        base=config.model,
        settings=to_dict(config),
        files=found.files,
        train=_counts(found.train),
        validation=_counts(found.validation),
        left_out=found.left_out,
        truncated=train.truncated,
        steps=trainer.state.global_step,
        loss=loss,
    )
    _write(out, saved, found)
    reference.remove()
    finish(out)
    return saved


class _Encoded:
    """Trajectories as token ids: prompt and solution, with the solution's length."""

    def __init__(self, rows: list[Trajectory], tokenizer: Any, ask: Prompter, window: int) -> None:
        self.rows: list[tuple[list[int], int]] = []
        self.truncated = 0
        """Rows that are longer than the window."""
        end = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        for row in rows:
            prompt = tokenizer(ask(tokenizer, row.question))["input_ids"]
            if prompt[-1:] == end:
                prompt = prompt[:-1]
            text = tokenizer(row.completion, add_special_tokens=False, split_special_tokens=True)["input_ids"] + end
            ids = prompt + text
            self.truncated += len(ids) > window
            ids = ids[-window:]
            self.rows.append((ids, min(len(text), len(ids) - 1)))

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, place: int) -> dict[str, Any]:
        ids, solution = self.rows[place]
        return {"input_ids": ids, "solution": solution, "place": (id(self), place)}

    def sizes(self) -> Any:
        """int64[n]: tokens of each row."""
        import numpy as np

        return np.array([len(ids) for ids, _ in self.rows])


def _draw(rows: list[Trajectory], limit: int, seed: int) -> list[Trajectory]:
    """At most `limit` of them, at random, in their order; all where it is 0."""
    if not 0 < limit < len(rows):
        return rows
    return [rows[place] for place in sorted(random.Random(seed).sample(range(len(rows)), limit))]


def _counts(rows: list[Trajectory]) -> Counts:
    return Counts(len(rows), len(rows), len({row.problem_id for row in rows}))


def _read(out: Path) -> TrainedPolicy:
    path = out / POLICY
    try:
        return msgspec.json.decode(path.read_bytes(), type=TrainedPolicy)
    except (msgspec.DecodeError, OSError) as error:
        raise DataError(f"is damaged: {error}", path=path, fix="Train the policy again") from None


def _write(out: Path, saved: TrainedPolicy, found: Trajectories) -> None:
    loss = "not measured" if saved.loss is None else f"{saved.loss:.4f} nats a token"
    lines = [
        "---",
        "library_name: transformers",
        "tags:",
        "- treeforge",
        "---",
        "",
        f"# `{saved.base}`, trained on its own good trajectories",
        "",
        f"{saved.train.rows:,} trajectories of {saved.train.problems:,} problems whose steps all have a value of at "
        f"least {saved.settings['threshold']:g}; {saved.left_out:,} others were left out. Loss on "
        f"{saved.validation.problems:,} held-out problems: {loss}.",
        "",
        "Loss: language modelling + lambda * log(1 + KL(reference || policy)) (HRM, arXiv 2503.13551, Section 4).",
        "",
        "## Data",
        "",
        *(f"- `{name}` {digest}" for name, digest in saved.files.items()),
        "",
        "## Settings",
        "",
        *(f"- `{name}`: `{value}`" for name, value in saved.settings.items()),
        "",
    ]
    write_text(out / "README.md", "\n".join(lines))
    write_text(out / POLICY, msgspec.json.format(msgspec.json.encode(saved), indent=2).decode() + "\n")
