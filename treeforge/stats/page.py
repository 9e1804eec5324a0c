"""The page of statistics: one HTML file with plots and tables that needs nothing else, now or later.

Texts of problems, models and files are escaped; data goes to the plots as JSON that cannot end its script element. The
page's own policy (CSP) forbids every request.
"""

from __future__ import annotations

import html
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from importlib.resources import files
from itertools import groupby
from pathlib import Path

import msgspec

from treeforge.errors import ConfigError, MissingExtraError
from treeforge.printable import printable
from treeforge.stats.charts import charts
from treeforge.stats.compare import Comparison
from treeforge.stats.summary import ProblemNote, Summary
from treeforge.stats.tables import figure_cells
from treeforge.stats.vega import Chart
from treeforge.stats.words import count_text, percent_text
from treeforge.store.files import atomic_file

_REASON_ROWS = 20


def check_page(file: Path) -> None:
    """Before the work: `ConfigError` where `file` cannot be the page's, `MissingExtraError` without vl-convert."""
    if file.is_dir():
        raise ConfigError(f"--html {file}: that is a folder; name a file in it, as in {file / 'stats.html'}")
    try:
        import vl_convert  # noqa: F401 - asked for now, needed later
    except ModuleNotFoundError as error:
        raise MissingExtraError("`treeforge stats --html`", "report") from error


def write_page(file: Path, summaries: Sequence[Summary], compared: Comparison) -> int:
    """Write the page of one or several runs atomically; its bytes. Raises `StorageError`."""
    import vl_convert

    made = charts(compared.runs, summaries)
    ids = {f"plot{number}": chart.spec for number, chart in enumerate(made)}
    parts = {
        "TITLE": _escaped("treeforge: " + ", ".join(compared.runs)),
        "ABOUT": _about(summaries),
        "BODY": "\n".join([*_warnings(compared.runs, summaries), *_plots(made), *_tables(summaries, compared)]),
        "CHARTS": _json(ids),
        "LIBRARY": vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;").replace("</script", "<\\/script"),
    }
    page = files("treeforge.stats").joinpath("page.html").read_text(encoding="utf-8")
    # One pass over the template: what is filled in is not looked through for more places.
    pieces = page.split("@@")
    filled = "".join(parts[piece] if place % 2 else piece for place, piece in enumerate(pieces))
    data = filled.encode("utf-8", errors="replace")
    with atomic_file(file) as stream:
        stream.write(data)
    return len(data)


def _about(summaries: Sequence[Summary]) -> str:
    said = [
        f"{count_text(s.trees.trees)} trees with {count_text(s.trees.nodes)} nodes by {s.strategy}, "
        f"{percent_text(s.outcomes.share_correct)} of the completions correct"
        for s in summaries
    ]
    return _escaped("; ".join(said) + ". Figures are of the trees that have ended.")


def _warnings(names: Sequence[str], summaries: Sequence[Summary]) -> Iterator[str]:
    said = [
        f"{name}: {warning}" if len(names) > 1 else warning
        for name, summary in zip(names, summaries, strict=True)
        for warning in summary.warnings
    ]
    if said:
        yield '<ul class="warnings">' + "".join(f"<li>{_escaped(line)}</li>" for line in said) + "</ul>"


def _plots(made: Sequence[Chart]) -> Iterator[str]:
    numbered = list(enumerate(made))
    for section, members in groupby(numbered, key=lambda item: item[1].section):
        yield f'<section><h2>{_escaped(section)}</h2><div class="charts">'
        for number, chart in members:
            title = _escaped(chart.title)
            yield (
                f"<figure><figcaption><h3>{title}</h3>{_prose(chart.look_for)}</figcaption>"
                f'<div class="plot" id="plot{number}" role="img" aria-label="{title}"></div></figure>'
            )
        yield "</div></section>"


