"""Solutions files: which fields are taken, which rows belong together, every format, and every bad row."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import pytest
from support.authors import Node

from treeforge.annotating import SolutionFile, read_solutions
from treeforge.config import Recipe, SearchConfig, StepsConfig
from treeforge.errors import ConfigError, DataError
from treeforge.given import GivenSolution, make_given
from treeforge.problem import make_problem
from treeforge.written import given_solutions

ROW = {"question": "1 + 1?", "answer": "2", "solution": "Count.\nThe answer is 2."}


def read(tmp_path: Path, *rows: Any, **options: Any) -> SolutionFile:
    file = tmp_path / "given.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return read_solutions(file, **options)


def steps_of(found: SolutionFile) -> list[list[tuple[str, ...]]]:
    return [[solution.steps for solution in found.solutions[p.problem_id]] for p in found.problems]


# Fields ---------------------------------------------------------------------------------------------------------------


def test_a_text_is_split_and_a_list_of_steps_stays_as_it_is(tmp_path: Path) -> None:
    steps = ["Count\nwell.", " Then add. ", "The answer is 2."]
    found = read(tmp_path, ROW, {"question": "1 + 1?", "answer": 2, "steps": steps})
    assert steps_of(found) == [[("Count.\n", "The answer is 2."), tuple(steps)]]
    (problem,) = found.problems
    assert (problem.question, problem.gold_answer, problem.source) == ("1 + 1?", "2", "given.jsonl")
    assert [solution.row for solution in found.solutions[problem.problem_id]] == [1, 2]


def test_several_solutions_in_one_row(tmp_path: Path) -> None:
    found = read(tmp_path, {"question": "Q?", "answer": "2", "responses": ["a\nb", ["c", "d"]]})
    assert steps_of(found) == [[("a\n", "b"), ("c", "d")]]


def test_a_reference_solution_beside_a_response_is_the_gold_answer(tmp_path: Path) -> None:
    row = {"problem": "Q?", "solution": "Long and winding. " * 5 + "\\boxed{7}", "response": "It is 8."}
    found = read(tmp_path, row)
    assert found.problems[0].gold_answer == "7"
    assert steps_of(found) == [[("It is 8.",)]]


def test_a_number_under_steps_is_no_solution() -> None:
    """The project's own problems have a count there."""
    file = Path(__file__).parents[2] / "datasets" / "word_problems.jsonl"
    found = read_solutions(file, limit=2)
    assert [problem.problem_id for problem in found.problems] == ["word-001", "word-002"]
    assert steps_of(found)[1] == [
        ("18 - 8 = 10 passengers after some get off.\n", "10 + 7 = 17 passengers now.\n", "#### 17")
    ]
    assert found.problems[0].meta["level"] == 1


def test_beginnings_of_solutions_have_no_end(tmp_path: Path) -> None:
    found = read(tmp_path, ROW, unfinished=True)
    (solution,) = found.solutions[found.problems[0].problem_id]
    assert solution.ends == ()


def test_fields_may_be_named(tmp_path: Path) -> None:
    row = {"q": "Q?", "a": "2", "mine": ["x", ["y", "z"]], "key": "p-1", "solution": "no"}
    options = {"question_field": "q", "answer_field": "a", "id_field": "key", "solution_field": "mine"}
    found = read(tmp_path, row, **options)
    assert steps_of(found) == [[("x",), ("y", "z")]]
    assert found.problems[0].problem_id == "p-1"
    with pytest.raises(DataError, match="no field 'yours'"):
        read(tmp_path, row, **(options | {"solution_field": "yours"}))


def test_what_follows_the_last_answer_of_a_text_is_left_out(tmp_path: Path) -> None:
    text = "The answer is not near.\nCount.\n\\boxed{2}\nI hope it is correct."
    found = read(tmp_path, ROW | {"solution": text})
    assert steps_of(found) == [[("The answer is not near.\n", "Count.\n", "\\boxed{2}\n")]]


def test_a_draft_answer_while_thinking_does_not_end_a_text(tmp_path: Path) -> None:
    text = "<think>\n\\boxed{3}?\n</think>\nSo it is two."
    assert steps_of(read(tmp_path, ROW | {"solution": text}))[0][0][-1] == "So it is two."


