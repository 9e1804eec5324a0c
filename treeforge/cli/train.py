"""`treeforge train`: a reward model (or the policy itself) from training rows."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from treeforge.cli import options, results


def train(
    data: Annotated[
        str,
        typer.Argument(
            metavar="DATA", help="A run, an export's folder or a file of one, or hf://owner/name.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The model's folder.", show_default=False)],
    task: Annotated[
        str | None, typer.Option("--task", help="orm, prm, hrm (if not given), or policy: self-training.")
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="The base: a folder, a name on the Hub, a .gguf file, or a known model's name."),
    ] = None,
    preset: Annotated[str | None, typer.Option("--preset", help="hrm-paper: its base and its settings.")] = None,
    head: Annotated[str | None, typer.Option("--head", help="classifier (if not given), soft or token.")] = None,
    lora: Annotated[int | None, typer.Option("--lora", min=0, help="Rank of LoRA; 0 trains all weights.")] = None,
    epochs: Annotated[float | None, typer.Option("--epochs", help="Passes over the rows.")] = None,
    lr: Annotated[float | None, typer.Option("--lr", help="The highest learning rate.")] = None,
    batch: Annotated[int | None, typer.Option("--batch", min=1, help="Rows of one forward pass.")] = None,
    accumulate: Annotated[int | None, typer.Option("--accumulate", min=1, help="Forward passes of one step.")] = None,
    window: Annotated[int | None, typer.Option("--window", help="The most tokens of a row.")] = None,
    limit: Annotated[
        int | None, typer.Option("--limit", min=1, help="The most training rows, drawn by the seed.")
    ] = None,
    gradient_checkpointing: Annotated[
        bool | None,
        typer.Option("--gradient-checkpointing/--no-gradient-checkpointing", help="Less memory, more time."),
    ] = None,
    hnc: Annotated[bool | None, typer.Option("--hnc/--no-hnc", help="hrm: rows of compressed trees too.")] = None,
    balance: Annotated[bool | None, typer.Option("--balance/--no-balance", help="Weigh both classes alike.")] = None,
    seed: options.Seed = None,
    config: Annotated[
        Path | None, typer.Option("--config", help="A TOML file of settings; the options go over them.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Another setting, as in patience=0. May be repeated."),
    ] = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Train a reward model on exported rows; or, with --task policy, the policy on its own good trajectories.

    The same command goes on where a stopped training stopped.
    """
    given = {
        "task": task,
        "model": model,
        "head": head,
        "lora": lora,
        "epochs": epochs,
        "lr": lr,
        "batch": batch,
        "accumulate": accumulate,
        "window": window,
        "limit": limit,
        "gradient_checkpointing": gradient_checkpointing,
        "hnc": hnc,
        "balance": balance,
        "seed": seed,
    }
    settings = _settings(preset, config, set_ or [], given)
    report = (lambda line: None) if quiet else (lambda line: typer.echo(line, err=True))
    from treeforge.reward.settings import PolicyTraining
    from treeforge.reward.train import train as train_reward_model

    if isinstance(settings, PolicyTraining):
        from treeforge.reward.self_training import train_policy

        done: Any = train_policy(data, out, settings, report)
    else:
        done = train_reward_model(data, out, settings, report)
    if json:
        results.print_json(done)
        return
    typer.echo(f"{out}: {done.train.rows:,} rows of {done.train.problems:,} problems, {done.steps:,} steps")
    for name, value in done.figures():
        typer.echo(f"  {name:<28} {'not defined' if value is None else f'{value:.4f}'}")


def _settings(preset: str | None, file: Path | None, overrides: list[str], given: dict[str, Any]) -> Any:
    """The settings by precedence: preset, file, options and overrides."""
    from treeforge.configuration import convert, parse_overrides, read_toml
    from treeforge.errors import ConfigError
    from treeforge.reward.settings import PRESETS, PolicyTraining, TrainConfig

    if preset is not None and preset not in PRESETS:
        raise ConfigError(f"there is no preset {preset!r}; there is {', '.join(PRESETS)}")
    chosen = PRESETS[preset] if preset else {}
    settings = {
        **chosen,
        **(read_toml(file) if file else {}),
        **{name: value for name, value in given.items() if value is not None},
        **parse_overrides(overrides),
    }
    if "model" not in settings:
        raise ConfigError("--model is missing: name the base, as in --model smollm2-135m")
    if settings.get("task") != "policy":
        return convert(settings, TrainConfig)
    del settings["task"]
    foreign = sorted(settings.keys() - set(PolicyTraining.__struct_fields__))
    if foreign:
        raise ConfigError(f"--task policy has no setting {', '.join(foreign)}")
    return convert(settings, PolicyTraining)
