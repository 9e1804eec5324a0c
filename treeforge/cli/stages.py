"""`treeforge search | compress | export`: the stages of `run`, one by one, on the same run folder, but for `label`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treeforge.cli import options, results
from treeforge.cli.progress import progress_line

if TYPE_CHECKING:
    from treeforge.config import Config as AnyConfig

Overrides = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one key of this stage, as in threshold=0.7."),
]


def search(
    run: options.Run,
    reward: options.Reward = None,
    aggregate: options.Aggregate = None,
    server: options.Servers = None,
    servers_file: options.ServersFile = None,
    concurrency: options.Concurrency = None,
    quiet: options.Quiet = False,
) -> None:
    """Grow the trees that have not ended yet (the only stage that needs the model)."""
    from treeforge import pipeline

    machine = options.machine_for(run, None, options.machine_overrides(concurrency, server, servers_file))
    scorer = options.scorer_of(reward, aggregate)
    with progress_line(quiet) as show:
        progress = pipeline.search(run, machine=machine, scorer=scorer, on_progress=show)
    typer.echo(f"{run}: {progress.finished} of {progress.trees} trees; next: treeforge label {run}")


def compress(
    run: options.Run,
    probability: Annotated[float | None, typer.Option(help="Chance that an eligible node merges.")] = None,
    min_children: Annotated[int | None, typer.Option(help="Nodes with fewer children never merge.")] = None,
    rule: Annotated[str | None, typer.Option(help="Which child: uniform or paper.")] = None,
    max_label_shift: Annotated[
        float | None, typer.Option(help="Refuse merges that move a node's value further than this.")
    ] = None,
    target_noise: Annotated[
        float | None, typer.Option(help="Merge until the mean value shift over all steps reaches this.")
    ] = None,
    passes: Annotated[int | None, typer.Option(help="Compressed trees made of each tree, no two alike.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the merges.")] = None,
    set_: Overrides = None,
    json: options.Json = False,
) -> None:
    """Hierarchical Node Compression of the labelled trees. Settings that are given stay the run's."""
    from treeforge import views
    from treeforge.config import CompressConfig

    flags = {
        "probability": probability,
        "min_children": min_children,
        "rule": rule,
        "max_label_shift": max_label_shift,
        "target_noise": target_noise,
        "passes": passes,
        "seed": seed,
    }
    report = views.compress(run, stage_config(run, "compress", CompressConfig, set_, flags))
    by_depth = {} if json else report.pop("by_depth")
    print_report(report, json)
    if by_depth:
        _print_depths(by_depth)


def export(
    run: options.Run,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Folder of the dataset; RUN/dataset if not given.")
    ] = None,
    formats: Annotated[
        list[str] | None,
        typer.Option(
            "--format",
            help="hrm, nodes, prm, math-shepherd, prm800k, rlhflow, tokens, preference, kto, orm, sft, rl or "
            "processbench. May be repeated; the first becomes the dataset's default configuration. Or graphml, dot, "
            "mermaid: a file a tree, in RUN/graphs.",
        ),
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="PROBLEM", help="graphml, dot, mermaid: only this tree. Repeatable."),
    ] = None,
    tokenizer: Annotated[
        str | None, typer.Option(metavar="PATH_OR_NAME", help="Of tokens: a tokenizer.json, its folder, or a Hub name.")
    ] = None,
    min_rollouts: Annotated[
        int | None, typer.Option(min=0, help="Leave out labels with fewer outcomes behind them.")
    ] = None,
    max_interval: Annotated[
        float | None, typer.Option(min=0, help="Leave out labels whose value's interval is wider.")
    ] = None,
    balance: Annotated[
        bool | None, typer.Option("--balance/--no-balance", help="As many rows of the one label as of the other.")
    ] = None,
    dedupe: Annotated[str | None, typer.Option(metavar="HOW", help="Leave out duplicates: off, exact or near.")] = None,
    where: Annotated[
        str | None, typer.Option(metavar="SQL", help="A condition on columns, as in 'span = 1 AND rollouts >= 8'.")
    ] = None,
    decontaminate: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="Leave out problems that share a 13-gram with this benchmark. Repeatable."),
    ] = None,
    set_: Overrides = None,
    json: options.Json = False,
) -> None:
    """Training shards of the trees that have ended, also while the run goes on (keys: rows_per_shard, test_share …)."""

    from treeforge import views
    from treeforge.config import ExportConfig
    from treeforge.export.formats.stepwise import AFTER
    from treeforge.printable import counted, one_line

    filters = {
        "tokenizer": tokenizer,
        "min_rollouts": min_rollouts,
        "max_interval": max_interval,
        "balance": balance,
        "dedupe": dedupe,
        "where": where,
        "decontaminate": decontaminate or None,
    }
    if _export_graphs(run, out, formats or [], problem or [], bool(set_) or any(filters.values()), json):
        return
    flags = {"formats": formats or None, **filters}
    summary = views.export(run, stage_config(run, "export", ExportConfig, set_, flags), out=out)
    if json:
        results.print_json(
            {
                "path": str(summary.path),
                "rows": summary.rows,
                "left_out": summary.left_out,
                "dropped": summary.dropped,
                "contaminated": summary.contaminated,
            }
        )
        return
    results.print_dataset(summary)
    for name, reasons in summary.left_out.items():
        typer.echo(f"Left out of {name}: " + ", ".join(f"{count:,} × {reason}" for reason, count in reasons.items()))
    if any(AFTER in reasons for reasons in summary.left_out.values()):
        typer.echo("A chain needs labels from its first step on; --format hrm has every labelled step")
    for reason, count in summary.dropped.items():
        typer.echo(f"Dropped: {count:,} × {reason}")
    for name, ids in summary.contaminated.items():
        problems = counted(len(ids), "problem")
        typer.echo(f"Share an n-gram with {one_line(name)}, left out: {problems}, listed on the card")


