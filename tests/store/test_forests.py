"""Node tables and values of whole blocks: the same as tree by tree."""

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hand_drawn import hand_drawn
from support.strategies import same, trees

from treeforge.compress import compress, compress_passes
from treeforge.config import CompressConfig
from treeforge.errors import DataError, TreeError
from treeforge.evidence import Evidence
from treeforge.forest import ARRAY_FIELDS, Forest, ranges
from treeforge.store import forests, tables
from treeforge.store.forests import NodeTable
from treeforge.store.value_table import ValueTable
from treeforge.tree import TREE_FIELDS, Finish
from treeforge.value import estimate


def same_tree(a, b):
    return all(same(getattr(a, name), getattr(b, name)) for name in TREE_FIELDS)


some_trees = st.lists(trees(), min_size=1, max_size=4)


def table_of(some, numbers=None):
    numbers = numbers or [3 * place for place in range(len(some))]
    return pa.concat_tables([tables.nodes_table(*row) for row in zip(numbers, some, strict=True)])


@settings(deadline=None, max_examples=50)
@given(some=some_trees, data=st.data())
def test_a_block_and_some_of_it_are_its_trees(some, data):
    nodes = NodeTable.read(table_of(some))
    assert nodes.numbers.tolist() == [3 * place for place in range(len(some))]
    assert all(same_tree(a, b) for a, b in zip(some, nodes.trees(), strict=True))
    made = NodeTable.of(nodes.numbers.tolist(), some)
    assert all(same_tree(a, b) for a, b in zip(some, made.trees(), strict=True))
    chosen = np.array(data.draw(st.lists(st.integers(0, len(some) - 1), min_size=1, unique=True)), dtype=np.intp)
    part = nodes.select(chosen)
    part.forest.check()
    assert part.numbers.tolist() == (3 * chosen).tolist()
    assert all(same_tree(some[place], tree) for place, tree in zip(chosen.tolist(), part.trees(), strict=True))


@settings(deadline=None, max_examples=50)
@given(some=some_trees)
def test_a_block_compressed_is_its_trees_compressed(some):
    config = CompressConfig(probability=0.8, min_children=2)
    keys = [f"tree {place}" for place in range(len(some))]
    nodes = NodeTable.read(table_of(some))
    made = next(compress_passes(nodes.forest, config, keys=keys))
    table = nodes.merged(made.forest, made.p, made.x).to_compressed(np.arange(len(some)))
    alone = [compress(tree, config, key=key).tree for tree, key in zip(some, keys, strict=True)]
    assert repr(table.drop_columns("row_of").to_pylist()) == repr(table_of(alone).to_pylist())  # NaN equals NaN
    assert table["row_of"].to_pylist() == table["node_id"].to_pylist()
    back = NodeTable.read(table)
    assert all(same_tree(a, b) for a, b in zip(alone, back.trees(), strict=True))


def test_a_block_of_more_text_than_narrow_offsets_hold(monkeypatch):
    monkeypatch.setattr(forests, "_NARROW_BYTES", 100)
    monkeypatch.setattr(forests, "_NARROW_ROWS", 7)
    some = [hand_drawn(), hand_drawn(), hand_drawn()]
    nodes = NodeTable.read(table_of(some))
    assert nodes.text.type == pa.large_string()
    assert repr(nodes.to_nodes().to_pylist()) == repr(table_of(some).to_pylist())
    config = CompressConfig(probability=1.0, min_children=2)
    made = next(compress_passes(nodes.forest, config, keys=["a", "b", "c"]))
    assert len(made.x) > 2
    table = nodes.merged(made.forest, made.p, made.x).to_compressed(np.array([0, 2]))
    alone = [compress(tree, config, key=key).tree for tree, key in zip(some, "abc", strict=True)]
    assert table["text"].to_pylist() == [*alone[0].text, *alone[2].text]
    assert all(same_tree(a, b) for a, b in zip(some, nodes.select(np.array([0, 1, 2])).trees(), strict=True))


@settings(deadline=None, max_examples=30)
@given(some=some_trees)
def test_values_of_a_block_are_those_of_its_trees(some):
    forest = Forest.of(some)
    values = estimate(Evidence.of(forest))
    hard, soft = (values.value > 0.5).astype(np.int8), values.value
    numbers = np.arange(len(some), dtype=np.int32)
    table = ValueTable(numbers=numbers, starts=forest.starts, values=values, hard=hard, soft=soft).to_arrow()
    alone = [
        tables.values_table(number, estimate(tree), hard[rows], soft[rows])
        for number, (tree, rows) in enumerate(zip(some, forest.rows(), strict=True))
    ]
    for name in tables.VALUES.names:
        assert repr(table[name].to_pylist()) == repr(pa.concat_tables(alone)[name].to_pylist()), name
    back = ValueTable.read(table)
    assert back.starts.tolist() == forest.starts.tolist()
    np.testing.assert_array_equal(back.values.low, values.low)
    np.testing.assert_array_equal(back.hard, hard)


@pytest.mark.parametrize(("ids", "nodes"), [([1, 0], [0, 0]), ([0, 0], [0, 2]), ([0, 0], [1, 0])])
def test_rows_out_of_order_are_refused(ids, nodes):
    table = tables.nodes_table(0, hand_drawn()).slice(0, 2)
    table = table.set_column(0, "tree_id", pa.array(ids, pa.int32()))
    table = table.set_column(1, "node_id", pa.array(nodes, pa.int32()))
    with pytest.raises(DataError, match="order"):
        NodeTable.read(table)


@pytest.mark.parametrize(
    ("name", "row", "value", "message"),
    [
        ("parent", 2, 5, "parent at row 2 of tree 1"),
        ("parent", 2, -1, "parent at row 2"),
        ("parent", 16, 0, "parent at row 1 of tree 1"),
        ("depth", 3, 7, "depth at row 3"),
        ("multiplicity", 3, -1, "multiplicity"),
        ("token_count", 3, -1, "token_count"),
        ("rollouts_correct", 1, 3, "rollouts"),
        ("rollouts_truncated", 1, -1, "rollouts"),
        ("finish", 1, Finish.STOP, "finish"),
        ("verdict", 1, 0, "verdict"),
        ("finish", 5, Finish.ERROR, "verdict"),
    ],
)
def test_every_invariant_of_a_tree_is_checked_in_a_forest(name, row, value, message):
    forest = Forest.of([hand_drawn(), hand_drawn()])
    forest.check()
    column = getattr(forest, name).copy()
    place = row if name == "parent" and row > 14 else 15 + row
    column[place] = value + (15 if name == "parent" and row == 2 and value >= 0 else 0)
    with pytest.raises(TreeError, match=message):
        forest.changed(**{name: column}).check()


def test_a_forest_has_every_array_of_a_tree():
    assert all(hasattr(Forest.of([hand_drawn()]), name) for name in ARRAY_FIELDS)
    assert ranges(np.array([5, 0, 9]), np.array([2, 0, 3])).tolist() == [5, 6, 9, 10, 11]


def test_values_of_several_estimators_are_refused():
    tree = hand_drawn()
    parts = [
        tables.values_table(number, estimate(tree, name), np.zeros(15, np.int8), np.zeros(15))
        for number, name in enumerate(("policy_mean", "leaf_share"))
    ]
    with pytest.raises(DataError, match="several estimators"):
        ValueTable.read(pa.concat_tables(parts))
