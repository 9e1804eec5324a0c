"""Trees as real files have them: PRM800K, OpenR's scripts, ReST-MCTS*'s samples, the HRM authors' pickles."""

from __future__ import annotations

import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from support.authors import Node
from support.imported import imported, read, same

from treeforge.errors import DataError
from treeforge.importing import import_file
from treeforge.tree import Finish
from treeforge.verdict import Verdict


def completion(text: str, rating: int | None = 1, flagged: bool | None = None) -> dict[str, Any]:
    return {"text": text, "rating": rating, "flagged": flagged}


def step(*completions: Any, chosen: Any = 0, human: Any = None) -> dict[str, Any]:
    return {"completions": list(completions) or None, "human_completion": human, "chosen_completion": chosen}


def prm800k(*steps: Any, reason: str = "solution", **question: Any) -> dict[str, Any]:
    asked = {"problem": "Q?", "ground_truth_answer": "4"} | question
    return {"question": asked, "label": {"steps": list(steps), "finish_reason": reason}}


def test_prm800k_goes_on_from_the_solution_that_was_labelled(tmp_path: Path) -> None:
    written = ["a", "b", "c"]
    row = prm800k(
        step(completion("a", None), chosen=None),  # the only completion, without a rating
        step(completion("x", -1), completion("b ", 0, True), chosen=None),  # none chosen: phase 2's own step
        step(completion("c"), completion("y", -1), chosen=None),
        pre_generated_steps=written,
        reason="found_error",
    )
    (tree,), (values,), *_ = read(tmp_path, "prm800k", row)
    assert tree.text[1:] == ("a\n\n", "x\n\n", "b\n\n", "c\n\n", "y\n\n")
    assert tree.parent.tolist() == [-1, 0, 1, 1, 3, 3]
    assert same(values, [None, None, 0, None, 1, 0])


def test_prm800k_ends_where_nothing_was_chosen(tmp_path: Path) -> None:
    row = prm800k(step(completion("a"), completion("b", -1), chosen=None), step(completion("c")), reason="give_up")
    (tree,), (values,), report, _ = read(tmp_path, "prm800k", row, prm800k(step(chosen=None), step(completion("c"))))
    assert tree.text[1:] == ("a\n\n", "b\n\n")
    assert same(values, [None, 1, 0])
    assert (report.rows, report.without_steps) == (1, 1)


def test_prm800k_blank_completions_and_numbers_of_tables(tmp_path: Path) -> None:
    row = prm800k(step(completion(" "), completion("a", 1), chosen=0.0), step(completion("b\n\n# Answer\n\n4", 1.0)))  # type: ignore[arg-type]
    (tree,), (values,), *_ = read(tmp_path, "prm800k", row)
    assert tree.text[1:] == ("a\n\n", "b\n\n# Answer\n\n4")
    assert tree.parent.tolist() == [-1, 0, 0]
    assert same(values, [None, 1, 1])
    assert (tree.answer[2], tree.verdict[2]) == ("4", Verdict.CORRECT)


def test_prm800k_screening_rows_have_no_gold_answer_and_are_of_the_same_problem(tmp_path: Path) -> None:
    # One question for every labeller; the answer is null in some rows, and white space differs.
    rows = [
        prm800k(step(completion("a\n\n# Answer\n\n4")), problem="Q  and\nR?", ground_truth_answer=None),
        prm800k(step(completion("b\n\n# Answer\n\n5")), problem="Q and R? "),
        prm800k(step(completion("c\n\n# Answer\n\n4")), problem=" Q and R?", ground_truth_answer=None),
    ]
    (tree,), (values,), report, run = read(tmp_path, "prm800k", *rows)
    assert (report.problems, run.problems[0].question, run.problems[0].gold_answer) == (1, "Q  and\nR?", "4")
    assert tree.verdict.tolist() == [-1, Verdict.CORRECT, Verdict.INCORRECT, Verdict.CORRECT]
    assert same(values, [None, 1, 1, 1])


def test_another_gold_answer_is_another_problem(tmp_path: Path) -> None:
    rows = [prm800k(step(completion(f"# Answer\n\n{n}")), ground_truth_answer=str(n)) for n in (4, 5, 4)]
    trees, _, report, run = read(tmp_path, "prm800k", *rows)
    assert report.problems == 2
    assert len({problem.problem_id for problem in run.problems}) == 2
    assert [tree.size for tree in trees] == [3, 2]
    assert report.endings == {"correct": 3}


