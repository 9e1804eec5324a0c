"""The formats of chains, row by row on hand-made trees."""

import json
import math

import numpy as np
import pyarrow as pa
import pytest
from msgspec.structs import replace
from support.forest import block_of, export_tree
from support.rows import compressed_tree, left_out, rows_of, values_of

from treeforge.config import ExportConfig
from treeforge.errors import ConfigError
from treeforge.export.formats import FORMATS, Context
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict


@pytest.fixture
def tree():
    """root ─ 1 (wrong) ─┬ 2 (right) ─ 3 (answer, right)
                         └ 4 (wrong)
    and 5 (no evidence) ─ 6 (answer, wrong) under the root."""
    builder = TreeBuilder()
    builder.add(0, "One.\n")
    builder.add(1, "Two.\n", observation="[ok]\n")
    builder.add(2, "It is 3.", finish=Finish.ANSWERED, answer="3", verdict=Verdict.CORRECT)
    builder.add(1, "Step 2: no\n")
    builder.add(0, "Hm\n")
    builder.add(5, "It is 4.", finish=Finish.ANSWERED, answer="4", verdict=Verdict.INCORRECT)
    values = values_of(0.5, 0.25, 0.75, 1.0, 0.125, math.nan, 0.0)
    return export_tree(7, tree=builder.freeze(), question="1 + 2?", values=values)


SHARED = {"tree_id": 7, "compressed": 0}
BELOW = {"step without a label": 1, "labelled step after one without a label": 1}


def test_prm_row_by_row(tree):
    rows = rows_of("prm", tree)
    assert rows == [
        {
            "prompt": "1 + 2?",
            "completions": ["One.\n", "Two.\n", "[ok]\nIt is 3."],
            "labels": [False, True, True],
            "values": [0.25, 0.75, 1.0],
            "problem_id": tree.problem.problem_id,
            "node_ids": [1, 2, 3],
            "rollouts": [1, 2, 3],
        }
        | SHARED,
        {
            "prompt": "1 + 2?",
            "completions": ["One.\n", "Step 2: no\n"],
            "labels": [False, False],
            "values": [0.25, 0.125],
            "problem_id": tree.problem.problem_id,
            "node_ids": [1, 4],
            "rollouts": [1, 4],
        }
        | SHARED,
    ]
    assert left_out("prm", tree) == BELOW, "what hangs below an unlabelled step belongs to no chain"


def test_math_shepherd_row_by_row(tree):
    first, second = rows_of("math-shepherd", tree, config=ExportConfig(data_source="GSM8K"))
    assert first["input"] == "1 + 2? Step 1: One. ки\nStep 2: Two. ки\nStep 3: [ok]\nIt is 3. ки"
    assert first["label"] == "1 + 2? Step 1: One. -\nStep 2: Two. +\nStep 3: [ok]\nIt is 3. +"
    assert second["label"] == "1 + 2? Step 1: One. -\nStep 2: no -", "a step's own number stays"
    assert (first["task"], second["node_ids"]) == ("GSM8K", [1, 4])


def test_math_shepherd_leaves_out_what_holds_the_tag(tree):
    tagged = replace(tree, problem=replace(tree.problem, question="ки?"))
    assert rows_of("math-shepherd", tagged) == []
    assert left_out("math-shepherd", tagged) == BELOW | {"text that holds the step tag ки": 2}


def test_math_shepherd_reads_back_as_published_scripts_do(tree):
    """The label has the tag's place at the same character, once the tag is one character long."""
    for row in rows_of("math-shepherd", tree):
        text = row["input"].replace("ки", "ⶻ")
        marks = [row["label"][place] for place, character in enumerate(text) if character == "ⶻ"]
        assert len(text) == len(row["label"])
        assert marks == ["+" if value > 0.5 else "-" for value in row["values"]]


def test_rlhflow_row_by_row(tree):
    assert rows_of("rlhflow", tree)[0]["conversations"] == [
        {"role": "user", "content": "1 + 2? One."},
        {"role": "assistant", "content": "-"},
        {"role": "user", "content": "Two."},
        {"role": "assistant", "content": "+"},
        {"role": "user", "content": "[ok]\nIt is 3."},
        {"role": "assistant", "content": "+"},
    ]


def test_processbench_row_by_row(tree):
    (row,) = rows_of("processbench", tree, generator="tiny")
    assert (
        row
        == {
            "id": f"{tree.problem.problem_id}-3",
            "generator": "tiny",
            "problem": "1 + 2?",
            "steps": ["One.", "Two.", "[ok]\nIt is 3."],
            "final_answer_correct": True,
            "label": 0,
            "values": [0.25, 0.75, 1.0],
            "problem_id": tree.problem.problem_id,
            "node_ids": [1, 2, 3],
            "rollouts": [1, 2, 3],
        }
        | SHARED
    )
    right = replace(tree, hard=np.where(tree.hard == 0, 1, tree.hard).astype(np.int8))
    assert rows_of("processbench", right)[0]["label"] == -1
    assert left_out("processbench", tree) == {"chain that ends no trajectory, or undecided": 1}


