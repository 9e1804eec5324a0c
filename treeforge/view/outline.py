"""A tree as indented lines: │ ├ └, figures in columns on the left, the step's text on the right."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from rich.console import Console
from rich.text import Text

from treeforge.printable import one_line, printable
from treeforge.tree import Tree
from treeforge.view.best import BestPath
from treeforge.view.figures import count_text, ending_text, fold, interval_text, styled, value_text
from treeforge.view.valued import ValuedTree

MAX_LINES = 400
"""Nodes drawn where nothing else is asked for."""
_TEXT_CELLS = 24
"""Indentation is shortened, with `⋯`, where less than this would be left for a step's text."""
LEGEND = (
    "* best path · n: decided outcomes at or below · own: own rollouts, correct/all",
    "×m: m of the policy's samples · +k: k nodes below are not shown",
)


@dataclass(frozen=True, slots=True)
class _Columns:
    """Widths of the figures, from the largest of them."""

    outcomes: int
    own: int

    @property
    def left(self) -> int:
        return len("* value interval ") + self.outcomes + 1 + self.own + 1


def outline(
    shown: ValuedTree,
    best: BestPath | None,
    console: Console,
    *,
    depth: int | None = None,
    most: int = MAX_LINES,
    full: bool = False,
) -> Iterator[Text]:
    """The tree's lines, depth first, children in the order in which they were sampled.

    Nodes deeper than `depth` are left out. Where more than `most` nodes would be drawn, whole levels are left out, the
    deepest first, and if the first level alone is too large, its last nodes; a closing line says so. A step takes one
    line of the console's width, or with `full` as many as its text needs. Time and memory grow with the tree's size,
    not with its depth.
    """
    tree, values = shown.record.tree, shown.values
    sizes = np.cumsum(np.bincount(tree.depth))
    fitting = max(int(np.searchsorted(sizes, most, side="right")) - 1, 1)
    deepest = fitting if depth is None else min(depth, fitting)
    children = tree.children()
    hidden = _below(tree, deepest)
    on_best = {0, *best.nodes} if best else set()
    own = [f"{c}/{r}" if r else "" for c, r in zip(tree.rollouts_correct.tolist(), tree.rollouts.tolist(), strict=True)]
    columns = _Columns(max(len(str(values.rollouts.max())), 1), max(len("own"), *map(len, own)))
    most_guides = max((console.width - columns.left - _TEXT_CELLS) // 2, 1)

    yield Text(f"  value interval {'n':>{columns.outcomes}} {'own':>{columns.own}} step", "bold")
    drawn = 0
    stack = [(0, "", True)]
    while stack and drawn < most:
        node, above, last = stack.pop()
        drawn += 1
        level = int(tree.depth[node])
        below = children[node] if level < deepest else []
        # Guides are kept as far as they can be drawn: a chain of 10,000 steps would else need their square.
        next_above = (above + ("  " if last else "│ "))[-2 * most_guides :] if node else ""
        stack.extend((child, next_above, child == below[-1]) for child in reversed(below))
        guides = above + ("└ " if last else "├ ") if node else ""
        if level > most_guides:
            guides = "⋯ " + guides[-2 * (most_guides - 1) :] if most_guides > 1 else "⋯ "

        line = styled("*  " if node in on_best else "   ", "bold green")
        line.append_text(value_text(float(values.value[node])))
        line.append(f"  {interval_text(float(values.low[node]), float(values.high[node]))} ", "dim")
        line.append(f"{values.rollouts[node]:>{columns.outcomes}} {own[node]:>{columns.own}} ")
        line.append(guides, "dim")
        line.append_text(_label(tree, node, hidden[node]))
        room = max(console.width - line.cell_len, 8)
        if not full:
            line.append(_step(tree, node, room), "bold" if node in on_best else "")
            line.rstrip()
            line.truncate(console.width, overflow="ellipsis")
            yield line
            continue
        follow = " " * columns.left + (next_above + ("│ " if below else "  "))[-2 * most_guides :]
        yield from _wrapped(line, follow, _whole_step(tree, node), console)

    yield from _notes(tree, deepest, drawn, most, depth)


def _label(tree: Tree, node: int, hidden: int) -> Text:
    """`12 ×3 ✓ 72 ` before the step's text."""
    label = styled(f"{node} ", "cyan")
    if tree.multiplicity[node] != 1:
        label.append(f"×{count_text(float(tree.multiplicity[node]))} ", "cyan")
    ending = ending_text(int(tree.finish[node]), int(tree.verdict[node]), tree.answer[node])
    if ending:
        label.append_text(ending).append(" ")
    if hidden:
        label.append(f"+{hidden:,} ", "magenta")
    return label


def _step(tree: Tree, node: int, cells: int) -> str:
    if not node:
        return "(the question)"
    text, observation = tree.text[node], tree.observation[node]
    return one_line(f"{text} ⇒ {observation}" if observation else text, cells)


def _whole_step(tree: Tree, node: int) -> str:
    observation = tree.observation[node]
    text = tree.text[node].strip("\n") if node else "(the question)"
    return printable(f"{text}\n⇒ {observation}" if observation else text)


def _wrapped(line: Text, follow: str, text: str, console: Console) -> Iterator[Text]:
    """`line` with `text` after it, folded at the console's width; its further lines start with `follow`."""
    indent = max(line.cell_len, len(follow))
    first, *rest = fold(text, max(console.width - indent, 8), console)
    yield line.append_text(first)
    for part in rest:
        yield styled(follow.ljust(indent), "dim").append_text(part)


def _below(tree: Tree, deepest: int) -> list[int]:
    """How many nodes below each node are not drawn: those under a node of the deepest level drawn."""
    below = [0] * tree.size
    parent, depth = tree.parent.tolist(), tree.depth.tolist()
    for row in range(tree.size - 1, 0, -1):
        if depth[row] > deepest:
            below[parent[row]] += below[row] + 1
    return below


def _notes(tree: Tree, deepest: int, drawn: int, most: int, depth: int | None) -> Iterator[Text]:
    if drawn == tree.size:
        return
    why = f"down to depth {deepest}" if deepest < int(tree.depth.max()) else ""
    if drawn == most or (why and deepest != depth):
        why += f"{', ' if why else ''}at most {most:,} (--lines)"
    yield Text(f"{drawn:,} of {tree.size:,} nodes are shown: {why}.", "yellow")
    yield Text("A part of the tree: --node ID; all of it, for a script: --json.", "yellow")