def omega(*children: Any, text: str = "Q?", value: float | None = 0.5) -> dict[str, Any]:
    return {"text": text, "mc_value": value, "children": list(children)}


def test_openr_empty_rollouts_and_values_that_are_missing(tmp_path: Path) -> None:
    tree = omega(omega(text=""), omega(omega(text="b", value=1), text=" ", value=0.25), omega(text="c", value=None))
    flat = [("Q?", None), ("Q?", 0.5), ("Q?\n\nb", 1.0), ("Q?\n\nc", None)]
    steps = [{"solution_prefix": text, "mc_value": value} for text, value in flat]
    rows = [
        {"question_id": 7, "question": " Q?", "final_answer": 4, "reasoning_steps": found} for found in (tree, steps)
    ]
    (found,), (values,), _, run = read(tmp_path, "openr", *rows)
    assert run.problems[0].gold_answer == "4"
    assert found.text[1:] == ("b", "c", "b", "c")
    assert found.parent.tolist() == [-1, 0, 0, 0, 0]
    assert same(values, [0.5, 1, None, 1, None])


def test_openr_one_file_a_question_as_its_script_writes_them(tmp_path: Path) -> None:
    folder = tmp_path / "output" / "part_1"
    folder.mkdir(parents=True)
    for number in (10, 9):
        prefix = {"solution_prefix": f"Q{number}?\n\na", "mc_value": 0.5}
        row = {"question": f"Q{number}?", "final_answer": "4", "reasoning_steps": [prefix]}
        (folder / f"question_{number}.json").write_text(json.dumps(row, indent=4))
    (folder / "omega_prm.log").write_text("not a row")
    _, values, _, run = imported(import_file(tmp_path / "output", "openr", tmp_path / "run"), tmp_path / "run")
    assert [problem.question for problem in run.problems] == ["Q9?", "Q10?"]
    assert values[0][1] == values[1][1] == 0.5
    (folder / "question_9.json").write_text('{"question": "Q?"}')
    with pytest.raises(DataError, match=r"question_9\.json:1.*reasoning_steps"):
        import_file(tmp_path / "output", "openr", tmp_path / "again")
    with pytest.raises(DataError, match=r"holds no \.json"):
        import_file(tmp_path / "run" / "trees", "openr", tmp_path / "again")


def test_openr_an_indented_object_under_the_suffix_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "math-aps-v2.jsonl"
    row = {"question": "Q?", "final_answer": "4", "reasoning_steps": omega(omega(text="a"))}
    file.write_text(json.dumps(row, indent=4))
    (tree,), *_ = imported(import_file(file, "openr", tmp_path / "run"), tmp_path / "run")
    assert tree.text == ("", "a")
    file.write_text("{\n" + json.dumps(row) + "\n")
    assert import_file(file, "openr", tmp_path / "lines", skip_bad_rows=True).skipped == 1


def test_openr_states_of_the_first_generator(tmp_path: Path) -> None:
    # A state stands there once a rollout; its halves are joined without the blank between them.
    states = [("", 0.5), ("", 0.5), ("We know that", 0.75), ("We know that", 0.75), ("We know thata is b.", 1)]
    row = {"q": "Q?", "states": [{"rollout": " so", "state": state, "mcs": value} for state, value in states]}
    (tmp_path / "aps.json").write_text(json.dumps([row]))
    report = import_file(tmp_path / "aps.json", "openr", tmp_path / "run")
    (tree,), (values,), *_ = imported(report, tmp_path / "run")
    assert tree.text == ("", "We know that", "a is b.")
    assert tree.parent.tolist() == [-1, 0, 1]
    assert same(values, [0.5, 0.75, 1])


def test_openr_rows_of_its_data_set(tmp_path: Path) -> None:
    tag = " \n\n\n\n\n "
    rows = [
        {"question": "Q?", "process": f"a{tag}b{tag}", "label": ["+", "-"]},
        {"question": "Q?", "process": "Step 1: a ки\nStep 2: b ки", "labels": [1, 0]},
        {"question": "Q?", "process": "a ки", "label": 1},
        {"question": "Q?", "process": f"a\n\nb{tag}", "label": ["-"]},
        {"question": "Q?", "process": f"Q?{tag}a{tag}", "label": ["+", "-"]},  # a tree's root is the question
        {"question": "Q?", "partial_answer": "a", "mc_score": 0.25},
    ]
    (tree,), (values,), report, _ = read(tmp_path, "openr", *rows)
    assert tree.text[1:] == ("a\n", "b", "Step 1: a\n", "Step 2: b", "a", "a\n\nb", "a", "a")
    assert tree.parent.tolist() == [-1, 0, 1, 0, 3, 0, 0, 0, 0]
    assert same(values, [1, 1, 0, 1, 0, 1, 0, 0, 0.25])
    assert report.rows == 6


