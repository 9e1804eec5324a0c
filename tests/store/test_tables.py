import errno
import math
import os
import random
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treeforge.errors import DataError, StorageError, TreeError
from treeforge.store import files, parquet, tables
from treeforge.tree import TREE_FIELDS, Finish, Rollout, Tree, TreeBuilder
from treeforge.value import Values
from treeforge.verdict import NO_VERDICT, Verdict

TEXT = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=12)
FLOAT32 = st.floats(width=32)
COUNT = st.integers(0, 1000)


@st.composite
def trees(draw, max_size=8):
    n = draw(st.integers(1, max_size))
    parent = np.array([-1, *(draw(st.integers(0, row - 1)) for row in range(1, n))], np.int32)
    depth = np.zeros(n, np.int16)
    for row in range(1, n):
        depth[row] = depth[parent[row]] + 1
    inner = set(parent.tolist())
    finish = [Finish.OPEN if row in inner else draw(st.sampled_from(Finish)) for row in range(n)]
    judged = {Finish.STOP, Finish.ANSWERED, Finish.TRUNCATED}

    def each(strategy, root=None):
        return [root if row == 0 and root is not None else draw(strategy) for row in range(n)]

    correct, undecided, truncated, other = (np.array(each(COUNT)) for _ in range(4))
    return Tree(
        parent=parent,
        depth=depth,
        text=each(TEXT, root=""),
        observation=each(TEXT),
        token_count=each(COUNT),
        logprob=each(FLOAT32),
        multiplicity=each(st.floats(0.001, 100)),
        finish=finish,
        answer=each(TEXT),
        verdict=[draw(st.sampled_from(Verdict)) if f in judged else NO_VERDICT for f in finish],
        rollouts=correct + undecided + truncated + other,
        rollouts_correct=correct,
        rollouts_undecided=undecided,
        rollouts_truncated=truncated,
        visits=each(COUNT),
        value_sum=each(st.floats(0, 1e9)),
        prior=each(FLOAT32),
        merged_from=each(st.lists(st.integers(0, 99), max_size=3).map(tuple)),
    )


ROLLOUT = st.builds(
    Rollout,
    node=COUNT,
    steps=st.lists(TEXT, max_size=4).map(tuple),
    answer=TEXT,
    verdict=st.integers(-1, 4),
    finish=st.integers(1, 4),
    tokens=COUNT,
    logprob=st.floats(allow_nan=True),
)


def assert_same(left, right):
    """Equal fields, NaN equal to NaN, floats to the bit."""
    for name in TREE_FIELDS:
        a, b = getattr(left, name), getattr(right, name)
        if isinstance(a, np.ndarray):
            assert a.dtype == b.dtype, name
            np.testing.assert_array_equal(a, b, err_msg=name)
        else:
            assert a == b, name


def small_tree():
    builder = TreeBuilder()
    first = builder.add(0, "2 + 2 = 4\n", token_count=7, logprob=-1.5)
    builder.add(first, "The answer is 4.", finish=Finish.ANSWERED, answer="4", verdict=Verdict.CORRECT)
    return builder.freeze()


@given(st.lists(trees(), min_size=1, max_size=3))
@settings(max_examples=60, deadline=None)
def test_trees_round_trip_through_a_file(tmp_path_factory, some):
    path = tmp_path_factory.mktemp("tables") / "nodes.parquet"
    numbers = [7 * i for i in range(len(some))]
    parquet.write_table(pa.concat_tables([tables.nodes_table(*row) for row in zip(numbers, some, strict=True)]), path)
    back = list(tables.trees_from_table(parquet.read_table(path, tables.NODES)))
    assert [number for number, _ in back] == numbers
    for before, (_, after) in zip(some, back, strict=True):
        assert_same(before, after)


@given(st.lists(st.lists(ROLLOUT, max_size=3), max_size=4))
@settings(max_examples=60, deadline=None)
def test_rollouts_round_trip(some):
    table = pa.concat_tables([tables.rollouts_table(i, rollouts) for i, rollouts in enumerate([*some, []])])
    back = dict(tables.rollouts_from_table(table))
    assert sorted(back) == [i for i, rollouts in enumerate(some) if rollouts]
    for i, rollouts in back.items():
        assert [repr(r) for r in rollouts] == [repr(r) for r in some[i]]  # repr: NaN equals NaN


