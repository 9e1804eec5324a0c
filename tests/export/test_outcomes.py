"""The formats of whole solutions and of problems, row by row on hand-made trees."""

import pyarrow as pa
import pytest
from msgspec.structs import replace
from support.forest import block_of, export_tree
from support.rows import left_out, rows_of, values_of

from treeforge.config import ExportConfig
from treeforge.export.formats import FORMATS, Context
from treeforge.export.formats.outcomes import solutions
from treeforge.export.schemas import make_table
from treeforge.tree import Finish, Rollout, TreeBuilder
from treeforge.verdict import Verdict

USER = [{"role": "user", "content": "1 + 2?"}]


def said(text):
    return [{"role": "assistant", "content": text}]


def rollout(node, *steps, answer="3", verdict=Verdict.CORRECT, finish=Finish.ANSWERED):
    return Rollout(
        node=node, steps=steps, answer=answer, verdict=int(verdict), finish=int(finish), tokens=5, logprob=-2.0
    )


@pytest.fixture
def tree():
    """root ─┬ 1 (right) ─┬ 2 (right, m=2)
    │            └ 3 (wrong)
    └ 4 (wrong), with rollouts from 1 and 4."""
    builder = TreeBuilder()
    builder.add(0, "Add.\n", token_count=2, logprob=-1.0)
    builder.add(1, "So 3.", token_count=3, logprob=-1.0, finish=Finish.ANSWERED, answer="3", verdict=Verdict.CORRECT)
    builder.add(1, "So 4.", token_count=3, logprob=-1.0, finish=Finish.ANSWERED, answer="4", verdict=Verdict.INCORRECT)
    builder.add(0, "Guess.\n", token_count=2, logprob=-1.0)
    builder.multiplicity[2] = 2.0
    made = export_tree(7, tree=builder.freeze(), question="1 + 2?", values=values_of(0.5, 0.75, 1.0, 0.0, 0.25))
    rollouts = (
        rollout(1, "So 3."),
        rollout(1, "So\n", "3!"),
        rollout(4, "7.", answer="7", verdict=Verdict.INCORRECT),
        rollout(4, "…", answer="", verdict=Verdict.NO_ANSWER, finish=Finish.TRUNCATED),
        rollout(4, "x = y", answer="y", verdict=Verdict.UNDECIDED),
        rollout(4, answer="engine died", verdict=-1, finish=Finish.ERROR),
    )
    return replace(made, record=replace(made.record, rollouts=rollouts))


def solutions_of(tree):
    """(text, count, tokens, logprob, node, rollout, value) of each."""
    found = solutions(block_of(tree))
    columns = (found.text, found.count, found.tokens, found.logprob, found.node, found.rollout, found.value)
    return list(zip(*(column.tolist() for column in columns), strict=True))


def test_solutions_are_nodes_and_rollouts_each_text_once(tree):
    assert solutions_of(tree) == [
        ("Add.\nSo 3.", 3, 5, -2.0, 2, -1, 0.75),
        ("Add.\nSo 4.", 1, 5, -2.0, 3, -1, 0.0),
        ("Add.\nSo\n3!", 1, 7, -3.0, 1, 1, 0.75),
        ("Guess.\n7.", 1, 7, -3.0, 4, 2, 0.25),
        ("Guess.\n…", 1, 7, -3.0, 4, 3, 0.25),
        ("Guess.\nx = y", 1, 7, -3.0, 4, 4, 0.25),
    ]


@pytest.mark.parametrize("name", ["orm", "kto", "sft", "preference"])
def test_solutions_of_several_trees_keep_apart(tree, name):
    other = replace(tree, number=9, problem=replace(tree.problem, problem_id="other"))
    one, two = ([row | {"tree_id": 0, "problem_id": ""} for row in rows_of(name, made)] for made in (tree, other))
    both = [rows for rows in FORMATS[name].rows(block_of(tree, other), Context()) if rows.count]
    table = pa.concat_tables([make_table(rows.columns, FORMATS[name].schema) for rows in both])
    assert table["tree_id"].to_pylist() == [7] * len(one) + [9] * len(two)
    assert [row | {"tree_id": 0, "problem_id": ""} for row in table.to_pylist()] == one + two


def cut_out(tree, multiplicity):
    """The tree with the last step of its second rollout below node 1 as nodes, as `omega` cuts out a first error."""
    nodes = tree.record.tree
    builder = TreeBuilder()
    for row in range(1, nodes.size):
        builder.add(int(nodes.parent[row]), nodes.text[row], token_count=int(nodes.token_count[row]), logprob=-1.0)
    for node, verdict in ((2, Verdict.CORRECT), (3, Verdict.INCORRECT)):
        builder.finish[node], builder.verdict[node] = Finish.ANSWERED, verdict
    builder.add(1, "So\n", token_count=1, logprob=-1.0)
    builder.add(5, "3!", token_count=4, logprob=-1.0, finish=Finish.ANSWERED, answer="3", verdict=Verdict.CORRECT)
    builder.multiplicity[5:7] = [multiplicity] * 2
    made = export_tree(
        7, tree=builder.freeze(), question="1 + 2?", values=values_of(0.5, 0.75, 1.0, 0.0, 0.25, 0.5, 0.5)
    )
    return replace(made, record=replace(made.record, rollouts=tree.record.rollouts))


