"""`python -m treeforge`: the command line."""

from treeforge.cli import main

main()
