"""Rows of Math-Shepherd, ProcessBench and `prm` as real files have them, and as the field's own scripts accept them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.imported import read, same

from treeforge.verdict import Verdict


def shepherd(text: str, marks: str) -> dict[str, str]:
    """A row whose tags, written `ки` in `text`, have these marks."""
    parts = text.split("ки")
    return {"input": text, "label": "".join(a + b for a, b in zip(parts, [*marks, ""], strict=True)), "task": "MATH"}


@pytest.mark.parametrize(
    ("text", "marks", "question", "steps", "values"),
    [
        # `step 1:` in lower case.
        ("How many? step 1: 2. ки\nstep 2: 3. ки", "+-", "How many?", ("step 1: 2.\n", "step 2: 3.\n"), (1, 0)),
        # A tag after the question: its mark is no step's.
        ("Find it. ки\nStep 1: 2. ки\nStep 2: 3. ки", "+-+", "Find it.", ("Step 1: 2.\n", "Step 2: 3.\n"), (0, 1)),
        # Tags inside the question.
        ("He has 2. ки\nAnd 3. ки\nSum? Step 1: 5 ки", "--+", "He has 2.\nAnd 3.\nSum?", ("Step 1: 5\n",), (1,)),
        ("Let v. ки Find w. Step 1: 5. ки", "+-", "Let v. Find w.", ("Step 1: 5.\n",), (0,)),
        # No `Step 1:` at all: the question ends at its only question mark.
        ("How many? We add. ки\nSo 5. ки", "+-", "How many?", ("We add.\n", "So 5.\n"), (1, 0)),
        ("How many? ки\nSo 5. ки", "+-", "How many?", ("So 5.\n",), (0,)),
        # Nor that: it ends at the first tag.
        ("Simplify it. ки\nWe add. ки\nSo 5. ки", "+-+", "Simplify it.", ("We add.\n", "So 5.\n"), (0, 1)),
        ("Why? How? ки\nSo 5. ки", "+-", "Why? How?", ("So 5.\n",), (0,)),
        # No blank before the first step; a number that is not the first.
        ("How many?Step 1: 5. ки", "+", "How many?", ("Step 1: 5.\n",), (1,)),
        ("See step 1: why? Step 1: 5. ки", "+", "See step 1: why?", ("Step 1: 5.\n",), (1,)),
        # Several rated texts under one header, several headers before one tag.
        ("Q? Step 1: a ки\nb ки\nStep 2: c ки", "+-+", "Q?", ("Step 1: a\n", "b\n", "Step 2: c\n"), (1, 0, 1)),
        ("Q? Step 1: a\nStep 2: b ки\nStep 3: c ки", "+-", "Q?", ("Step 1: a\nStep 2: b\n", "Step 3: c\n"), (1, 0)),
        # Two tags in a row: a blank text is no step. Signs that belong to the text.
        ("Q? Step 1: a ки ки\nStep 2: b ки", "+-+", "Q?", ("Step 1: a\n", "Step 2: b\n"), (1, 1)),
        ("Q? Step 1: x + ки\n- 2 ки", "-+", "Q?", ("Step 1: x +\n", "- 2\n"), (0, 1)),
    ],
)  # fmt: skip
def test_math_shepherd_rows(tmp_path: Path, text: str, marks: str, question: str, steps: Any, values: Any) -> None:
    (tree,), (found,), _, run = read(tmp_path, "math-shepherd", shepherd(text, marks))
    assert run.problems[0].question == question
    assert tree.text[1:] == steps
    assert same(found, [None, *values])


def test_math_shepherd_text_after_the_last_tag_is_a_step_without_a_label(tmp_path: Path) -> None:
    row = shepherd("Q? Step 1: a ки\nStep 2: The answer is: 4", "+")
    (tree,), (values,), report, _ = read(tmp_path, "math-shepherd", row)
    assert tree.text[1:] == ("Step 1: a\n", "Step 2: The answer is: 4\n")
    assert same(values, [None, 1, None])
    assert report.endings == {}


def test_math_shepherd_marks_in_a_list(tmp_path: Path) -> None:
    hard = {"input": "Q? Step 1: a ки\nStep 2: The answer is: 4 ки", "value": ["+", "-"]}
    soft = {"text": "R? Step 1: a ки\nStep 2: The answer is: 4 ки", "value": [0.75, 0.25]}
    (first, second), (of_first, of_second), report, _ = read(tmp_path, "math-shepherd", hard, soft)
    assert first.text[1:] == ("Step 1: a\n", "Step 2: The answer is: 4")
    assert same(of_first, [None, 1, 0])
    assert first.verdict[2] == Verdict.INCORRECT
    assert same(of_second, [None, 0.75, 0.25])
    assert second.text[1] == "Step 1: a\n"
    assert report.endings == {"incorrect": 1}


def test_prm_blank_completions_are_no_steps(tmp_path: Path) -> None:
    row = {"prompt": "Q?", "completions": ["", "a", " \n", "b", ""], "labels": [True, False, True, True, False]}
    empty = {"prompt": "R?", "completions": [], "labels": []}
    (tree,), (values,), report, _ = read(tmp_path, "prm", row, empty, row | {"completions": [""] * 5})
    assert tree.text[1:] == ("a\n", "b\n")
    assert same(values, [None, 0, 1])
    assert (report.rows, report.without_steps) == (1, 2)


def test_prm_several_steps_in_one_completion_stay_one(tmp_path: Path) -> None:
    # As TRL's script leaves them where a mark stood in the question.
    row = {
        "prompt": "Parker has 2.",
        "completions": ["How many? Step 1: a\nStep 2: b", "Step 3: c"],
        "labels": [True, False],
    }
    (tree,), (values,), *_ = read(tmp_path, "prm", row)
    assert tree.text[1:] == ("How many? Step 1: a\nStep 2: b\n", "Step 3: c\n")
    assert same(values, [None, 1, 0])


def test_prm_labels_of_other_kinds(tmp_path: Path) -> None:
    # Means of floats end beside 0 and 1.
    labels = [1, 0.0, 1.0000000000000002, -1e-17, None]
    (_,), (values,), *_ = read(tmp_path, "prm", {"prompt": "Q?", "completions": list("abcde"), "labels": labels})
    assert same(values, [None, 1, 0, 1, 0, None])


@pytest.mark.parametrize(
    ("gold", "text", "verdicts"),
    [
        (5, "5", [Verdict.CORRECT]),
        (5.0, "5", [Verdict.CORRECT]),
        (1e-07, "0.0000001", [Verdict.CORRECT]),
        ("$\\frac{5}{1}$", "$\\frac{5}{1}$", [Verdict.CORRECT]),
        (["5"], "5", [Verdict.CORRECT]),
        (["5", 5], "5", [Verdict.CORRECT]),
        ("2 + 3 is 5.\n#### 5", "5", [Verdict.CORRECT]),
        ("We get $x=\\boxed{5}$.", "5", [Verdict.CORRECT]),
        # A solution that states no answer.
        ("We add\nand are done.", "", [-1]),
        ("It is long. " * 60, "", [-1]),
        # All of them or any of them? No verdict.
        (["5", "6"], "", [-1]),
        ([], "", [-1]),
        (None, "", [-1]),
        ("", "", [-1]),
    ],
)
def test_gold_answers(tmp_path: Path, gold: Any, text: str, verdicts: Any) -> None:
    stated = "0.0000001" if gold == 1e-07 else "5"
    row = {"prompt": "Q?", "completions": [f"The answer is {stated}"], "labels": [True], "answer": gold}
    (tree,), (values,), _, run = read(tmp_path, "prm", row)
    assert run.problems[0].gold_answer == text
    assert tree.verdict[1:].tolist() == verdicts
    assert same(values, [None, 1])


def test_processbench_labels_of_tables_and_blank_steps(tmp_path: Path) -> None:
    row = {"problem": "Q?", "steps": ["a", "", "b", " "], "label": 2.0, "final_answer_correct": False}
    (tree,), (values,), *_ = read(tmp_path, "processbench", row)
    assert tree.text[1:] == ("a\n\n", "b")
    assert same(values, [None, 1, 0])
    assert tree.verdict[2] == Verdict.INCORRECT