def test_rest_mcts_a_search_that_found_nothing_and_one_in_a_file_of_its_own(tmp_path: Path) -> None:
    file = tmp_path / "one.json"
    found = [{"steps": "Step 1: a\n", "value": 1}]
    row = {"content": "Q?", "policy_samples": [], "value_samples": found, "real_answer": 4}
    file.write_text(json.dumps(row))
    (tree,), (values,), _, run = imported(import_file(file, "rest-mcts", tmp_path / "one"), tmp_path / "one")
    assert (tree.text[1:], values[1], run.problems[0].gold_answer) == (("Step 1: a\n",), 1, "4")
    sample = {"solution": "Step 1: a\n", "summary": "The final answer is 4", "correct": False}
    (tree,), (values,), *_ = read(tmp_path, "rest-mcts", row | {"policy_samples": [sample], "value_samples": []})
    assert tree.verdict[1] == Verdict.INCORRECT
    assert same(values, [None, None])


def test_rest_mcts_rows_of_its_data_sets(tmp_path: Path) -> None:
    rows = [
        {"prompt_answer": "Problem:Q?\nSolution:\nStep 1: a\nStep 2: b\n", "label": 0.75},
        {"prompt_answer": "Problem: Q?\nSolution:\n", "label": 0},
        {"prompt_answer": "问题:Q?\n步骤:\n【答案】步骤1:a\n步骤2:b\n", "label": 1},
        {"content": "Q?", "summary": "Step 1: a\nThe final answer is 4", "label": True, "real_answer": "4"},
        {"content": "Q?", "solution": "Step 1: a\n", "summary": "So 5", "accurate": False, "real_answer": "4"},
    ]
    (tree,), (values,), report, run = read(tmp_path, "rest-mcts", *rows)
    assert run.problems[0].gold_answer == "4"
    assert tree.text[1:] == (
        "Step 1: a\n", "Step 2: b\n", "步骤1:a\n", "步骤2:b\n", "Step 1: a\nThe final answer is 4", "Step 1: a\n",
    )  # fmt: skip
    assert tree.parent.tolist() == [-1, 0, 1, 0, 3, 0, 0]
    assert same(values, [None, None, 0.75, None, 1, None, None])
    assert report.endings == {"correct": 1, "incorrect": 1}
    assert report.without_steps == 1


@pytest.mark.parametrize("module", ["tree", "__main__"])
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_pickles_of_the_class_wherever_it_was_defined(
    tmp_path: Path, module: str, protocol: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = type("Node", (Node,), {"__module__": module})
    holder = sys.modules.get(module) or ModuleType(module)
    monkeypatch.setattr(holder, "Node", theirs, raising=False)
    monkeypatch.setitem(sys.modules, module, holder)
    root = theirs(question="Q?")
    for text, answer, correct in (("a\n\n# Answer\n\n4\n# END!", "4", True), ("", None, False)):
        child = theirs(root, 1, "Q?")
        child.previous_answer = [text]
        child.contain_answer, child.answer, child.is_correct = answer is not None, answer, correct
        # What their scoring adds when a tree is pickled again.
        child.score, child.total = 0.5, 2  # type: ignore[assignment, attr-defined]
        root.children.append(child)
    (tmp_path / "0.pkl").write_bytes(pickle.dumps(root, protocol))
    report = import_file(tmp_path / "0.pkl", "hrm-pickle", tmp_path / "run")
    (tree,), *_ = imported(report, tmp_path / "run")
    assert tree.finish.tolist() == [0, Finish.ANSWERED, Finish.TRUNCATED]
    assert tree.text[1] == "a\n\n# Answer\n\n4"


@pytest.mark.parametrize(("value", "asked"), [(np.float64(0.5), "scalar"), (np.True_, "scalar"), (Path("x"), "Path")])
def test_a_pickle_says_what_it_asks_for(tmp_path: Path, value: Any, asked: str) -> None:
    root = Node(question="Q?")
    root.grow("a").is_correct = value
    for protocol in (2, 5):
        (tmp_path / "0.pkl").write_bytes(pickle.dumps(root, protocol))
        with pytest.raises(DataError, match=rf"0\.pkl: is refused; byte \d+: it asks for '.*{asked}'"):
            import_file(tmp_path / "0.pkl", "hrm-pickle", tmp_path / "run")
