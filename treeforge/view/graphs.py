"""Trees in the languages of graph tools: GraphML, Graphviz's DOT and Mermaid, one text a tree.

What models and files say is shortened, made printable and escaped by the rules of each language, so that it is a label
and nothing else.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from treeforge.errors import ConfigError, RunError
from treeforge.label.steps import NO_LABEL
from treeforge.printable import one_line
from treeforge.store.files import atomic_file
from treeforge.store.run import RunFolder
from treeforge.tree import Finish
from treeforge.verdict import NO_VERDICT, Verdict
from treeforge.view.valued import ValuedTree, load_trees

MAX_TEXT = 200
"""Terminal cells of a step's text in an attribute."""
_LABEL_TEXT = 40
"""The same in a label that is drawn."""
_MAX_DRAWN = 500
"""Nodes that Mermaid draws (its own limit is 500 edges)."""
_PLAIN = re.compile(r"[^A-Za-z0-9 .,+=/-]")


class GraphFormat(msgspec.Struct, frozen=True):
    """A language of graphs."""

    suffix: str
    """Of its files."""
    write: Callable[[ValuedTree], str]
    """A tree as one text."""


def graphml(shown: ValuedTree) -> str:
    """GraphML with every figure as a typed attribute, as networkx, Gephi, yEd and Cytoscape read it."""
    import networkx as nx

    graph: nx.DiGraph[int] = nx.DiGraph(
        number=shown.number,
        problem_id=one_line(shown.problem.problem_id),
        question=one_line(shown.problem.question, MAX_TEXT),
        gold_answer=one_line(shown.problem.gold_answer, MAX_TEXT),
        estimator=shown.values.estimator,
    )
    parent = shown.record.tree.parent.tolist()
    for row, attributes in enumerate(_attributes(shown)):
        graph.add_node(row, **attributes)
        if row:
            graph.add_edge(parent[row], row)
    return "\n".join(nx.generate_graphml(graph)) + "\n"


def dot(shown: ValuedTree) -> str:
    """A digraph for Graphviz: boxes coloured by value, with the figures as attributes too."""
    lines = [f"digraph tree_{shown.number} {{", '  node [shape=box, style=filled, fontname="sans-serif"];']
    parent = shown.record.tree.parent.tolist()
    for row, attributes in enumerate(_attributes(shown)):
        label = _label(row, attributes).replace("&", "&amp;")  # Graphviz reads HTML's entities in labels
        drawn = {"label": label, "fillcolor": _colour(attributes.get("value")), **attributes}
        lines.append(f"  {row} [" + ", ".join(f"{name}={_dot_text(value)}" for name, value in drawn.items()) + "];")
        if row:
            lines.append(f"  {parent[row]} -> {row};")
    return "\n".join([*lines, "}"]) + "\n"


def mermaid(shown: ValuedTree) -> str:
    """A flowchart as Markdown pages draw it; of a tree of more than 500 nodes the first, more Mermaid does not draw."""
    tree = shown.record.tree
    parent = tree.parent.tolist()
    lines = ["flowchart TD"]
    if tree.size > _MAX_DRAWN:
        lines.append(f"  %% {_MAX_DRAWN} of {tree.size} nodes: Mermaid draws no more edges")
    for row, attributes in zip(range(_MAX_DRAWN), _attributes(shown), strict=False):
        lines.append(f'  n{row}["{_mermaid_text(_label(row, attributes))}"]')
        if row:
            lines.append(f"  n{parent[row]} --> n{row}")
        lines.append(f"  style n{row} fill:{_colour(attributes.get('value'))},color:#1b1f24")
    return "\n".join(lines) + "\n"


GRAPH_FORMATS = {
    "graphml": GraphFormat(".graphml", graphml),
    "dot": GraphFormat(".dot", dot),
    "mermaid": GraphFormat(".mmd", mermaid),
}


