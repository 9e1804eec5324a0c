"""What `treeforge show` prints of a problem: its tree, the best path, one node whole.

All texts that come from files or models go through `treeforge.printable`, and every line is a `rich.text.Text`, so that
neither escape sequences nor rich's own markup in them mean anything.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import takewhile, zip_longest

from rich.console import Console
from rich.text import Text

from treeforge.label.steps import NO_LABEL
from treeforge.printable import one_line, printable
from treeforge.problem import Problem
from treeforge.tree import Rollout
from treeforge.value import FROM_ELSEWHERE
from treeforge.view.best import BestPath, WorstPath
from treeforge.view.figures import UNKNOWN, count_text, ending_text, fold, interval_text, styled, value_text
from treeforge.view.outline import LEGEND, MAX_LINES, outline
from treeforge.view.valued import ValuedTree

MAX_TEXT = 2_000
"""Characters of a question or of a step of the best path, where the whole is not asked for."""

_BESIDE = 110
"""Columns of a terminal from which the best and the worst path stand beside one another."""
_GAP = " │ "


def problem_lines(
    number: int, problem: Problem, outcome: tuple[str, str], console: Console, *, full: bool = False
) -> Iterator[Text]:
    """The problem: its number, id, status with reason, question and gold answer."""
    status, reason = outcome
    title = styled(f"Problem {number}", "bold").append(f"  {one_line(problem.problem_id, 40)}  ", "bold cyan")
    told = f"{status}: {reason}" if reason else status
    room = max(console.width - title.cell_len, 20)
    yield title.append(one_line(told, room), "red" if status == "failed" else "dim")
    yield from _paragraph("question  ", problem.question, console, full)
    yield from _paragraph("gold      ", problem.gold_answer, console, full)


def tree_lines(
    shown: ValuedTree,
    best: BestPath | None,
    console: Console,
    *,
    worst: WorstPath | None = None,
    depth: int | None = None,
    most: int = MAX_LINES,
    full: bool = False,
) -> Iterator[Text]:
    """The tree's totals, its outline (see `outline`), a legend, and the best path beside the worst, step by step."""
    tree, values, config = shown.record.tree, shown.values, shown.config
    leaves = int(tree.is_leaf.sum())
    yield Text(f"tree      {tree.size:,} nodes, {leaves:,} leaves, depth {int(tree.depth.max())}")
    source = "saved by `treeforge label`" if shown.saved else "estimated now (no fresh labels)"
    elsewhere = values.estimator in FROM_ELSEWHERE
    bounded = "labels from elsewhere" if elsewhere else f"{config.confidence:.0%} intervals"
    yield Text(f"values    {values.estimator}, {bounded}; {source}")
    yield Text()
    yield from outline(shown, best, console, depth=depth, most=most, full=full)
    yield Text()
    yield from (Text(line, "dim") for line in LEGEND)
    yield Text()
    yield from _paths(shown, best, worst, console, full)


def node_lines(shown: ValuedTree, node: int, console: Console) -> Iterator[Text]:
    """One node: the whole prefix step by step, every field, its children, and its own rollouts in full."""
    tree, values = shown.record.tree, shown.values
    yield styled(f"Node {node}", "bold").append(
        f"  depth {tree.depth[node]}, parent {tree.parent[node]}" if node else "  the root", "dim"
    )
    for name, text in _fields(shown, node):
        yield styled(f"{name:<12}", "dim").append_text(text)
    children = [row for row, parent in enumerate(tree.parent.tolist()) if parent == node]
    if children:
        yield Text()
        yield Text(f"Children ({len(children):,})", "bold")
        for child in children[:MAX_LINES]:
            line = (
                value_text(float(values.value[child]))
                .append(f" {values.rollouts[child]:>5}  ")
                .append(f"{child} ", "cyan")
            )
            yield line.append(one_line(tree.text[child], max(console.width - line.cell_len, 8)))
        if len(children) > MAX_LINES:
            yield Text(f"… and {len(children) - MAX_LINES:,} more", "yellow")
    yield Text()
    yield Text("Prefix" if node else "The prefix is empty: this is the question itself", "bold")
    for step, row in enumerate(tree.path(node), start=1):
        yield from _step_lines(shown, row, step, console, full=True)
    rollouts = [r for r in shown.record.rollouts if r.node == node]
    if rollouts:
        yield Text()
        yield Text(f"Own rollouts ({len(rollouts):,})", "bold")
    for index, rollout in enumerate(rollouts, start=1):
        yield from _rollout_lines(index, rollout, console)


