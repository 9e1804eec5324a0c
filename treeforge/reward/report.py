"""What an evaluation came to, as tables of a terminal and as CSV. Every figure has its interval."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence

from rich.table import Table
from rich.text import Text

from treeforge.reward.evaluate import Curve, Evaluation, Point
from treeforge.reward.step_quality import StepQuality
from treeforge.stats.bootstrap import Figure
from treeforge.stats.tables import csv_text
from treeforge.stats.words import UNKNOWN

Row = tuple[object, ...]
_COLUMNS = ("source", "way", "model", "scores", "at", "measure", "value", "low", "high")


def accuracy_table(found: Evaluation) -> Table:
    """Accuracy by N in percent, a row a way to choose."""
    return _by_size("right, %", found.curves, lambda point: _cell(point.accuracy, _percent))


def majority_table(found: Evaluation) -> Table | None:
    """Percentage points above the majority vote, a row a model's way to choose; None without models."""
    asked = [curve for curve in found.curves if curve.model]
    if not asked:
        return None
    return _by_size("above majority", asked, lambda point: _cell(point.over_majority, _points))


def first_table(found: Evaluation) -> Table | None:
    """Percentage points above the first model's best-of-N, a row another one's; None without others."""
    models = [curve for curve in found.curves if curve.kind == "best-of-n"]
    if len(models) < 2:
        return None
    return _by_size(f"above {models[0].name}", models[1:], lambda point: _cell(point.over_first, _points))


def closing_lines(found: Evaluation) -> list[str]:
    """Of what the figures are, and what is not in them."""
    lines = [
        f"{found.problems:,} problems with {found.samples:,} samples; {found.confidence:.0%} intervals, bootstrapped "
        "over problems"
    ]
    if found.left_out:
        lines.append("Left out: " + ", ".join(f"{count:,} with {why}" for why, count in found.left_out.items()))
    if found.undecided:
        lines.append(f"{found.undecided:,} samples are undecided and count as wrong")
    if found.errors:
        lines.append(f"{found.errors:,} requests that the engine failed count nowhere")
    return lines


def step_table(found: Sequence[StepQuality], name: str) -> Table:
    """Step scores against people's labels in the file `name`, a row a model and kind of scores."""
    table = _table(name, ("F1", "erroneous", "correct", "AUC", "agreement", "kappa"))
    for row in found:
        label = Text(f"{row.model}\n")
        label.append(f"{row.by} < {row.threshold:.3g}", "dim")
        errors, steps = row.quality.first_errors, row.quality.steps
        figures = (errors.f1, errors.erroneous, errors.correct, row.auc, steps.agreement, steps.kappa)
        table.add_row(label, *(_cell(figure, _number) for figure in figures))
    return table


def step_line(found: Sequence[StepQuality]) -> str:
    """Of what the figures of `step_table` are."""
    quality = found[0].quality
    return (
        f"{quality.steps.steps:,} steps that people labelled, {quality.steps.wrong:,} of them wrong; first errors of "
        f"{quality.first_errors.solutions:,} solutions; {quality.confidence:.0%} intervals, bootstrapped over problems"
    )


def evaluation_csv(found: Evaluation | None, steps: Mapping[str, Sequence[StepQuality]]) -> str:
    """A line a figure. `steps`: by what the file was given as."""
    rows = [] if found is None else list(_evaluation_rows(found))
    for source, judged in steps.items():
        for row in judged:
            rows += _step_rows(source, row)
    return csv_text(_COLUMNS, rows)


def _evaluation_rows(found: Evaluation) -> Iterator[Row]:
    for curve in found.curves:
        for point in curve.points:
            named = {
                "accuracy": point.accuracy,
                "over majority": point.over_majority,
                "over first": point.over_first,
            }
            for measure, figure in named.items():
                if figure is not None:
                    yield _row(found.run, curve.kind, curve.model, curve.aggregate, point.n, measure, figure)


def _step_rows(source: str, row: StepQuality) -> Iterator[Row]:
    errors, steps = row.quality.first_errors, row.quality.steps
    named = {"F1": errors.f1, "erroneous": errors.erroneous, "correct": errors.correct, "AUC": row.auc}
    named |= {"agreement": steps.agreement, "kappa": steps.kappa}
    for measure, figure in named.items():
        yield _row(source, "steps", row.model, row.by, row.threshold, measure, figure)


def _row(source: str, way: str, model: str, scores: str, at: float, measure: str, figure: Figure) -> Row:
    return source, way, model, scores, at, measure, figure.value, figure.low, figure.high


def _by_size(title: str, curves: Sequence[Curve], cell: Callable[[Point], Text]) -> Table:
    table = _table(title, [f"N={point.n}" for point in curves[0].points])
    for curve in curves:
        table.add_row(Text(curve.name), *map(cell, curve.points))
    return table


def _table(title: str, columns: Sequence[str]) -> Table:
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    table.add_column(title, overflow="fold")
    for column in columns:
        table.add_column(column, justify="right", no_wrap=True)
    return table


def _cell(figure: Figure | None, shown: Callable[[float, int], str]) -> Text:
    """The figure, and its interval below it."""
    if figure is None or figure.value is None or figure.low is None or figure.high is None:
        return Text(UNKNOWN)
    cell = Text(shown(figure.value, 1) + "\n")
    cell.append(f"{shown(figure.low, 0)}…{shown(figure.high, 0)}", "dim")
    return cell


def _percent(share: float, digits: int) -> str:
    return f"{100 * share:.{digits}f}"


def _points(share: float, digits: int) -> str:
    return f"{round(100 * share, digits) + 0.0:+.{digits}f}"  # no -0


def _number(value: float, digits: int) -> str:
    return f"{round(value, 2 + digits) + 0.0:.{2 + digits}f}"  # no -0