def choose_graph_formats(names: list[str]) -> dict[str, GraphFormat]:
    """The formats of these names where they are of graphs; none where they are of training rows.

    `ConfigError` where they are of both.
    """
    chosen = {name: GRAPH_FORMATS[name] for name in names if name in GRAPH_FORMATS}
    if chosen and len(chosen) < len(set(names)):
        raise ConfigError(
            f"--format: {', '.join(chosen)} gives a file a tree, the others training shards; export them one by one"
        )
    return chosen


def write_graphs(run: RunFolder, out: Path, formats: Mapping[str, GraphFormat], numbers: Sequence[int]) -> int:
    """Write `tree-00012.graphml` … into `out`, of these trees or, of none, of all that have ended; how many trees.

    Names are numbers, since ids are anybody's text. Raises `RunError` where a tree has not ended, or none has.
    """
    written = 0
    for shown in load_trees(run, sorted(set(numbers)) or range(len(run.problems))):
        for format in formats.values():
            with atomic_file(out / f"tree-{shown.number:05d}{format.suffix}") as stream:
                stream.write(format.write(shown).encode())
        written += 1
    if written < len(set(numbers)) or not written:
        which = "the tree of a problem that --problem names has" if numbers else "no tree has"
        raise RunError(f"{run.path}: {which} {'not ' if numbers else ''}ended yet; `treeforge show` lists them")
    return written


def _attributes(shown: ValuedTree) -> Iterator[dict[str, Any]]:
    """The figures of each node, in row order; what is unknown is left out."""
    tree, values = shown.record.tree, shown.values
    for row in range(tree.size):
        verdict, hard = int(tree.verdict[row]), int(shown.hard[row])
        found: dict[str, Any] = {
            "text": one_line(tree.text[row], MAX_TEXT) if row else "(the question)",
            "depth": int(tree.depth[row]),
            "value": float(values.value[row]),
            "low": float(values.low[row]),
            "high": float(values.high[row]),
            "outcomes": int(values.rollouts[row]),
            "visits": int(tree.visits[row]),
            "multiplicity": float(tree.multiplicity[row]),
            "tokens": int(tree.token_count[row]),
            "own_rollouts": int(tree.rollouts[row]),
            "finish": Finish(tree.finish[row]).name.lower(),
        }
        if hard != NO_LABEL:
            found["hard"] = hard
        if verdict != NO_VERDICT:
            found["verdict"] = Verdict(verdict).name.lower()
        if tree.answer[row]:
            found["answer"] = one_line(tree.answer[row], MAX_TEXT)
        yield {name: value for name, value in found.items() if not (isinstance(value, float) and math.isnan(value))}


def _label(row: int, attributes: dict[str, Any]) -> str:
    """What is drawn: `12: 0.40 of 8, correct` and below it the step's start."""
    value = attributes.get("value")
    head = f"{row}: " + ("-" if value is None else f"{value:.2f} of {attributes['outcomes']}")
    if "verdict" in attributes:
        head += f", {attributes['verdict'].replace('_', ' ')}"
    return head + "\n" + one_line(attributes["text"], _LABEL_TEXT)


def _colour(value: float | None) -> str:
    """Grey where nothing is known, else from orange (0) by white to blue (1), light enough for dark letters."""
    if value is None:
        return "#d0d7de"
    low, middle, high = (244, 165, 97), (255, 255, 255), (130, 180, 235)
    ends, share = ((low, middle), 2 * value) if value < 0.5 else ((middle, high), 2 * value - 1)
    return "#" + "".join(f"{round(a + (b - a) * share):02x}" for a, b in zip(*ends, strict=True))


def _dot_text(value: Any) -> str:
    """A quoted string of DOT; a line break is `\\n`, and a backslash stands for itself."""
    if not isinstance(value, str):
        return f'"{value:g}"' if isinstance(value, float) else f'"{value}"'
    escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _mermaid_text(text: str) -> str:
    """Inside Mermaid's quotes: all but plain characters by their number, so that no markup of its is left."""
    lines = (_PLAIN.sub(lambda m: f"#{ord(m.group())};", line) for line in text.split("\n"))
    return "<br>".join(lines)
