"""`treeforge journal`: what the journal holds, what it cost, and `--compact`."""

from __future__ import annotations

from typing import Annotated

import typer

from treeforge.cli import options, results


def journal(
    run: options.Run,
    price: Annotated[
        float | None, typer.Option("--price", min=0.0, help="Price of a million sampled tokens.", show_default=False)
    ] = None,
    compact: Annotated[
        bool, typer.Option("--compact", help="Write it anew with one dictionary and give the space back, first.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Completions, tokens, size and cost of a run's journal, and what was paid for and brought little.

    `--compact` needs the run to be at rest, and room for a second journal while it works.
    """
    import msgspec

    from treeforge.stats.journal import journal_report
    from treeforge.store.run import RunFolder

    if compact:
        with RunFolder.open(run) as folder:
            folder.lock()
            assert folder.journal is not None
            folder.journal.compact()
    report = journal_report(run, price)
    if json:
        data = msgspec.to_builtins(report)
        results.print_json(data | {"bytes_per_completion": report.bytes_per_completion, "cost": report.cost})
        return
    tokens = max(report.tokens, 1)
    rows = {
        "requests": f"{report.requests:,}",
        "completions": f"{report.completions:,} (" + ", ".join(f"{n:,} {f}" for f, n in report.finish.items()) + ")",
        "tokens": f"{report.tokens:,}",
        "given up": f"{report.given_up:,} requests",
        "truncated": f"{report.truncated_tokens:,} tokens ({report.truncated_tokens / tokens:.1%})",
        "duplicates": f"{report.duplicate_completions:,} completions, {report.duplicate_tokens:,} tokens "
        f"({report.duplicate_tokens / tokens:.1%})",
        "on disk": f"{report.bytes / 1e6:,.1f} MB, {report.bytes_per_completion:,.0f} bytes a completion",
        "samples": f"{report.payload_bytes / 1e6:,.1f} MB, of {report.plain_bytes / 1e6:,.1f} MB of text",
    }
    if report.cost is not None:
        rows["cost"] = f"{report.cost:,.2f}"
    for name, value in rows.items():
        typer.echo(f"{name:<12} {value}")
