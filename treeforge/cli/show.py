"""`treeforge show`: the problems of a run, or one problem's tree, or one node of it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from treeforge.cli import options, results

if TYPE_CHECKING:
    from treeforge.store.run import RunFolder


def show(
    run: options.Run,
    problem: Annotated[
        str | None,
        typer.Argument(metavar="PROBLEM", help="A problem's id, a start of it, or its number.", show_default=False),
    ] = None,
    depth: Annotated[
        int | None, typer.Option("--depth", min=0, help="Draw nodes down to this depth.", show_default=False)
    ] = None,
    node: Annotated[
        int | None, typer.Option("--node", min=0, help="One node whole: prefix, fields, rollouts.", show_default=False)
    ] = None,
    diff: Annotated[
        bool, typer.Option("--diff", help="What HNC merged in the tree, before and after, instead of the tree.")
    ] = False,
    pass_: Annotated[int, typer.Option("--pass", min=1, help="--diff: of this HNC pass.")] = 1,
    full: Annotated[bool, typer.Option("--full", help="Whole texts, not shortened to a line.")] = False,
    lines: Annotated[int, typer.Option("--lines", min=1, help="Nodes (or problems) shown at most.")] = 400,
    json: options.Json = False,
) -> None:
    """List a run's problems, or draw the tree of one: steps, values, verdicts, best and worst path.

    Also while the run goes on: a tree that grows still is shown as far as its journal takes it. `--json` prints all.
    """
    from treeforge.errors import ConfigError
    from treeforge.store.run import RunFolder

    if diff and (problem is None or node is not None):
        raise ConfigError("--diff shows one tree; name its PROBLEM, without --node")
    folder = RunFolder.open(run)
    if problem is None:
        _list_problems(folder, lines, json)
    elif diff:
        _show_difference(folder, folder.number_of(problem), pass_, full, json)
    else:
        _show_tree(folder, folder.number_of(problem), depth, node, full, lines, json)


def _list_problems(folder: RunFolder, most: int, json: bool) -> None:

    from treeforge.printable import print_lines, stdout_console
    from treeforge.stats import problem_rows
    from treeforge.stats.report import problem_lines

    rows = problem_rows(folder)
    if json:
        results.print_json(rows)
        return
    console = stdout_console()
    print_lines(console, problem_lines(rows[:most], console))
    if len(rows) > most:
        typer.echo(f"… and {len(rows) - most:,} more problems (--lines)", err=True)


def _show_difference(folder: RunFolder, number: int, pass_: int, full: bool, json: bool) -> None:
    from treeforge.errors import ConfigError
    from treeforge.printable import print_lines, stdout_console
    from treeforge.view import load_tree
    from treeforge.view.difference import difference, difference_lines, load_after
    from treeforge.view.terminal import problem_lines

    before = load_tree(folder, number)
    if before is None:
        raise ConfigError(f"--diff: the tree of problem {number} has not ended yet")
    after = load_after(folder, before, pass_)
    found = difference(before, after, pass_)
    if json:
        results.print_json(found)
        return
    console = stdout_console()
    outcome = before.record.status, before.record.reason
    print_lines(console, problem_lines(number, before.problem, outcome, console, full=full))
    print_lines(console, difference_lines(before, after, found, console, full=full))


def _show_tree(
    folder: RunFolder, number: int, depth: int | None, node: int | None, full: bool, most: int, json: bool
) -> None:

    from treeforge.errors import ConfigError
    from treeforge.printable import print_lines, stdout_console
    from treeforge.view import best_path, load_tree
    from treeforge.view.best import worst_path
    from treeforge.view.data import node_data, tree_data
    from treeforge.view.growing import load_growing
    from treeforge.view.terminal import node_lines, problem_lines, tree_lines

    shown = load_tree(folder, number) or load_growing(folder, number)
    tree = shown.record.tree if shown else None
    if node is not None and (tree is None or node >= tree.size):
        there = "has not begun yet" if tree is None else f"has the nodes 0 to {tree.size - 1}"
        raise ConfigError(f"--node {node}: the tree of problem {number} {there}")
    best = best_path(shown.record.tree, shown.values, shown.record.rollouts) if shown else None
    worst = worst_path(shown.record.tree, shown.values, shown.record.rollouts) if shown else None
    if json:
        if shown is None:
            results.print_json({"number": number, "problem": folder.problems[number], "status": "open"})
        else:
            results.print_json(tree_data(shown, best, worst) if node is None else node_data(shown, node))
        return
    console = stdout_console()
    outcome = (shown.record.status, shown.record.reason) if shown else ("open", "")
    print_lines(console, problem_lines(number, folder.problems[number], outcome, console, full=full))
    if shown is not None and outcome[0] == "open":
        typer.echo("The tree grows still; this is what its journal holds by now.", err=True)
    if shown is None:
        typer.echo("Its tree has not begun yet.", err=True)
    elif node is not None:
        print_lines(console, node_lines(shown, node, console))
    else:
        print_lines(console, tree_lines(shown, best, console, worst=worst, depth=depth, most=most, full=full))
