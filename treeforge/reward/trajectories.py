"""Good trajectories for self-training: questions as the policy is asked them, and solutions without a bad step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from treeforge.config import StepsConfig
from treeforge.configuration import convert
from treeforge.errors import ConfigError, DataError
from treeforge.export.readers.base import At
from treeforge.hashing import digest, encode_text
from treeforge.policy.prompts import PRESETS, render, render_chat
from treeforge.reward.data import MIN_ROWS, held_out_problems, source_files
from treeforge.store.rows import read_rows
from treeforge.store.run import RunFolder

Prompter = Callable[[Any, str], str]
"""From a tokenizer and a question to the exact text that the policy continues."""


class Trajectory(NamedTuple):
    """One solution."""

    question: str
    completion: str
    problem_id: str


class Trajectories(NamedTuple):
    """What self-training reads."""

    train: list[Trajectory]
    validation: list[Trajectory]
    files: dict[str, str]
    """SHA-256 of each file, by its name."""
    left_out: int
    """Trajectories with a step below the threshold, or without values."""


def read_trajectories(data: Path | str, threshold: float, eval_share: float) -> Trajectories:
    """Read the rows of an `sft` export whose `value`, the least of a trajectory's steps, is at least the threshold.

    `data`: as for `treeforge.reward.data.read_data`. Raises `DataError` (file, line, field) where rows have no such
    shape or too few are left.
    """
    train: list[Trajectory] = []
    validation: list[Trajectory] = []
    files: dict[str, str] = {}
    left_out = 0
    split_known = False
    for split, source, name, digest_ in source_files(str(data), ("sft",), "policy"):
        files[name] = digest_
        split_known |= split == "validation"
        for line, row in read_rows(source):
            try:
                if isinstance(row, DataError):
                    raise row
                found = _trajectory(At(row), threshold)
            except DataError as error:
                raise DataError(error.problem, path=source, line=line, field=error.field, fix=error.fix) from None
            if found is None:
                left_out += 1
            else:
                (validation if split == "validation" else train).append(found)
    if not split_known and eval_share:
        held = held_out_problems({row.problem_id for row in train}, eval_share)
        validation = [row for row in train if row.problem_id in held]
        train = [row for row in train if row.problem_id not in held]
    if len(train) < MIN_ROWS:
        raise DataError(
            f"has {len(train)} trajectories with a value of at least {threshold:g} ({left_out:,} are below it or have "
            f"no value); at least {MIN_ROWS} are needed",
            path=str(data),
            fix="Lower the threshold (--set threshold=0.8), or grow more trees",
        )
    return Trajectories(train, validation, files, left_out)


def _trajectory(row: At, threshold: float) -> Trajectory | None:
    question, completion = _content(row["prompt"], "user"), _content(row["completion"], "assistant")
    value, problem = row.get("value"), row.get("problem_id")
    if value is None or value.share() < threshold:
        return None
    name = digest(encode_text(question)).hex() if problem is None else problem.text()
    return Trajectory(question, completion, name)


def _content(at: At, role: str) -> str:
    """The text of the last turn of this role; a plain text is itself."""
    if isinstance(at.value, str):
        return at.text()
    turns = [turn for turn in at.items() if turn["role"].value == role]
    if not turns:
        raise at.error(f"has no turn of the {role}", "Export it with --format sft")
    return turns[-1]["content"].text()


def prompter(name: str, data: Path | str) -> Prompter:
    """How questions are put, by `PolicyTraining.prompt`. Raises `ConfigError` where there is no such preset."""
    place = Path(str(data))
    if not name and (place / "manifest.json").exists():
        return _of_steps(convert(RunFolder.open(place).manifest["recipe"]["steps"], StepsConfig))
    if name in ("", "chat"):
        return lambda tokenizer, question: _chat(tokenizer, [{"role": "user", "content": question}])
    if name not in PRESETS:
        raise ConfigError(f"prompt: there is no preset {name!r}; there are chat, {', '.join(PRESETS)}")
    return _of_steps(PRESETS[name].steps)


def _of_steps(steps: StepsConfig) -> Prompter:
    if steps.template == "completion":
        return lambda tokenizer, question: render(steps, question, "")
    return lambda tokenizer, question: _chat(tokenizer, render_chat(steps, question, ""))


def _chat(tokenizer: Any, messages: list[dict[str, str]]) -> str:
    if not tokenizer.chat_template:
        raise ConfigError(
            "the base's tokenizer has no chat template, which this prompt needs; name a preset that needs none: "
            "--set prompt=smollm"
        )
    started = messages[-1]["role"] == "assistant"
    text: str = tokenizer.apply_chat_template(
        messages, tokenize=False, add_generation_prompt=not started, continue_final_message=started
    )
    return text
