"""Statistics of runs: what was grown, how it ended, what it cost and how the labels are spread."""

from treeforge.stats.aggregate import summarise
from treeforge.stats.summary import Summary
from treeforge.stats.trees import ProblemRow, problem_rows

__all__ = ["ProblemRow", "Summary", "problem_rows", "summarise"]
