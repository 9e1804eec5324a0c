import math

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace
from support.forest import block_of, export_tree
from support.rows import compressed_tree, left_out, rows_of, values_of

from treeforge.errors import ConfigError
from treeforge.export import FORMATS, choose_formats
from treeforge.export.formats import Context, base, hrm
from treeforge.export.schemas import make_table
from treeforge.tree import TREE_FIELDS, Finish, Tree, TreeBuilder
from treeforge.verdict import Verdict


@pytest.fixture
def tree():
    """root ─ 1 (wrong) ─ 2 (right) ─ 3 (answer, right), and 4 (no evidence) under the root."""
    builder = TreeBuilder()
    builder.add(0, "One.\n", token_count=2, logprob=-1.0, prior=0.5)
    builder.add(1, "Two.\n", observation="[ok]\n", token_count=2, logprob=-2.0, prior=1.0)
    builder.add(2, "It is 3.", token_count=4, finish=Finish.ANSWERED, answer="3", verdict=Verdict.CORRECT)
    builder.add(0, "Hm", finish=Finish.ERROR)
    values = values_of(0.5, 0.25, 0.75, 1.0, math.nan)
    return export_tree(7, tree=builder.freeze(), question="1 + 2?", values=values)


def test_nodes_row_by_row(tree):
    rows = rows_of("nodes", tree)
    assert [row["node_id"] for row in rows] == [0, 1, 2, 3, 4]
    assert [row["parent_id"] for row in rows] == [-1, 0, 1, 2, 0]
    assert rows[3] == {
        "tree_id": 7,
        "node_id": 3,
        "parent_id": 2,
        "problem_id": tree.problem.problem_id,
        "question": "1 + 2?",
        "gold_answer": "42",
        "depth": 3,
        "text": "It is 3.",
        "observation": "",
        "token_count": 4,
        "logprob": None,
        "multiplicity": 1.0,
        "finish": "answered",
        "answer": "3",
        "verdict": "correct",
        "rollouts": 0,
        "rollouts_correct": 0,
        "rollouts_undecided": 0,
        "rollouts_truncated": 0,
        "visits": 0,
        "value_sum": 0.0,
        "prior": None,
        "value": 1.0,
        "value_rollouts": 3,
        "stderr": 0.1,
        "low": 0.9,
        "high": 1.1,
        "estimator": "leaf_share",
        "hard": True,
        "soft": 1.0,
        "merged_from": [],
        "compressed": 0,
    }
    unknown = rows[4]
    assert (unknown["finish"], unknown["verdict"]) == ("error", None)
    assert [unknown[name] for name in ("value", "low", "high", "hard", "soft")] == [None] * 5
    assert rows[1]["hard"] is False


def test_nodes_gives_every_field_of_a_tree():
    assert {*TREE_FIELDS} - {"parent"} < {column.name for column in FORMATS["nodes"].columns}


def test_hrm_has_single_steps_and_pairs_with_the_later_label(tree):
    rows = rows_of("hrm", tree)
    short = [(r["span"], r["previous"], r["current"], r["hard"], r["soft"], r["node_id"]) for r in rows]
    assert short == [
        (1, "", "One.\n", False, 0.25, 1),
        (1, "One.\n", "Two.\n", True, 0.75, 2),
        (1, "One.\nTwo.\n[ok]\n", "It is 3.", True, 1.0, 3),
        (2, "", "One.\nTwo.\n", True, 0.75, 2),
        (2, "One.\n", "Two.\n[ok]\nIt is 3.", True, 1.0, 3),
    ]
    assert rows[0] == {
        "prompt": "1 + 2?",
        "previous": "",
        "current": "One.\n",
        "span": 1,
        "hard": False,
        "soft": 0.25,
        "rollouts": 1,
        "low": 0.15,
        "high": 0.35,
        "estimator": "leaf_share",
        "problem_id": tree.problem.problem_id,
        "tree_id": 7,
        "node_id": 1,
        "source": "tree",
        "compressed": 0,
        "shifted": False,
        "merged_from": [],
    }
    assert left_out("hrm", tree) == {"step without a label": 1}


def test_hrm_counts_the_kinds_of_pairs(tree):
    counts = [rows.pairs for rows in FORMATS["hrm"].rows(block_of(tree), Context()) if rows.count]
    assert counts == [{"++": 1, "-+": 1}]


