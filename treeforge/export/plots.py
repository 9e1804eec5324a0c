"""The card's plots: small SVG bar charts of the trees as grown, drawn here, so that they need no library.

Only numbers and words of our own stand in them. The same trees give the same bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec
import numpy as np
import pyarrow.compute as pc
from numpy.typing import NDArray

from treeforge.export.blocks import ExportBlock
from treeforge.store.files import atomic_file

FOLDER = "plots"
"""Where they lie in an export."""

BINS = 20
"""Bars of the histogram of values."""
MAX_DEPTH = 20
"""Deeper steps share the last bar."""
MAX_POWER = 14
"""Steps of 2 ** MAX_POWER characters and more share the last bar."""
KINDS = ("++", "+-", "-+", "--")

_WIDTH, _HEIGHT = 640, 260
_LEFT, _RIGHT, _TOP, _BOTTOM = 64, 16, 34, 52
_COLOURS = ("#4e79a7", "#e15759")
_LABELS = 10
"""Bars that are named, about."""


class Plot(msgspec.Struct, frozen=True, kw_only=True):
    """A bar chart."""

    name: str
    """Its file's name, without the ending."""
    title: str
    axis: str
    """What the bars stand for."""
    names: Sequence[str]
    """One a bar."""
    parts: Sequence[tuple[str, NDArray[np.int64]]]
    """Name and heights of what is stacked on each other: one or two."""
    alt: str
    """What is to be seen, in words."""

    @property
    def path(self) -> str:
        """Its file's path in the export."""
        return f"{FOLDER}/{self.name}.svg"


class Tallies:
    """What the plots show, counted block by block."""

    def __init__(self) -> None:
        self._values = np.zeros(BINS, dtype=np.int64)
        self._labels = np.zeros((2, MAX_DEPTH + 1), dtype=np.int64)
        self._pairs = np.zeros(4, dtype=np.int64)
        self._lengths = np.zeros(MAX_POWER + 1, dtype=np.int64)

    def add(self, block: ExportBlock) -> None:
        """Count the steps of the trees as grown."""
        grown = block.passes[0]
        forest, hard = grown.nodes.forest, grown.hard
        step = forest.parent >= 0
        value = grown.values.value[step & ~np.isnan(grown.values.value)]
        place = np.clip((value * BINS).astype(np.int64), 0, BINS - 1)
        self._values += np.bincount(place, minlength=BINS)
        labelled = step & (hard >= 0)
        depth = np.minimum(forest.depth[labelled], MAX_DEPTH)
        for label in (0, 1):
            self._labels[label] += np.bincount(depth[hard[labelled] == label], minlength=MAX_DEPTH + 1)
        second = labelled & (forest.depth >= 2)
        second[second] = hard[forest.parent[second]] >= 0
        kind = 2 * (hard[forest.parent[second]] == 0) + (hard[second] == 0)
        self._pairs += np.bincount(kind, minlength=4)
        length = pc.utf8_length(grown.nodes.text).to_numpy()[step]
        power = np.minimum(np.ceil(np.log2(np.maximum(length, 1))), MAX_POWER).astype(np.int64)
        self._lengths += np.bincount(power, minlength=MAX_POWER + 1)

    def plots(self) -> Iterator[Plot]:
        """The plots that have something to show."""
        if steps := int(self._values.sum()):
            ends = int(self._values[0] + self._values[-1])
            yield Plot(
                name="values",
                title="Values of steps",
                axis=f"value, in bins of {1 / BINS:g}",
                names=[f"{place / BINS:g}" for place in range(BINS)],
                parts=[("steps", self._values)],
                alt=f"Histogram of the values of {steps:,} steps: {ends / steps:.0%} lie in the two outermost bins.",
            )
        if labelled := int(self._labels.sum()):
            used = slice(1, int(np.flatnonzero(self._labels.sum(axis=0))[-1]) + 1)
            right = self._labels[1]
            yield Plot(
                name="labels",
                title="Hard labels by depth",
                axis="depth of the step",
                names=_last_open(range(used.start, used.stop), MAX_DEPTH),
                parts=[("right", right[used]), ("wrong", self._labels[0][used])],
                alt=f"Right and wrong steps at each depth: {right.sum() / labelled:.0%} of {labelled:,} are right.",
            )
        if pairs := int(self._pairs.sum()):
            corrected = int(self._pairs[KINDS.index("-+")])
            yield Plot(
                name="pairs",
                title="Pairs of consecutive steps by their hard labels",
                axis="labels of the earlier and the later step (+ right, - wrong)",
                names=KINDS,
                parts=[("pairs", self._pairs)],
                alt=f"Kinds of {pairs:,} pairs of steps: {corrected:,} of a wrong step that was then corrected.",
            )
        if steps := int(self._lengths.sum()):
            used = slice(0, int(np.flatnonzero(self._lengths)[-1]) + 1)
            middle = 2 ** int(np.searchsorted(np.cumsum(self._lengths), steps / 2))
            yield Plot(
                name="lengths",
                title="Lengths of steps",
                axis="characters, at most",
                names=_last_open([2**power for power in range(used.stop)], 2**MAX_POWER),
                parts=[("steps", self._lengths[used])],
                alt=f"Histogram of the lengths of {steps:,} steps: half of them have at most {middle:,} characters.",
            )


