"""The public test sets of GSM8K and MATH: every row loads and no gold answer is lost. Skipped where they are absent."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from treeforge.store.problems import ProblemFile, read_problems

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def load(name: str) -> tuple[ProblemFile, list[dict[str, Any]]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the public data set {name} is not beside this checkout (../shared/data)")
    rows = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    read = read_problems(path)
    assert read.skipped == ()
    return read, rows


def test_gsm8k() -> None:
    read, rows = load("gsm8k_test.jsonl")
    assert len(read.problems) == 1319
    assert [p.question for p in read.problems] == [row["question"].strip() for row in rows]
    assert [p.gold_answer for p in read.problems] == [row["answer"].rsplit("#### ", 1)[1] for row in rows]
    assert [p.meta["answer"] for p in read.problems] == [row["answer"] for row in rows]


def test_math500_answers_agree_with_its_solutions(tmp_path: Path) -> None:
    read, rows = load("math500.jsonl")
    assert len(read.problems) == 500
    assert [p.gold_answer for p in read.problems] == [row["answer"] for row in rows]
    assert [p.problem_id for p in read.problems] == [row["unique_id"] for row in rows]
    from_solutions = read_problems(DATA / "math500.jsonl", answer_field="solution")
    assert [p.gold_answer for p in from_solutions.problems] == [row["answer"] for row in rows]


def test_math() -> None:
    read, rows = load("math_test.jsonl")
    assert len(read.problems) == 5000
    assert [p.problem_id for p in read.problems] == [str(row["idx"]) for row in rows]
    one_by_one = {}
    for problem, row in zip(read.problems, rows, strict=True):
        assert problem.meta["solution"] == row["solution"]
        gold = problem.gold_answer
        if not re.search(r"(?:boxed|fbox)\s*\{?\s*" + re.escape(gold), row["solution"]):
            one_by_one[problem.problem_id] = gold
    # where the question asks for a list and the solution boxes its values one by one, all of them are the answer
    assert one_by_one == {
        "414": "-2, 1",
        "2152": "5 - 10i, 11, -3 + 6i",
        "2549": "-\\tfrac32, -\\tfrac34",
        "2656": "-10879, 10879",
        "2703": "3, \\frac{2}{5}",
        "4559": "-1, 2",
        "4562": "30^\\circ, 45^\\circ, 105^\\circ",
        "4860": "\\frac{\\pi}{4}, \\frac{5\\pi}{4}",
    }


def test_math500_within_math() -> None:
    golds = {p.question: p.gold_answer for p in load("math_test.jsonl")[0].problems}
    assert all(golds[p.question] == p.gold_answer for p in load("math500.jsonl")[0].problems)
