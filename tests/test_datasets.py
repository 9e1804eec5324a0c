"""The problem sets in `datasets/`: made again byte for byte, right, graded, and readable by treeforge."""

from __future__ import annotations

import json
import re
import runpy
import subprocess
import sys
from collections import Counter
from fractions import Fraction
from pathlib import Path
from typing import Any

import pytest

from treeforge.answers import after_hashes
from treeforge.store.problems import read_problems

ROOT = Path(__file__).resolve().parents[1]
NAMES = ["arithmetic.jsonl", "word_problems.jsonl"]
STEPS = {1: 50, 2: 70, 3: 50, 4: 30}
LEVELS = {1: 40, 2: 60, 3: 50, 4: 38, 5: 12}


def load(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (ROOT / "datasets" / name).read_text(encoding="utf-8").splitlines()]


def value(expression: str) -> Fraction:
    """The value of `2 * (3 + 4) - 5`: a second way to it than the script's."""
    tokens = re.findall(r"\d+|[-+*/()]", expression)
    assert "".join(tokens) == expression.replace(" ", "")

    def total() -> Fraction:
        result = product()
        while tokens and tokens[0] in "+-":
            result = result + product() if tokens.pop(0) == "+" else result - product()
        return result

    def product() -> Fraction:
        result = atom()
        while tokens and tokens[0] in "*/":
            result = result * atom() if tokens.pop(0) == "*" else result / atom()
        return result

    def atom() -> Fraction:
        token = tokens.pop(0)
        if token != "(":
            return Fraction(int(token))
        result = total()
        assert tokens.pop(0) == ")"
        return result

    result = total()
    assert not tokens
    return result


def test_the_script_writes_the_same_bytes(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "scripts" / "make_datasets.py"), "--out", str(tmp_path)]
    subprocess.run(command, check=True, capture_output=True, timeout=600)
    assert sorted(path.name for path in tmp_path.iterdir()) == NAMES
    for name in NAMES:
        assert (tmp_path / name).read_bytes() == (ROOT / "datasets" / name).read_bytes(), name


@pytest.mark.parametrize("name", NAMES)
def test_rows(name: str) -> None:
    rows = load(name)
    assert len(rows) == len({row["id"] for row in rows}) == len({row["question"] for row in rows}) == 200
    assert all(type(row["answer"]) is int and row["answer"] > 0 for row in rows)
    assert Counter(row["steps"] for row in rows) == STEPS
    assert Counter(row["level"] for row in rows) == LEVELS
    assert all(row["level"] - row["steps"] in (0, 1) for row in rows)
    assert Counter(row["level"] for row in rows[:20]) == {1: 12, 2: 7, 3: 1}


@pytest.mark.parametrize("name", NAMES)
def test_treeforge_reads_them(name: str) -> None:
    rows = load(name)
    read = read_problems(ROOT / "datasets" / name)
    assert read.skipped == ()
    assert [(p.problem_id, p.question, p.gold_answer) for p in read.problems] == [
        (row["id"], row["question"], str(row["answer"])) for row in rows
    ]
    assert [(p.meta["steps"], p.meta["level"]) for p in read.problems] == [(row["steps"], row["level"]) for row in rows]


def test_arithmetic_is_right() -> None:
    for row in load("arithmetic.jsonl"):
        expression = re.fullmatch(
            r"(?:What is|Compute|Calculate|Find the value of) ([-+*/() \d]+)[?.]", row["question"]
        )
        assert expression, row["question"]
        assert value(expression.group(1)) == row["answer"], row["question"]
        assert len(re.findall(r"[-+*/]", expression.group(1))) == row["steps"]


def test_worked_solutions_are_right_and_use_every_number() -> None:
    for row in load("word_problems.jsonl"):
        *lines, last = row["solution"].splitlines()
        assert last == f"#### {row['answer']}"
        assert after_hashes(row["solution"]) == str(row["answer"])
        assert len(lines) == row["steps"]
        given = set(re.findall(r"\d+", row["question"]))
        results: list[str] = []
        used: set[str] = set()
        for line in lines:
            equation = re.match(r"(\d+ [-+*/] \d+) = (\d+) ", line)
            assert equation, line
            assert value(equation.group(1)) == int(equation.group(2)), line
            numbers = set(re.findall(r"\d+", equation.group(1)))
            assert numbers <= given | set(results), line
            used |= numbers
            results.append(equation.group(2))
        assert given <= used, row["id"]
        assert results[-1] == str(row["answer"])


def test_word_problems_are_varied() -> None:
    templates = runpy.run_path(str(ROOT / "scripts" / "make_datasets.py"))["WORD_TEMPLATES"]
    questions = [row["question"] for row in load("word_problems.jsonl")]
    assert len(templates) >= 25
    for template in templates:
        parts = re.split(r"\{[^}]+\}", template.question)
        pattern = re.compile(r"\w+".join(map(re.escape, parts)))
        assert sum(bool(pattern.fullmatch(question)) for question in questions) >= 3, template.question


def test_texts_are_whole_and_need_no_singular() -> None:
    for row in load("word_problems.jsonl"):
        text = row["question"] + " " + row["solution"]
        assert row["question"].endswith("?")
        assert row["question"].count("?") == 1
        assert not re.search(r"[{}]|  |\b[01]\b", text), text
