"""`treeforge pull`: a run's trees back from the Hugging Face Hub."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli.progress import hide_bars


def pull(
    repo: Annotated[str, typer.Argument(metavar="OWNER/NAME", help="The dataset on the Hub.", show_default=False)],
    out: Annotated[Path, typer.Option("--out", "-o", help="The new run folder.", show_default=False)],
    revision: Annotated[str | None, typer.Option("--revision", help="A branch, tag or commit.")] = None,
) -> None:
    """Bring back the trees that `treeforge push --trees` uploaded, as a run folder without a journal.

    They can be labelled, compressed, exported and shown, and not grown further.
    """
    from treeforge.export.hub_pull import pull as pull_from_hub

    hide_bars()
    run = pull_from_hub(repo, out, revision=revision)
    typer.echo(f"{out}: {len(run.problems)} problems; next: treeforge label {out}")
