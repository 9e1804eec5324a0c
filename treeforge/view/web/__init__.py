"""The page's own files: HTML, styles and plain ES modules, served as they are."""

from importlib.resources import files

WEB = files("treeforge.view.web")
"""Their folder."""
