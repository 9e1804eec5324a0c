"""Trees as people see them: in the terminal, in the browser, and as JSON for a script."""

from treeforge.view.best import BestPath, best_path
from treeforge.view.valued import ValuedTree, load_tree

__all__ = ["BestPath", "ValuedTree", "best_path", "load_tree"]
