"""Several HNC passes, and many trees at once."""

import json

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.hand_drawn import hand_drawn
from support.runs import problems, scripted_config
from support.strategies import trees

import treeforge as tf
from treeforge.compress import Forest, compress, compress_passes, total
from treeforge.config import CompressConfig
from treeforge.tree import TREE_FIELDS

SOME = CompressConfig(probability=0.5, min_children=2, passes=4)
TARGET = CompressConfig(min_children=2, target_noise=0.05)
PAPER = CompressConfig(min_children=2, rule="paper", max_label_shift=0.1)


def same_tree(a, b):
    return all(repr(plain(getattr(a, name))) == repr(plain(getattr(b, name))) for name in TREE_FIELDS)


def plain(column):
    return column.tolist() if isinstance(column, np.ndarray) else column


@settings(deadline=None, max_examples=50)
@given(
    forest=st.lists(trees(), min_size=1, max_size=4),
    estimator=st.sampled_from(["policy_mean", "leaf_share"]),
    config=st.sampled_from([SOME, TARGET, PAPER]),
)
def test_many_at_once_is_one_by_one(forest, estimator, config):
    keys = [f"tree {number}" for number in range(len(forest))]
    first = next(compress_passes(Forest.of(forest), config, keys=keys, estimator=estimator))
    alone = [compress(tree, config, key=key, estimator=estimator) for tree, key in zip(forest, keys, strict=True)]
    for tree, one in zip(first.trees(forest), alone, strict=True):
        tree.check()
        assert same_tree(tree, one.tree)
    assert first.shifted.tolist() == [mark for one in alone for mark in one.shifted.tolist()]
    added = total(one.report for one in alone)
    for name in ("trees", "nodes", "evaluated", "eligible", "merges", "refused", "changed", "target_missed", "alike"):
        assert getattr(first.report, name) == getattr(added, name), name
    assert first.report.shift_sum == pytest.approx(added.shift_sum)
    assert first.report.by_depth.keys() == added.by_depth.keys()
    assert sum(d.merges for d in first.report.by_depth.values()) == first.report.merges


@settings(deadline=None, max_examples=50)
@given(tree=trees(), passes=st.integers(1, 6))
def test_no_two_passes_are_alike_and_the_noise_is_as_predicted(tree, passes):
    config = CompressConfig(probability=0.5, min_children=2, passes=passes)
    merges = set()
    for made in compress_passes(Forest.of([tree]), config, keys=["k"]):
        (compressed,) = made.trees([tree])
        compressed.check()
        found = tuple(m for m in compressed.merged_from if m)
        if made.new[0]:
            assert found
            assert found not in merges
            merges.add(found)
        else:
            assert not found
        assert made.report.observed_sum == pytest.approx(made.report.shift_sum, abs=1e-9)
        assert made.report.observed_max == pytest.approx(made.report.shift_max, abs=1e-9)


def test_more_passes_change_no_earlier_one():
    few, many = (
        [
            made.x.tolist()
            for made in compress_passes(
                Forest.of([hand_drawn()]), CompressConfig(min_children=2, passes=passes), keys=["k"]
            )
        ]
        for passes in (2, 5)
    )
    assert many[:2] == few


def test_passes_run_out_where_there_is_one_merge_only():
    tree = hand_drawn()
    config = CompressConfig(probability=1.0, rule="paper", passes=3)  # always the first child: one way to merge
    new = [made.new.tolist() for made in compress_passes(Forest.of([tree]), config, keys=["k"])]
    assert new == [[True], [False], [False]]


def test_a_run_with_several_passes_end_to_end(tmp_path):
    out = tmp_path / "run"
    tf.run(problems(6), out, scripted_config(block=4, children=4, budget={"simulations": 12}))
    report = tf.pipeline.compress(out, tf.CompressConfig(min_children=2, passes=3))
    assert json.loads(json.dumps(report)) == report
    assert report["trees"] == 18
    assert report["observed_noise"] == pytest.approx(report["noise"])
    assert sum(depth["merges"] for depth in report["by_depth"].values()) == report["merges"]
    assert {file.name.rpartition("-")[0] for file in (out / "compressed").glob("*.parquet")} == {
        "nodes",
        "pass2",
        "pass3",
    }
    tf.pipeline.export(out)
    nodes = pl.concat([pl.read_parquet(file) for file in sorted((out / "dataset" / "nodes").glob("*.parquet"))])
    assert sorted(nodes["compressed"].unique()) == [0, 1, 2, 3]
    texts = nodes.group_by("tree_id", "compressed", maintain_order=True).agg(pl.col("merged_from"), pl.col("parent_id"))
    for _, tree in texts.group_by("tree_id"):
        merged = [json.dumps(row) for row in tree["merged_from"].to_list()]
        assert len(set(merged)) == len(merged), "never two identical ones"
    hrm = pl.concat([pl.read_parquet(file) for file in sorted((out / "dataset" / "data").glob("*.parquet"))])
    assert sorted(hrm["compressed"].unique()) == [0, 1, 2, 3]
    again = tf.pipeline.compress(out)
    assert again == report
