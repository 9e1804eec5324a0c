"""Each format that can be read: a small file of its own shape, and the tree and labels that it becomes."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import pytest
from support.authors import Node
from support.imported import read, same

from treeforge.config import LabelConfig
from treeforge.export.readers import ReadOptions
from treeforge.importing import import_file
from treeforge.store.imported import StepValues
from treeforge.store.run import RunFolder
from treeforge.tree import Finish
from treeforge.verdict import NO_VERDICT, Verdict


def completion(text: str, rating: int | None) -> dict[str, Any]:
    return {"text": text, "rating": rating, "flagged": False}


def prm800k_row(steps: Any, *, reason: str = "solution", gold: str = "29") -> dict[str, Any]:
    question = {"problem": "What does a pencil cost?", "ground_truth_answer": gold}
    return {"labeler": "x", "question": question, "label": {"steps": steps, "total_time": 1, "finish_reason": reason}}


PHASE_1 = prm800k_row(
    [
        {
            "completions": [completion("Let p be it.", 1), completion("Let us see.", 0)],
            "human_completion": None,
            "chosen_completion": 0,
        },
        {
            "completions": [completion("2p = 1.", -1)],
            "human_completion": {"text": "2p = 58.", "rating": None, "source": "human", "flagged": False},
            "chosen_completion": None,
        },
        {
            "completions": [completion("So p = 28.\n\n# Answer\n\n28", -1), completion("p = 29.\n\n# Answer\n\n29", 1)],
            "human_completion": None,
            "chosen_completion": 1,
        },
    ]
)
PHASE_2 = prm800k_row(
    [
        {"completions": [completion("First.", 1)], "human_completion": None, "chosen_completion": 0},
        {"completions": [completion("Wrong.", -1)], "human_completion": None, "chosen_completion": None},
    ],
    reason="found_error",
) | {"generation": 9}


def test_prm800k_phase_1(tmp_path: Path) -> None:
    (tree,), (values,), report, run = read(tmp_path, "prm800k", PHASE_1)
    assert tree.parent.tolist() == [-1, 0, 0, 1, 1, 4, 4]
    assert tree.text[1:5] == ("Let p be it.\n\n", "Let us see.\n\n", "2p = 1.\n\n", "2p = 58.\n\n")
    # A neutral rating and the labeller's own text give no label.
    assert same(values, [None, 1, None, 0, None, 0, 1])
    assert tree.verdict.tolist() == [NO_VERDICT] * 5 + [Verdict.INCORRECT, Verdict.CORRECT]
    assert tree.answer[5:] == ("28", "29")
    assert (report.positive, report.negative, report.unlabelled) == (2, 2, 2)
    assert run.problems[0].gold_answer == "29"
    assert run.manifest["label"]["estimator"] == "human"


def test_prm800k_phase_2_stops_at_the_first_error(tmp_path: Path) -> None:
    (tree,), (values,), *_ = read(tmp_path, "prm800k", PHASE_2)
    assert tree.text == ("", "First.\n\n", "Wrong.\n\n")
    assert same(values, [None, 1, 0])
    assert (tree.verdict == NO_VERDICT).all()


def test_prm800k_rows_of_one_problem_are_branches_of_one_tree(tmp_path: Path) -> None:
    (tree,), (values,), report, _ = read(tmp_path, "prm800k", PHASE_2, PHASE_1, PHASE_2)
    assert report.problems == 1
    assert tree.parent.tolist() == [-1, 0, 1, 0, 0, 3, 3, 6, 6, 0, 9]
    # Two labellers' ratings of one text stay two labels.
    assert same(values, [None, 1, 0, 1, None, 0, None, 0, 1, 1, 0])


@pytest.mark.parametrize(("neutral", "value"), [("positive", 1.0), ("negative", 0.0)])
def test_prm800k_neutral_ratings(tmp_path: Path, neutral: Any, value: float) -> None:
    _, (values,), *_ = read(tmp_path, "prm800k", PHASE_1, options=ReadOptions(neutral=neutral))
    assert values[2] == value


def test_prm800k_without_rows_that_were_given_up(tmp_path: Path) -> None:
    given_up = prm800k_row(
        [{"completions": None, "human_completion": None, "chosen_completion": None}], reason="give_up"
    )
    bad = prm800k_row(None, reason="bad_problem")
    unfinished = PHASE_2 | {"label": PHASE_2["label"] | {"finish_reason": "give_up"}}
    _, _, report, _ = read(tmp_path, "prm800k", PHASE_1, given_up, bad, unfinished)
    assert (report.rows, report.without_steps) == (2, 2)
    (tmp_path / "run").rename(tmp_path / "all")
    _, _, report, _ = read(tmp_path, "prm800k", PHASE_1, unfinished, options=ReadOptions(finished_only=True))
    assert report.rows == 1


def test_math_shepherd(tmp_path: Path) -> None:
    right = {
        "input": "How many? Step 1: 1 + 1 = 2. ки\nStep 2: 2 - 3 = -1. The answer is: -1 ки",
        "label": "How many? Step 1: 1 + 1 = 2. +\nStep 2: 2 - 3 = -1. The answer is: -1 +",
        "task": "GSM8K",
    }
    wrong = right | {"label": right["label"].replace("-1 +", "-1 -")}
    (tree,), (values,), report, run = read(tmp_path, "math-shepherd", right, wrong)
    assert run.problems[0].question == "How many?"
    assert tree.text[1:3] == ("Step 1: 1 + 1 = 2.\n", "Step 2: 2 - 3 = -1. The answer is: -1")
    assert tree.parent.tolist() == [-1, 0, 1, 0, 3]
    assert same(values, [None, 1, 1, 1, 0])
    assert tree.verdict.tolist() == [-1, -1, Verdict.CORRECT, -1, Verdict.INCORRECT]
    assert report.endings == {"correct": 1, "incorrect": 1}
    assert run.manifest["label"]["estimator"] == "imported"


def test_math_shepherd_with_another_tag(tmp_path: Path) -> None:
    row = {"input": "Q Step 1: a <s>\nStep 2: b <s>", "label": "Q Step 1: a -\nStep 2: b +"}
    (tree,), (values,), *_ = read(tmp_path, "math-shepherd", row, options=ReadOptions(tag="<s>"))
    assert tree.text == ("", "Step 1: a\n", "Step 2: b\n")
    assert same(values, [None, 0, 1])


def test_prm(tmp_path: Path) -> None:
    hard = {"prompt": "2 + 3?", "completions": ["Add.", "The answer is 5"], "labels": [True, False], "answer": 5}
    soft = {"prompt": "1 + 1?", "completions": ["Count.\n", "So 2."], "labels": [1, 0], "values": [0.75, 0.25]}
    (first, second), (of_first, of_second), _, run = read(tmp_path, "prm", hard, soft)
    assert first.text == ("", "Add.\n", "The answer is 5")
    assert same(of_first, [None, 1, 0])
    assert first.verdict.tolist() == [-1, -1, Verdict.CORRECT]
    assert same(of_second, [None, 0.75, 0.25])
    assert second.text == ("", "Count.\n", "So 2.\n")
    assert [problem.gold_answer for problem in run.problems] == ["5", ""]


def test_processbench(tmp_path: Path) -> None:
    wrong = {"id": "gsm8k-0", "generator": "m", "problem": "Q?", "steps": ["a", "b", "c"], "label": 1}
    right = wrong | {"label": -1, "final_answer_correct": True}
    (tree,), (values,), report, run = read(tmp_path, "processbench", wrong | {"final_answer_correct": False}, right)
    assert same(values, [None, 1, 0, None, 1, 1, 1])
    assert tree.text[1:4] == ("a\n\n", "b\n\n", "c")
    assert tree.verdict.tolist() == [-1, -1, -1, Verdict.INCORRECT, -1, -1, Verdict.CORRECT]
    assert report.endings == {"correct": 1, "incorrect": 1}
    assert run.manifest["label"]["estimator"] == "human"


def test_openr_flat(tmp_path: Path) -> None:
    prefixes = [
        ("Q?", 0.5),
        ("Q?\n\nFirst.", 0.75),
        ("Q?\n\nFirst. Then \\boxed{3}", 1.0),
        ("Q?\n\nFirst.", 0.25),
        ("Q?\n\nFirstly so", 0.0),
    ]
    steps = [{"solution_prefix": text, "mc_value": value} for text, value in prefixes]
    row = {"question": "Q?", "final_answer": "3", "reasoning_steps": steps}
    (tree,), (values,), *_ = read(tmp_path, "openr", row)
    # `Firstly` does not go on from `First`; a prefix that stands there twice is two nodes.
    assert tree.text == ("", "First.", "First.", "Firstly so", " Then \\boxed{3}")
    assert tree.parent.tolist() == [-1, 0, 0, 0, 1]
    assert same(values, [0.5, 0.75, 0.25, 0, 1])
    assert tree.verdict.tolist() == [-1, -1, -1, -1, Verdict.CORRECT]
    assert tree.prefix(4) == "First. Then \\boxed{3}"


def test_openr_nested(tmp_path: Path) -> None:
    leaf = {"text": "So \\boxed{4}.", "mc_value": 0.0, "children": []}
    inner = {"text": "First.", "mc_value": 0.5, "children": [leaf, {"text": "Hmm.", "mc_value": 0.25}]}
    row = {
        "question": "Q?",
        "final_answer": "3",
        "reasoning_steps": {"text": "Q?", "mc_value": 0.4, "children": [inner]},
    }
    (tree,), (values,), *_ = read(tmp_path, "openr", row)
    assert tree.text == ("", "First.\n", "So \\boxed{4}.", "Hmm.")
    assert same(values, [0.4, 0.5, 0, 0.25])
    assert tree.verdict.tolist() == [-1, -1, Verdict.INCORRECT, -1]


def test_rest_mcts(tmp_path: Path) -> None:
    row = {
        "content": "Q?",
        "real_answer": "3",
        "value_samples": [
            {"steps": "Step 1: a\n", "value": 0.5},
            {"steps": "Step 1: a\nStep 2: b\nStep 3: The final answer is 3\n", "value": 1},
            {"steps": "", "value": 0.25},
        ],
        "policy_samples": [{"solution": "Step 1: c\nSo it is 4\n", "summary": "", "correct": False}],
    }
    (tree,), (values,), *_ = read(tmp_path, "rest-mcts", row)
    assert tree.text == ("", "Step 1: a\n", "Step 1: c\nSo it is 4\n", "Step 2: b\n", "Step 3: The final answer is 3\n")
    assert tree.parent.tolist() == [-1, 0, 0, 1, 3]
    assert same(values, [0.25, 0.5, None, None, 1])
    assert tree.verdict.tolist() == [-1, -1, Verdict.INCORRECT, -1, Verdict.CORRECT]


def authors_tree() -> Node:
    root = Node(question="1+2+3 = ?")
    first = root.grow("# Step 1\nsolve 1 + 2 = 3,\n\n# Step 2")
    first.grow("Then, 3 + 3 = 6.\n\n# Answer\n\n6\n# END!", answer="6", correct=True)
    first.grow("Then, 3 + 3 = 5.\n\n# Answer\n\n5\n# END!", answer="5")
    first.grow("Then we go on.\n# Step 3")
    root.grow("IT SHOULD STOP!", stop=True)
    return root


@pytest.mark.parametrize("protocol", [2, 4, 5])
def test_the_hrm_authors_pickles(tmp_path: Path, protocol: int) -> None:
    folder = tmp_path / "pickles"
    folder.mkdir()
    (folder / "10.pkl").write_bytes(pickle.dumps(Node(question="empty"), protocol))
    (folder / "9.pkl").write_bytes(pickle.dumps(authors_tree(), protocol))
    report = import_file(folder, "hrm-pickle", tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    (tree,) = (record.tree for _, record in run.records())
    assert run.problems[0].question == "1+2+3 = ?"
    # The next step's header is taken off.
    assert tree.text[1] == "# Step 1\nsolve 1 + 2 = 3,\n"
    assert tree.text[2] == "Then, 3 + 3 = 6.\n\n# Answer\n\n6"
    assert tree.parent.tolist() == [-1, 0, 1, 1, 1, 0]
    assert tree.finish.tolist() == [0, 0, Finish.ANSWERED, Finish.ANSWERED, Finish.TRUNCATED, Finish.ERROR]
    assert tree.verdict.tolist() == [-1, -1, Verdict.CORRECT, Verdict.INCORRECT, Verdict.NO_ANSWER, -1]
    assert tree.answer[2:4] == ("6", "5")
    # Values come from the outcomes: what was not sampled counts nowhere, what ran out of levels as wrong.
    values = StepValues(run, LabelConfig()).of(0, tree).value
    assert values.tolist()[:2] == [pytest.approx(1 / 3)] * 2
    assert report.without_steps == 1
    assert (report.positive, report.negative, report.unlabelled) == (1, 3, 1)
