"""`treeforge stats`: what runs came to, in figures: of the whole, in groups, side by side, and as a page of plots."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from treeforge.cli import options, results

if TYPE_CHECKING:
    from treeforge.stats import Summary
    from treeforge.stats.compare import Comparison
    from treeforge.store.run import RunFolder


def stats(
    runs: Annotated[list[Path], typer.Argument(metavar="RUN…", help="One or more run folders.", show_default=False)],
    by: Annotated[
        Literal["depth", "problem", "strategy", "level"] | None,
        typer.Option("--by", help="Figures of groups. level: the problems' field of that name.", show_default=False),
    ] = None,
    json: options.Json = False,
    csv: Annotated[bool, typer.Option("--csv", help="Print CSV.")] = False,
    html: Annotated[
        Path | None,
        typer.Option("--html", metavar="FILE", help="Write one page with plots, readable offline.", show_default=False),
    ] = None,
    price_per_million: Annotated[
        float | None,
        typer.Option("--price-per-million", min=0.0, help="Price of a million sampled tokens.", show_default=False),
    ] = None,
    gpu_price: Annotated[
        float | None, typer.Option("--gpu-price", min=0.0, help="Price of an hour of one GPU.", show_default=False)
    ] = None,
    gpu_hours: Annotated[
        float | None,
        typer.Option(
            "--gpu-hours",
            min=0.0,
            help="Hours of all GPUs together; the working time of one if not given.",
            show_default=False,
        ),
    ] = None,
) -> None:
    """Statistics of a run's trees, outcomes, labels and cost, also while it goes on; of several runs, side by side.

    Figures are of the trees that have ended. Warnings go to stderr; `--json` has them under `warnings`.
    """
    from treeforge.errors import ConfigError
    from treeforge.stats.compare import run_names
    from treeforge.stats.cost import Prices
    from treeforge.store.run import RunFolder

    prices = Prices(per_million=price_per_million, gpu_hour=gpu_price, gpu_hours=gpu_hours)
    if json and csv:
        raise ConfigError("--json and --csv both print; give one of them")
    if by is not None and html is not None:
        raise ConfigError("--html has the groups by depth already; it cannot be given with --by")
    if html is not None:
        from treeforge.stats.page import check_page

        check_page(html)
        options.check_page_file("--html", html, runs)
    names = run_names(runs)
    folders = [RunFolder.open(run) for run in runs]
    if by is not None:
        _print_groups(list(zip(names, folders, strict=True)), by, json, csv)
        return

    from treeforge.stats import summarise

    summaries = [summarise(folder, prices) for folder in folders]
    if html is not None:
        from treeforge.stats.compare import compare
        from treeforge.stats.page import write_page

        size = write_page(html, summaries, compare(names, summaries, folders))
        typer.echo(f"{html}: {size / 1e6:.1f} MB", err=json or csv)
        if not (json or csv):
            return
    _print_summaries(names, folders, summaries, json, csv)


def _print_groups(
    runs: list[tuple[str, RunFolder]], by: Literal["depth", "problem", "strategy", "level"], json: bool, csv: bool
) -> None:
    from treeforge.stats.groups import groups

    found = groups(runs, by)
    if json:
        results.print_json(found)
        return
    from treeforge.printable import stdout_console
    from treeforge.stats.tables import MAX_ROWS, group_csv, group_table

    if csv:
        typer.echo(group_csv(found), nl=False)
        return
    stdout_console().print(group_table(found, by))
    if len(found) > MAX_ROWS:
        typer.echo(f"… and {len(found) - MAX_ROWS:,} more (--csv, --json)", err=True)


def _print_summaries(
    names: tuple[str, ...], folders: list[RunFolder], summaries: list[Summary], json: bool, csv: bool
) -> None:
    from treeforge.stats.compare import compare

    if json and len(summaries) == 1:
        results.print_json(summaries[0])
        return
    compared = compare(names, summaries, folders)
    if json:
        results.print_json({"runs": dict(zip(names, summaries, strict=True)), "comparison": compared})
    elif csv:
        from treeforge.stats.tables import comparison_csv

        typer.echo(comparison_csv(compared), nl=False)
    else:
        _print_tables(summaries, compared)


def _print_tables(summaries: list[Summary], compared: Comparison) -> None:
    from treeforge.printable import stdout_console
    from treeforge.stats.report import report
    from treeforge.stats.tables import comparison_table

    several = len(summaries) > 1
    stdout_console().print(comparison_table(compared) if several else report(summaries[0]))
    for name, summary in zip(compared.runs, summaries, strict=True):
        for warning in summary.warnings:
            typer.echo(f"warning: {name}: {warning}" if several else f"warning: {warning}", err=True)
