"""`treeforge check`: the answer checker on one pair, or on a file of pairs."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from treeforge.cli import options, results

if TYPE_CHECKING:
    from treeforge.answer_pairs import PairsReport
    from treeforge.label import CheckPolicy

_OPTION = re.compile(r"--[a-z]")


def check(
    prediction: Annotated[
        str | None,
        typer.Argument(
            metavar="[PREDICTION]", help="A bare answer or a whole solution; - reads stdin.", show_default=False
        ),
    ] = None,
    gold: Annotated[str | None, typer.Argument(metavar="[GOLD]", help="The gold answer.", show_default=False)] = None,
    pairs: Annotated[
        Path | None,
        typer.Option(
            "--pairs",
            metavar="FILE",
            help="JSONL, JSON, CSV or Parquet with the fields prediction, gold and, if known, equal (true, false).",
        ),
    ] = None,
    preset: options.Preset = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="Override one key of the policy, as in units=exact."),
    ] = None,
    explain: Annotated[bool, typer.Option("--explain", help="One pair: how both answers were read, too.")] = False,
    out: Annotated[
        Path | None, typer.Option("--out", metavar="FILE", help="--pairs: write every judgement, a JSON line each.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=0, help="--pairs: disagreements shown at most.")] = 20,
    prediction_field: Annotated[
        str, typer.Option("--prediction-field", help="--pairs: the field of the prediction.")
    ] = "prediction",
    gold_field: Annotated[str, typer.Option("--gold-field", help="--pairs: the field of the gold answer.")] = "gold",
    equal_field: Annotated[
        str, typer.Option("--equal-field", help="--pairs: the field that says whether the two are the same answer.")
    ] = "equal",
    skip_bad_rows: Annotated[
        bool, typer.Option("--skip-bad-rows", help="--pairs: leave bad rows out and list them.")
    ] = False,
    json: options.Json = False,
) -> None:
    """Judge whether an answer is the gold answer, as the search does (policies: docs/labels.md).

    Exit codes: 0 correct, or all pairs as expected; 1 any other verdict, or a pair that is not as expected; 2 usage or
    bad input.
    """
    from treeforge.errors import ConfigError
    from treeforge.recipes import named_check_policy

    policy = named_check_policy(preset, set_ or [])
    if pairs is None:
        if out is not None:
            raise ConfigError("--out goes with --pairs")
        for given, name in ((prediction, "PREDICTION"), (gold, "GOLD")):
            if given is None:
                raise ConfigError(f"{name} is missing; write treeforge check PREDICTION GOLD, or --pairs FILE")
            # Unknown options pass for arguments, so that -3 is an answer; a mistyped option is none.
            if _OPTION.match(given):
                raise ConfigError(f"there is no option {given}; see treeforge check --help")
        assert prediction is not None
        assert gold is not None
        if prediction == "-":
            prediction = typer.get_text_stream("stdin", errors="replace").read()
        raise typer.Exit(_check_one(prediction, gold, policy, explain, json))
    if prediction is not None:
        raise ConfigError(f"{prediction!a}: give either two answers or --pairs FILE")
    if explain:
        raise ConfigError("--explain is for one pair; --out has the reason of every pair's verdict")
    from treeforge.answer_pairs import check_pairs

    report = check_pairs(
        pairs,
        policy,
        limit=limit,
        out=out,
        skip_bad_rows=skip_bad_rows,
        prediction_field=prediction_field,
        gold_field=gold_field,
        equal_field=equal_field,
    )
    _print_pairs(report, policy, json)
    raise typer.Exit(1 if report.wrongly_correct + report.wrongly_different else 0)


def _check_one(prediction: str, gold: str, policy: CheckPolicy, explain: bool, as_json: bool) -> int:
    from treeforge import label
    from treeforge.printable import one_line, print_lines, printable, stdout_console
    from treeforge.verdict import Verdict

    said = label.check(prediction, gold, policy)
    verdict = said.verdict.name.lower()
    explanation = label.explain(prediction, gold, policy) if explain else ""
    if as_json:
        data = {"verdict": verdict, "answer": said.answer, "route": said.route, "reason": said.reason}
        results.print_json(data | ({"explanation": explanation.splitlines()} if explain else {}))
    else:
        from rich.text import Text

        shown = [
            f"verdict  {verdict}",
            f"answer   {one_line(said.answer)}",
            f"route    {said.route}",
            *([f"reason   {one_line(said.reason)}"] if said.reason else []),
        ]
        lines = printable(explanation).splitlines() if explain else shown
        print_lines(stdout_console(), map(Text, lines))
    return 0 if said.verdict is Verdict.CORRECT else 1


def _print_pairs(report: PairsReport, policy: CheckPolicy, as_json: bool) -> None:
    import msgspec

    from treeforge.printable import printable

    for row in report.skipped:
        typer.echo(f"skipped {printable(row)}", err=True)
    if as_json:
        data = {"policy": msgspec.to_builtins(policy)} | msgspec.to_builtins(report)
        results.print_json(data)
        return
    from rich.table import Table

    from treeforge.printable import one_line, stdout_console

    console = stdout_console()
    counts = Table("verdict", "route", "pairs", "share", box=None, pad_edge=False)
    counts.columns[2].justify = counts.columns[3].justify = "right"
    for verdict, routes in report.verdicts.items():
        for route, count in routes.items():
            counts.add_row(verdict, route, f"{count:,}", f"{count / report.pairs:.1%}")
    console.print(counts)
    print(f"{report.pairs:,} pairs by the policy {one_line(policy.name)}", file=sys.stdout)
    if not report.expected:
        return
    wrong = report.wrongly_correct + report.wrongly_different
    typer.echo(
        f"{report.expected - wrong:,} of {report.expected:,} as expected ({1 - wrong / report.expected:.2%}); "
        f"{report.wrongly_correct:,} wrongly correct, {report.wrongly_different:,} wrongly not"
    )
    if not report.disagreements:
        return
    cells = max((console.width - 34) // 3, 12)
    table = Table("line", "expected", "verdict", "answer", "gold", "reason", box=None, pad_edge=False)
    for pair in report.disagreements:
        texts = (pair.answer or pair.prediction, pair.gold, pair.reason or f"route {pair.route}")
        expected = "equal" if pair.equal else "different"
        table.add_row(str(pair.line), expected, pair.verdict, *(one_line(text, cells) for text in texts))
    console.print()
    console.print(table)
    if wrong > len(report.disagreements):
        typer.echo(f"… and {wrong - len(report.disagreements):,} more (--limit)", err=True)
