"""Rows of one tree in an export format, and small trees to look at them with."""

import numpy as np
import pyarrow as pa
from support.forest import block_of, export_tree, labelled

from treeforge.export import FORMATS
from treeforge.export.formats import Context
from treeforge.export.schemas import make_table
from treeforge.tree import TREE_FIELDS, Tree, TreeBuilder
from treeforge.value import Values


def rows_of(name, tree, **context):
    """All rows of one tree as dictionaries, through Arrow."""
    format = FORMATS[name]
    tables = [
        make_table(rows.columns, format.schema)
        for rows in format.rows(block_of(tree), Context(**context))
        if rows.count
    ]
    return pa.concat_tables(tables).to_pylist() if tables else []


def left_out(name, tree, **context):
    counts = {}
    for rows in FORMATS[name].rows(block_of(tree), Context(**context)):
        for reason, count in rows.left_out.items():
            counts[reason] = counts.get(reason, 0) + count
    return counts


def values_of(*numbers):
    value = np.array(numbers, np.float64)
    n = len(numbers)
    return Values(
        value=value,
        rollouts=np.arange(n),
        undecided=np.zeros(n, np.int64),
        stderr=np.full(n, 0.1),
        low=value - 0.1,
        high=value + 0.1,
        estimator="leaf_share",
    )


def compressed_tree():
    """Node 1 merged with its child 2 (rows in another order than before): 2 hangs under the root with both texts."""
    builder = TreeBuilder()
    builder.add(0, "a")
    builder.add(1, "b")
    builder.add(1, "c")
    original = builder.freeze()
    after = {name: getattr(original, name) for name in TREE_FIELDS}
    after |= {
        "parent": np.array([-1, 0, 0, 2], np.int32),
        "depth": np.array([0, 1, 1, 2], np.int16),
        "text": ("", "ab", "a", "c"),
        "merged_from": ((), (1, 2), (), ()),
    }
    merged = Tree(**after)
    merged.check()
    row_of = [0, 2, 1, 3]
    fresh = {1: np.array([False, False, True, False]), 2: np.array([True, True, True, False])}
    values, shifted = values_of(0.5, 0.4, 0.8, 0.0), values_of(0.5, 0.8, 0.2, 0.0)
    return export_tree(0, tree=original, values=values, compressed=[labelled(merged, shifted, row_of, fresh)])
