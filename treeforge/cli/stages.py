"""`treeforge search | compress | export`: the stages of `run`, one by one, on the same run folder, but for `label`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treeforge.cli import options

if TYPE_CHECKING:
    from treeforge.config import Config as AnyConfig

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key of this stage, as in threshold=0.7."),
]


def search(
    run: options.Run,
    server: options.Servers = None,
    servers_file: options.ServersFile = None,
    concurrency: options.Concurrency = None,
    quiet: options.Quiet = False,
) -> None:
    """Grow the trees that have not ended yet (the only stage that needs the model)."""
    from treeforge import pipeline

    machine = options.machine_for(run, None, options.machine_overrides(concurrency, server, servers_file))
    with options.progress_line(quiet) as show:
        progress = pipeline.search(run, machine=machine, on_progress=show)
    typer.echo(f"{run}: {progress.finished} of {progress.trees} trees; next: treeforge label {run}")


def compress(run: options.Run, set_: Overrides = None, json: options.Json = False) -> None:
    """Hierarchical Node Compression of the labelled trees (keys: probability, min_children, rule, seed …)."""
    from treeforge import pipeline
    from treeforge.config import CompressConfig

    report = pipeline.compress(run, stage_config(run, "compress", CompressConfig, set_))
    print_report(report, json)


def export(
    run: options.Run,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the dataset; RUN/dataset if not given.")
    ] = None,
    formats: Annotated[list[str] | None, typer.Option("--format", help="nodes or hrm. May be repeated.")] = None,
    set_: Overrides = None,
    json: options.Json = False,
) -> None:
    """Training shards of the trees that have ended, also while the run goes on (keys: rows_per_shard, test_share …)."""

    from treeforge import pipeline
    from treeforge.config import ExportConfig

    overrides = list(set_ or [])
    if formats:
        overrides.append("formats=[" + ", ".join(f"'{name}'" for name in formats) + "]")
    summary = pipeline.export(run, stage_config(run, "export", ExportConfig, overrides), out=out)
    if json:
        options.print_json({"path": str(summary.path), "rows": summary.rows})
        return
    options.print_dataset(summary)


def stage_config(run: Path, section: str, kind: type[AnyConfig], overrides: list[str] | None) -> Any:
    """The manifest's settings of a view, with overrides."""
    from treeforge.config import convert, parse_overrides
    from treeforge.store.run import RunFolder

    return convert({**RunFolder.open(run).manifest[section], **parse_overrides(overrides or [])}, kind)


def print_report(report: dict[str, Any], as_json: bool) -> None:
    """A view's counts, one a line."""

    if as_json:
        options.print_json(report)
        return
    width = max(len(name) for name in report)
    for name, value in report.items():
        shown = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
        typer.echo(f"{name.replace('_', ' '):<{width}}  {shown}")
