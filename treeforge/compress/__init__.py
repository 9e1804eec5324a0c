"""Hierarchical Node Compression and pair windows: `Tree -> Tree` and a report."""

from treeforge.compress.hnc import Compressed, compress
from treeforge.compress.pairs import Windows, new_rows, pair_windows, single_steps
from treeforge.compress.report import CompressReport, total

__all__ = [
    "CompressReport",
    "Compressed",
    "Windows",
    "compress",
    "new_rows",
    "pair_windows",
    "single_steps",
    "total",
]
