"""What commands print at their end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import typer

from treeforge.cli.progress import cached_share, duration

if TYPE_CHECKING:
    from treeforge.pilot import Estimate
    from treeforge.pipeline import RunResult
    from treeforge.views import ExportSummary


def print_result(result: RunResult, as_json: bool) -> None:
    """How a run ended: statuses, where the shards are, and the lines that load them."""
    import msgspec

    dataset = result.dataset
    if as_json:
        data: dict[str, Any] = {
            "run": str(result.path),
            "statuses": result.statuses,
            "progress": msgspec.to_builtins(result.progress),
            "dataset": None if dataset is None else {"path": str(dataset.path), "rows": dataset.rows},
        }
        print_json(data)
        return
    typer.echo(f"{result.path}: " + ", ".join(f"{count} {status}" for status, count in sorted(result.statuses.items())))
    progress = result.progress
    if progress.prompt_tokens:
        typer.echo(
            f"  {progress.tokens:,} tokens, {progress.tokens / max(progress.search_seconds, 1e-9):,.0f} a second; "
            f"{cached_share(progress):.1%} of {progress.prompt_tokens:,} prompt tokens from the prefix cache"
        )
    if dataset is None:
        typer.echo("No tree could be labelled, so there is nothing to export. `treeforge stats` says why.")
        return
    print_dataset(dataset)


def print_estimate(found: Estimate, as_json: bool) -> None:
    """What a run would come to, a line each with its interval."""
    if as_json:
        print_json(found)
        return
    typer.echo(f"Pilot of {found.pilot_problems} of {found.problems} problems; {found.confidence:.0%} intervals.")
    typer.echo("The whole run:")
    rows = {"requests": found.requests, "completions": found.completions, "sampled tokens": found.tokens}
    for name, range_ in rows.items():
        typer.echo(f"  {name:<15} {range_.value:,.0f}  ({range_.low:,.0f} to {range_.high:,.0f})")
    if (time_ := found.seconds) is not None:
        parts = [duration(seconds) for seconds in (time_.value, time_.low, time_.high)]
        typer.echo(f"  {'time':<15} {parts[0]}  ({parts[1]} to {parts[2]}), at the pilot's speed or faster")
    if (cost := found.cost) is not None:
        typer.echo(f"  {'cost':<15} {cost.value:,.2f}  ({cost.low:,.2f} to {cost.high:,.2f})")
    typer.echo("The pilot's trees are kept: the same command without --dry-run goes on from them.")


def print_json(data: object) -> None:
    """Print structs and plain data as JSON for a script.

    In ASCII: what a model wrote may hold control and bidi characters, which no terminal should see, and an argument
    that is no UTF-8 holds lone surrogates, which only escapes can carry.
    """
    import json

    import msgspec

    typer.echo(json.dumps(msgspec.to_builtins(data)))


def print_dataset(dataset: ExportSummary) -> None:
    """Where the shards are, their rows, and the three lines that load them."""
    for name, splits in dataset.rows.items():
        typer.echo(
            f"  {name}: " + (", ".join(f"{rows:,} rows in {split}" for split, rows in splits.items()) or "no rows")
        )
    if not dataset.loading_lines:
        typer.echo(f"{dataset.path} has no rows: no step passed the filters, or none has a label.", err=True)
        return
    typer.echo(f"\nTraining shards: {dataset.path}\nLoad them with")
    for line in dataset.loading_lines:
        typer.echo(f"  {line}")


def exit_code(result: RunResult) -> int:
    """0, or 1 where a problem's tree failed: the command must not look like success to a script."""
    return 1 if result.statuses.get("failed") else 0
