"""`treeforge run`: problems in, training shards out."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli import options, results
from treeforge.cli.progress import progress_line


def run(
    problems: Annotated[
        str,
        typer.Argument(
            metavar="PROBLEMS", help="JSONL, JSON, CSV or Parquet file, or hf://owner/name.", show_default=False
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The run folder.", show_default=False)],
    policy: Annotated[str | None, typer.Option("--policy", help="local, server, vllm or scripted.")] = None,
    model: options.Model = None,
    preset: options.StepPreset = None,
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
    reward: options.Reward = None,
    aggregate: options.Aggregate = None,
    seed: options.Seed = None,
    server: options.Servers = None,
    servers_file: options.ServersFile = None,
    replicas: options.Replicas = None,
    concurrency: options.Concurrency = None,
    question_field: options.QuestionField = None,
    answer_field: options.AnswerField = None,
    id_field: options.IdField = None,
    skip_bad_rows: options.SkipBadRows = False,
    dry_run: options.DryRun = False,
    pilot: options.Pilot = 0.01,
    price: options.Price = None,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Grow a tree for every problem, label its steps, compress, and write training shards.

    The same command goes on where a stopped run stopped, or where `--dry-run` left off: its pilot is part of the run.
    """
    from treeforge import pipeline
    from treeforge.errors import ConfigError
    from treeforge.recipes import load_config
    from treeforge.store.problems import read_problems

    named = {"search.strategy": strategy, "budget.simulations": simulations, "seed": seed}
    named |= {"machine.replicas": replicas, "search.screen": screen, "search.keep": keep}
    overrides = [*options.machine_overrides(concurrency, server, servers_file), *(set_ or [])]
    overrides += options.named_overrides(named)
    settings = load_config(
        config, overrides, backend=policy or ("server" if server or servers_file else None), model=model, preset=preset
    )
    if keep is not None and not settings.recipe.search.screen:
        raise ConfigError("--keep is about the solutions of --screen; give --screen N too, as in --screen 8")
    file = read_problems(
        problems,
        question_field=question_field,
        answer_field=answer_field,
        id_field=id_field,
        limit=limit,
        skip_bad_rows=skip_bad_rows,
    )
    options.print_skipped(problems, file.skipped)
    scorer = options.scorer_of(reward, aggregate, settings.recipe.search.strategy)
    source = options.source_name(problems)
    if dry_run:
        with progress_line(quiet) as show:
            found = pipeline.dry_run(
                file.problems,
                out,
                settings,
                pilot=pilot,
                price=price,
                scorer=scorer,
                on_progress=show,
                source=source,
                lines=file.lines,
            )
        results.print_estimate(found, json)
        return
    with progress_line(quiet) as show:
        result = pipeline.run(
            file.problems, out, settings, scorer=scorer, on_progress=show, source=source, lines=file.lines
        )
    results.print_result(result, json)
    raise typer.Exit(results.exit_code(result))
