"""`treeforge resume`: go on after any stop."""

from __future__ import annotations

from typing import Annotated

import typer

from treeforge.cli import options, results
from treeforge.cli.progress import progress_line


def resume(
    run: options.Run,
    retry_errors: Annotated[
        bool,
        typer.Option(
            "--retry-errors",
            help="Ask again for the requests that were given up, and grow those trees again, and all that failed.",
        ),
    ] = False,
    accept_engine: Annotated[
        bool, typer.Option("--accept-engine", help="Go on though another engine, or version of it, runs the model.")
    ] = False,
    reward: options.Reward = None,
    aggregate: options.Aggregate = None,
    server: options.Servers = None,
    servers_file: options.ServersFile = None,
    concurrency: options.Concurrency = None,
    config: options.Config = None,
    set_: options.Set = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Go on with a run: nothing that is in its journal is generated again.

    Settings of the machine (`--set machine.…`, `--server`, `--servers-file`) may change; another recipe is refused.
    """
    from treeforge import pipeline

    machine = options.machine_for(
        run, config, [*options.machine_overrides(concurrency, server, servers_file), *(set_ or [])]
    )
    scorer = options.scorer_of(reward, aggregate)
    with progress_line(quiet) as show:
        result = pipeline.resume(
            run,
            machine=machine,
            scorer=scorer,
            retry_errors=retry_errors,
            accept_engine=accept_engine,
            on_progress=show,
        )
    results.print_result(result, json)
    raise typer.Exit(results.exit_code(result))