def _export_graphs(
    run: Path, out: Path | None, formats: list[str], problems: list[str], other_options: bool, json: bool
) -> bool:
    """Write trees as graphs where `formats` asks for that; whether it did."""
    from treeforge.errors import ConfigError
    from treeforge.printable import counted
    from treeforge.view.graphs import choose_graph_formats, write_graphs

    chosen = choose_graph_formats(formats)
    if not chosen:
        if problems:
            raise ConfigError("--problem goes with --format graphml, dot or mermaid")
        return False
    if other_options:
        raise ConfigError(f"--format {', '.join(chosen)} writes whole trees; of the other options it takes --problem")
    from treeforge.store.run import RunFolder

    folder = RunFolder.open(run)
    out = out or run / "graphs"
    trees = write_graphs(folder, out, chosen, [folder.number_of(problem) for problem in problems])
    if json:
        results.print_json({"path": str(out), "trees": trees, "files": trees * len(chosen)})
    else:
        typer.echo(f"{out}: {counted(trees, 'tree')} as {', '.join(chosen)}")
    return True


def stage_config(
    run: Path,
    section: str,
    kind: type[AnyConfig],
    overrides: list[str] | None,
    flags: dict[str, Any] | None = None,
) -> Any:
    """The manifest's settings of a view, with overrides and the flags that were given (not None).

    A key may have the section before it, as `run --set` wants it.
    """
    from treeforge.configuration import convert, parse_overrides
    from treeforge.errors import ConfigError
    from treeforge.store.run import RunFolder

    changes = {key.removeprefix(f"{section}."): value for key, value in parse_overrides(overrides or []).items()}
    given = {name: value for name, value in (flags or {}).items() if value is not None}
    try:
        return convert({**RunFolder.open(run).manifest[section], **changes, **given}, kind)
    except ConfigError as error:
        name = re.split(r"\W", str(error), maxsplit=1)[0]
        if name not in given:
            raise
        option = f"--{name.replace('_', '-')} ({section}.{name})"
        raise ConfigError(option + str(error).removeprefix(name)) from None


def print_report(report: dict[str, Any], as_json: bool) -> None:
    """A view's counts, one a line."""

    if as_json:
        results.print_json(report)
        return
    width = max(len(name) for name in report)
    for name, value in report.items():
        shown = f"{value:.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)
        typer.echo(f"{name.replace('_', ' '):<{width}}  {shown}")


def _print_depths(by_depth: dict[str, dict[str, Any]]) -> None:
    names = ("eligible", "merges", "changed", "hard_flips", "shift_sum", "shift_max")
    typer.echo("\ndepth " + " ".join(f"{name.replace('_', ' '):>10}" for name in names))
    for depth, values in by_depth.items():
        typer.echo(f"{depth:>5} " + " ".join(f"{_number(values[name]):>10}" for name in names))


def _number(value: float) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value:,}"
