"""`treeforge quality`: step labels against those that people gave."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli import options, results


def quality(
    labels: Annotated[
        Path,
        typer.Argument(
            metavar="RUN_OR_LABELS",
            help="A labelled run; a file or folder in export shape prm or hrm.",
            show_default=False,
        ),
    ],
    against: Annotated[
        Path, typer.Option("--against", metavar="FILE", help="People's step labels.", show_default=False)
    ],
    format: Annotated[
        str | None, typer.Option("--format", help="FILE's format: prm800k or processbench; guessed if not given.")
    ] = None,
    seed: Annotated[int, typer.Option("--seed", help="Of the intervals' resamples.")] = 0,
    json: options.Json = False,
) -> None:
    """Compare step labels with people's: agreement, Cohen's kappa, and whether the first wrong step is found.

    Steps are matched by the problem's text and all text up to the step's end. Intervals: bootstrap over problems.
    """
    from treeforge.stats import quality as compared

    found = compared.quality(labels, against, format=format, seed=seed)
    if json:
        results.print_json(found)
        return
    from rich.table import Table

    from treeforge.printable import one_line, stdout_console

    table = Table(box=None, pad_edge=False)
    for name in ("", "steps", "problems", "wrong", "agreement", "kappa"):
        table.add_column(name, justify="right" if name else "left")
    for name, group in compared.rows(found):
        counts = (f"{count:,}" for count in (group.steps, group.problems, group.wrong))
        table.add_row(one_line(name, 24), *counts, group.agreement.text(), group.kappa.text())
    stdout_console().print(table)
    errors = found.first_errors
    typer.echo(
        f"\nFirst errors, {errors.solutions:,} of {found.human_solutions:,} solutions: F1 {errors.f1.text()}, "
        f"found in {errors.erroneous.text()} of the wrong ones, none claimed in {errors.correct.text()} of the right "
        "ones"
    )
    typer.echo(
        f"{found.steps.steps:,} of {found.human_steps:,} steps that people labelled have a label here; "
        f"{found.confidence:.0%} intervals, bootstrapped over problems"
    )