def _fields(shown: ValuedTree, node: int) -> Iterator[tuple[str, Text]]:
    tree, values = shown.record.tree, shown.values
    low, high = float(values.low[node]), float(values.high[node])
    value = value_text(float(values.value[node]))
    if not math.isnan(values.value[node] + low):
        value.append(f" in [{low:.3f}, {high:.3f}], standard error {values.stderr[node]:.3f}")
    yield "value", value
    yield "outcomes", Text(f"{values.rollouts[node]:,} decided, {values.undecided[node]:,} undecided, at or below")
    hard = int(shown.hard[node])
    yield "hard label", Text(UNKNOWN if hard == NO_LABEL else f"{hard} (threshold {shown.config.threshold})")
    yield (
        "ended",
        ending_text(int(tree.finish[node]), int(tree.verdict[node]), tree.answer[node], cells=None)
        or Text("no: goes on"),
    )
    yield "samples", Text(f"×{count_text(float(tree.multiplicity[node]))} of the policy's samples from the parent")
    yield "tokens", Text(f"{tree.token_count[node]:,}, log-probability {_nats(float(tree.logprob[node]))}")
    yield (
        "rollouts",
        Text(
            f"{tree.rollouts[node]:,} own: {tree.rollouts_correct[node]:,} correct, "
            f"{tree.rollouts_undecided[node]:,} undecided, {tree.rollouts_truncated[node]:,} truncated"
        ),
    )
    prior = float(tree.prior[node])
    search = (
        f"N {tree.visits[node]:,}, W {tree.value_sum[node]:g}, P {UNKNOWN if math.isnan(prior) else f'{prior:.3f}'}"
    )
    yield "search", Text(search)
    if tree.merged_from[node]:
        yield "merged from", Text(", ".join(map(str, tree.merged_from[node])))


def _paths(
    shown: ValuedTree, best: BestPath | None, worst: WorstPath | None, console: Console, full: bool
) -> Iterator[Text]:
    """Beside one another where there is room, else one below the other."""
    if worst is None or console.width < _BESIDE:
        yield from _path_lines(shown, best, console, full)
        if worst is not None:
            yield Text()
            yield from _path_lines(shown, worst, console, full, shared=_shared(best, worst))
        return
    half = Console(width=(console.width - len(_GAP)) // 2)
    left = list(_path_lines(shown, best, half, full))
    right = list(_path_lines(shown, worst, half, full, shared=_shared(best, worst)))
    for ours, theirs in zip_longest(left, right, fillvalue=Text()):
        line = ours.copy()
        line.pad_right(max(half.width - line.cell_len, 0))
        line.append(_GAP, "dim").append_text(theirs)
        line.rstrip()
        yield line


def _shared(best: BestPath | None, worst: WorstPath) -> int:
    """How many steps the two paths have in common."""
    both = zip(best.nodes if best else (), worst.nodes, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], both))


def _path_lines(
    shown: ValuedTree, path: BestPath | WorstPath | None, console: Console, full: bool, *, shared: int = 0
) -> Iterator[Text]:
    """A path under its title; of the worst one the steps are left out that it shares with the best one."""
    if path is None:
        yield from fold("No best path: no completion of this problem ended correct.", console.width, console)
        return
    if isinstance(path, BestPath):
        title, style, means, end = "Best path", "bold green", "the highest value to a correct end", "correct"
    else:
        title, style, means, end = "Worst path", "bold red", "the lowest value to a wrong end", "wrong"
    yield styled(title, style).append(f"  {means}", "dim")
    if shared:
        yield Text(f"  … {shared} step{'s' if shared > 1 else ''} of the best path, then:", "dim")
    for step, row in enumerate(path.nodes[shared:], start=shared + 1):
        yield from _step_lines(shown, row, step, console, full=full)
    if path.rollout is not None:
        yield Text(f"  … and on with a {end} rollout from there:", "dim")
        for step, text in enumerate(path.rollout.steps, start=len(path.nodes) + 1):
            yield from _paragraph(_step_title(step), text, console, full)
        yield Text(" " * len(_step_title(0))).append_text(_rollout_ending(path.rollout))


def _step_lines(shown: ValuedTree, row: int, step: int, console: Console, *, full: bool) -> Iterator[Text]:
    """One step of a path: its place, node and value, then its text."""
    tree, values = shown.record.tree, shown.values
    head = styled(_step_title(step), "bold")
    head.append_text(value_text(float(values.value[row])))
    head.append(f" {interval_text(float(values.low[row]), float(values.high[row]))}", "dim").append(
        f" node {row}", "cyan"
    )
    ending = ending_text(int(tree.finish[row]), int(tree.verdict[row]), tree.answer[row])
    yield head.append("  ").append_text(ending) if ending else head
    yield from _paragraph(" " * len(_step_title(0)), tree.text[row], console, full)
    if tree.observation[row]:
        yield from _paragraph(" " * len(_step_title(0)) + "⇒ ", tree.observation[row], console, full)


def _rollout_lines(index: int, rollout: Rollout, console: Console) -> Iterator[Text]:
    head = styled(_step_title(index), "bold").append_text(_rollout_ending(rollout))
    yield head.append(f"  {rollout.tokens:,} tokens, log-probability {_nats(rollout.logprob)}", "dim")
    if rollout.steps:
        yield from _paragraph(" " * len(_step_title(0)), "".join(rollout.steps), console, full=True)


def _rollout_ending(rollout: Rollout) -> Text:
    return ending_text(rollout.finish, rollout.verdict, rollout.answer, cells=200)


def _step_title(step: int) -> str:
    return f"{step:>4}. "


def _nats(logprob: float) -> str:
    return UNKNOWN if math.isnan(logprob) else f"{logprob:.2f}"


def _paragraph(head: str, text: str, console: Console, full: bool) -> Iterator[Text]:
    """`text` folded at the console's width, after `head` and then under it."""
    body = printable(text if full else text[:MAX_TEXT]).strip("\n")
    for index, line in enumerate(fold(body, max(console.width - len(head), 20), console)):
        yield styled(head if index == 0 else " " * len(head), "dim").append_text(line)
    if not full and len(text) > MAX_TEXT:
        yield Text(f"{' ' * len(head)}… {len(text) - MAX_TEXT:,} more characters (--full)", "yellow")
