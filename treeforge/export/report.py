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
    positive: int
    """Rows with hard label 1."""
    negative: int
    """Rows with hard label 0."""
    pairs: dict[str, int]
    """Of two-step rows, the hard labels of the earlier and the later step: `++`, `+-`, `-+`, `--`."""

    @property
    def share_positive(self) -> float | None:
        """Share of hard label 1 among the rows with a hard label; None without any."""
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


class Tally:
    """Counts of one split of one format, while it is written."""

    def __init__(self) -> None:
        self.problems = self.rows = self.positive = self.negative = 0
        self.pairs: Counter[str] = Counter({"++": 0, "+-": 0, "-+": 0, "--": 0})

    def add(self, rows: Rows) -> None:
        """Count some rows."""
        self.rows += rows.count
        if rows.count and "hard" in rows.columns:
            hard = rows.columns["hard"]
            self.positive += int(np.count_nonzero(hard == 1))
            self.negative += int(np.count_nonzero(hard == 0))
        self.pairs.update(rows.pairs)

    def report(self, shards: int) -> SplitReport:
        """The counts so far."""
        return SplitReport(
            problems=self.problems,
            rows=self.rows,
            shards=shards,
            positive=self.positive,
            negative=self.negative,
            pairs=dict(self.pairs) if self.pairs.total() else {},
        )
