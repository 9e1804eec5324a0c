"""The dataset card: YAML that `load_dataset` honours, and what a person would want to know before training on it.

All text that comes from elsewhere (model names, prompts, file names) is escaped, bounded and kept on one line.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any

import msgspec
import pyarrow as pa

from treeforge.config import ExportConfig
from treeforge.export.folder import CARD_MARK
from treeforge.export.formats import FORMATS
from treeforge.export.front_matter import front_matter
from treeforge.export.plots import Plot
from treeforge.export.report import ExportReport, FormatReport, SplitReport
from treeforge.export.schemas import scalar_name
from treeforge.printable import counted

CARD = "README.md"

_MAX_CHARS = 300
_ESCAPED = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;"} | {c: "\\" + c for c in "\\`*_[]|#~$"})

_LABELS = """\
A step's value is the chance that the policy, continuing from that step, ends with the right answer within its budget.
It is estimated from sampled continuations, whose final answers a program compared with the gold answer; neither a
person nor a model judged a step. `soft` is the estimate; `hard` is true where it is greater than the threshold.
`rollouts` (`value_rollouts` in `nodes`) says how many outcomes stand behind it, and `low` and `high` bound it, so that
weak labels can be weighed or left out. A row of two steps has the label of the later one: a wrong step that is then
corrected is a positive row.

A value depends on the policy that was sampled: a step that this model cannot finish may be sound. A right final answer
does not prove that every step before it is right."""

_FROM_ELSEWHERE = {
    "human": """\
The labels are ratings that people gave to single steps; no program and no model of ours judged one. `soft` is the
rating (1 right, 0 wrong), and a step without a rating, or with a neutral one, has no label unless it says so below.
There are no outcomes behind a label: `rollouts` is 0 and `low` and `high` are null. A row of two steps has the label of
the later one: a wrong step that is then corrected is a positive row.""",
    "imported": """\
The labels are values that another engine gave to single steps, read from its file as they were. `soft` is the value;
`hard` is true where it is greater than the threshold. What stands behind a value is not known here: `rollouts` is 0 and
`low` and `high` are null. A row of two steps has the label of the later one: a wrong step that is then corrected is a
positive row.""",
}

_COMPRESSION = """\
Hierarchical Node Compression (arXiv 2503.13551, Section 3.3) joins some nodes with one of their children. What it adds
are rows whose `compressed` is greater than 0: merged steps, and the merged node's label, moved by a controlled
amount."""

_COMPRESSION_FROM_ELSEWHERE = """\
Hierarchical Node Compression (arXiv 2503.13551, Section 3.3) joins some nodes with one of their children. What it adds
are rows whose `compressed` is greater than 0: merged steps. No value moves, since nothing is known of the outcomes
behind these labels."""


class CardInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the card says beside the counts: plain text, from the run's manifest. An empty mapping is left out."""

    title: str = "Step-labelled reasoning trees"
    model: Mapping[str, str] = {}
    """The policy: backend, model, digest or revision, engine."""
    sampling: Mapping[str, str] = {}
    """Temperature and so on, and the step format."""
    search: Mapping[str, str] = {}
    """Strategy, its settings and budgets."""
    checker: Mapping[str, str] = {}
    """What judged final answers."""
    labels: Mapping[str, str] = {}
    """Estimator, threshold, confidence …"""
    compression: Mapping[str, str] = {}
    """The HNC report; empty: not compressed."""
    problems: Mapping[str, str] = {}
    """Where the problems came from and how their trees ended."""
    solutions: Mapping[str, str] = {}
    """Where the solutions came from, and how many, where the policy completed steps that it did not write."""
    commands: tuple[str, ...] = ()
    """Command lines that make the dataset again."""


def render_card(info: CardInfo, config: ExportConfig, report: ExportReport, plots: Sequence[Plot] = ()) -> str:
    """The text of README.md. A function of its arguments only: no time, host or version."""
    return (
        "\n".join([*front_matter(_line(info.title), config.license, report), "", *_body(info, config, report, plots)])
        + "\n"
    )


def _body(info: CardInfo, config: ExportConfig, report: ExportReport, plots: Sequence[Plot]) -> Iterator[str]:
    yield f"# {escape(info.title)}"
    yield ""
    problems = sum(report.problems.values())
    yield (
        f"Labelled trees of reasoning steps on {counted(problems, 'problem')}, {CARD_MARK}. "
        "Splits go by problem: no problem is in two of them.\n"
    )
    for format in report.formats:
        yield from _format_section(format)
    if plots:
        yield "## Plots\n"
        yield "Of all steps of the trees as grown, whatever the formats take.\n"
        yield from (f"![{escape(plot.alt)}]({plot.path})\n" for plot in plots)
    yield "## How it was made\n"
    for name, settings in (
        ("Problems", info.problems),
        ("Given solutions, whose steps are labelled", info.solutions),
        ("Model", info.model),
        ("Sampling", info.sampling),
        ("Search", info.search),
        ("Answer checker", info.checker),
    ):
        yield from _settings(name, settings)
    yield "## What a label means\n"
    estimator = info.labels.get("estimator", "")
    yield _FROM_ELSEWHERE.get(estimator, _LABELS)
    yield ""
    yield from _settings("Labels", info.labels)
    if info.compression:
        yield "## Compression\n"
        yield _COMPRESSION_FROM_ELSEWHERE if estimator in _FROM_ELSEWHERE else _COMPRESSION
        yield ""
        yield from _settings("HNC", info.compression)
    yield from _filters(config, report)
    yield "## Columns\n"
    for format in report.formats:
        yield f"`{format.name}`:\n"
        yield from _table(
            ("column", "type", "meaning"),
            ((f"`{c.name}`", f"`{type_name(c.kind)}`", c.about) for c in FORMATS[format.name].columns),
        )
    if info.commands:
        yield "## Make it again\n"
        yield from (f"    {_printable(command)}" for command in info.commands)


