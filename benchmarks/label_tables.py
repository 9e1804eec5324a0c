"""Tables and plots of label efficiency. Used by label_efficiency*.py."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from statistics import NormalDist
from typing import Any

import numpy as np
from label_points import MANY, Point
from rich import box
from rich.console import Console
from rich.table import Table


def worlds_of(points: Sequence[Point]) -> list[str]:
    """The worlds of some points, in order."""
    return list(dict.fromkeys(point.world for point in points))


def cheapest(curve: Sequence[tuple[float, float]], wrong: float) -> float:
    """Tokens a label at which a curve of (tokens, wrong share) comes down to `wrong`, log-linear between its points.

    Infinite where it does not get there; the fewest tokens of the curve where it is there from the start.
    """
    ordered = sorted(curve)
    for i, (price, rate) in enumerate(ordered):
        if rate <= wrong:
            if i == 0:
                return price
            before, higher = ordered[i - 1]
            return math.exp(math.log(before) + (higher - wrong) / (higher - rate) * math.log(price / before))
    return math.inf


def report(points: list[Point], console: Console, json_file: Path | None, plot_file: Path | None) -> None:
    """Print all tables of some points, and write them and their plot where asked."""
    for world in worlds_of(points):
        console.print(curve_table(points, world))
    for table in (bias_table, headline_table, soft_table):
        console.print(table(points))
    if json_file:
        json_file.write_text(json.dumps(as_json(points), indent=1))
    if plot_file:
        plot(points, plot_file)


def headline_table(points: list[Point]) -> Table:
    """What a label costs at the share of wrong labels that step-rollouts reaches, on steps that are as hard to label.

    A solution's steps are what `step-rollouts` and `adaptive` label. `omega` labels others, and easier ones: its last
    column is the price at the same share of wrong labels among the steps that it chose itself.
    """
    table = Table(title="Tokens a label at the same share of wrong hard labels", title_justify="left", box=box.MARKDOWN)
    columns = "wrong", "step-rollouts", "omega", "adaptive", "of the better", "no cache", "omega, own steps"
    for column in ("world", *columns):
        table.add_column(column, justify="left" if column == "world" else "right")
    for world in worlds_of(points):
        curves: dict[str, list[Point]] = {}
        for p in points:
            if p.world == world and p.estimator == ("smoothed" if p.strategy == "adaptive" else "policy_mean"):
                curves.setdefault(p.strategy, []).append(p)
        for level in curves["step-rollouts"]:
            wrong = level.wrong_on(level)
            if level.spend < 4:
                continue
            names = "step-rollouts", "omega", "adaptive"
            prices, uncached = (
                [cheapest([(getattr(p, cost), p.wrong_on(level)) for p in curves[name]], wrong) for name in names]
                for cost in ("price", "uncached_price")
            )
            own = cheapest([(p.price, p.per_label("wrong")) for p in curves["omega"]], wrong)
            cells = [f"{price:,.0f}" if math.isfinite(price) else "-" for price in (*prices, own)]
            shares = [f"{p[2] / min(p[:2]):.2f}" if math.isfinite(p[2]) else "-" for p in (prices, uncached)]
            table.add_row(world, f"{wrong:.1%}", *cells[:3], *shares, cells[3])
    return table


def soft_table(points: list[Point]) -> Table:
    """What a value costs at the mean absolute error that step-rollouts reaches, over the steps of whole solutions."""
    table = Table(title="Tokens a label at the same mean absolute error", title_justify="left", box=box.MARKDOWN)
    for column in (
        "world",
        "MAE",
        "step-rollouts",
        "the same, smoothed",
        "adaptive",
        "adaptive, soft",
        "of step-rollouts",
    ):
        table.add_column(column, justify="left" if column == "world" else "right")
    curves: dict[tuple[str, str, str], list[Point]] = {}
    for p in points:
        curves.setdefault((p.world, p.strategy, p.estimator), []).append(p)
    for world in worlds_of(points):
        for level in curves[world, "step-rollouts", "policy_mean"]:
            if level.spend < 4:
                continue
            error = level.per_label("absolute")
            smoothed = [
                cheapest([(p.price, p.per_label("absolute")) for p in curves.get((world, name, "smoothed"), [])], error)
                for name in ("step-rollouts", "adaptive", "adaptive, soft")
            ]
            cells = [f"{price:,.0f}" if math.isfinite(price) else "-" for price in (level.price, *smoothed)]
            share = f"{smoothed[2] / level.price:.2f}" if math.isfinite(smoothed[2]) else "-"
            table.add_row(world, f"{error:.3f}", *cells, share)
    return table


def curve_table(points: list[Point], world: str) -> Table:
    table = Table(title=f"World: {world}", title_justify="left", box=box.MARKDOWN)
    measures = "tokens/label", "no cache", "labels/1k", "wrong", "as hard", "MAE", "first", "90%", "width"
    reference = next(p for p in points if p.world == world and p.strategy == "step-rollouts")
    for column in ("strategy", "spend", "estimator", *measures):
        table.add_column(column, justify="left" if column in ("strategy", "estimator") else "right")
    for p in points:
        if p.world == world and p.estimator != "leaf_share":
            table.add_row(
                p.strategy,
                f"{p.spend:g}",
                p.estimator,
                f"{p.price:,.0f}",
                f"{p.uncached_price:,.0f}",
                f"{1000 / p.price:.1f}",
                f"{p.per_label('wrong'):.1%}",
                f"{p.wrong_on(reference):.1%}",
                f"{p.per_label('absolute'):.3f}",
                f"{p.per_label('first_right'):.0%}" if p.sums["firsts"].sum() >= 20 else "",
                f"{p.per_label('covered'):.0%}",
                f"{p.per_label('width'):.2f}",
            )
    return table


def bias_table(points: list[Point]) -> Table:
    """Mean error by strategy and estimator: over all worlds, and where it is the most standard errors from 0.

    The settings of one world look at the same problems, and are taken as if they were one draw, which is cautious.
    """
    groups: dict[tuple[str, str], dict[str, list[Point]]] = {}
    for p in points:
        groups.setdefault((p.strategy, p.estimator), {}).setdefault(p.world, []).append(p)
    limit = NormalDist().inv_cdf(1 - 0.01 / (2 * len(groups) * len(worlds_of(points))))
    table = Table(
        title=f"Mean error of values (from 0 at a family-wise 99%: beyond {limit:.1f} standard errors)",
        title_justify="left",
        box=box.MARKDOWN,
    )
    columns = "all worlds", "the world furthest from 0", "its error", "from 0", f"{MANY} outcomes or more"
    for column in ("strategy", "estimator", *columns):
        left = column in ("strategy", "estimator", "the world furthest from 0")
        table.add_column(column, justify="left" if left else "right")
    for (strategy, estimator), worlds in groups.items():
        found = {world: np.mean([p.bias for p in group], axis=0) for world, group in worlds.items()}
        mean, error = (
            np.mean([m for m, _ in found.values()]),
            np.sqrt(sum(e**2 for _, e in found.values())) / len(found),
        )
        furthest, (its_mean, its_error) = max(found.items(), key=lambda item: abs(item[1][0] / item[1][1]))
        known = sum(p.sums["many"].sum() for group in worlds.values() for p in group)
        known_error = sum(p.sums["many_error"].sum() for group in worlds.values() for p in group)
        table.add_row(
            strategy,
            estimator,
            f"{mean:+.4f} ± {error:.4f}",
            furthest,
            f"{its_mean:+.4f} ± {its_error:.4f}",
            "yes" if abs(its_mean) > limit * its_error else "no",
            f"{known_error / known:+.4f}" if known >= 1000 else "",
        )
    return table


def plot(points: list[Point], path: Path) -> None:
    """Wrong hard labels against tokens a label, a panel a world."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    worlds = worlds_of(points)
    columns = min(3, len(worlds))
    rows = -(-len(worlds) // columns)
    figure, axes = plt.subplots(
        rows, columns, figsize=(max(4 * columns, 7), 3.5 * rows), squeeze=False, constrained_layout=True
    )
    styles = {
        ("adaptive", "smoothed"): ("C3", "o-"),
        ("step-rollouts", "policy_mean"): ("C0", "s-"),
        ("step-rollouts", "smoothed"): ("C0", "s:"),
        ("omega", "policy_mean"): ("C2", "^-"),
        ("mcts", "policy_mean"): ("C7", "v-"),
    }
    for axis, world in zip(axes.flat, worlds, strict=False):
        for (strategy, estimator), (colour, style) in styles.items():
            curve = [p for p in points if (p.world, p.strategy, p.estimator) == (world, strategy, estimator)]
            reference = next(p for p in points if p.world == world and p.strategy == "step-rollouts")
            if not curve:
                continue
            prices, rates = [p.price for p in curve], [100 * p.wrong_on(reference) for p in curve]
            axis.plot(prices, rates, style, color=colour, label=f"{strategy}, {estimator}", markersize=4)
        axis.set(
            title=world,
            xscale="log",
            yscale="log",
            xlabel="tokens a label",
            ylabel="wrong hard labels, %, on steps as hard",
        )
        axis.grid(alpha=0.3, which="both")
    axes.flat[0].legend(fontsize=8)
    figure.savefig(path, dpi=110)


def as_json(points: list[Point]) -> list[dict[str, Any]]:
    """Every point's means, for a further look."""
    return [
        {
            "world": p.world,
            "strategy": p.strategy,
            "spend": p.spend,
            "estimator": p.estimator,
            "tokens_per_label": p.price,
            "tokens_per_label_without_prefix_cache": p.uncached_price,
            "tokens_per_problem": float(p.sampled.mean()),
            "bias": p.bias,
            "wrong_on_steps_as_hard": p.wrong_on(next(q for q in points if q.world == p.world)),
            **{name: p.per_label(name) for name in ("wrong", "absolute", "covered", "width", "first_right")},
        }
        for p in points
    ]