def write_plots(plots: Iterable[Plot], folder: Path) -> None:
    """The SVG files, into the export `folder`."""
    for plot in plots:
        with atomic_file(folder / plot.path) as stream:
            stream.write(draw(plot).encode())


def draw(plot: Plot) -> str:
    """The plot as SVG."""
    return "\n".join(_lines(plot)) + "\n"


def _lines(plot: Plot) -> Iterator[str]:
    bottom, wide, high = _HEIGHT - _BOTTOM, _WIDTH - _LEFT - _RIGHT, _HEIGHT - _TOP - _BOTTOM
    total = np.sum([heights for _, heights in plot.parts], axis=0)
    top = max(int(total.max()), 1)
    width = wide / len(plot.names)
    yield (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" width="{_WIDTH}" '
        f'height="{_HEIGHT}" role="img" font-family="sans-serif" font-size="11" fill="#333">'
    )
    yield f"<title>{plot.title}</title>"
    yield f"<desc>{plot.alt}</desc>"
    yield f'<rect width="{_WIDTH}" height="{_HEIGHT}" fill="#fff"/>'
    yield f'<text x="{_LEFT}" y="20" font-size="14">{plot.title}</text>'
    for share in (0.0, 0.5, 1.0):
        y = bottom - share * high
        yield f'<line x1="{_LEFT}" y1="{y:.1f}" x2="{_WIDTH - _RIGHT}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{_short(share * top)}</text>'
    below = np.zeros(len(plot.names), dtype=np.int64)
    for (name, heights), colour in zip(plot.parts, _COLOURS, strict=False):
        for bar, (height, under) in enumerate(zip(heights.tolist(), below.tolist(), strict=True)):
            if height:
                x, y = _LEFT + (bar + 0.1) * width, bottom - (under + height) / top * high
                yield (
                    f'<rect x="{x:.1f}" y="{y:.1f}" width="{0.8 * width:.1f}" height="{height / top * high:.1f}" '
                    f'fill="{colour}"><title>{plot.names[bar]}: {height:,} {name}</title></rect>'
                )
        below = below + heights
    every = -(-len(plot.names) // _LABELS)
    for bar in range(0, len(plot.names), every):
        x = _LEFT + (bar + 0.5) * width
        yield f'<text x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{plot.names[bar]}</text>'
    yield f'<text x="{_LEFT + wide / 2:.1f}" y="{_HEIGHT - 14}" text-anchor="middle">{plot.axis}</text>'
    if len(plot.parts) > 1:
        for number, ((name, _), colour) in enumerate(zip(plot.parts, _COLOURS, strict=False)):
            x = _WIDTH - _RIGHT - 70 * (len(plot.parts) - number)
            yield f'<rect x="{x}" y="11" width="10" height="10" fill="{colour}"/>'
            yield f'<text x="{x + 15}" y="20">{name}</text>'
    yield "</svg>"


def _last_open(numbers: Iterable[int], last: int) -> list[str]:
    """The numbers as names; `last`, which stands for all from there on, says so."""
    return [f"{number:,}+" if number == last else f"{number:,}" for number in numbers]


def _short(number: float) -> str:
    """A count for an axis: three digits and a unit."""
    for unit, size in (("M", 10**6), ("k", 10**3)):
        if number >= size:
            return f"{number / size:.3g}{unit}"
    return f"{number:g}"
