"""`treeforge view`: a run as a local web page, or as one file that needs no server."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli import options


def view(
    run: options.Run,
    host: Annotated[str, typer.Option("--host", help="Interface to answer on; not loopback: behind a token.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option("--port", min=0, max=65535, help="Port; 0 is any free one.")] = 8765,
    bundle: Annotated[
        Path | None,
        typer.Option("--bundle", metavar="FILE", help="Write one HTML file to read offline, instead of serving."),
    ] = None,
    problem: Annotated[
        list[str] | None,
        typer.Option("--problem", metavar="PROBLEM", help="Only this problem in the bundle. May be repeated."),
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, help="Trees in the bundle at most.")] = 50,
) -> None:
    """Look at a run in the browser: problems, trees, every step with its evidence, training rows, live progress.

    The page is read-only and loads nothing from anywhere else. Ctrl-C ends it.
    """
    from treeforge.errors import ConfigError, MissingExtraError

    try:
        import latex2mathml.converter  # noqa: F401 - asked for now, needed later
        import uvicorn  # noqa: F401

        from treeforge.view.server import address_of, is_loopback, listen, new_token, serve
    except ModuleNotFoundError as error:
        raise MissingExtraError("`treeforge view`", "view") from error
    from treeforge.view.reader import RunReader

    if problem and bundle is None:
        raise ConfigError("--problem chooses what goes into a bundle; name its file with --bundle")
    reader = RunReader(run)
    if bundle is not None:
        from treeforge.view.bundle import write_bundle

        options.check_page_file("--bundle", bundle, [run])
        written = write_bundle(reader, bundle, problem or (), limit)
        typer.echo(f"{bundle}: {written.trees} trees, {written.size / 1e6:.1f} MB")
        if written.left_out:
            typer.echo(f"{written.left_out:,} more trees are not in it (--limit, --problem)", err=True)
        return
    listening = listen(host, port)
    token = "" if is_loopback(host) else new_token()
    typer.echo(f"{run}: {address_of(host, listening.getsockname()[1], token)}")
    typer.echo("Ctrl-C ends it.", err=True)
    serve(reader, listening, host=host, token=token)
