"""The card's plots: their bars are the counts, they are whole XML, and the card links each."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from msgspec.structs import replace
from support.forest import block_of, blocks, export_tree, forest
from support.rows import values_of

from treeforge.config import ExportConfig
from treeforge.export import CardInfo, export
from treeforge.export.plots import BINS, MAX_DEPTH, Tallies, draw
from treeforge.tree import TreeBuilder

SVG = "{http://www.w3.org/2000/svg}"


def plots_of(*trees):
    tallies = Tallies()
    tallies.add(block_of(*trees))
    return {plot.name: plot for plot in tallies.plots()}


def bars(plot):
    """{name of the bar: heights of its parts that are not 0}."""
    heights = zip(*(part.tolist() for _, part in plot.parts), strict=True)
    return {name: tuple(parts) for name, parts in zip(plot.names, heights, strict=True) if any(parts)}


@pytest.fixture
def tree():
    """root ─ 1 (wrong) ─┬ 2 (right), and 4 (no label) under the root.
    └ 3 (wrong)"""
    builder = TreeBuilder()
    for parent, text in ((0, "x"), (1, "abc"), (1, "abcd"), (0, "é" * 5)):
        builder.add(parent, text)
    made = export_tree(1, tree=builder.freeze(), values=values_of(0.9, 0.2, 1.0, 0.0, 0.5))
    made.hard[4] = -1
    return made


def test_bars_count_steps(tree):
    found = plots_of(tree)
    assert bars(found["values"]) == {"0": (1,), "0.2": (1,), "0.5": (1,), "0.95": (1,)}, "without the root's"
    assert bars(found["labels"]) == {"1": (0, 1), "2": (1, 1)}
    assert bars(found["pairs"]) == {"-+": (1,), "--": (1,)}
    assert bars(found["lengths"]) == {"1": (1,), "4": (2,), "8": (1,)}, "characters, not bytes"
    assert found["pairs"].alt == "Kinds of 2 pairs of steps: 1 of a wrong step that was then corrected."


def test_trees_add_up_and_deep_steps_share_a_bar(tree):
    builder = TreeBuilder()
    for row in range(MAX_DEPTH + 9):
        builder.add(row, "x" * 10**5)
    deep = export_tree(2, tree=builder.freeze())
    deep.hard[:] = 1
    found = plots_of(tree, deep)
    assert bars(found["labels"])[f"{MAX_DEPTH}+"] == (10, 0)
    assert bars(found["lengths"])["16,384+"] == (MAX_DEPTH + 9,)
    assert sum(map(sum, bars(found["pairs"]).values())) == 2 + MAX_DEPTH + 8


def test_what_is_not_known_has_no_plot(tree):
    assert list(plots_of(replace(tree, hard=np.full(5, -1, np.int8)))) == ["values", "lengths"]
    assert plots_of(export_tree(1, tree=TreeBuilder().freeze())) == {}


def test_a_plot_is_whole_xml_with_a_bar_for_each_count(tree):
    for plot in plots_of(tree).values():
        root = ET.fromstring(draw(plot))
        assert root.find(f"{SVG}desc").text == plot.alt
        shown = [bar.find(f"{SVG}title") for bar in root.iter(f"{SVG}rect")]
        counts = [
            int(re.search(r"([\d,]+) \w+$", title.text)[1].replace(",", "")) for title in shown if title is not None
        ]
        assert sum(counts) == sum(map(sum, bars(plot).values()))
        heights = [float(bar.get("height")) for bar in root.iter(f"{SVG}rect") if bar.find(f"{SVG}title") is not None]
        assert max(heights) <= 174
        assert min(heights) > 0
    assert len(plots_of(tree)["values"].names) == BINS


def test_the_card_links_every_plot_and_the_bytes_are_alike_whatever_the_blocks(tmp_path):
    config = ExportConfig(formats=("prm",))
    for size in (2, 30):
        export(blocks(forest(30), size), tmp_path / str(size), config, CardInfo())
    one, two = (
        {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in (tmp_path / name).rglob("*.*")}
        for name in ("2", "30")
    )
    assert one == two
    linked = re.findall(r"^!\[(.+)\]\((.+)\)$", one["README.md"].decode(), re.MULTILINE)
    assert {path for _, path in linked} == {name for name in one if name.startswith("plots/")}
    assert len(linked) == 4
