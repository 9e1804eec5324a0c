"""Groups and comparisons as tables of a terminal and as CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group as Lines
from rich.console import RenderableType
from rich.table import Table
from rich.text import Text

from treeforge.stats.compare import Comparison, Figure
from treeforge.stats.groups import Group
from treeforge.stats.words import figure_text, number_text, percent_text, short_count

MAX_ROWS = 400
"""Groups in a table at most; `--csv` and `--json` have all."""
_DIFFERS = "≠"
_LEGEND = "ended: completions · correct: of the decided ones · value, interval (its width): means of steps"


def group_table(groups: Sequence[Group], by: str) -> RenderableType:
    """A line a group; with a column of runs where there are several."""
    table = Table(box=None, header_style="bold", pad_edge=False, padding=(0, 1, 0, 0))
    several = len({group.run for group in groups}) > 1
    if several:
        table.add_column("run", overflow="fold")
    table.add_column(by, justify="right" if by == "depth" else "left", overflow="fold")
    table.add_column("status" if by == "problem" else "problems", justify="right")
    for name in ("nodes", "tokens", "ended", "correct", "labels", "positive", "value", "interval"):
        table.add_column(name, justify="right", no_wrap=True)
    for group in groups[:MAX_ROWS]:
        cells = [group.run] if several else []
        cells += [group.group, group.status if by == "problem" else short_count(group.problems)]
        cells += [short_count(count) for count in (group.nodes, group.tokens, group.completions)]
        cells += [percent_text(group.share_correct), short_count(group.positive + group.negative)]
        cells += [percent_text(group.positive_share), number_text(group.mean_value, 2)]
        cells.append(number_text(group.mean_interval, 2))
        table.add_row(*map(Text, cells))
    return Lines(table, Text(_LEGEND, "dim"))


def comparison_table(found: Comparison) -> RenderableType:
    """The figures with a column a run, then the settings that differ. `≠` marks figures that are not the same in all
    runs; beside a figure stands its change from the first run.
    """
    figures = _columns(found.runs)
    section = ""
    for figure in found.figures:
        if figure.section != section:
            section = figure.section
            figures.add_row("", Text(section, "bold"))
        mark = Text(_DIFFERS if figure.differs else "", "yellow")
        figures.add_row(mark, Text(f"  {figure.name}"), *(Text(cell) for cell in figure_cells(figure)))
    if not found.settings:
        return Lines(figures, Text(" The runs have the same settings.", "dim"))
    settings = _columns(found.runs)
    for setting in found.settings:
        settings.add_row(Text(_DIFFERS, "yellow"), Text(setting.key), *(Text(value or "–") for value in setting.values))
    return Lines(figures, Text(" Settings that differ", "bold"), settings)


def figure_cells(figure: Figure) -> list[str]:
    """A figure of every run as text, with its change from the first."""
    first = figure.values[0]
    return [figure_text(figure.kind, value) + _change(figure.kind, first, value) for value in figure.values]


def _change(kind: str, first: float | None, value: float | None) -> str:
    if first is None or value is None or first == value:
        return ""
    if kind == "share":
        return f" ({100 * (value - first):+.1f} pp)"
    return f" ({(value - first) / first:+.0%})" if first else ""


def group_csv(groups: Iterable[Group]) -> str:
    """A line a group, all its fields; what is unknown is empty."""
    names = Group.__struct_fields__
    return csv_text(names, ([getattr(group, name) for name in names] for group in groups))


def comparison_csv(found: Comparison) -> str:
    """A line a figure, a column a run; then a line a setting that differs."""
    rows: list[list[object]] = [[f.section, f.key, f.name, int(f.differs), *f.values] for f in found.figures]
    rows += [["settings", setting.key, setting.key, 1, *setting.values] for setting in found.settings]
    return csv_text(("section", "key", "name", "differs", *found.runs), rows)


def csv_text(names: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """Rows as CSV under their names; None is empty."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue()


def _columns(runs: Sequence[str]) -> Table:
    table = Table(box=SIMPLE_HEAD, header_style="bold")
    table.add_column("")
    table.add_column("")
    for name in runs:
        table.add_column(Text(name), justify="right", overflow="fold")
    return table
