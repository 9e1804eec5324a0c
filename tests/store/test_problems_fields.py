"""Which fields hold question, gold answer and id, and what the gold answer of a worked solution is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.errors import ConfigError, DataError
from treeforge.problem import Problem, make_problem
from treeforge.store.problems import MAX_GOLD_CHARS, ProblemFile, read_problems


def write(tmp_path: Path, *rows: object) -> Path:
    path = tmp_path / "problems.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def read_one(tmp_path: Path, row: dict[str, Any], **options: Any) -> Problem:
    (problem,) = read_problems(write(tmp_path, row), **options).problems
    return problem


def refusal(tmp_path: Path, row: object, **options: Any) -> DataError:
    """The error of a bad row in line 2."""
    path = write(tmp_path, {"question": "1 + 1?", "answer": "2"}, row)
    with pytest.raises(DataError) as caught:
        read_problems(path, **options)
    assert caught.value.path == str(path)
    assert caught.value.line == 2
    assert caught.value.fix
    return caught.value


@pytest.mark.parametrize("name", ["question", "problem", "prompt", "query", "Problem", "QUESTION "])
def test_question_names(tmp_path: Path, name: str) -> None:
    assert read_one(tmp_path, {name: "1 + 1?", "answer": "2"}).question == "1 + 1?"


@pytest.mark.parametrize(
    "name", ["answer", "final_answer", "gold", "gold_answer", "ground_truth", "expected_answer", "solution", "Answer"]
)
def test_answer_names(tmp_path: Path, name: str) -> None:
    assert read_one(tmp_path, {"question": "1 + 1?", name: "2"}).gold_answer == "2"


@pytest.mark.parametrize("name", ["id", "problem_id", "unique_id", "idx", "ID"])
def test_id_names(tmp_path: Path, name: str) -> None:
    assert read_one(tmp_path, {name: "a/1.json", "question": "1 + 1?", "answer": "2"}).problem_id == "a/1.json"


def test_the_answer_goes_before_the_worked_solution(tmp_path: Path) -> None:
    row = {"problem": "1 + 1?", "solution": "It is $\\boxed{2.0}$.", "answer": "2", "level": 1, "final_answer": None}
    problem = read_one(tmp_path, row)
    assert problem.gold_answer == "2"
    assert problem.meta == {"solution": row["solution"], "level": 1, "final_answer": None}


def test_a_null_answer_gives_way_to_the_solution(tmp_path: Path) -> None:
    problem = read_one(tmp_path, {"problem": "1 + 1?", "solution": "It is $\\boxed{2}$.", "answer": None})
    assert problem.gold_answer == "2"


def test_named_fields_win_and_are_exact(tmp_path: Path) -> None:
    row = {"question": "no", "text": "1 + 1?", "answer": "no", "label": "2", "id": "no", "key": "k"}
    problem = read_one(tmp_path, row, question_field="text", answer_field="label", id_field="key")
    assert (problem.question, problem.gold_answer, problem.problem_id) == ("1 + 1?", "2", "k")
    assert problem.meta == {"question": "no", "answer": "no", "id": "no"}


@pytest.mark.parametrize("option", ["question_field", "answer_field", "id_field"])
def test_a_named_field_that_is_absent(tmp_path: Path, option: str) -> None:
    path = write(tmp_path, {"question": "2 + 2?", "answer": "4"})
    with pytest.raises(DataError) as caught:
        read_problems(path, **{option: "answr"})  # type: ignore[arg-type]
    message = str(caught.value)
    assert "there is no field 'answr'; the row has 'question', 'answer'" in message
    assert f"--{option.replace('_', '-')}" in message


def test_no_question_or_answer_field(tmp_path: Path) -> None:
    assert "no question field" in refusal(tmp_path, {"text": "2 + 2?", "answer": "4"}).problem
    assert "--answer-field" in str(refusal(tmp_path, {"question": "2 + 2?", "label": "4"}))


@pytest.mark.parametrize(
    ("solution", "gold"),
    [
        ("Each has 3 * 24 = <<3*24=72>>72.\n#### 72", "72"),
        ("He pays\n#### 1,000 \n", "1,000"),
        ("####-5", "-5"),
        ("#### Step 1\nWe add.\n#### Step 2\nSo \\boxed{5}.", "5"),
        ("so $\\boxed{\\frac{1}{\\sqrt{2}}}$.", "\\frac{1}{\\sqrt{2}}"),
        ("$\\boxed{3}$, or better $\\boxed{4}$.", "4"),
        ("$\\boxed 7$", "7"),
        ("$\\fbox{8}$", "8"),
        ("thus $\\boxed{\\text{(C)}}$.", "\\text{(C)}"),
        ("the set $\\boxed{\\{1, 2\\}}$", "\\{1, 2\\}"),
        ("$\\boxed{9}$ and then $\\boxed{1", "9"),
        ("42", "42"),
        ("\\begin{pmatrix} 1 \\\\\n2 \\end{pmatrix}", "\\begin{pmatrix} 1 \\\\\n2 \\end{pmatrix}"),
    ],
)
@pytest.mark.parametrize("field", ["answer", "solution"])
def test_gold_answer_of_a_text(tmp_path: Path, solution: str, gold: str, field: str) -> None:
    if field == "solution" and "pmatrix" in solution:
        solution = f"$\\boxed{{{solution}}}$"
    problem = read_one(tmp_path, {"question": "What?", field: solution})
    assert problem.gold_answer == gold
    assert problem.meta == ({} if solution == gold else {field: solution})


def test_values_boxed_one_by_one_are_all_the_answer(tmp_path: Path) -> None:
    solution = "The answers are $\\boxed{-2}$ and $\\boxed{1}$, so $\\boxed{1}$ and $\\boxed{-2}$."
    asks = "Find all solutions, separated by commas."
    assert read_one(tmp_path, {"problem": asks, "solution": solution}).gold_answer == "-2, 1"
    assert read_one(tmp_path, {"problem": "Find one.", "solution": solution}).gold_answer == "-2"
    whole = "First $\\boxed{1}$, in all $\\boxed{1,2}$."
    assert read_one(tmp_path, {"problem": asks, "solution": whole}).gold_answer == "1,2"


@pytest.mark.parametrize(
    ("solution", "why"),
    [
        ("We add 3 and 4, which gives us seven apples in total.", "worked solution"),
        ("We add.\nSo it is 7.", "worked solution"),
        ("#### Step 1\nWe add.", "worked solution"),
        ("so $\\boxed{7$", "never closed"),
        ("so $\\boxed{}$", "empty final answer"),
        ("so\n####", "empty final answer"),
        ("\\boxed{" + "7" * (MAX_GOLD_CHARS + 1) + "}", f"longer than {MAX_GOLD_CHARS} characters"),
    ],
)
def test_a_solution_without_an_answer(tmp_path: Path, solution: str, why: str) -> None:
    error = refusal(tmp_path, {"question": "What?", "solution": solution})
    assert error.field == "solution"
    assert why in error.problem


@pytest.mark.parametrize(
    ("written", "gold"),
    [
        ("72", "72"),
        ("-3", "-3"),
        ("0.5", "0.5"),
        ("72.0", "72"),
        ("1e3", "1000"),
        ("2e-7", "0.0000002"),
        ("1" * 40, "1" * 40),
    ],
)
def test_numbers_as_answers(tmp_path: Path, written: str, gold: str) -> None:
    path = tmp_path / "problems.jsonl"
    path.write_text(f'{{"question": "What?", "answer": {written}}}\n')
    assert read_problems(path).problems[0].gold_answer == gold


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (True, "is a bool"),
        (None, "is missing (null)"),
        ([["2"]], "is a list"),
        ({"value": 2}, "is an object"),
        ("", "is empty"),
        (" \n", "is empty"),
        ("2\0", "NUL"),
    ],
)
@pytest.mark.parametrize("field", ["question", "answer"])
def test_values_that_are_no_text(tmp_path: Path, field: str, value: object, why: str) -> None:
    error = refusal(tmp_path, {"question": "2 + 2?", "answer": "4", field: value})
    assert error.field == field
    assert why in error.problem


def test_a_number_is_no_question(tmp_path: Path) -> None:
    assert "is a number" in refusal(tmp_path, {"question": 5, "answer": "4"}).problem


@pytest.mark.parametrize(("value", "problem_id"), [(7, "7"), ("007", "007"), (3.0, "3")])
def test_ids_are_text(tmp_path: Path, value: object, problem_id: str) -> None:
    assert read_one(tmp_path, {"id": value, "question": "1 + 1?", "answer": "2"}).problem_id == problem_id


@pytest.mark.parametrize("value", [None, ""])
def test_a_row_without_an_id_gets_the_digest(tmp_path: Path, value: object) -> None:
    problem = read_one(tmp_path, {"id": value, "question": "1 + 1?", "answer": "2"})
    assert problem.problem_id == make_problem("1 + 1?", "2").problem_id


@pytest.mark.parametrize("value", [True, [1], {"a": 1}, "a\nb", "x" * 201])
def test_values_that_are_no_id(tmp_path: Path, value: object) -> None:
    assert refusal(tmp_path, {"id": value, "question": "2 + 2?", "answer": "4"}).field == "id"


def test_one_id_with_two_problems_is_an_error(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        {"id": 1, "question": "1 + 1?", "answer": 2},
        {"id": 1, "question": "2 + 2?", "answer": 4},
        {"id": 1, "question": "1 + 1?", "answer": 3},
    )
    with pytest.raises(DataError, match=r"problems.jsonl:2: the id '1' is that of row 1, with another question"):
        read_problems(path)
    read = read_problems(path, skip_bad_rows=True)
    assert [problem.gold_answer for problem in read.problems] == ["2"]
    assert [bad.line for bad in read.skipped] == [2, 3]
    assert "another gold answer" in read.skipped[1].why


@pytest.mark.parametrize("with_id", [True, False])
def test_a_repeated_problem_is_left_out_and_recorded(tmp_path: Path, with_id: bool) -> None:
    row = {"question": "1 + 1?", "answer": "2"} | ({"id": 1} if with_id else {})
    read = read_problems(write(tmp_path, row, {"question": "2 + 2?", "answer": "4"}, row))
    assert [problem.question for problem in read.problems] == ["1 + 1?", "2 + 2?"]
    (bad,) = read.skipped
    assert (bad.line, bad.field, bad.why) == (3, None, "is the same problem as row 1")


def test_skipped_rows_are_recorded_and_the_rest_keeps_its_order(tmp_path: Path) -> None:
    rows = [{"question": f"{i} + 0?", "answer": None if i % 3 == 0 else i} for i in range(10)]
    read = read_problems(write(tmp_path, *rows), skip_bad_rows=True)
    assert [problem.gold_answer for problem in read.problems] == ["1", "2", "4", "5", "7", "8"]
    assert [(bad.line, bad.field, bad.why) for bad in read.skipped] == [
        (line, "answer", "is missing (null) where text is expected") for line in (1, 4, 7, 10)
    ]


def test_limit_takes_the_first_good_rows_and_reads_no_further(tmp_path: Path) -> None:
    path = write(
        tmp_path, {"question": "a?", "answer": 1}, {"question": "", "answer": 1}, {"question": "b?", "answer": 2}
    )
    assert [p.question for p in read_problems(path, limit=1).problems] == ["a?"]
    assert [p.question for p in read_problems(path, limit=2, skip_bad_rows=True).problems] == ["a?", "b?"]
    assert len(read_problems(path, limit=99, skip_bad_rows=True).problems) == 2
    with pytest.raises(ConfigError, match="limit must be at least 1"):
        read_problems(path, limit=0)


def test_a_file_without_one_good_row(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "", "answer": 1}, {"question": "b?"})
    with pytest.raises(DataError, match=r"none of its 2 rows can be used; the first, 1: is empty") as caught:
        read_problems(path, skip_bad_rows=True)
    assert caught.value.field == "question"


def test_source_and_path(tmp_path: Path) -> None:
    path = write(tmp_path, {"question": "1 + 1?", "answer": 2})
    read = read_problems(str(path))
    assert isinstance(read, ProblemFile)
    assert read.path == str(path)
    assert read.problems[0].source == "problems.jsonl"


texts = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1).filter(str.strip)


@given(st.lists(st.tuples(texts, st.integers()), min_size=1, max_size=20, unique_by=lambda row: row[0].strip()))
def test_every_text_comes_through(tmp_path_factory: pytest.TempPathFactory, rows: list[tuple[str, int]]) -> None:
    path = write(
        tmp_path_factory.mktemp("any"), *({"question": question, "answer": answer} for question, answer in rows)
    )
    read = read_problems(path)
    assert [(p.question, p.gold_answer) for p in read.problems] == [(q.strip(), str(a)) for q, a in rows]
    assert read.skipped == ()


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["question", "answer", "id"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(st.lists(st.fixed_dictionaries({}, optional={"question": junk, "answer": junk, "id": junk}) | junk, max_size=8))
def test_every_row_is_a_problem_or_recorded(tmp_path_factory: pytest.TempPathFactory, rows: list[object]) -> None:
    path = write(tmp_path_factory.mktemp("junk"), {"question": "good?", "answer": 1}, *rows)
    read = read_problems(path, skip_bad_rows=True)
    assert len(read.problems) + len(read.skipped) == len(rows) + 1
    assert len({problem.problem_id for problem in read.problems}) == len(read.problems)
    assert all(problem.question.strip() and problem.gold_answer.strip() for problem in read.problems)
