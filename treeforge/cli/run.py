"""`treeforge run`: problems in, training shards out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli import options


def run(
    problems: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEMS", help="JSONL, JSON, CSV or Parquet file, or hf://owner/name.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder.", show_default=False)],
    policy: Annotated[str | None, typer.Option("--policy", help="local, server, vllm or scripted.")] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", help="A name of `treeforge models list`, a GGUF file, or the server's model name."),
    ] = None,
    preset: Annotated[
        str | None, typer.Option("--preset", help="Step format: smollm, qwen-chat, qwen-math, hrm-paper.")
    ] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N problems.")] = None,
    strategy: Annotated[
        str | None,
        typer.Option("--strategy", help="mcts, exhaustive, omega, step-rollouts, adaptive, best-of-n or beam."),
    ] = None,
    simulations: Annotated[int | None, typer.Option("--simulations", min=1, help="Simulations of one tree.")] = None,
    screen: Annotated[
        int | None,
        typer.Option(
            "--screen", min=1, help="Sample N solutions first; search where their share of right ones allows."
        ),
    ] = None,
    keep: Annotated[
        str | None, typer.Option("--keep", metavar="LOW..HIGH", help="--screen: that share, as in 0.1..0.9.")
    ] = None,
    seed: Annotated[int | None, typer.Option("--seed", help="The run seed.")] = None,
    server: options.Servers = None,
    servers_file: options.ServersFile = None,
    replicas: Annotated[
        int | None,
        typer.Option("--replicas", min=1, help="--policy vllm: start so many servers, each on a GPU of its own."),
    ] = None,
    concurrency: options.Concurrency = None,
    question_field: Annotated[str | None, typer.Option("--question-field", help="Field of the question.")] = None,
    answer_field: Annotated[str | None, typer.Option("--answer-field", help="Field of the gold answer.")] = None,
    id_field: Annotated[str | None, typer.Option("--id-field", help="Field of the problem's id.")] = None,
    skip_bad_rows: Annotated[bool, typer.Option("--skip-bad-rows", help="Leave bad rows out and list them.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Grow a pilot only, and say what the whole run would ask for and cost.")
    ] = False,
    pilot: Annotated[
        float, typer.Option("--pilot", min=0.0, max=1.0, help="The pilot's share of the problems.")
    ] = 0.01,
    price: Annotated[
        float | None, typer.Option("--price", min=0.0, help="Price of a million sampled tokens.", show_default=False)
    ] = None,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Grow a tree for every problem, label its steps, compress, and write training shards.

    The same command goes on where a stopped run stopped, or where `--dry-run` left off: its pilot is part of the run.
    """
    from treeforge import pipeline
    from treeforge.recipes import load_config
    from treeforge.store.problems import read_problems

    overrides = [*options.machine_overrides(concurrency, server, servers_file), *(set_ or [])]
    named = {"search.strategy": strategy, "budget.simulations": simulations, "seed": seed}
    named |= {"machine.replicas": replicas}
    for key, value in (named | {"search.screen": screen, "search.keep": keep}).items():
        if value is not None:
            overrides.append(f"{key}={value}")
    settings = load_config(
        config, overrides, backend=policy or ("server" if server or servers_file else None), model=model, preset=preset
    )
    file = read_problems(
        problems,
        question_field=question_field,
        answer_field=answer_field,
        id_field=id_field,
        limit=limit,
        skip_bad_rows=skip_bad_rows,
    )
    for row in file.skipped:
        field = f"field '{row.field}' " if row.field else ""
        typer.echo(f"skipped {problems}:{row.line}: {field}{row.why}. {row.fix}", err=True)
    # The card is published: it names the file, not where it lay.
    source = problems if "://" in problems else Path(problems).name
    if dry_run:
        with options.progress_line(quiet) as show:
            found = pipeline.dry_run(
                file.problems,
                out,
                settings,
                pilot=pilot,
                price=price,
                on_progress=show,
                source=source,
                lines=file.lines,
            )
        options.print_estimate(found, json)
        return
    with options.progress_line(quiet) as show:
        result = pipeline.run(file.problems, out, settings, on_progress=show, source=source, lines=file.lines)
    options.print_result(result, json)
    raise typer.Exit(options.exit_code(result))
