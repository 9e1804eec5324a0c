"""`treeforge stats`: what a run came to, in figures."""

from __future__ import annotations

import typer

from treeforge.cli import options


def stats(run: options.Run, json: options.Json = False) -> None:
    """Statistics of a run's trees, outcomes, labels and cost, also while it goes on.

    Figures are of the trees that have ended. Warnings go to stderr; `--json` has them under `warnings`.
    """

    from treeforge.stats import summarise
    from treeforge.store.run import RunFolder

    summary = summarise(RunFolder.open(run))
    if json:
        options.print_json(summary)
        return
    from treeforge.printable import stdout_console
    from treeforge.stats.report import report

    stdout_console().print(report(summary))
    for warning in summary.warnings:
        typer.echo(f"warning: {warning}", err=True)