def test_csv_and_parquet(tmp_path: Path) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    (tmp_path / "given.csv").write_text('question,answer,solution\nQ?,2,"a\nb"\n')
    assert steps_of(read_solutions(tmp_path / "given.csv")) == [[("a\n", "b")]]
    pq.write_table(pa.table({"question": ["Q?"], "answer": ["2"], "steps": [["a", "b"]]}), tmp_path / "given.parquet")
    assert steps_of(read_solutions(tmp_path / "given.parquet")) == [[("a", "b")]]


# Problems -------------------------------------------------------------------------------------------------------------


def test_rows_of_one_question_are_one_problem_whatever_their_ids(tmp_path: Path) -> None:
    other = {"question": "2 + 2?", "answer": "4", "solution": "The answer is 4.", "id": "b"}
    found = read(tmp_path, ROW | {"id": "a1"}, other, ROW | {"id": "a2", "solution": "The answer is 3."})
    assert [problem.problem_id for problem in found.problems] == ["a1", "b"]
    assert [len(solutions) for solutions in steps_of(found)] == [2, 1]
    assert found.lines == {"a1": 1, "b": 2}


def test_one_id_for_two_problems_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"given.jsonl:2: the id 'a' is that of row 1"):
        read(tmp_path, ROW | {"id": "a"}, ROW | {"id": "a", "answer": "3"})


def test_gold_answers_from_a_file_of_problems(tmp_path: Path) -> None:
    known = make_problem("1  + 1?", "2", problem_id="sum")
    found = read(
        tmp_path,
        {"question": "1 + 1?", "solution": "a"},
        {"question": "Q?", "answer": 3, "solution": "b"},
        problems=[known],
    )
    assert found.problems[0] is known
    assert found.problems[1].gold_answer == "3"


# Formats --------------------------------------------------------------------------------------------------------------


def rating(text: str, value: int) -> dict[str, Any]:
    return {"text": text, "rating": value}


PRM800K = {
    "question": {"problem": "Q?", "ground_truth_answer": "3"},
    "label": {
        "finish_reason": "solution",
        "steps": [
            {
                "completions": [rating("First.", 1), rating("So it is 4.", -1)],
                "human_completion": None,
                "chosen_completion": 0,
            },
            {"completions": [rating("# Answer\n\n3", 1)], "human_completion": None, "chosen_completion": 0},
        ],
    },
}
FORMATS: dict[str, tuple[dict[str, Any], tuple[str, ...], tuple[int, ...], tuple[int, ...]]] = {
    "prm800k": (PRM800K, ("First.", "So it is 4.", "# Answer\n\n3"), (-1, -1, 0), (2,)),
    "prm": (
        {"prompt": "Q?", "completions": ["First.", "The answer is 3"], "labels": [True, False], "answer": 3},
        ("First.", "The answer is 3"), (-1, 0), (1,),
    ),
    "openr": (
        {
            "question": "Q?",
            "final_answer": "3",
            "reasoning_steps": [
                {"solution_prefix": text, "mc_value": 0.5}
                for text in ("Q?\nFirst.", "Q?\nFirst.\nSo \\boxed{3}", "Q?\nFirst.\nHmm.")
            ],
        },
        ("First.", "\nHmm.", "\nSo \\boxed{3}"), (-1, 0, 0), (2,),
    ),
    "rest-mcts": (
        {
            "content": "Q?",
            "real_answer": "3",
            "value_samples": [
                {"steps": "Step 1: a\n", "value": 0.5},
                {"steps": "Step 1: a\nStep 2: The answer is 3", "value": 1},
            ],
        },
        ("Step 1: a\n", "Step 2: The answer is 3"), (-1, 0), (1,),
    ),
}  # fmt: skip


@pytest.mark.parametrize("format", FORMATS)
def test_formats_with_gold_answers(format: str, tmp_path: Path) -> None:
    row, steps, parents, ends = FORMATS[format]
    found = read(tmp_path, row, format=format)
    (problem,) = found.problems
    assert (problem.question, problem.gold_answer) == ("Q?", "3")
    assert found.solutions[problem.problem_id] == (GivenSolution(steps, parents, ends, 1),)
    assert found.format == format


SHEPHERD = {
    "input": "Q? Step 1: a ки\nStep 2: The answer is: 3 ки",
    "label": "Q? Step 1: a +\nStep 2: The answer is: 3 -",
}
BENCH = {"problem": "Q?", "steps": ["a", "So 3."], "label": 1, "final_answer_correct": True}


