"""`treeforge label`: labels of a run, its answers judged again by another policy, and its disputed answers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from treeforge.cli import options, results
from treeforge.cli.stages import print_report, stage_config

if TYPE_CHECKING:
    from rich.table import Table

    from treeforge.disputed import DisputedReport

_CHECK = "check."


def label(
    run: options.Run,
    recheck: Annotated[
        bool | None,
        typer.Option(
            "--recheck/--no-recheck",
            help="Judge all answers again, without the model, and label by that; back to the run's own verdicts.",
            show_default=False,
        ),
    ] = None,
    preset: options.Preset = None,
    disputed: Annotated[
        bool, typer.Option("--disputed", help="Change nothing; list the answers that a person should look at.")
    ] = False,
    limit: Annotated[int, typer.Option("--limit", min=0, help="--disputed: answers listed at most.")] = 20,
    second: Annotated[
        Path | None,
        typer.Option(
            "--second",
            metavar="FILE",
            help="Take in other judgements of the steps: problem_id (or tree_id), node_id, value and source a row.",
            show_default=False,
        ),
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            help="Override one key of this stage (threshold=0.7) or of the check policy (check.units=exact).",
        ),
    ] = None,
    json: options.Json = False,
) -> None:
    """Values of all steps from the trees, and hard and soft labels (keys: estimator, threshold, confidence …).

    `--recheck` takes the run's own policy unless `--preset` names another one; `--set check.…` changes a key of it. The
    trees stay as they are; labels, and what is made of them, rest on the new verdicts until `--no-recheck`.

    `--second` keeps what an LLM judge, a reward model or a person says of the steps beside the labels and counts where
    they agree; with `--set second=agree` a step on which they differ gets no hard label.
    """
    from treeforge import views
    from treeforge.config import LabelConfig
    from treeforge.errors import ConfigError
    from treeforge.recipes import named_check_policy
    from treeforge.store.run import RunFolder

    checks = [item.strip() for item in set_ or [] if item.strip().startswith(_CHECK)]
    settings = [item for item in set_ or [] if not item.strip().startswith(_CHECK)]
    if (preset or checks) and not recheck:
        raise ConfigError("--preset and --set check.… say how to judge again; add --recheck")
    if disputed:
        if recheck is not None or settings or second is not None:
            raise ConfigError("--disputed changes nothing; leave --recheck, --second and --set out")
        _list_disputed(run, limit, json)
        return
    config = stage_config(run, "label", LabelConfig, settings)
    if second is not None:
        if recheck is not None:
            raise ConfigError("--second takes opinions in and labels; recheck before or after it")
        print_report(views.second_opinions(run, second, config=config), json)
        return
    if recheck:
        own = RunFolder.open(run).manifest["recipe"]["judge"]["policy"]
        policy = named_check_policy(preset or own, (item.removeprefix(_CHECK) for item in checks))
        report = views.recheck(run, policy, config)
    elif recheck is None:
        report = views.label(run, config)
    else:
        report = views.own_verdicts(run, config)
    difference = report.pop("recheck", None) if not json else None
    print_report(report, json)
    if difference is not None:
        _print_difference(difference)
    elif recheck and not json:
        typer.echo("\nNo verdict is another one than the run's own.")
    if not json:
        typer.echo(f"\nNext: treeforge export {run}")


def _print_difference(found: dict[str, Any]) -> None:
    from treeforge.printable import one_line, stdout_console

    typer.echo(f"\nRechecked by the policy {one_line(found['policy']['name'])} (digest {found['digest']}).")
    if not found["verdicts"]:
        typer.echo(f"No verdict of {found['judged']:,} is another one than the run's own.")
        return
    typer.echo(
        f"Against the run's own verdicts, {found['changed']:,} of {found['judged']:,} completions changed, in "
        f"{found['problems']:,} problems; of their {found['steps']:,} steps {found['values_changed']:,} have another "
        f"value and {found['labels_changed']:,} another label"
        + "".join(f"\n  {count:,} {change}" for change, count in found["labels"].items())
    )
    console = stdout_console()
    counts = _table("from", "to", "completions", "answers")
    examples = _table("from", "to", "count", "gold", "answer", "reason", "problem")
    cells = max((console.width - 40) // 3, 12)
    for change in found["verdicts"]:
        verdicts = change["before"], change["after"]
        counts.add_row(*verdicts, f"{change['completions']:,}", f"{change['answers']:,}")
        for example in change["examples"]:
            texts = example["gold_answer"], example["answer"], example["reason"] or f"route {example['route']}"
            shown = [one_line(text, cells) for text in texts]
            examples.add_row(*verdicts, f"{example['completions']:,}", *shown, one_line(example["problem_id"], 16))
    console.print()
    console.print(counts)
    console.print()
    console.print(examples)


def _list_disputed(run: options.Run, limit: int, as_json: bool) -> None:
    import msgspec

    from treeforge.disputed import disputed_answers
    from treeforge.printable import one_line, stdout_console
    from treeforge.store.run import RunFolder

    report: DisputedReport = disputed_answers(RunFolder.open(run))
    shown = report.answers[:limit]
    if as_json:
        results.print_json(msgspec.structs.replace(report, answers=shown))
        return
    console = stdout_console()
    table = _table("count", "verdict", "route", "gold", "answer", "why", "problem")
    cells = max((console.width - 40) // 3, 12)
    for answer in shown:
        others = "; ".join(f"{name}: {verdict}" for name, verdict in answer.others.items())
        why = "; ".join(part for part in (answer.reason, others) if part) or ", ".join(answer.why)
        texts = (one_line(text, cells) for text in (answer.gold_answer, answer.answer, why))
        table.add_row(f"{answer.completions:,}", answer.verdict, answer.route, *texts, one_line(answer.problem_id, 16))
    if shown:
        console.print(table)
    counts = ", ".join(f"{count:,} {why}" for why, count in report.by_why.items())
    typer.echo(
        f"{report.disputed:,} of {report.judged:,} completions are disputed under the policy {one_line(report.policy)}"
        + (f": {counts}" if counts else "")
    )
    if len(report.answers) > len(shown):
        typer.echo(f"… and {len(report.answers) - len(shown):,} more answers (--limit)", err=True)


def _table(*columns: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for name in columns:
        table.add_column(name, justify="right" if name in ("count", "completions", "answers") else "left")
    return table
