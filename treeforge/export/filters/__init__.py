"""What an export leaves out on request: weak labels, rows by a condition, duplicates, the majority, benchmarks."""

from __future__ import annotations

from treeforge.export.filters.balance import BalancedWriter
from treeforge.export.filters.benchmarks import Benchmarks
from treeforge.export.filters.condition import Condition
from treeforge.export.filters.duplicates import Duplicates, Questions
from treeforge.export.filters.evidence import WEAK, drop_weak_labels

__all__ = ["WEAK", "BalancedWriter", "Benchmarks", "Condition", "Duplicates", "Questions", "drop_weak_labels"]
