"""Tables and the plot of best-of-N in the synthetic worlds. Used by reward_study.py."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from reward_curves import Curve, WorldCurves
from rich import box
from rich.console import Console
from rich.table import Table

from treeforge.stats.bootstrap import CONFIDENCE, Figure

COLOURS = {
    "one at random": "0.6",
    "majority vote": "0.35",
    "oracle": "black",
    "ORM": "C7",
    "PRM": "C3",
    "HRM": "C0",
    "HRM + HNC": "C2",
}


def report(worlds: Sequence[WorldCurves], console: Console) -> None:
    """Print all tables."""
    for found in worlds:
        console.print(accuracy_table(found))
        console.print(difference_table(found))
        console.print(chosen_table(found))
        console.print(aggregate_table(found))


def accuracy_table(found: WorldCurves) -> Table:
    """Accuracy by N in percent with its interval, a row a way to choose."""
    title = f"{found.world}: accuracy of best-of-N, % ({CONFIDENCE:.0%} interval over {found.problems} problems)"
    table = _table(title, *(f"N = {size}" for size in found.sizes), f"{found.sizes[-1]} less 2")
    for curve in found.curves:
        table.add_row(curve.name, *map(_percent, curve.accuracy), _points(curve.rise))
    return table


def difference_table(found: WorldCurves) -> Table:
    """Percentage points above the PRM by N, and each seed's accuracy at the largest N."""
    columns = [f"N = {size}" for size in found.sizes[1:]]
    table = _table(f"{found.world}: above the PRM, points", *columns, f"seeds at N = {found.sizes[-1]}, %")
    for curve in found.curves:
        if curve.over_prm:
            by_seed = " ".join(f"{100 * row[-1]:.1f}" for row in curve.by_seed)
            own = map(_points, curve.over_prm[1:]) if curve.name != "PRM" else ["" for _ in columns]
            table.add_row(curve.name, *own, by_seed)
    return table


def chosen_table(found: WorldCurves) -> Table:
    """What is sampled, and what each kind of model chooses at the largest N, in percent."""
    table = _table(f"{found.world}: what is chosen at N = {found.sizes[-1]}, %", *found.kinds)
    table.add_row("samples", *(f"{100 * share:.1f}" for share in found.kinds.values()))
    for curve in found.curves:
        if curve.chosen:
            table.add_row(curve.name, *(f"{100 * share:.1f}" for share in curve.chosen.values()))
    return table


def aggregate_table(found: WorldCurves) -> Table:
    """Accuracy by N with other aggregates than the default ones, in percent."""
    columns = [f"N = {size}" for size in found.sizes]
    table = _table(f"{found.world}: other aggregates, %", "aggregate", *columns, f"{found.sizes[-1]} less 2")
    for curve in found.others:
        shares = [f"{100 * (figure.value or 0):.1f}" for figure in curve.accuracy]
        table.add_row(curve.name, curve.aggregate, *shares, _points(curve.rise))
    return table


def plot(worlds: Sequence[WorldCurves], path: Path) -> None:
    """Accuracy by N, a panel a world; the band is the interval over problems, thin lines are seeds."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = "reward"  # the same figures give the same file
    figure, axes = plt.subplots(
        -(-len(worlds) // 2),
        2,
        figsize=(10, 3.9 * -(-len(worlds) // 2)),
        squeeze=False,
        sharey=True,
        layout="constrained",
    )
    for axis, found in zip(axes.flat, worlds, strict=False):
        for curve in found.curves:
            _line(axis.plot, axis.fill_between, curve, found.sizes)
        axis.set(
            title=found.world,
            xscale="log",
            xlabel="N, solutions to choose among",
            ylabel="chosen solution is right, %",
        )
        axis.set_xticks(found.sizes, map(str, found.sizes))
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    figure.legend(*axes.flat[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(COLOURS))
    for axis in axes.flat[len(worlds) :]:
        axis.remove()
    figure.savefig(path, dpi=110, metadata={"Date": None} if path.suffix == ".svg" else None)


def _line(plot: Callable[..., object], band: Callable[..., object], curve: Curve, sizes: Sequence[int]) -> None:
    colour = COLOURS[curve.name]
    shares = [100 * (figure.value or 0) for figure in curve.accuracy]
    asked = bool(curve.aggregate)
    plot(sizes, shares, "o-" if asked else "--", color=colour, label=curve.name, markersize=4, linewidth=1.6)
    if asked:
        low, high = ([100 * (getattr(figure, end) or 0) for figure in curve.accuracy] for end in ("low", "high"))
        band(sizes, low, high, color=colour, alpha=0.12, linewidth=0)
        for row in curve.by_seed:
            plot(sizes, [100 * value for value in row], "-", color=colour, alpha=0.3, linewidth=0.7)


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left", box=box.MARKDOWN)
    table.add_column("")
    for column in columns:
        table.add_column(column, justify="left" if column == "aggregate" else "right")
    return table


def _percent(figure: Figure) -> str:
    return f"{_share(figure.value):.1f} ({_share(figure.low):.0f}–{_share(figure.high):.0f})"


def _points(figure: Figure) -> str:
    return f"{_share(figure.value):+.1f} ({_share(figure.low):+.0f} to {_share(figure.high):+.0f})"


def _share(value: float | None) -> float:
    return 100 * (value or 0.0)