@pytest.mark.parametrize(
    ("format", "row", "steps"),
    [
        ("math-shepherd", SHEPHERD, ("Step 1: a", "Step 2: The answer is: 3")),
        ("processbench", BENCH, ("a", "So 3.")),
        ("prm", {"prompt": "Q?", "completions": ["a", "So \\boxed{3}"], "labels": [1, 0]}, ("a", "So \\boxed{3}")),
    ],
)
def test_formats_without_gold_answers_need_the_problems(
    format: str, row: dict[str, Any], steps: tuple[str, ...], tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=r"given.jsonl:1: field 'gold_answer': has no gold answer.*--problems"):
        read(tmp_path, row, format=format)
    known = make_problem("Q?", "3", problem_id="known")
    found = read(tmp_path, row, format=format, problems=[known])
    assert found.solutions == {"known": (GivenSolution(steps, (-1, 0), (1,), 1),)}


def test_pickled_trees_without_what_could_not_be_sampled(tmp_path: Path) -> None:
    root = Node(question="Q?")
    first = root.grow("# Step 1\na\n\n# Step 2")
    first.grow("b\n\n# Answer\n\n3\n# END!", answer="3", correct=True)
    root.grow("IT SHOULD STOP!", stop=True)
    first.grow("We go on.\n# Step 3")
    (tmp_path / "1.pkl").write_bytes(pickle.dumps(root))
    with pytest.raises(DataError, match=r"1\.pkl: field 'gold_answer'"):
        read_solutions(tmp_path / "1.pkl", format="hrm-pickle")
    found = read_solutions(tmp_path / "1.pkl", format="hrm-pickle", problems=[make_problem("Q?", "3", problem_id="q")])
    (solution,) = found.solutions["q"]
    assert solution == GivenSolution(("# Step 1\na", "b\n\n# Answer\n\n3", "We go on."), (-1, 0, 0), (1,), 0)


def test_labels_in_the_file_make_no_difference(tmp_path: Path) -> None:
    known = [make_problem("Q?", "3", problem_id="known")]
    one, other = (
        read(tmp_path, row, format="processbench", problems=known)
        for row in (BENCH, BENCH | {"label": -1, "final_answer_correct": False})
    )
    assert (one.problems, one.solutions) == (other.problems, other.solutions)


def test_rows_without_steps_are_left_out_and_listed(tmp_path: Path) -> None:
    empty = PRM800K | {"label": {"finish_reason": "give_up", "steps": []}}
    found = read(tmp_path, empty, PRM800K, format="prm800k")
    assert [(bad.line, bad.why) for bad in found.skipped] == [(1, "has no steps")]


# Bad rows -------------------------------------------------------------------------------------------------------------

