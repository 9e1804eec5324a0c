"""Training shards, the dataset card and what they say: Arrow schemas, one file a format."""

from __future__ import annotations

from treeforge.export.blocks import ExportBlock, LabelledForest
from treeforge.export.card import CardInfo
from treeforge.export.dataset import export
from treeforge.export.formats import FORMATS, Format, choose_formats
from treeforge.export.loading import loading_lines
from treeforge.export.report import ExportReport, FormatReport, SplitReport
from treeforge.export.split import split_of
from treeforge.export.trees import CompressedTree, ExportTree, LabelledTree

__all__ = [
    "FORMATS",
    "CardInfo",
    "CompressedTree",
    "ExportBlock",
    "ExportReport",
    "ExportTree",
    "Format",
    "FormatReport",
    "LabelledForest",
    "LabelledTree",
    "SplitReport",
    "choose_formats",
    "export",
    "loading_lines",
    "split_of",
]
