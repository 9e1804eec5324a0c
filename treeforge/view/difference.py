"""What HNC did to one tree: the tree before and after, node by node."""

from __future__ import annotations

import math
from collections.abc import Iterator

import msgspec
import numpy as np
from rich.console import Console
from rich.text import Text

from treeforge.errors import RunError
from treeforge.label.steps import NO_LABEL
from treeforge.printable import one_line
from treeforge.store.run import RunFolder
from treeforge.store.views import view_state
from treeforge.view.figures import UNKNOWN, fold, styled, value_text
from treeforge.view.valued import ValuedTree, load_compressed


class Merge(msgspec.Struct, frozen=True, kw_only=True):
    """A step p and its child x became one: x now stands beside p, with the text of both."""

    p: int
    x: int
    """Node ids; x keeps its own, and the nodes below it."""
    depth: int
    """Of both, from now on."""
    value_before: float | None
    value_after: float | None
    """Of p, which lost the outcomes below x."""
    hard_before: bool | None
    hard_after: bool | None


class Difference(msgspec.Struct, frozen=True, kw_only=True):
    """One tree before and after an HNC pass."""

    number: int
    """Of the pass, from 1."""
    nodes: int
    merges: tuple[Merge, ...]
    hard_flips: int
    """Nodes whose hard label is another one."""
    mean_shift: float
    """Mean |change of value| over the steps with a value: the label noise in this tree."""
    moved: int
    """Nodes that stand less deep than before, merged ones included."""


def load_after(run: RunFolder, shown: ValuedTree, number: int) -> ValuedTree:
    """The tree after HNC pass `number`. Raises `RunError` where the run has no such pass, or an old one."""
    state = view_state(run, "compressed")
    if state is None or state["stale"]:
        which = "no compressed trees" if state is None else "compressed trees that are older than its trees"
        raise RunError(f"{run.path} has {which}; make them with `treeforge compress {run.path}`")
    passes = int(state["config"]["compress"].get("passes", 1))
    if number > passes:
        raise RunError(f"{run.path} has {passes} HNC pass{'es' if passes > 1 else ''}, not {number} (--pass)")
    return load_compressed(run, shown, number)


def difference(before: ValuedTree, after: ValuedTree, number: int) -> Difference:
    """Compare a tree with what pass `number` made of it."""
    old, new = before.record.tree, after.record.tree
    merges = tuple(
        _merge(before, after, int(old.parent[x]), x) for x, rows in enumerate(new.merged_from) if len(rows) > 1
    )
    known = ~np.isnan(before.values.value) & ~np.isnan(after.values.value)
    known[0] = False
    shifts = np.abs(after.values.value[known] - before.values.value[known])
    return Difference(
        number=number,
        nodes=old.size,
        merges=merges,
        hard_flips=int((before.hard != after.hard).sum()),
        mean_shift=float(shifts.mean()) if len(shifts) else 0.0,
        moved=int((new.depth < old.depth).sum()),
    )


def difference_lines(
    before: ValuedTree, after: ValuedTree, found: Difference, console: Console, *, full: bool = False
) -> Iterator[Text]:
    """The totals, and each merge: what p was, what it is, and the step that p and x became."""
    old, new = before.record.tree.text, after.record.tree.text
    yield styled(f"HNC pass {found.number}", "bold").append(
        f"  {len(found.merges)} merges in {found.nodes:,} nodes, {found.moved} nodes moved up", "dim"
    )
    yield Text(f"{found.hard_flips} hard labels changed; mean change of value {found.mean_shift:.3f}", "dim")
    if not found.merges:
        yield Text("Nothing was merged in this tree.", "yellow")
    most = None if full else 6 * console.width
    for merge in found.merges:
        p, x = merge.p, merge.x
        yield Text()
        yield styled(f"{p} + {x}", "bold cyan").append(f"  at depth {merge.depth}", "dim")
        for sign, row, shown, note, text in (
            ("-", p, before, _hard(merge.hard_before), old[p]),
            ("-", x, before, "below it", old[x]),
            ("+", p, after, _hard(merge.hard_after), f"without {x} below it"),
            ("+", x, after, "beside it", new[x]),
        ):
            line = styled(f"  {sign} {row:<6}", "red" if sign == "-" else "green")
            line.append_text(value_text(float(shown.values.value[row]))).append(f" {note:<12}")
            first, *rest = fold(one_line(text, most), max(console.width - line.cell_len, 20), console)
            indent = " " * line.cell_len
            yield line.append_text(first)
            yield from (Text(indent).append_text(part) for part in rest)


def _merge(before: ValuedTree, after: ValuedTree, p: int, x: int) -> Merge:
    return Merge(
        p=p,
        x=x,
        depth=int(after.record.tree.depth[x]),
        value_before=_known(float(before.values.value[p])),
        value_after=_known(float(after.values.value[p])),
        hard_before=_label(int(before.hard[p])),
        hard_after=_label(int(after.hard[p])),
    )


def _known(value: float) -> float | None:
    return None if math.isnan(value) else value


def _label(hard: int) -> bool | None:
    return None if hard == NO_LABEL else bool(hard)


def _hard(hard: bool | None) -> str:
    return f"label {UNKNOWN if hard is None else int(hard)}"
