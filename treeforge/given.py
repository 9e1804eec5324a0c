"""Solutions that were written before the run, by any model or person, whose steps it labels (`treeforge annotate`)."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from treeforge.errors import DataError

_NOT_TEXT = re.compile("[\0\ud800-\udfff]")


class GivenSolution(msgspec.Struct, frozen=True):
    """One solution, or the tree of several that one row of a file holds. Make one with `make_given`."""

    steps: tuple[str, ...]
    """Texts as they stand in the file, none blank; the search adds a delimiter where one is missing."""
    parents: tuple[int, ...]
    """The place in `steps` of the step before each; -1 for a first step. A parent stands before its children."""
    ends: tuple[int, ...]
    """Places of the steps, with none after them, that may end a solution: the judge is asked."""
    row: int = 0
    """Where it stands in its file: 1-based line (JSONL, CSV) or row; 0 unknown."""

    @property
    def depth(self) -> int:
        """Steps of its longest path."""
        depths: list[int] = []
        for parent in self.parents:
            depths.append(1 + (depths[parent] if parent >= 0 else 0))
        return max(depths)


def make_given(
    steps: Sequence[str],
    *,
    parents: Sequence[int] | None = None,
    ends: Sequence[int] | None = None,
    row: int = 0,
) -> GivenSolution:
    """Make a given solution of its steps' texts; without `parents` each follows the one before.

    Without `ends`, every last step may end a solution. Raises `DataError` (its `field` names the step) where
    there is no step, a text is blank or no text that a file can hold, or a parent does not stand before its step.
    """
    if not steps:
        raise DataError("has no steps", field="steps", fix="Fill them in or leave the row out")
    before = tuple(range(-1, len(steps) - 1)) if parents is None else tuple(parents)
    if len(before) != len(steps):
        raise DataError(f"has {len(before)} parents for {len(steps)} steps", fix="Give each step one, or none at all")
    texts: Sequence[object] = steps  # a caller's list may hold anything
    for place, (text, parent) in enumerate(zip(texts, before, strict=True)):
        if not isinstance(text, str):
            what = f"is {repr(text)[:40]} where text is expected"
            raise DataError(what, field=f"steps[{place}]", fix="Give each step as text")
        if not text or text.isspace():
            raise DataError("is blank", field=f"steps[{place}]", fix="Fill it in or leave the row out")
        if _NOT_TEXT.search(text):
            what = "holds a NUL character or half of a surrogate pair"
            raise DataError(what, field=f"steps[{place}]", fix="Remove it from the text")
        if not -1 <= parent < place:
            what = "has a parent that does not stand before it"
            raise DataError(what, field=f"steps[{place}]", fix="Put parents first")
    last = set(range(len(steps))) if ends is None else set(ends) & set(range(len(steps)))
    return GivenSolution(tuple(steps), before, tuple(sorted(last - set(before))), row)