BAD = {
    "no gold answer": ({"question": "Q?", "solution": "a"}, "there is no answer field"),
    "a null gold answer": (ROW | {"answer": None}, "field 'answer': is missing"),
    "no question": ({"answer": "2", "solution": "a"}, "there is no question field"),
    "no solution": ({"question": "Q?", "answer": "2"}, "there is no solution field"),
    "a blank solution": (ROW | {"solution": " \n "}, "field 'solution': is empty"),
    "no steps": ({"question": "Q?", "answer": "2", "steps": []}, "field 'steps': is an empty list"),
    "a blank step": ({"question": "Q?", "answer": "2", "steps": ["a", " ", "b"]}, r"field 'steps\[1\]': is blank"),
    "a step that is no text": ({"question": "Q?", "answer": "2", "steps": ["a", 7]}, r"field 'steps\[1\]': is 7 where"),
    "a step among several that is no text": (ROW | {"solution": ["a", [["b"]]]}, r"field 'solution\[1\]\[0\]': is a"),
    "a blank step among several": (ROW | {"solution": [["b", ""]]}, r"field 'solution\[0\]\[1\]': is blank"),
    "an empty solution among several": (ROW | {"solution": ["a", []]}, r"field 'solution\[1\]': has no steps"),
    "a step of a megabyte": (ROW | {"solution": "x" * 2**20}, r"field 'steps\[0\]': is longer than 20,000 characters"),
    "a larger one": (ROW | {"solution": "x" * (2**20 + 1)}, r"field 'solution': is longer than 1048576 characters"),
    "ten thousand steps": (ROW | {"solution": "a\n" * 10_000}, r"field 'steps': has 10,000 steps, .*max_steps=10000"),
    "more": (ROW | {"solution": "a\n" * 10_001}, "field 'steps': has 10,001 steps, more than 10,000. Join some"),
    "a NUL": ({"question": "Q?", "answer": "2", "steps": ["a\0"]}, r"field 'steps\[0\]': holds a NUL"),
    "no object": ([1], "is an array"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_a_bad_row_is_named_or_left_out_and_counted(name: str, tmp_path: Path) -> None:
    row, message = BAD[name]
    with pytest.raises(DataError, match=r"given\.jsonl:2: " + message):
        read(tmp_path, ROW, row, ROW)
    found = read(tmp_path, ROW, row, ROW, skip_bad_rows=True)
    assert [bad.line for bad in found.skipped] == [2]
    assert [len(solutions) for solutions in found.solutions.values()] == [2]
    with pytest.raises(DataError, match="none of its 1 rows can be used"):
        read(tmp_path, row, skip_bad_rows=True)


def test_long_solutions_are_a_setting(tmp_path: Path) -> None:
    recipe = Recipe(search=SearchConfig(max_steps=10_000), steps=StepsConfig(max_step_chars=2**20))
    found = read(tmp_path, ROW | {"solution": "a\n" * 10_000}, ROW | {"solution": "x" * 2**20}, recipe=recipe)
    assert [len(steps) for steps in steps_of(found)[0]] == [10_000, 1]


def test_an_empty_file(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="has no rows"):
        read(tmp_path)
    with pytest.raises(ConfigError, match="no format 'nonsense'"):
        read(tmp_path, ROW, format="nonsense")
    with pytest.raises(ConfigError, match="limit"):
        read(tmp_path, ROW, limit=0)


def test_a_limit_counts_good_rows_and_reads_no_further(tmp_path: Path) -> None:
    found = read(tmp_path, ROW, {"question": "Q?"}, ROW, {"broken": 1}, skip_bad_rows=True, limit=2)
    assert steps_of(found) == [[("Count.\n", "The answer is 2.")] * 2]
    assert len(found.skipped) == 1


# From Python ----------------------------------------------------------------------------------------------------------


def test_solutions_as_callers_write_them() -> None:
    problem = make_problem("1 + 1?", "2", problem_id="p")
    tree = make_given(["a", "b", "c"], parents=[-1, 0, 0])
    (given,) = given_solutions([problem], {"p": ["a\nb\n", ["a", "b"], tree]}, Recipe())
    assert [solution.steps for solution in given] == [("a\n", "b"), ("a", "b"), ("a", "b", "c")]
    assert given[2].ends == (1, 2)
    for solutions, message in (({}, "has no solution"), ({"p": ["a"], "q": ["b"]}, "1 problems that are not given")):
        with pytest.raises(ConfigError, match=message):
            given_solutions([problem], solutions, Recipe())
    with pytest.raises(DataError, match="solution 1 of problem 'p': has a parent that does not stand before it"):
        given_solutions([problem], {"p": [GivenSolution(("a", "b"), (1, -1), (0,))]}, Recipe())
    with pytest.raises(DataError, match=r"field 'steps\[1\]': solution 2 of problem 'p': is blank"):
        given_solutions([problem], {"p": ["a", ["b", ""]]}, Recipe())


@pytest.mark.parametrize("parents", [[0, 0], [-1, 1], [-2, 0], [-1]])
def test_parents_that_cannot_be(parents: list[int]) -> None:
    with pytest.raises(DataError, match="parent"):
        make_given(["a", "b"], parents=parents)


def test_an_empty_tag(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--tag"):
        read(tmp_path, SHEPHERD, format="math-shepherd", tag=" ")


@pytest.mark.parametrize(
    ("solutions", "message"),
    [
        ("3 * 4 = 12.", "solutions of problem 'p' are one text where a list of solutions is expected"),
        ([5], "solution 1 of problem 'p': is 5 where"),
        (["a", [b"x"]], r"field 'steps\[0\]': solution 2 of problem 'p': is b'x' where text"),
        ([["a", None]], r"field 'steps\[1\]': solution 1 of problem 'p': is None where text"),
        ([b"x"], "solution 1 of problem 'p': is b'x' where"),
    ],
)
def test_solutions_of_another_type_are_refused(solutions: Any, message: str) -> None:
    """Letters of a text would pass for solutions."""
    problem = make_problem("2 + 3 * 4?", "14", problem_id="p")
    with pytest.raises(DataError, match=message):
        given_solutions([problem], {"p": solutions}, Recipe())
