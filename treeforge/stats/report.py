"""A `Summary` as tables for a terminal of 80 columns or more."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.cells import cell_len, set_cell_size
from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from treeforge.printable import one_line
from treeforge.stats.summary import CheckerUse, Cost, LabelCounts, Summary
from treeforge.stats.trees import ProblemRow

_DEPTHS = 20
"""Depths with a row of their own; deeper ones share the last."""
_REASONS = 8
_SLOW_CELLS = 16
_BAR = 36
"""Cells of the longest bar of the histogram."""

_ID_CELLS = 16
_STATUS_STYLES = {"failed": "red", "exhausted": "yellow", "open": "dim"}

_Row = tuple[str, str, str]
"""(name, figure, what is to be known about it); a name that starts a section has no leading space."""


def report(summary: Summary) -> RenderableType:
    """The tables: figures by section, why problems ended, steps by depth, and the histogram of values."""
    figures = Table(box=None, show_header=False, pad_edge=False, padding=(0, 2, 0, 0))
    figures.add_column(no_wrap=True)
    figures.add_column(justify="right", no_wrap=True)
    figures.add_column(style="dim")
    for name, figure, note in _figures(summary):
        figures.add_row(Text(name, "" if name.startswith(" ") else "bold"), figure, Text(note))
    parts: list[RenderableType] = [Text(one_line(summary.run), "bold"), "", figures]
    if any(reason.status != "done" for reason in summary.problems.reasons):
        parts.append(_reasons(summary))
    if summary.trees.trees:
        parts.append(_depths(summary))
    if summary.labels and sum(summary.labels.value_histogram):
        parts.append(_histogram(summary.labels))
    return Group(*parts)


def problem_lines(rows: Sequence[ProblemRow], console: Console) -> Iterator[Text]:
    """One line a problem under a heading: number, id, status, nodes, share correct and the question's start.

    Not a `rich.table.Table`, which takes two milliseconds a row.
    """
    number = max((len(str(row.number)) for row in rows), default=1)
    ids = [one_line(row.problem_id, _ID_CELLS) for row in rows]
    id_width = max(map(cell_len, ids), default=2)
    yield Text(f"{'#':>{number}}  {'id':<{id_width}}  {'status':<9} {'nodes':>7} {'correct':>7}  question", "bold")
    for row, name in zip(rows, ids, strict=True):
        line = Text(f"{row.number:>{number}}  ").append(set_cell_size(name, id_width), "cyan")
        line.append(f"  {one_line(row.status, 9):<9}", _STATUS_STYLES.get(row.status, ""))
        line.append(f" {row.nodes or '–':>7} {_percent(row.share_correct):>7}  ")
        yield line.append(one_line(row.question, max(console.width - line.cell_len, 8)))


def _figures(summary: Summary) -> Iterator[_Row]:
    problems, trees, steps, outcomes = summary.problems, summary.trees, summary.step_tokens, summary.outcomes
    yield "Problems", _count(problems.total), _listed(problems.by_status)
    yield (
        "  mixed",
        _count(problems.mixed),
        f"both right and wrong outcomes; {problems.all_correct:,} all right, {problems.all_wrong:,} all wrong",
    )
    yield "Trees", _count(trees.trees), "ended; those still growing are not counted below"
    yield "  nodes", _count(trees.nodes), f"{_number(trees.nodes_per_tree)} a tree; {trees.leaves:,} are leaves"
    yield "  depth", _count(trees.max_depth), f"the deepest node; leaves at {_number(trees.leaf_depth)} on average"
    yield "  branching", _number(trees.branching), f"children of an expanded node; {trees.max_branching:,} at most"
    yield "  duplicates", _percent(trees.duplicate_share), "of the sampled steps repeat a sibling"
    spread = f"; median {steps.median}, 90% up to {steps.p90}, longest {steps.max}" if steps.steps else ""
    yield "  step length", _number(steps.mean), f"tokens{spread}"
    yield "Completions", _count(outcomes.completions), _listed(outcomes.by_verdict)
    yield "  correct", _percent(outcomes.share_correct), "of the decided ones"
    yield "  truncated", _percent(outcomes.truncated_share), _listed(outcomes.by_finish)
    yield "  engine errors", _count(outcomes.engine_errors), "not among the completions; they count nowhere"
    yield from _label_figures(summary.labels)
    if summary.compression is not None:
        done = summary.compression.report
        yield (
            "HNC",
            _count(done.get("merges", 0)),
            f"merges in {done.get('trees', 0):,} trees{_stale(summary.compression.stale)}",
        )
        yield "  label noise", f"{done.get('noise', 0):.2g}", "mean |change of value| over all steps"
        yield (
            "  shift",
            f"{done.get('mean_shift', 0):.2g}",
            f"mean at a merge; {done.get('shift_max', 0):.2g} at most; {done.get('hard_flips', 0):,} hard label flips",
        )
    if summary.checker is not None:
        yield from _checker_figures(summary.checker)
    yield from _cost_figures(summary.cost)


def _label_figures(labels: LabelCounts | None) -> Iterator[_Row]:
    if labels is None:
        yield "Labels", "–", "none yet: treeforge label"
        return
    made = ", ".join(
        one_line(f"{key} {labels.config[key]}") for key in ("estimator", "threshold") if key in labels.config
    )
    if labels.recheck is not None:
        changed = f"{labels.recheck['changed']:,} of {labels.recheck['judged']:,} answers changed"
        made += f", rechecked by the policy {one_line(str(labels.recheck['policy']['name']))} ({changed})"
    yield "Labels", _count(labels.positive + labels.negative), f"{made}{_stale(labels.stale)}"
    yield (
        "  positive",
        _percent(labels.positive_share),
        f"{labels.positive:,} positive, {labels.negative:,} negative, {labels.unlabelled:,} steps without",
    )


def _checker_figures(checker: CheckerUse) -> Iterator[_Row]:
    yield "Answer checks", _count(checker.checks), _listed(checker.routes)
    yield "  remembered", _percent(checker.hit_share), f"of {checker.hits + checker.checks:,} that were asked for"
    yield "  undecided", _percent(checker.undecided_share), _listed(checker.verdicts)
    if checker.slowest:
        slow = checker.slowest[0]
        pair = f"{one_line(slow.answer, _SLOW_CELLS)} against {one_line(slow.gold_answer, _SLOW_CELLS)}"
        yield "  slowest", f"{slow.seconds * 1000:,.1f} ms", f"{pair}; all together {_duration(checker.seconds)}"


def _cost_figures(cost: Cost) -> Iterator[_Row]:
    yield (
        "Tokens",
        _count(cost.tokens),
        f"{_number(cost.tokens_per_node)} a node, {_number(cost.tokens_per_label)} a label",
    )
    size = "–" if cost.journal_bytes is None else f"{cost.journal_bytes / 1e6:,.1f} MB"
    yield (
        "  requests",
        _count(cost.requests),
        f"{_count(cost.completions)} samples, {_count(cost.failed_requests)} requests given up; journal {size}",
    )
    if cost.seconds is not None:
        sittings = "1 sitting" if cost.sittings == 1 else f"{cost.sittings:,} sittings"
        yield "  time", _duration(cost.seconds), f"in {sittings}; {_number(cost.tokens_per_second, 0)} tokens/s"


def _reasons(summary: Summary) -> RenderableType:
    table = _table("status", ("problems", "right"), "why it ended")
    listed = summary.problems.reasons[:_REASONS]
    for reason in listed:
        style = "red" if reason.status == "failed" else ""
        table.add_row(Text(one_line(reason.status), style), _count(reason.problems), Text(one_line(reason.reason, 200)))
    ended = summary.problems.total - summary.problems.by_status.get("open", 0)
    if rest := ended - sum(reason.problems for reason in listed):
        table.add_row("", _count(rest), Text("for other reasons", "dim"))
    return table


def _depths(summary: Summary) -> RenderableType:
    by_depth = {row.depth: row for row in summary.labels.by_depth} if summary.labels else {}
    columns = [("nodes", "right")]
    if by_depth:
        columns += [("positive", "right"), ("negative", "right"), ("no label", "right"), ("positive %", "right")]
    table = _table(("depth", "right"), *columns)
    nodes = summary.trees.nodes_by_depth
    for depth in range(min(len(nodes), _DEPTHS + 1)):
        last = depth == _DEPTHS and len(nodes) > _DEPTHS + 1
        depths = range(depth, len(nodes) if last else depth + 1)
        cells = [f"{depth}+" if last else f"{depth}", _count(sum(nodes[d] for d in depths))]
        if by_depth:
            rows = [by_depth[d] for d in depths if d in by_depth]
            positive, negative = sum(row.positive for row in rows), sum(row.negative for row in rows)
            share = positive / (positive + negative) if positive + negative else None
            cells += [_count(positive), _count(negative), _count(sum(row.unlabelled for row in rows)), _percent(share)]
        table.add_row(*(cells if depth or not by_depth else [*cells[:2], "", "", "", ""]))
    return table


def _histogram(labels: LabelCounts) -> RenderableType:
    table = _table("value", ("steps", "right"), "")
    bins, most = labels.value_histogram, max(labels.value_histogram)
    for number, steps in enumerate(bins):
        low, high = number / len(bins), (number + 1) / len(bins)
        bar = "█" * round(_BAR * steps / most) or ("▏" if steps else "")
        table.add_row(f"{low:.1f} – {high:.1f}", _count(steps), Text(bar, "cyan"))
    edges = Text(f"{labels.always_wrong:,} steps at exactly 0, {labels.always_right:,} at exactly 1", "dim")
    return Group(table, Padding(edges, (0, 0, 0, 1)))


def _table(*columns: str | tuple[str, str]) -> Table:
    table = Table(box=SIMPLE_HEAD, pad_edge=True, header_style="bold")
    for column in columns:
        name, justify = column if isinstance(column, tuple) else (column, "left")
        table.add_column(name, justify="right" if justify == "right" else "left")
    return table


def _listed(counts: dict[str, int]) -> str:
    """`18 done, 2 failed`: the counts that are not 0, the largest first."""
    some = sorted(((count, name) for name, count in counts.items() if count), key=lambda item: -item[0])
    return ", ".join(f"{count:,} {one_line(name).replace('_', ' ')}" for count, name in some)


def _stale(stale: bool) -> str:
    return " (older than the trees)" if stale else ""


def _count(value: int | None) -> str:
    return "–" if value is None else f"{value:,}"


def _number(value: float | None, digits: int = 1) -> str:
    return "–" if value is None else f"{value:,.{digits}f}"


def _percent(share: float | None) -> str:
    return "–" if share is None else f"{share:.1%}"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if seconds >= 10 else f"{seconds:.2g} s"