def test_a_rollout_whose_steps_were_cut_out_as_nodes_counts_once(tree):
    counts = {text: count for text, count, *_ in solutions_of(cut_out(tree, 0.0))}
    assert counts["Add.\nSo\n3!"] == 1, "the rollout; its prefix is no sample (multiplicity 0)"
    counts = {text: count for text, count, *_ in solutions_of(cut_out(tree, 1.0))}
    assert counts["Add.\nSo\n3!"] == 2, "a rollout and another sample of the same text"


def test_a_given_solution_counts_once(tree):
    alone = replace(cut_out(tree, 0.0), record=replace(cut_out(tree, 0.0).record, rollouts=()))
    assert {text: count for text, count, *_ in solutions_of(alone)}["Add.\nSo\n3!"] == 1


def test_orm_row_by_row(tree):
    rows = rows_of("orm", tree)
    assert rows[0] == {
        "prompt": "1 + 2?",
        "completion": "Add.\nSo 3.",
        "label": True,
        "answer": "3",
        "finish": "answered",
        "count": 3,
        "tokens": 5,
        "logprob": -2.0,
        "value": 0.75,
        "problem_id": tree.problem.problem_id,
        "tree_id": 7,
        "node_id": 2,
        "rollout": -1,
    }
    assert [(row["completion"], row["label"], row["finish"]) for row in rows[1:]] == [
        ("Add.\nSo 4.", False, "answered"),
        ("Add.\nSo\n3!", True, "answered"),
        ("Guess.\n7.", False, "answered"),
        ("Guess.\n…", False, "truncated"),
    ]
    assert left_out("orm", tree) == {"solution whose answer is undecided": 1}


def test_kto_is_orm_as_a_chat(tree):
    orm, kto = rows_of("orm", tree), rows_of("kto", tree)
    assert [row["prompt"] for row in kto] == [USER] * 5
    assert [row["completion"] for row in kto] == [said(row["completion"]) for row in orm]
    assert [row["label"] for row in kto] == [row["label"] for row in orm]


def test_sft_is_the_right_ones_by_length_or_value(tree):
    rows = rows_of("sft", tree)
    assert [(row["prompt"], row["completion"]) for row in rows] == [
        (USER, said("Add.\nSo 3.")),
        (USER, said("Add.\nSo\n3!")),
    ]
    few = ExportConfig(solutions_per_problem=1)
    assert [row["node_id"] for row in rows_of("sft", tree, config=few)] == [2]
    lower = replace(tree, soft=tree.soft.copy())
    lower.soft[2] = 0.5
    by_value = ExportConfig(solution_order="value", solutions_per_problem=1)
    assert [row["completion"] for row in rows_of("sft", lower, config=by_value)] == [said("Add.\nSo\n3!")]


def test_preference_row_by_row(tree):
    rows = rows_of("preference", tree)
    short = [
        (r["level"], r["chosen"], r["rejected"], r["margin"], r["separated"], r["node_ids"], r["rollouts"])
        for r in rows
    ]
    assert short == [
        ("step", said("Add.\n"), said("Guess.\n"), 0.5, True, [1, 4], [1, 4]),
        ("step", said("Add.\nSo 3."), said("Add.\nSo 4."), 1.0, True, [2, 3], [2, 3]),
        ("solution", said("Add.\nSo 3."), said("Add.\nSo 4."), 1.0, True, [2, 3], [3, 1]),
        ("solution", said("Add.\nSo\n3!"), said("Guess.\n7."), 1.0, True, [1, 4], [1, 1]),
    ]
    assert all(row["prompt"] == USER for row in rows)


def test_steps_with_overlapping_intervals_are_not_separated(tree):
    values = values_of(0.5, 0.55, 1.0, 0.0, 0.45)
    close = replace(tree, values=values, soft=values.value, hard=(values.value > 0.5).astype("int8"))
    first = rows_of("preference", close)[0]
    assert (first["level"], first["separated"]) == ("step", False)
    assert first["margin"] == pytest.approx(0.1)


def test_rl_row_by_row(tree):
    config = ExportConfig(data_source="openai/gsm8k")
    assert rows_of("rl", tree, config=config, split="test") == [
        {
            "data_source": "openai/gsm8k",
            "prompt": USER,
            "ability": "math",
            "reward_model": {"style": "rule", "ground_truth": "42"},
            "extra_info": {
                "split": "test",
                "index": 7,
                "problem_id": tree.problem.problem_id,
                "value": 0.5,
                "rollouts": 0,
            },
        }
    ]


def test_what_an_environment_said_stands_between_a_node_and_its_rollout():
    builder = TreeBuilder()
    builder.add(0, "call\n", observation="result\n")
    made = export_tree(1, tree=builder.freeze())
    tree = replace(made, record=replace(made.record, rollouts=(rollout(1, "done"),)))
    assert [text for text, *_ in solutions_of(tree)] == ["call\nresult\ndone"]


def test_a_row_over_the_limit_is_left_out(tree, monkeypatch):
    monkeypatch.setattr("treeforge.export.formats.base.MAX_ROW_BYTES", 15)
    assert [row["completion"] for row in rows_of("orm", tree)] == ["Guess.\n7."]
    assert left_out("orm", tree)["row over 2 MB"] == 4
