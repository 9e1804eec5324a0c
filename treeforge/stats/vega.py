"""Vega-Lite specifications of plots of one run or several, which then stand beside one another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from treeforge.stats.summary import EFFECTIVE_BINS, HISTOGRAM_BINS, LabelCounts, Summary

Row = dict[str, Any]
Runs = Sequence[tuple[str, Summary]]
"""Names and summaries."""
_HEIGHT = 200


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """One plot."""

    section: str
    title: str
    look_for: str
    """What it shows and what to look for, in a sentence or two."""
    spec: dict[str, Any]
    """Vega-Lite, with its data."""


def bars(runs: Runs, rows: list[Row], section: str, title: str, what: str, look_for: str) -> Iterator[Chart]:
    """Counts by name, the runs beside one another."""
    if any(row["count"] for row in rows):
        x = amount_axis(runs, rows, "count", what)
        spec = specification(rows, "bar", x=x, y=named_axis("name", None, order="order"), runs=runs)
        yield Chart(section=section, title=title, look_for=look_for, spec=spec)


def ordered(
    runs: Runs,
    rows: list[Row],
    section: str,
    title: str,
    x: str,
    x_title: str,
    y: str,
    y_title: str,
    look_for: str,
    *,
    bins: bool = False,
) -> Iterator[Chart]:
    """Counts by a number: columns, the runs beside one another."""
    if any(row[y] for row in rows):
        across = named_axis("bin" if bins else x, x_title, order=x)
        spec = specification(rows, "bar", x=across, y=amount_axis(runs, rows, y, y_title), runs=runs)
        yield Chart(section=section, title=title, look_for=look_for, spec=spec)


def amount_axis(runs: Runs, rows: list[Row], field: str, title: str) -> Row:
    """The axis of counts; of several runs, which may be of any size, that of their shares in each run."""
    if len(runs) == 1 or not all(isinstance(row[field], int) for row in rows):
        return axis(field, title)
    totals: Counter[str] = Counter()
    for row in rows:
        totals[row["run"]] += row[field]
    for row in rows:
        row["share"] = row[field] / (totals[row["run"]] or 1)
    return axis("share", f"share of the {title}", format="%")


def counted(runs: Runs, counts: Callable[[Summary], Mapping[str, int]]) -> list[Row]:
    """Rows of counts by name; names that no run has are left out."""
    found = [(name, counts(summary)) for name, summary in runs]
    names = [key for key in dict.fromkeys(k for _, part in found for k in part) if any(p.get(key) for _, p in found)]
    return [
        {"run": run, "name": key.replace("_", " "), "order": order, "count": part.get(key, 0)}
        for run, part in found
        for order, key in enumerate(names)
    ]


def binned(labelled: Sequence[tuple[str, LabelCounts]], histogram: Callable[[LabelCounts], Sequence[int]]) -> list[Row]:
    """Rows of a histogram of numbers in [0, 1]."""
    return [
        {"run": run, "from": place, "bin": f"{place / HISTOGRAM_BINS:.1f}", "steps": steps}
        for run, found in labelled
        for place, steps in enumerate(histogram(found))
    ]


def size_bin(place: int) -> str:
    """`2–4`, or of the last bin `128+`."""
    low = EFFECTIVE_BINS[place]
    return f"{low}+" if place == len(EFFECTIVE_BINS) - 1 else f"{low}–{EFFECTIVE_BINS[place + 1]}"


def specification(rows: list[Row], mark: str, *, x: Row, y: Row, runs: Runs, point: bool = False) -> dict[str, Any]:
    """A plot of `rows`, by the colour of their `run` where there are several."""
    encoding: Row = {"x": x, "y": y}
    if len(runs) > 1:
        encoding["color"] = {"field": "run", "type": "nominal", "title": None, "sort": [name for name, _ in runs]}
        if mark == "bar":
            across = "yOffset" if y["type"] == "nominal" else "xOffset"
            encoding[across] = {"field": "run", "sort": [name for name, _ in runs]}
    height = _HEIGHT
    if y["type"] == "nominal":  # Not by `step`: beside a width that fits its page, Vega warns of it.
        height = len({row[y["field"]] for row in rows}) * (26 if len(runs) == 1 else 14 * len(runs))
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "data": {"values": rows},
        "width": "container",
        "height": height,
        "mark": {"type": mark, "tooltip": {"content": "data"}} | ({"point": True} if point else {}),
        "encoding": encoding,
    }


def axis(field: str, title: str, *, format: str = "", whole: bool = False, scale: Row | None = None) -> Row:
    """An axis of numbers; of `whole` ones without ticks between them."""
    ticks: Row = {"format": format} if format else {"tickMinStep": 1} if whole else {}
    return {"field": field, "type": "quantitative", "title": title, "axis": ticks} | ({"scale": scale} if scale else {})


def named_axis(field: str, title: str | None, *, order: str) -> Row:
    """An axis of names or bins, in the order of another field."""
    return {
        "field": field,
        "type": "nominal",
        "title": title,
        "sort": {"field": order, "op": "min"},
        "axis": {"labelAngle": 0, "labelOverlap": True},
    }
