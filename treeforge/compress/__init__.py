"""Hierarchical Node Compression and pair windows: `Tree -> Tree` and a report."""

from treeforge.compress.hnc import Compressed, Pass, compress, compress_passes
from treeforge.compress.pairs import Windows, new_rows, pair_windows, single_steps
from treeforge.compress.report import CompressReport, DepthReport, total
from treeforge.forest import Forest

__all__ = [
    "CompressReport",
    "Compressed",
    "DepthReport",
    "Forest",
    "Pass",
    "Windows",
    "compress",
    "compress_passes",
    "new_rows",
    "pair_windows",
    "single_steps",
    "total",
]