def _tables(summaries: Sequence[Summary], compared: Comparison) -> Iterator[str]:
    several = len(summaries) > 1
    yield "<section><h2>Figures</h2>"
    if several:
        yield (
            f"<p>≠ marks figures that are not the same in all runs; beside a figure stands its change from "
            f"{_escaped(compared.runs[0])}.</p>"
        )
    rows: list[str] = []
    for section, members in groupby(compared.figures, key=lambda figure: figure.section):
        rows.append(f'<tr class="section"><th colspan="{1 + len(summaries)}">{_escaped(section)}</th></tr>')
        for figure in members:
            cells = "".join(f'<td class="figure">{_escaped(cell)}</td>' for cell in figure_cells(figure))
            kind = "" if not several else ' class="differs"' if figure.differs else ' class="same"'
            rows.append(f"<tr{kind}><td>{_escaped(figure.name)}</td>{cells}</tr>")
    yield _table(["", *compared.runs] if several else ["", ""], rows, figures_from=1)
    yield "</section>"
    if compared.settings:
        listed = [_row([setting.key, *(value or "–" for value in setting.values)]) for setting in compared.settings]
        yield "<section><h2>Settings that differ</h2>" + _table(["", *compared.runs], listed) + "</section>"
    for name, summary in zip(compared.runs, summaries, strict=True):
        beside = f" of {_escaped(name)}" if several else ""
        yield from _reasons(summary, beside)
        yield from _notes(summary, beside)


def _reasons(summary: Summary, beside: str) -> Iterator[str]:
    reasons = summary.problems.reasons[:_REASON_ROWS]
    if reasons:
        rows = [_row([found.status, count_text(found.problems), found.reason[:500]]) for found in reasons]
        yield (
            f"<section><h2>Why trees{beside} ended</h2>" + _table(["status", "problems", "reason"], rows) + "</section>"
        )


def _notes(summary: Summary, beside: str) -> Iterator[str]:
    found = summary.stand_outs
    kinds: tuple[tuple[str, str, tuple[ProblemNote, ...]], ...] = (
        (
            "Is the gold answer right?",
            "Nobody solved these, and most completions agree on one answer: the gold answer may be wrong, or answers "
            "be read wrongly.",
            found.suspicious,
        ),
        ("Costly problems", "They took more than twice the tokens of the mean problem.", found.costly),
        (
            "Problems without a signal",
            "Every completion is right: their steps teach nothing. `--screen` leaves such problems out.",
            found.no_signal,
        ),
    )
    for title, why, notes in kinds:
        if not notes:
            continue
        columns = ["number", "id", "completions", "correct", "tokens"]
        answers = any(note.agreement is not None for note in notes)
        rows = []
        for note in notes:
            cells = [str(note.number), note.problem_id, count_text(note.completions), percent_text(note.share_correct)]
            cells.append(count_text(note.tokens))
            if answers:
                cells += [percent_text(note.agreement), note.answer, note.gold_answer]
            rows.append(_row(cells))
        yield f"<section><h2>{title}{beside}</h2><p>{_prose(why)}</p>"
        yield _table(columns + (["agree", "on", "gold answer"] if answers else []), rows) + "</section>"


def _table(columns: Iterable[str], rows: Iterable[str], *, figures_from: int | None = None) -> str:
    def head(place: int, column: str) -> str:
        right = ' class="figure"' if figures_from is not None and place >= figures_from else ""
        return f'<th scope="col"{right}>{_escaped(column)}</th>'

    heads = "".join(head(place, column) for place, column in enumerate(columns))
    kind = ' class="figures"' if figures_from is not None else ""
    return (
        f'<div class="scroll"><table{kind}><thead><tr>{heads}</tr></thead><tbody>{"".join(rows)}</tbody></table></div>'
    )


def _row(cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<td>{_escaped(cell)}</td>" for cell in cells) + "</tr>"


def _escaped(text: str) -> str:
    """Text as HTML: no markup, and nothing that hides or turns around what follows."""
    return html.escape(printable(text))


def _prose(text: str) -> str:
    """Our own words, with `code`, as HTML."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", _escaped(text))


def _json(data: object) -> str:
    """JSON inside a script element: `<` as its escape, so that no text can end the element or begin a comment."""
    return json.dumps(msgspec.to_builtins(data)).replace("<", "\\u003c")
