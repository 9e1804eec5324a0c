"""`treeforge replay`: the tables again from manifest and journal, without the model."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli import options, results


def replay(
    run: options.Run,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", help="Keep what is made as a new run folder.", show_default=False)
    ] = None,
    reward: options.Reward = None,
    aggregate: options.Aggregate = None,
    json: options.Json = False,
) -> None:
    """Make a run's tables again from its manifest and journal alone, and compare them with those that stand there.

    Trees, and labels, compressed trees and the dataset where the run has them. Nothing in the run is changed. The exit
    code is 1 where a table differs.
    """
    import msgspec

    from treeforge import pipeline

    found = pipeline.replay(run, out, scorer=options.scorer_of(reward, aggregate))
    if json:
        results.print_json(msgspec.to_builtins(found, enc_hook=str) | {"same": found.same})
    else:
        typer.echo(f"{found.trees} trees grown again from {found.requests:,} requests of the journal, none asked anew.")
        if found.unused:
            typer.echo(f"{found.unused:,} requests of these trees lie in the journal and are used by none.")
        for name, how in found.files.items():
            if how != "same":
                typer.echo(f"  {name}: {how}")
        typer.echo(
            f"{sum(how == 'same' for how in found.files.values())} of {len(found.files)} tables are the same bytes."
        )
        if out is not None:
            typer.echo(f"They are in {out}.")
    raise typer.Exit(0 if found.same else 1)
