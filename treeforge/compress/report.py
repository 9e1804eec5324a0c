"""What compression did, in numbers that add up over trees."""

from __future__ import annotations

from collections.abc import Iterable
from functools import reduce
from typing import Any, TypeVar

import msgspec


class DepthReport(msgspec.Struct, frozen=True, kw_only=True):
    """What compression did to the nodes p of one depth; reports add up."""

    eligible: int = 0
    merges: int = 0
    changed: int = 0
    hard_flips: int = 0
    shift_sum: float = 0.0
    shift_max: float = 0.0

    @property
    def mean_shift(self) -> float:
        """Mean |S' - S| over the merges; 0 without any."""
        return self.shift_sum / self.merges if self.merges else 0.0

    def __add__(self, other: DepthReport) -> DepthReport:
        return _added(self, other)


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

    alike: int = 0
    """Trees of which a pass made no new one: nothing merged, or only what an earlier pass had merged too."""
    observed_sum: float = 0.0
    """Σ |V' - V| over all evaluated nodes, values estimated again on the compressed trees; predicted: `shift_sum`."""
    observed_max: float = 0.0
    """max |V' - V|."""
    by_depth: dict[int, DepthReport] = {}
    """Merges by the depth of p in the original tree."""

    @property
    def mean_shift(self) -> float:
        """Mean |S' - S| over the merges; 0 without any."""
        return self.shift_sum / self.merges if self.merges else 0.0

    @property
    def noise(self) -> float:
        """Mean |S' - S| over all evaluated nodes: the label noise of the compressed trees, as predicted."""
        return self.shift_sum / self.evaluated if self.evaluated else 0.0

    @property
    def observed_noise(self) -> float:
        """Mean |V' - V| over all evaluated nodes: the label noise as it came out."""
        return self.observed_sum / self.evaluated if self.evaluated else 0.0

    def __add__(self, other: CompressReport) -> CompressReport:
        return _added(self, other)


def total(reports: Iterable[CompressReport]) -> CompressReport:
    """One report of many trees."""
    return reduce(CompressReport.__add__, reports, CompressReport())


R = TypeVar("R", CompressReport, DepthReport)


def _added(a: R, b: R) -> R:
    """Sums; of the fields named `…_max` the greater; of depths each by itself."""
    both: dict[str, Any] = {}
    for name in a.__struct_fields__:
        old, new = getattr(a, name), getattr(b, name)
        if name == "by_depth":
            both[name] = {d: old.get(d, DepthReport()) + new.get(d, DepthReport()) for d in sorted(old | new)}
        else:
            both[name] = max(old, new) if name.endswith("_max") else old + new
    return type(a)(**both)
