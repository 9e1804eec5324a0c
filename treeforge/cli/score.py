"""`treeforge score`: solutions that exist, and what a reward model says of their steps."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO

import typer

from treeforge.cli import options
from treeforge.cli.progress import count_line

if TYPE_CHECKING:
    from treeforge.reward.score import LoadedModel


def score(
    model: Annotated[
        str,
        typer.Argument(
            metavar="MODEL",
            help="A folder of `treeforge train`, hf://OWNER/NAME, or http://HOST:PORT?folder=FOLDER of a server.",
            show_default=False,
        ),
    ],
    solutions: options.Solutions,
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="The JSON lines; stdout if not given.", show_default=False),
    ] = None,
    aggregate: options.Aggregate = None,
    format: options.SolutionFormat = None,
    batch: Annotated[
        int | None, typer.Option("--batch", min=1, help="Windows of one forward pass, or of one request.")
    ] = None,
    limit: options.GoodRows = None,
    preset: options.StepPreset = None,
    question_field: options.QuestionField = None,
    id_field: options.IdField = None,
    solution_field: options.SolutionField = None,
    tag: options.Tag = None,
    skip_bad_rows: options.SkipBadRows = False,
    set_: options.Set = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
) -> None:
    """Score the steps of solutions by a reward model: singly, in pairs (hrm), and as a whole; a JSON line a solution.

    Texts are split into steps by the step format (`--preset`, `--set steps.…`): take that of the model's data.
    """
    from treeforge.annotating import read_solutions
    from treeforge.errors import ConfigError
    from treeforge.recipes import load_config
    from treeforge.reward.base import check_aggregate
    from treeforge.reward.score import load_reward_model, score_file

    if out is not None:
        options.check_written("--out", out, solutions)
        if "://" not in model and Path(model).expanduser().resolve() in out.resolve().parents:
            raise ConfigError(f"--out: {out} is in the folder of the model; name a file elsewhere")
    options.check_of_format(format, {"--tag": (tag, "math-shepherd")})
    if format is not None and solution_field is not None:
        raise ConfigError(f"--solution-field is for plain rows; leave it or --format {format} out")
    how = None if aggregate is None else check_aggregate(aggregate)
    recipe = load_config(None, set_ or [], preset=preset).recipe
    file = read_solutions(
        solutions,
        recipe,
        format=format,
        question_field=question_field,
        id_field=id_field,
        solution_field=solution_field,
        tag=options.STEP_TAG if tag is None else tag,
        limit=limit,
        skip_bad_rows=skip_bad_rows,
        gold=False,
    )
    options.print_skipped(solutions, file.skipped)
    loaded = load_reward_model(model, batch=batch)
    summary = _Summary()
    with _lines(out) as write, count_line(quiet, "solutions") as show:
        for line in score_file(loaded, file, recipe.steps, how, show):
            write(summary.add(line))
    _print(summary, loaded, out, as_json=json)


class _Summary:
    """What the table tells."""

    def __init__(self) -> None:
        self.steps = 0
        self.scores: dict[str, list[float]] = {}

    def add(self, line: Any) -> bytes:
        """Take in a solution; its line."""
        import msgspec

        self.steps += len(line.completions)
        for name, value in line.scores.items():
            self.scores.setdefault(name, []).append(value)
        # In ASCII: a model's text may hold control and bidi characters, which no terminal should see.
        return json.dumps(msgspec.to_builtins(line)).encode() + b"\n"

    def figures(self) -> dict[str, dict[str, float]]:
        """Of each way to aggregate: mean, lowest, median, highest."""
        import numpy as np

        return {
            name: {"mean": float(np.mean(found)), "lowest": min(found), "median": float(np.median(found))}
            | {"highest": max(found)}
            for name, found in self.scores.items()
        }


def _print(summary: _Summary, model: LoadedModel, out: Path | None, *, as_json: bool) -> None:
    """On stdout where the lines are not there."""
    figures = summary.figures()
    count = len(next(iter(summary.scores.values()), ()))
    if as_json:
        about = {"model": model.name, "identity": model.identity, "task": model.task, "out": out and str(out)}
        counts = {"solutions": count, "steps": summary.steps, "truncated": model.truncated}
        typer.echo(json.dumps(about | counts | {"scores": figures}), err=out is None)
        return
    lines = [
        f"{model.name} ({model.task}): {count:,} solutions, {summary.steps:,} steps" + (f" -> {out}" if out else ""),
        f"  {'aggregate':<14}{'mean':>8}{'lowest':>8}{'median':>8}{'highest':>8}",
        *(f"  {name:<14}" + "".join(f"{value:8.4f}" for value in row.values()) for name, row in figures.items()),
    ]
    if model.truncated:
        lines.append(f"  {model.truncated:,} windows are longer than the model's: their oldest text was cut off.")
    for line in lines:
        typer.echo(line, err=out is None)


@contextmanager
def _lines(out: Path | None) -> Iterator[Callable[[bytes], object]]:
    """What writes a line: into the file, which is there when all are, or to stdout at once."""
    if out is None:

        def write(line: bytes) -> None:
            typer.echo(line, nl=False)

        yield write
        return
    from treeforge.store.files import atomic_file

    stream: BinaryIO
    with atomic_file(out) as stream:
        yield stream.write