def test_values_round_trip_and_missing_labels_are_null_in_the_file(tmp_path):
    nan = math.nan
    values = Values(
        value=np.array([0.5, nan, 0.25]),
        rollouts=np.array([4, 0, 4]),
        undecided=np.array([1, 0, 0]),
        stderr=np.array([0.1, nan, 0.2]),
        low=np.array([0.2, 0.0, 0.1]),
        high=np.array([0.8, 1.0, 0.6]),
        estimator="policy_mean",
    )
    hard, soft = np.array([1, -1, 0], np.int8), np.array([0.5, nan, 0.25])
    parquet.write_table(tables.values_table(3, values, hard, soft), tmp_path / "values.parquet")
    table = parquet.read_table(tmp_path / "values.parquet", tables.VALUES)
    assert table["hard"].to_pylist() == [True, None, False]
    [(number, after, hard_after, soft_after)] = tables.values_from_table(table)
    assert number == 3
    assert after.estimator == "policy_mean"
    for name in ("value", "rollouts", "undecided", "stderr", "low", "high"):
        np.testing.assert_array_equal(getattr(after, name), getattr(values, name))
        assert getattr(after, name).dtype == getattr(values, name).dtype
    assert hard_after.dtype == np.int8
    np.testing.assert_array_equal(hard_after, hard)
    np.testing.assert_array_equal(soft_after, soft)


def test_two_estimators_in_one_tree_are_refused():
    row = np.array([1.0])
    values = {
        name: Values(value=row, rollouts=row, undecided=row, stderr=row, low=row, high=row, estimator=name)
        for name in ("policy_mean", "leaf_share")
    }
    table = pa.concat_tables([tables.values_table(0, v, np.array([1], np.int8), row) for v in values.values()])
    table = table.set_column(1, "node_id", pa.array([0, 1], pa.int32()))
    with pytest.raises(DataError, match="several estimators"):
        list(tables.values_from_table(table))


def test_every_field_of_a_tree_has_a_column():
    assert set(tables.NODES.names) == {*TREE_FIELDS, "tree_id", "node_id", "parent_id"} - {"parent"}


def test_bytes_depend_on_the_rows_only(tmp_path):
    parts = [tables.nodes_table(i, small_tree()) for i in range(300)]
    parquet.write_table(pa.concat_tables(parts), tmp_path / "a.parquet")
    parquet.write_table(
        pa.concat_tables([pa.concat_tables(parts[:7]), *parts[7:]]).combine_chunks(), tmp_path / "b.parquet"
    )
    assert (tmp_path / "a.parquet").read_bytes() == (tmp_path / "b.parquet").read_bytes()


@pytest.mark.parametrize(
    ("ids", "nodes", "what"),
    [([1, 0], [0, 0], "ascending"), ([0, 0], [0, 2], "in order"), ([0, 0], [1, 0], "in order")],
)
def test_rows_out_of_order_are_refused(ids, nodes, what):
    root = small_tree()
    table = tables.nodes_table(0, root).slice(0, 2)
    table = table.set_column(0, "tree_id", pa.array(ids, pa.int32()))
    table = table.set_column(1, "node_id", pa.array(nodes, pa.int32()))
    with pytest.raises(DataError, match=what):
        list(tables.trees_from_table(table))


def test_a_table_that_breaks_an_invariant_is_refused():
    table = tables.nodes_table(0, small_tree())
    table = table.set_column(2, "parent_id", pa.array([-1, 2, 1], pa.int32()))
    with pytest.raises(TreeError, match="parent"):
        tables.tree_from_table(table)


def test_one_tree_is_expected():
    table = tables.nodes_table(0, small_tree())
    with pytest.raises(DataError, match="the table has 0"):
        tables.tree_from_table(table.slice(0, 0))


def test_a_lone_surrogate_is_named_and_nothing_is_written(tmp_path):
    tree = small_tree()
    bad = Tree(**{name: getattr(tree, name) for name in TREE_FIELDS if name != "answer"}, answer=("", "\ud800", ""))
    with pytest.raises(DataError, match=r"'answer': row 1 holds a lone surrogate \('\\ud800'\)"):
        parquet.write_table(tables.nodes_table(0, bad), tmp_path / "nodes.parquet")
    assert list(tmp_path.iterdir()) == []


def test_a_nul_is_text_like_any_other(tmp_path):
    table = tables.rollouts_table(0, [Rollout(0, ("a\0b",), "", 0, 1, 1, -1.0)])
    parquet.write_table(table, tmp_path / "r.parquet")
    assert parquet.read_table(tmp_path / "r.parquet", tables.ROLLOUTS)["steps"].to_pylist() == [["a\0b"]]