def test_every_prefix_and_step_is_the_trees_own():
    tree = export_tree(3, size=60)
    nodes = tree.record.tree
    rows = rows_of("hrm", tree)
    assert {row["span"] for row in rows} == {1, 2}
    for row in rows:
        path = nodes.path(row["node_id"])
        assert row["previous"] + row["current"] == nodes.prefix(row["node_id"])
        assert row["current"] == "".join(nodes.text[node] for node in path[-row["span"] :])
        assert row["soft"] == tree.soft[row["node_id"]]
    labels = np.flatnonzero(tree.hard >= 0)
    assert [r["node_id"] for r in rows if r["span"] == 1] == [n for n in labels if nodes.depth[n] >= 1]
    assert [r["node_id"] for r in rows if r["span"] == 2] == [n for n in labels if nodes.depth[n] >= 2]


def test_compressed_trees_keep_their_nodes_names():
    rows = [row for row in rows_of("nodes", compressed_tree()) if row["compressed"]]
    assert [(r["node_id"], r["parent_id"], r["text"], r["merged_from"]) for r in rows] == [
        (0, -1, "", []),
        (2, 0, "ab", [1, 2]),
        (1, 0, "a", []),
        (3, 1, "c", []),
    ]


def test_hrm_of_a_compressed_tree_has_the_fresh_rows_marked():
    tree = compressed_tree()
    rows = [row for row in rows_of("hrm", tree) if row["source"] == "hnc"]
    assert [(r["node_id"], r["current"], r["soft"], r["shifted"], r["merged_from"]) for r in rows] == [
        (1, "a", 0.2, True, []),
    ]
    assert [row["compressed"] for row in rows] == [1]
    assert left_out("hrm", tree) == {"same as in the uncompressed tree": 3}


def test_a_pair_with_a_merged_node_names_its_parts():
    original = compressed_tree()
    merged = original.compressed[0]
    columns = {name: getattr(merged.tree, name) for name in TREE_FIELDS}
    columns |= {"parent": np.array([-1, 0, 0, 1], np.int32)}
    below = replace(merged, tree=Tree(**columns), fresh={})
    rows = [r for r in rows_of("hrm", replace(original, compressed=(below,))) if r["compressed"] and r["span"] == 2]
    assert [(r["current"], r["merged_from"]) for r in rows] == [("abc", [1, 2])]


def test_rows_over_the_limit_are_left_out_and_the_rest_stays(monkeypatch):
    monkeypatch.setattr(hrm, "MAX_ROW_BYTES", 60)
    builder = TreeBuilder()
    builder.add(0, "é" * 10)
    builder.add(1, "é" * 10)
    builder.add(2, "é" * 20)
    tree = export_tree(1, tree=builder.freeze(), question="Short?")
    tree.hard[:] = 1
    rows = rows_of("hrm", tree)
    assert [(row["node_id"], row["span"]) for row in rows] == [(1, 1), (2, 1), (2, 2)]
    assert left_out("hrm", tree) == {"row over 2 MB": 2}


def test_a_question_over_the_limit_leaves_the_whole_tree_out():
    tree = export_tree(1, question="?" * base.MAX_ROW_BYTES)
    assert rows_of("nodes", tree) == []
    assert left_out("nodes", tree) == {"row over 2 MB": 12}
    assert rows_of("hrm", tree) == []
    assert left_out("hrm", tree)["row over 2 MB"] > 0


def test_nodes_are_measured_in_bytes():
    half = base.MAX_ROW_BYTES // 2
    for text, fits in (("é" * (half - 50), True), ("é" * half, False)):
        builder = TreeBuilder()
        builder.add(0, text)
        assert bool(rows_of("nodes", export_tree(1, tree=builder.freeze()))) is fits


def test_a_failed_tree_is_its_root():
    tree = export_tree(0, tree=TreeBuilder().freeze())
    assert [row["node_id"] for row in rows_of("nodes", tree)] == [0]
    assert rows_of("hrm", tree) == []


def test_a_long_chain_needs_no_recursion():
    builder = TreeBuilder()
    for row in range(3000):
        builder.add(row, "x")
    tree = export_tree(0, tree=builder.freeze())
    tree.hard[:] = 1
    rows = rows_of("hrm", tree)
    assert max(len(row["previous"]) for row in rows) == 2999


def test_schemas_do_not_depend_on_the_rows():
    for format in FORMATS.values():
        empty = make_table(
            {
                field.name: np.empty(0, np.float64) if pa.types.is_floating(field.type) else []
                for field in format.schema
            },
            format.schema,
        )
        assert empty.schema.equals(format.schema, check_metadata=True)


@pytest.mark.parametrize("names", [(), ("nodes", "nodes"), ("nodes", "../hrm"), ("parquet",)])
def test_formats_that_cannot_be_are_refused(names):
    with pytest.raises(ConfigError, match=r"export\.formats"):
        choose_formats(names)
    assert [format.name for format in choose_formats(("hrm", "nodes"))] == ["hrm", "nodes"]
