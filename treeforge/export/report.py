"""What an export wrote: rows by format and split, label balance, kinds of pairs, and what was left out and why."""

from __future__ import annotations

from collections import Counter

import msgspec
import numpy as np

from treeforge.export.formats import Rows
from treeforge.export.split import Split


class SplitReport(msgspec.Struct, frozen=True, kw_only=True):
    """One split of one format."""

    problems: int
    """Problems with at least one row."""
    rows: int
    shards: int
    arrow_bytes: int
    """Of the rows as Arrow tables, which is what `datasets` has in its cache."""
    file_bytes: int
    """Of the shards."""
    positive: int
    """Rows with label 1: the hard label, that a whole solution is right, or that every step of a chain is."""
    negative: int
    """Rows with label 0."""
    pairs: dict[str, int]
    """Of rows with several steps, the hard labels of the last two: `++`, `+-`, `-+`, `--`."""

    @property
    def share_positive(self) -> float | None:
        """Share of label 1 among the rows with a label; None without any."""
        labelled = self.positive + self.negative
        return self.positive / labelled if labelled else None


class FormatReport(msgspec.Struct, frozen=True, kw_only=True):
    """One format."""

    name: str
    folder: str
    """Where its shards lie, below the export's folder."""
    splits: dict[Split, SplitReport]
    """Splits with rows, in the order train, validation, test."""
    left_out: dict[str, int]
    """Rows that were left out, by reason."""

    @property
    def rows(self) -> int:
        """Rows of all splits."""
        return sum(split.rows for split in self.splits.values())


class ExportReport(msgspec.Struct, frozen=True, kw_only=True):
    """What one export wrote."""

    problems: dict[Split, int]
    """Problems (trees) by split, those without a row included."""
    formats: tuple[FormatReport, ...]
    dropped: dict[str, int] = {}
    """What the filters took away of all formats: labels and problems, by reason."""
    contaminated: dict[str, tuple[str, ...]] = {}
    """Ids of the problems that share an n-gram with a benchmark, by the benchmark file's name."""


class Tally:
    """Counts of one split of one format, while it is written."""

    def __init__(self) -> None:
        self.problems = self.rows = self.positive = self.negative = 0
        self.pairs: Counter[str] = Counter({"++": 0, "+-": 0, "-+": 0, "--": 0})
        self._last = -1

    def add(self, rows: Rows) -> None:
        """Count some rows, of which those of a tree come together."""
        if not rows.count:
            return
        assert rows.numbers is not None
        self.problems += int(np.count_nonzero(np.diff(rows.numbers))) + int(rows.numbers[0] != self._last)
        self._last = int(rows.numbers[-1])
        self.rows += rows.count
        if rows.labels is not None:
            _, negative, positive = np.bincount(rows.labels + 1, minlength=3).tolist()
            self.positive += positive
            self.negative += negative
        for kind, count in rows.pairs.items():
            self.pairs[kind] += count

    def report(self, shards: int, arrow_bytes: int, file_bytes: int) -> SplitReport:
        """The counts so far, and what was written."""
        return SplitReport(
            arrow_bytes=arrow_bytes,
            file_bytes=file_bytes,
            problems=self.problems,
            rows=self.rows,
            shards=shards,
            positive=self.positive,
            negative=self.negative,
            pairs=dict(self.pairs) if self.pairs.total() else {},
        )