@pytest.mark.parametrize(
    ("number", "says"),
    [
        (errno.ENOSPC, "disk is full"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permissions"),
        (errno.EIO, "output"),
    ],
)
def test_a_failing_disk_is_a_storage_error_and_the_old_file_stays(tmp_path, monkeypatch, number, says):
    path = tmp_path / "nodes.parquet"
    table = tables.nodes_table(0, small_tree())
    parquet.write_table(table, path)
    before = path.read_bytes()

    def fail(descriptor):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(files.os, "fsync", fail)
    with pytest.raises(StorageError, match=says) as caught:
        parquet.write_table(tables.nodes_table(1, small_tree()), path)
    assert str(path) in str(caught.value)
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]


def test_a_folder_that_is_a_file_is_a_storage_error(tmp_path):
    (tmp_path / "trees").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        parquet.write_table(tables.nodes_table(0, small_tree()), tmp_path / "trees" / "nodes.parquet")


def test_an_interrupt_leaves_nothing(tmp_path):
    def write_half():
        with files.atomic_file(tmp_path / "x") as stream:
            stream.write(b"half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write_half()
    assert list(tmp_path.iterdir()) == []


def test_what_a_kill_left_is_replaced(tmp_path):
    (tmp_path / ".nodes.parquet.tmp").write_bytes(b"torn")
    parquet.write_table(tables.nodes_table(0, small_tree()), tmp_path / "nodes.parquet")
    assert [p.name for p in tmp_path.iterdir()] == ["nodes.parquet"]


class TestReading:
    def write(self, path: Path, version: bytes = b"1") -> Path:
        table = tables.nodes_table(0, small_tree())
        metadata = {**table.schema.metadata, parquet.VERSION_KEY: version}
        pq.write_table(table.replace_schema_metadata(metadata), path)
        return path

    def test_missing(self, tmp_path):
        with pytest.raises(StorageError, match=r"gone\.parquet cannot be read: No such file"):
            parquet.read_table(tmp_path / "gone.parquet", tables.NODES)

    def test_another_version(self, tmp_path):
        path = self.write(tmp_path / "n.parquet", version=b"0")
        with pytest.raises(DataError, match=r"n\.parquet: has schema version 0, this treeforge reads version 1"):
            parquet.read_table(path, tables.NODES)

    def test_another_table(self, tmp_path):
        with pytest.raises(DataError, match="is a table of nodes, not of rollouts"):
            parquet.read_table(self.write(tmp_path / "n.parquet"), tables.ROLLOUTS)

    def test_a_foreign_file(self, tmp_path):
        pq.write_table(pa.table({"text": ["a"]}), tmp_path / "n.parquet")
        with pytest.raises(DataError, match="not written by treeforge"):
            parquet.read_table(tmp_path / "n.parquet", tables.NODES)

    def test_other_columns_under_our_name(self, tmp_path):
        table = tables.nodes_table(0, small_tree())
        pq.write_table(table.set_column(3, "depth", pa.array([0, 1, 2])), tmp_path / "n.parquet")
        with pytest.raises(DataError, match="these differ: depth"):
            parquet.read_table(tmp_path / "n.parquet", tables.NODES)

    def test_some_columns(self, tmp_path):
        found = parquet.read_table(self.write(tmp_path / "n.parquet"), tables.NODES, columns=["answer"])
        assert found.to_pydict() == {"answer": ["", "", "4"]}

    def test_a_folder_name_with_an_equals_sign_adds_no_column(self, tmp_path):
        path = tmp_path / "seed=1" / "n.parquet"
        parquet.write_table(tables.nodes_table(0, small_tree()), path)
        assert parquet.read_table(path, tables.NODES).column_names == tables.NODES.names

    @pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all" * 10])
    def test_not_parquet(self, tmp_path, content):
        (tmp_path / "n.parquet").write_bytes(content)
        with pytest.raises(StorageError, match=r"n\.parquet is damaged or no Parquet file"):
            parquet.read_table(tmp_path / "n.parquet", tables.NODES)

    def test_any_damage_is_noticed_or_harmless(self, tmp_path):
        path = tmp_path / "n.parquet"
        tree = small_tree()
        parquet.write_table(tables.nodes_table(0, tree), path)
        whole = path.read_bytes()
        noticed = 0
        for seed in range(300):
            rng = random.Random(seed)
            damaged = bytearray(whole)
            damaged[rng.randrange(len(whole))] ^= 1 << rng.randrange(8)
            path.write_bytes(damaged if seed % 5 else damaged[: rng.randrange(len(whole))])
            try:
                found = tables.tree_from_table(parquet.read_table(path, tables.NODES))
            except (StorageError, DataError) as error:
                noticed += "n.parquet" in str(error)
            else:
                assert_same(found, tree)
        assert noticed > 200
