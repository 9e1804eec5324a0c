"""What compression did, in numbers that add up over trees."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce

import msgspec


class CompressReport(msgspec.Struct, frozen=True, kw_only=True):
    """What compression did to one tree; reports of several trees add up (`a + b`, `total(reports)`)."""

    trees: int = 0
    nodes: int = 0
    """Nodes, the roots included."""
    evaluated: int = 0
    """Nodes with a value, the roots not counted."""
    eligible: int = 0
    """Nodes that could have merged: all rules but chance, `max_label_shift` and `target_noise` allow it."""
    merges: int = 0
    refused: int = 0
    """Merges that chance had chosen and `max_label_shift` refused."""
    changed: int = 0
    """Nodes whose value changed (S' != S); at most one a merge."""
    hard_flips: int = 0
    """Of these, nodes whose value crossed the threshold of the hard label."""
    shift_sum: float = 0.0
    """Σ |S' - S|."""
    shift_max: float = 0.0
    """max |S' - S|."""
    target_missed: int = 0
    """Trees in which no allowed merge was left before the mean shift reached `target_noise`."""

    @property
    def mean_shift(self) -> float:
        """Mean |S' - S| over the merges; 0 without any."""
        return self.shift_sum / self.merges if self.merges else 0.0

    @property
    def noise(self) -> float:
        """Mean |S' - S| over all evaluated nodes: the label noise of the compressed trees."""
        return self.shift_sum / self.evaluated if self.evaluated else 0.0

    def __add__(self, other: CompressReport) -> CompressReport:
        both = {name: getattr(self, name) + getattr(other, name) for name in self.__struct_fields__}
        return CompressReport(**both | {"shift_max": max(self.shift_max, other.shift_max)})


def total(reports: Iterable[CompressReport]) -> CompressReport:
    """One report of many trees."""
    return reduce(CompressReport.__add__, reports, CompressReport())
