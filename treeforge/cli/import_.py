"""`treeforge import`: labelled reasoning of other projects as a run, without a model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli import options, results


def import_(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", help="The file; a folder, for hrm-pickle and openr.", show_default=False)
    ],
    format: Annotated[
        str,
        typer.Option(
            "--format",
            help="prm800k, math-shepherd, prm, processbench, openr, rest-mcts or hrm-pickle.",
            show_default=False,
        ),
    ],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new run folder.", show_default=False)],
    neutral: Annotated[
        str | None,
        typer.Option(
            "--neutral", help="prm800k: a neutral rating gives no label (skip, if not given), positive or negative."
        ),
    ] = None,
    finished_only: Annotated[
        bool, typer.Option("--finished-only", help="prm800k: leave out rows that the labeller gave up on.")
    ] = False,
    tag: options.Tag = None,
    limit: Annotated[int | None, typer.Option("--limit", min=1, help="The first so many rows.")] = None,
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="Leave out rows that cannot be used, and count them.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Read step labels of other projects into a run folder that stats, show, compress and export work on.

    Their labels stay what they are: people's ratings or another engine's values, never counts of rollouts.
    """
    from treeforge.cli.stages import print_report
    from treeforge.configuration import convert
    from treeforge.export.readers import ReadOptions
    from treeforge.importing import import_file

    options.check_of_format(
        format,
        {
            "--neutral": (neutral, "prm800k"),
            "--finished-only": (finished_only or None, "prm800k"),
            "--tag": (tag, "math-shepherd"),
        },
    )
    given = {"neutral": neutral, "finished_only": finished_only, "tag": tag}
    read = convert({name: value for name, value in given.items() if value is not None}, ReadOptions)
    report = import_file(file, format, out, options=read, limit=limit, skip_bad_rows=skip_bad_rows)
    if json:
        results.print_json(report)
        return
    counts = {
        name: getattr(report, name) for name in report.__struct_fields__ if name not in ("endings", "first_skipped")
    }
    print_report(counts | {f"ended {name}": count for name, count in report.endings.items()}, False)
    if report.first_skipped:
        from treeforge.printable import one_line

        typer.echo(f"The first row left out: {one_line(report.first_skipped)}", err=True)
    typer.echo(f"\nNext: treeforge export {out}")
