"""`treeforge push`: a run's dataset, and its trees, to the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli import options, results
from treeforge.cli.progress import hide_bars


def push(
    run: Annotated[
        Path, typer.Argument(metavar="RUN", help="The run folder, or an exported dataset.", show_default=False)
    ],
    repo: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The dataset on the Hub.", show_default=False)],
    private: Annotated[
        bool, typer.Option("--private", help="A new dataset is private; a public one is refused.")
    ] = False,
    public: Annotated[bool, typer.Option("--public", help="A new dataset is public.")] = False,
    revision: Annotated[
        str | None, typer.Option("--revision", help="A branch, or refs/pr/N to go on with a pull request.")
    ] = None,
    pr: Annotated[bool, typer.Option("--pr", help="Open a pull request.")] = False,
    trees: Annotated[bool, typer.Option("--trees", help="The run's trees too, for `treeforge pull`.")] = False,
    message: Annotated[str, typer.Option("--message", "-m", help="The commit's message.")] = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be uploaded, and ask nothing.")] = False,
    json: options.Json = False,
) -> None:
    """Upload the exported dataset of a run; the same command goes on after an interruption.

    The token comes from HF_TOKEN or `hf auth login`. What has not changed is not uploaded again.
    """
    from treeforge.errors import ConfigError
    from treeforge.export.hub import push as push_to_hub

    if private and public:
        raise ConfigError("--private and --public: a new dataset is one of the two; give one of them")
    hide_bars()
    seen = True if private else False if public else None
    report = push_to_hub(
        run, repo, private=seen, revision=revision, pr=pr, trees=trees, message=message, dry_run=dry_run
    )
    if json:
        results.print_json(report)
        return
    size = sum(report.files.values())
    if dry_run:
        for name, bytes_ in report.files.items():
            typer.echo(f"{bytes_:>14,}  {name}")
        typer.echo(f"{len(report.files)} files, {size:,} bytes, would be in {repo}")
    elif report.changed:
        typer.echo(f"{len(report.files)} files, {size:,} bytes: {report.url}")
    else:
        typer.echo(f"{repo} holds these {len(report.files)} files already; nothing was committed")
