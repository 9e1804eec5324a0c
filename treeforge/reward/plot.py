"""The plot of accuracy by N: a line a reward model with the band of its interval, the votes and the limits dashed."""

from __future__ import annotations

import html
from pathlib import Path
from typing import Any

from treeforge.errors import ConfigError, MissingExtraError
from treeforge.printable import one_line, printable
from treeforge.reward.evaluate import Evaluation
from treeforge.reward.report import closing_lines
from treeforge.stats.bootstrap import Figure
from treeforge.store.files import atomic_file

SUFFIXES = (".svg", ".png", ".html")
_COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, which people with any colour vision tell apart; more models than that differ by their points."""
_SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
_LIMITS = {"oracle": ("#000000", [2, 2]), "majority": ("#555555", [8, 3]), "random": ("#8c8c8c", [4, 4, 1, 4])}
LOOK_FOR = (
    "A good reward model rises with N and stays above the majority vote; one that falls as N grows is being",
    "fooled: the more solutions, the likelier one that only looks right. The oracle is the most that any can reach.",
)


def check_plot(file: Path) -> None:
    """Before the work: `ConfigError` where `file` cannot be the plot's, `MissingExtraError` without vl-convert."""
    if file.suffix.lower() not in SUFFIXES:
        raise ConfigError(f"--plot {file}: the name must end in one of {', '.join(SUFFIXES)}")
    if file.is_dir():
        raise ConfigError(f"--plot {file}: that is a folder; name a file in it, as in {file / 'accuracy.svg'}")
    try:
        import vl_convert  # noqa: F401 - asked for now, needed later
    except ModuleNotFoundError as error:
        raise MissingExtraError("`treeforge evaluate --plot`", "report") from error


def write_plot(file: Path, found: Evaluation) -> None:
    """Write the plot atomically, as the suffix of `file` says; a page is readable offline and runs no script."""
    import vl_convert

    spec = specification(found)
    match file.suffix.lower():
        case ".png":
            data = vl_convert.vegalite_to_png(spec, scale=2, allowed_base_urls=[])
        case ".html":
            data = _page(found, vl_convert.vegalite_to_svg(spec, allowed_base_urls=[])).encode()
        case _:
            data = vl_convert.vegalite_to_svg(spec, allowed_base_urls=[]).encode()
    with atomic_file(file) as stream:
        stream.write(data)


def specification(found: Evaluation) -> dict[str, Any]:
    """Vega-Lite of the lines of best-of-N, the majority vote, and both limits; weighted votes stand in the table."""
    curves = [curve for curve in found.curves if curve.kind != "weighted vote"]
    names = [curve.name for curve in curves]
    models = [curve.name for curve in curves if curve.model]
    sizes = [point.n for point in curves[0].points]
    rows = [{"way": curve.name, "n": point.n} | _columns(point.accuracy) for curve in curves for point in curve.points]
    colour = {name: _COLOURS[at % len(_COLOURS)] for at, name in enumerate(models)}
    dash: dict[str, list[int]] = {name: [] for name in models}
    for curve in curves:
        if not curve.model:
            colour[curve.name], dash[curve.name] = _LIMITS[curve.kind]

    def by_way(values: list[Any]) -> dict[str, Any]:
        return {
            "field": "way",
            "type": "nominal",
            "title": None,
            "legend": {"symbolOpacity": 1},
            "scale": {"domain": names, "range": values},
        }

    x = {
        "field": "n",
        "type": "quantitative",
        "title": "N, solutions to choose among",
        "scale": {"type": "log", "base": 2, "nice": False},
        "axis": {"values": sizes, "format": "d"},
    }
    y = {
        "field": "accuracy",
        "type": "quantitative",
        "title": "chosen solution is right",
        "scale": {"zero": False},
        "axis": {"format": "%"},
    }
    coloured = by_way([colour[name] for name in names])
    shaped = by_way([_SHAPES[at % len(_SHAPES)] for at in range(len(names))])
    dashed = by_way([dash[name] for name in names])
    about = [*LOOK_FOR, *map(one_line, closing_lines(found)[:1])]
    return {
        "$schema": "https://vega.github.io/schema/vega-lite/v6.json",
        "title": {"text": "Accuracy by N", "subtitle": about, "anchor": "start", "subtitleColor": "#57606a"},
        "background": "white",
        "width": 640,
        "height": 360,
        "data": {"values": rows},
        "encoding": {"x": x, "color": coloured},
        "layer": [
            {
                "mark": {"type": "area", "opacity": 0.12},
                "encoding": {"y": y | {"field": "low"}, "y2": {"field": "high"}},
            },
            {"mark": {"type": "line", "strokeWidth": 2}, "encoding": {"y": y, "strokeDash": dashed}},
            {"mark": {"type": "point", "filled": True, "size": 45}, "encoding": {"y": y, "shape": shaped}},
        ],
        "config": {"legend": {"labelLimit": 300, "symbolSize": 90}, "view": {"stroke": None}},
    }


def _columns(figure: Figure) -> dict[str, float | None]:
    return {"accuracy": figure.value, "low": figure.low, "high": figure.high}


def _page(found: Evaluation, svg: str) -> str:
    """The plot with its figures as a table. Names are escaped; the page's own policy forbids scripts and requests."""
    sizes = [point.n for point in found.curves[0].points]
    head = "".join(f'<th scope="col">N={size}</th>' for size in sizes)
    body = []
    for curve in found.curves:
        cells = "".join(f"<td>{point.accuracy.text()}</td>" for point in curve.points)
        body.append(f'<tr><th scope="row">{_escaped(curve.name)}</th>{cells}</tr>')
    said = "".join(f"<p>{_escaped(line)}.</p>" for line in closing_lines(found))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>Accuracy by N</title>'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        "<style>body{font:15px/1.5 system-ui,sans-serif;margin:2rem auto;max-width:60rem;padding:0 1rem}"
        "svg{max-width:100%;height:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
        "th,td{padding:.2rem .75rem .2rem 0;text-align:left;border-bottom:1px solid #d8dee4}</style></head>"
        f"<body><h1>Accuracy by N</h1><p>{_escaped(' '.join(LOOK_FOR))}</p>{svg}"
        f'<div style="overflow-x:auto"><table><thead><tr><th></th>{head}</tr></thead><tbody>{"".join(body)}</tbody>'
        f"</table></div>{said}</body></html>\n"
    )


def _escaped(text: str) -> str:
    return html.escape(printable(text))