def test_prm800k_row_by_row(tree):
    (row,) = rows_of("prm800k", tree)
    provenance = {name: row.pop(name) for name in ("problem_id", "tree_id", "node_ids")}
    assert provenance == {"problem_id": tree.problem.problem_id, "tree_id": 7, "node_ids": [1, 2, 3]}
    steps = row["label"].pop("steps")
    assert json.loads(json.dumps(row)) == {
        "labeler": "leaf_share",
        "timestamp": None,
        "generation": None,
        "is_quality_control_question": False,
        "is_initial_screening_question": False,
        "question": {"problem": "1 + 2?", "ground_truth_answer": "42"},
        "label": {"total_time": 0, "finish_reason": "solution"},
    }
    assert [step["chosen_completion"] for step in steps] == [0, 0, 0]
    assert [step["human_completion"] for step in steps] == [None] * 3
    assert [[(c["text"], c["rating"], c["flagged"]) for c in step["completions"]] for step in steps] == [
        [("One.", -1, False)],
        [("Two.", 1, False), ("Step 2: no", -1, False)],
        [("[ok]\nIt is 3.", 1, False)],
    ]


def test_prm800k_shows_every_labelled_step():
    tree = export_tree(3, size=80)
    inside = {node for row in rows_of("prm", tree) for node in row["node_ids"]}
    texts = {c["text"] for row in rows_of("prm800k", tree) for s in row["label"]["steps"] for c in s["completions"]}
    assert texts == {tree.record.tree.text[node].strip() for node in inside}


def test_tokens_row_by_row(tree):
    def encode(text, first):
        return ([1] if first else []) + [ord(character) for character in text]

    rows = rows_of("tokens", tree, tokenizer=encode)
    start = [1, *map(ord, "1 + 2?\n\n")]
    assert rows[1]["input_ids"] == start + [ord(c) for c in "One.\nStep 2: no\n"]
    assert rows[1]["labels"] == [-100] * len(start) + [-100] * 4 + [0] + [-100] * 10 + [0]
    assert [label for label in rows[0]["labels"] if label != -100] == [0, 1, 1]
    assert rows[0]["values"] == [0.25, 0.75, 1.0]


def test_tokens_without_a_tokenizer(tree):
    with pytest.raises(ConfigError, match="--tokenizer"):
        list(FORMATS["tokens"].rows(block_of(tree), Context()))


def encode(text, first):
    return list(map(ord, text))


def chains_of(name, tree):
    """Of the compressed trees: (node_ids, pass)."""
    return [(row["node_ids"], row["compressed"]) for row in rows_of(name, tree, tokenizer=encode) if row["compressed"]]


CHAINS = pytest.mark.parametrize("name", ["prm", "math-shepherd", "rlhflow", "tokens"])
SAME = "same as in the uncompressed tree"


@CHAINS
def test_chains_of_a_compressed_tree_are_those_with_other_steps_or_labels(name):
    tree = compressed_tree()
    (first,) = tree.compressed
    assert chains_of(name, tree) == [([2], 1)], "a merged step"
    assert left_out(name, tree, tokenizer=encode) == {SAME: 1}, "a's value moved, its label did not"
    flipped = replace(first, hard=np.where(first.row_of == 1, 1, first.hard).astype(np.int8))
    assert chains_of(name, replace(tree, compressed=(flipped,))) == [([2], 1), ([1, 3], 1)], "a's label flipped"
    same = replace(first, tree=tree.record.tree, values=tree.values, row_of=np.arange(4, dtype=np.int32))
    unmoved = replace(tree, compressed=(same,))
    assert chains_of(name, unmoved) == []
    assert left_out(name, unmoved, tokenizer=encode) == {SAME: 2}


@CHAINS
def test_a_chain_that_an_earlier_pass_has_is_no_further_row(name):
    tree = compressed_tree()
    (first,) = tree.compressed
    twice = replace(tree, compressed=(first, replace(first, number=2)))
    assert chains_of(name, twice) == [([2], 1)]
    assert left_out(name, twice, tokenizer=encode) == {SAME: 2, "same as in an earlier HNC pass": 1}
    relabelled = replace(first, number=2, hard=1 - first.hard)
    assert chains_of(name, replace(tree, compressed=(first, relabelled))) == [([2], 1), ([2], 2), ([1, 3], 2)]


def test_a_long_chain_is_one_row_and_a_huge_one_none(monkeypatch):
    builder = TreeBuilder()
    for row in range(2000):
        builder.add(row, "x" * 10)
    tree = export_tree(0, tree=builder.freeze(), question="?")
    tree.hard[:] = 1
    assert [len(row["completions"]) for row in rows_of("prm", tree)] == [2000]
    monkeypatch.setattr("treeforge.export.formats.base.MAX_ROW_BYTES", 10_000)
    assert rows_of("prm", tree) == []
    assert left_out("prm", tree) == {"row over 2 MB": 1}


@pytest.mark.parametrize("name", ["prm", "math-shepherd", "rlhflow", "prm800k", "processbench"])
def test_a_tree_without_labels_gives_no_row(name):
    tree = export_tree(1)
    unlabelled = replace(tree, hard=tree.hard * 0 - 1)
    assert rows_of(name, unlabelled) == []


def test_spans_of_three_steps(tree):
    rows = rows_of("hrm", tree, config=ExportConfig(spans=(3,)))
    assert [(row["previous"], row["current"], row["span"], row["hard"]) for row in rows] == [
        ("", "One.\nTwo.\n[ok]\nIt is 3.", 3, True)
    ]
    assert pa.types.is_int8(FORMATS["hrm"].schema.field("span").type)