def _format_section(format: FormatReport) -> Iterator[str]:
    yield f"## Configuration `{format.name}`\n"
    yield FORMATS[format.name].about
    yield ""
    if not format.splits:
        yield "No rows.\n"
    else:
        rows = [_split_row(split, counts) for split, counts in format.splits.items()]
        yield from _table(("split", "rows", "problems", "shards", "label 1"), rows)
        if all(counts.share_positive is None for counts in format.splits.values()):
            yield "A row of this format has no label of its own, so that there is no share of label 1.\n"
    pairs = {kind: sum(s.pairs.get(kind, 0) for s in format.splits.values()) for kind in ("++", "+-", "-+", "--")}
    if any(pairs.values()):
        kinds = ", ".join(f"`{kind}` {number:,}" for kind, number in pairs.items())
        yield f"Pairs of steps by their two hard labels: {kinds}. `-+` is a wrong step that was then corrected.\n"
    if format.left_out:
        yield "Left out: " + ", ".join(f"{number:,} × {reason}" for reason, number in format.left_out.items()) + ".\n"


def _split_row(split: str, counts: SplitReport) -> tuple[str, ...]:
    share = "–" if counts.share_positive is None else f"{counts.share_positive:.1%}"
    return split, f"{counts.rows:,}", f"{counts.problems:,}", f"{counts.shards:,}", share


def _filters(config: ExportConfig, report: ExportReport) -> Iterator[str]:
    """What was left out on request, and the problems that a benchmark has too."""
    settings: dict[str, str] = {}
    if config.min_rollouts > 0:
        settings["labels with fewer outcomes left out"] = str(config.min_rollouts)
    if config.max_interval < 1:
        settings["labels with a wider interval left out"] = f"{config.max_interval:g}"
    if config.where:
        settings["condition"] = config.where
    if config.dedupe != "off":
        near = f", similarity from {config.similarity:g}" if config.dedupe == "near" else ""
        settings["duplicates left out"] = config.dedupe + near
    if config.balance:
        settings["balanced"] = "the more frequent label down-sampled to the other one's count"
    if config.decontaminate:
        names = ", ".join(PurePath(file).name for file in config.decontaminate)
        settings["decontaminated against"] = f"{names} ({config.ngram}-grams of words)"
    settings |= {f"dropped: {reason}": f"{count:,}" for reason, count in report.dropped.items()}
    if not settings:
        return
    yield "## Filters\n"
    yield from _settings("Filters", settings)
    for name, ids in report.contaminated.items():
        count = counted(len(ids), "problem")
        yield f"Left out of all splits, since they share an n-gram with {escape(name)} ({count}):\n"
        yield from _wrapped(ids)
        yield ""


def _wrapped(ids: Iterable[str]) -> Iterator[str]:
    """Ids as an indented block of lines, each with as many as fit."""
    line = ""
    for name in map(_printable, ids):
        if line and len(line) + len(name) > 110:
            yield f"    {line}"
            line = ""
        line = f"{line} {name}" if line else name
    if line:
        yield f"    {line}"


def _settings(name: str, settings: Mapping[str, str]) -> Iterator[str]:
    if settings:
        yield from _table((name, ""), ((escape(key), escape(value)) for key, value in settings.items()))


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield "| " + " | ".join(header) + " |"
    yield "|" + " --- |" * len(header)
    yield from ("| " + " | ".join(row) + " |" for row in rows)
    yield ""


def escape(text: str) -> str:
    """Text as one line of Markdown that shows it as it is: no markup, HTML, link or formula; cut where it is long."""
    return _line(text).translate(_ESCAPED)


def _printable(text: str) -> str:
    return " ".join("".join(c if c.isprintable() else " " for c in text).split())


def _line(text: str) -> str:
    line = _printable(text[: 4 * _MAX_CHARS])
    return line if len(line) <= _MAX_CHARS else line[: _MAX_CHARS - 1] + "…"


def type_name(kind: Any) -> str:
    """An Arrow type as `datasets` and polars users know it."""
    if pa.types.is_list(kind):
        return f"list of {type_name(kind.value_type)}"
    if pa.types.is_struct(kind):
        return "struct of " + ", ".join(f"{field.name}: {type_name(field.type)}" for field in kind)
    return scalar_name(kind)
