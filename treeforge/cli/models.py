"""`treeforge models`: the models that the local policy knows by name."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from treeforge.cli import options, results

app = typer.Typer(
    help="Models that the local policy knows by name: list them, download one, find its file, convert it for vLLM.",
    no_args_is_help=True,
    rich_markup_mode=None,
)

Name = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A name from `treeforge models list`, or hf://OWNER/NAME/FILE.gguf@REVISION.",
        show_default=False,
    ),
]
NameOrPath = Annotated[
    str,
    typer.Argument(
        metavar="NAME",
        help="A name from the list, hf://OWNER/NAME/FILE.gguf@REVISION, or the path of a GGUF file.",
        show_default=False,
    ),
]


@app.command(name="list")
def list_(json: options.Json = False) -> None:
    """The known models: name, licence, size, whether they are downloaded, and what they are."""
    from treeforge.policy.models import cached, list_models, megabytes

    found = [(model, cached(model)) for model in list_models()]
    if json:
        import msgspec

        rows = [msgspec.to_builtins(model) | {"path": str(path) if path else None} for model, path in found]
        results.print_json(rows)
        return
    from rich.table import Table

    from treeforge.printable import stdout_console

    table = Table("name", "licence", "size", "downloaded", "about", box=None, pad_edge=False)
    for model, path in found:
        table.add_row(model.name, model.licence, megabytes(model.size), "yes" if path else "no", model.about)
    stdout_console().print(table)


@app.command()
def pull(name: Name) -> None:
    """Download a model into the cache, check it, and print its path. Nothing is downloaded twice."""
    from treeforge.policy import models

    typer.echo(models.pull(name, progress=lambda line: typer.echo(line, err=True)))


@app.command()
def path(name: NameOrPath) -> None:
    """Print the path of a model's file; an error where it is not downloaded."""
    from treeforge.policy.models import find_model

    typer.echo(find_model(name))


@app.command()
def convert(
    name: NameOrPath,
    out: Annotated[
        Path | None, typer.Option("--out", help="The folder to write; in the cache if not given.", show_default=False)
    ] = None,
) -> None:
    """Write a GGUF model as a folder that vLLM reads (weights as float32, tokenizer, chat template); print its path.

    `--policy vllm --model NAME` then finds it. Needs `pip install 'treeforge[vllm]'`.
    """
    from treeforge.policy.convert import convert as convert_model

    typer.echo(convert_model(name, out, progress=lambda line: typer.echo(line, err=True)))
