"""`treeforge extend`: more problems or more budget for a run."""

from __future__ import annotations

from typing import Annotated

import typer

from treeforge.cli import options, results
from treeforge.cli.progress import progress_line


def extend(
    run: options.Run,
    problems: Annotated[str | None, typer.Option("--problems", help="A file of problems to add, as for `run`.")] = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="Only the first N problems of the file.")] = None,
    budget: Annotated[
        list[str] | None,
        typer.Option(
            "--budget",
            metavar="KEY=VALUE",
            help="A larger budget, as in simulations=64 or run_tokens=1000000. May be repeated.",
        ),
    ] = None,
    reward: options.Reward = None,
    aggregate: options.Aggregate = None,
    server: options.Servers = None,
    servers_file: options.ServersFile = None,
    concurrency: options.Concurrency = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Add problems or budget to a run. What is in its journal is paid for once and used again."""
    from treeforge import pipeline
    from treeforge.configuration import parse_overrides
    from treeforge.store.problems import read_problems

    machine = options.machine_for(run, None, options.machine_overrides(concurrency, server, servers_file))
    file = read_problems(problems, limit=limit) if problems else None
    more, lines = (file.problems, file.lines) if file else ((), {})
    scorer = options.scorer_of(reward, aggregate)
    with progress_line(quiet) as show:
        result = pipeline.extend(
            run,
            problems=more,
            budget=parse_overrides(budget or []),
            machine=machine,
            scorer=scorer,
            on_progress=show,
            lines=lines,
        )
    results.print_result(result, json)
    raise typer.Exit(results.exit_code(result))
