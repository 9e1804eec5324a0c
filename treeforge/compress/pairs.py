"""Training rows of a tree: single steps, pair windows, and which of a compressed tree's rows are new."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from treeforge.forest import Forest
from treeforge.tree import Tree


@dataclass(frozen=True, kw_only=True, slots=True)
class Windows:
    """k training rows: the steps from `start` down to `node`, labelled as `node` is (the *later* step's label).

    previous = `tree.prefix(tree.parent[start])`, current = the text from `start` to `node`. Rows are in node order.
    """

    node: NDArray[np.int32]
    """int32[k]: the row of the last step."""
    start: NDArray[np.int32]
    """int32[k]: the row of the first step; `node` itself where span is 1."""
    span: int
    """Steps in each window; a step that HNC merged counts once."""

    def current(self, tree: Tree) -> list[str]:
        """The k texts from `start` to `node`, with the observations between them; the last step's is not part of it."""
        text, observation, parent = tree.text, tree.observation, tree.parent.tolist()
        out: list[str] = []
        for row in self.node.tolist():
            current = text[row]
            for _ in range(self.span - 1):
                row = parent[row]
                current = text[row] + observation[row] + current
            out.append(current)
        return out


def pair_windows(tree: Tree | Forest, span: int = 2) -> Windows:
    """Every window of `span` consecutive steps: one for each node at depth >= `span`.

    With span 2 (HRM paper, arXiv 2503.13551), previous = steps 0..i-2 and current = step i-1 + step i. A wrong step
    that is corrected gives a positive pair.
    """
    if span < 1:
        raise ValueError(f"span must be at least 1, not {span!r}")
    node = np.flatnonzero(tree.depth >= span).astype(np.int32)
    start = node
    for _ in range(span - 1):
        start = tree.parent[start]
    return Windows(node=node, start=start, span=span)


def single_steps(tree: Tree) -> Windows:
    """Every step alone: the windows of span 1."""
    return pair_windows(tree, 1)


def new_rows(
    original: Tree | Forest, tree: Tree | Forest, shifted: NDArray[np.bool_], spans: tuple[int, ...] = (1, 2)
) -> dict[int, NDArray[np.bool_]]:
    """For each span, which windows of a compressed tree (or of several) are not already rows of the original tree.

    `shifted`, bool[n]: nodes whose value differs from the original tree's, as in `Compressed`. The masks are aligned
    with `pair_windows(tree, span)`; `spans` are those that are exported of both trees.

    A row is (previous text, current text, label). Compression changes no prefix, so a compressed window that ends at
    `node` covers the same text as the original window that ends there and holds as many *original* steps; that is a row
    of the original set where that number is in `spans`. The label is the node's value, which changes at merged p's
    only. Hence a window is new where its original steps are not in `spans`, or where its node is `shifted`; the latter
    rows are to be marked: the same text has another label in the original tree. With spans (1, 2), for a merge of p
    and x under g:

    - single step of x (text p+x, under g): 2 original steps, the pair window of x. Not new.
    - single step of p: the same text; new, and marked, where p's value was shifted.
    - any other single step: not new.
    - pair window of x (g, p+x): 3 original steps. New, where g is not the root.
    - pair windows of x's children (p+x, v): 3 original steps. New.
    - pair window of p (g, p): new, and marked, where p's value was shifted. So too if g was merged: 3 steps, then.
    - pair windows of p's remaining children: the same text with the child's own label. Not new.
    """
    out: dict[int, NDArray[np.bool_]] = {}
    for span in spans:
        windows = pair_windows(tree, span)
        before = tree.parent[windows.start]
        steps = original.depth[windows.node] - original.depth[before]
        out[span] = ~np.isin(steps, spans) | shifted[windows.node]
    return out
