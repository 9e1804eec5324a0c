"""The `treeforge` command and its sub-commands. Nothing heavy is imported before a command runs."""

from __future__ import annotations

from typing import Annotated

import typer

from treeforge.cli import (
    annotate,
    check,
    evaluate,
    extend,
    import_,
    journal,
    label,
    models,
    pull,
    push,
    quality,
    replay,
    resume,
    run,
    score,
    show,
    stages,
    stats,
    train,
    view,
)

app = typer.Typer(
    name="treeforge",
    help="Grow labelled trees of reasoning steps and turn them into reward-model training data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
)
app.command(name="run")(run.run)
app.command(name="annotate")(annotate.annotate)
app.command(name="resume")(resume.resume)
app.command(name="extend")(extend.extend)
app.command(name="search")(stages.search)
app.command(name="label")(label.label)
app.command(name="compress")(stages.compress)
app.command(name="export")(stages.export)
app.command(name="import")(import_.import_)
app.command(name="push")(push.push)
app.command(name="pull")(pull.pull)
app.command(name="stats")(stats.stats)
app.command(name="quality")(quality.quality)
app.command(name="show")(show.show)
app.command(name="view")(view.view)
app.command(name="train")(train.train)
app.command(name="evaluate")(evaluate.evaluate)
app.command(name="score")(score.score)
app.command(name="replay")(replay.replay)
app.command(name="journal")(journal.journal)
app.command(name="check", context_settings={"ignore_unknown_options": True})(check.check)
app.add_typer(models.app, name="models")


def _version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(f"treeforge {version('treeforge')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Grow labelled trees of reasoning steps and turn them into reward-model training data."""
