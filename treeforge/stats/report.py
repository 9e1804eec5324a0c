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
from treeforge.stats.effort import CheckerUse, Cost
from treeforge.stats.summary import LabelCounts, ProblemNote, StandOuts, Summary
from treeforge.stats.trees import ProblemRow
from treeforge.stats.words import count_text, duration_text, number_text, percent_text, size_text

_DEPTHS = 20
"""Depths with a row of their own; deeper ones share the last."""
_REASONS = 8
_SLOW_CELLS = 16
_COSTLY = 3
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
    if summary.problems.screened_out or any(reason.status != "done" for reason in summary.problems.reasons):
        parts.append(_reasons(summary))
    if summary.stand_outs.suspicious or summary.stand_outs.costly:
        parts.append(_stand_outs(summary.stand_outs))
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
        line.append(f" {row.nodes or '–':>7} {percent_text(row.share_correct):>7}  ")
        yield line.append(one_line(row.question, max(console.width - line.cell_len, 8)))


def _figures(summary: Summary) -> Iterator[_Row]:
    problems, trees, steps, outcomes = summary.problems, summary.trees, summary.step_tokens, summary.outcomes
    yield "Problems", count_text(problems.total), _listed(problems.by_status)
    yield (
        "  mixed",
        count_text(problems.mixed),
        f"both right and wrong outcomes; {problems.all_correct:,} all right, {problems.all_wrong:,} all wrong",
    )
    if problems.screened_out:
        yield "  screened out", count_text(problems.screened_out), "too easy or too hard to be searched"
    yield "Trees", count_text(trees.trees), "ended; those still growing are not counted below"
    yield (
        "  nodes",
        count_text(trees.nodes),
        f"{number_text(trees.nodes_per_tree)} a tree, {trees.max_nodes:,} at most; {trees.leaves:,} are leaves",
    )
    yield (
        "  depth",
        count_text(trees.max_depth),
        f"the deepest node; leaves at {number_text(trees.leaf_depth)} on average",
    )
    yield "  branching", number_text(trees.branching), f"children of an expanded node; {trees.max_branching:,} at most"
    yield "  duplicates", percent_text(trees.duplicate_share), "of the sampled steps repeat a sibling"
    spread = f"; median {steps.median}, 90% up to {steps.p90}, longest {steps.max}" if steps.steps else ""
    yield "  step length", number_text(steps.mean), f"tokens{spread}"
    judged = f"; rechecked by the policy {outcomes.recheck}" if outcomes.recheck else ""
    yield "Completions", count_text(outcomes.completions), f"{_listed(outcomes.by_verdict)}{judged}"
    yield "  correct", percent_text(outcomes.share_correct), f"of the decided ones{_passes(summary)}"
    yield "  truncated", percent_text(outcomes.truncated_share), _listed(outcomes.by_finish)
    yield "  engine errors", count_text(outcomes.engine_errors), "not among the completions; they count nowhere"
    disputed = summary.disputed
    if listed := disputed.undecided + disputed.unparsable:
        where = f"undecided or unparsable, of {disputed.problems:,} problems: treeforge label --disputed"
        yield "  to look at", count_text(listed), where
    yield from _label_figures(summary.labels)
    if summary.compression is not None:
        done = summary.compression.report
        yield (
            "HNC",
            count_text(done.get("merges", 0)),
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
    if summary.load is not None and summary.load.max_in_flight:
        yield "  in flight", number_text(summary.load.in_flight), f"requests; {summary.load.max_in_flight:,} at most"


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
    yield "Labels", count_text(labels.positive + labels.negative), f"{made}{_stale(labels.stale)}"
    yield (
        "  positive",
        percent_text(labels.positive_share),
        f"{labels.positive:,} positive, {labels.negative:,} negative, {labels.unlabelled:,} steps without",
    )
    if labels.interval_width is not None:
        size = number_text(labels.effective_size)
        yield "  intervals", f"{labels.interval_width:.2f}", f"mean width; effective sample size {size} on average"
    if wrong := sum(labels.first_errors):
        first = f"{percent_text(labels.first_errors[0] / wrong)} at the first step"
        yield "  first errors", count_text(wrong), f"wrong completions whose first negative step is known; {first}"
    if labels.pairs:
        corrected = labels.pairs.get("negative_positive", 0)
        yield "  pairs", count_text(sum(labels.pairs.values())), f"of two steps; {corrected:,} wrong ones corrected"


def _checker_figures(checker: CheckerUse) -> Iterator[_Row]:
    yield "Answer checks", count_text(checker.checks), _listed(checker.routes)
    yield "  remembered", percent_text(checker.hit_share), f"of {checker.hits + checker.checks:,} that were asked for"
    yield "  undecided", percent_text(checker.undecided_share), _listed(checker.verdicts)
    if checker.slowest:
        slow = checker.slowest[0]
        pair = f"{one_line(slow.answer, _SLOW_CELLS)} against {one_line(slow.gold_answer, _SLOW_CELLS)}"
        yield "  slowest", f"{slow.seconds * 1000:,.1f} ms", f"{pair}; all together {duration_text(checker.seconds)}"


def _cost_figures(cost: Cost) -> Iterator[_Row]:
    yield (
        "Tokens",
        count_text(cost.tokens),
        f"{number_text(cost.tokens_per_node)} a node, {number_text(cost.tokens_per_label)} a label, "
        f"{number_text(cost.tokens_per_correct)} a correct completion",
    )
    size = size_text(cost.journal_bytes)
    yield (
        "  requests",
        count_text(cost.requests),
        f"{count_text(cost.completions)} samples, {count_text(cost.failed_requests)} requests given up; journal {size}",
    )
    if cost.cached_share is not None:
        yield (
            "  prompts",
            count_text(cost.prompt_tokens),
            f"tokens; {percent_text(cost.cached_share)} from the prefix cache",
        )
    if cost.seconds is not None:
        sittings = "1 sitting" if cost.sittings == 1 else f"{cost.sittings:,} sittings"
        yield "  time", duration_text(cost.seconds), f"in {sittings}; {number_text(cost.tokens_per_second, 0)} tokens/s"
    if cost.price is not None:
        label, correct = number_text(cost.price_per_label, 4), number_text(cost.price_per_correct, 4)
        yield "  price", number_text(cost.price, 2), f"{label} a label, {correct} a correct completion"


def _reasons(summary: Summary) -> RenderableType:
    table = _table("status", ("problems", "right"), "why it ended")
    listed = summary.problems.reasons[:_REASONS]
    for reason in listed:
        style = "red" if reason.status == "failed" else ""
        table.add_row(
            Text(one_line(reason.status), style), count_text(reason.problems), Text(one_line(reason.reason, 200))
        )
    ended = summary.problems.total - summary.problems.by_status.get("open", 0)
    if rest := ended - sum(reason.problems for reason in listed):
        table.add_row("", count_text(rest), Text("for other reasons", "dim"))
    return table


def _stand_outs(found: StandOuts) -> RenderableType:
    """The problems to look at; those without a signal are counted above."""
    table = _table(("#", "right"), "id", ("tokens", "right"), ("correct", "right"), "why to look at it")
    shown: list[tuple[ProblemNote, str]] = [
        (
            note,
            f"{percent_text(note.agreement)} say {one_line(note.answer, _SLOW_CELLS)}, gold is "
            f"{one_line(note.gold_answer, _SLOW_CELLS)}: is it right?",
        )
        for note in found.suspicious
    ]
    shown += [(note, "took far more tokens than most") for note in found.costly[:_COSTLY]]
    for note, why in shown:
        table.add_row(
            str(note.number),
            Text(one_line(note.problem_id, _ID_CELLS), "cyan"),
            count_text(note.tokens),
            percent_text(note.share_correct),
            Text(why),
        )
    return table


def _passes(summary: Summary) -> str:
    """`; pass@1 31.2%, pass@8 70.1%`: the first, and the largest k that half of the problems have completions for."""
    passes = summary.outcomes.pass_at
    if not passes:
        return ""
    enough = [found for found in passes if 2 * found.problems >= passes[0].problems]
    chosen = dict.fromkeys([passes[0], enough[-1]])
    return "; " + ", ".join(f"pass@{found.k} {percent_text(found.share)}" for found in chosen)


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
        cells = [f"{depth}+" if last else f"{depth}", count_text(sum(nodes[d] for d in depths))]
        if by_depth:
            rows = [by_depth[d] for d in depths if d in by_depth]
            positive, negative = sum(row.positive for row in rows), sum(row.negative for row in rows)
            share = positive / (positive + negative) if positive + negative else None
            cells += [
                count_text(positive),
                count_text(negative),
                count_text(sum(row.unlabelled for row in rows)),
                percent_text(share),
            ]
        table.add_row(*(cells if depth or not by_depth else [*cells[:2], "", "", "", ""]))
    return table


def _histogram(labels: LabelCounts) -> RenderableType:
    table = _table("value", ("steps", "right"), "")
    bins, most = labels.value_histogram, max(labels.value_histogram)
    for number, steps in enumerate(bins):
        low, high = number / len(bins), (number + 1) / len(bins)
        bar = "█" * round(_BAR * steps / most) or ("▏" if steps else "")
        table.add_row(f"{low:.1f} – {high:.1f}", count_text(steps), Text(bar, "cyan"))
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
