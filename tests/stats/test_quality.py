"""Labels against people's: hand-worked figures, and the ways labels and people's files are read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from support.folders import ended, write_run

from treeforge import views
from treeforge.cli import invoke
from treeforge.errors import DataError, RunError
from treeforge.problem import make_problem
from treeforge.stats.quality import quality, rows
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, Tree, TreeBuilder
from treeforge.verdict import Verdict


def processbench(tmp_path: Path, *solutions: tuple[str, list[str], int]) -> Path:
    file = tmp_path / "people.jsonl"
    written = [
        {"id": str(n), "problem": problem, "steps": steps, "label": label, "final_answer_correct": label < 0}
        for n, (problem, steps, label) in enumerate(solutions)
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in written))
    return file


def prm(tmp_path: Path, *solutions: tuple[str, list[str], list[Any]]) -> Path:
    file = tmp_path / "labels.jsonl"
    written = [{"prompt": p, "completions": steps, "labels": labels} for p, steps, labels in solutions]
    file.write_text("".join(json.dumps(row) + "\n" for row in written))
    return file


PEOPLE = (
    ("P?", ["a", "b", "c"], -1),  # + + +
    ("Q?", ["a", "b", "c"], 1),  # + -
    ("R?", ["a", "b"], 0),  # -
    ("S?", ["a"], -1),  # not labelled here
)


def test_figures_worked_by_hand(tmp_path: Path) -> None:
    labels = prm(
        tmp_path,
        ("P?", ["a\n\n", "b\n", "c"], [True, True, False]),
        ("Q?", ["a", "b", "c"], [True, False, False]),
        ("R?", ["a", "b"], [True, False]),
    )
    found = quality(labels, processbench(tmp_path, *PEOPLE))
    # People: P + + +, Q + -, R -; here: P + + -, Q + -, R +.
    assert (found.human_steps, found.human_solutions) == (7, 4)
    assert (found.steps.steps, found.steps.problems, found.steps.wrong) == (6, 3, 2)
    assert found.steps.agreement.value == pytest.approx(4 / 6)
    expected = (4 / 6) * (4 / 6) + (2 / 6) * (2 / 6)
    assert found.steps.kappa.value == pytest.approx((4 / 6 - expected) / (1 - expected))
    # First errors: P has none and one is claimed; Q's is found; R's is found a step too late.
    assert found.first_errors.solutions == 3
    assert found.first_errors.erroneous.value == pytest.approx(1 / 2)
    assert found.first_errors.correct.value == 0
    assert found.first_errors.f1.value == 0
    assert {name: group.steps for name, group in found.by_depth.items()} == {"1": 3, "2": 2, "3": 1}
    assert [name for name, _ in rows(found)] == ["all steps", "depth 1", "depth 2", "depth 3"]


def test_a_file_agrees_with_itself_also_where_it_has_soft_values(tmp_path: Path) -> None:
    file = tmp_path / "ours.jsonl"
    row = {"prompt": "P?", "completions": ["a", "b", "The answer is 3."], "labels": [True, False, False]}
    file.write_text(json.dumps(row | {"values": [0.9, 0.5, 0.25], "gold_answer": "4"}) + "\n")
    found = quality(file, file, format="prm")
    assert found.steps.steps == 3
    assert (found.steps.agreement.value, found.first_errors.erroneous.value) == (1.0, 1.0)


def test_f1_is_the_harmonic_mean(tmp_path: Path) -> None:
    labels = prm(
        tmp_path,
        ("P?", ["a", "b", "c"], [True, True, True]),
        ("Q?", ["a", "b", "c"], [True, False, True]),
        ("R?", ["a", "b"], [True, True]),
        ("S?", ["a"], [True]),
    )
    found = quality(labels, processbench(tmp_path, *PEOPLE)).first_errors
    assert (found.erroneous.value, found.correct.value) == (0.5, 1.0)
    assert found.f1.value == pytest.approx(2 * 0.5 / 1.5)


def test_intervals_hold_the_value_and_narrow_with_more_problems(tmp_path: Path) -> None:
    def figure(problems: int) -> Any:
        people = [(f"P{n}?", ["a", "b"], -1 if n % 2 else 1) for n in range(problems)]
        # Every fourth problem is labelled wrongly.
        ours = [(f"P{n}?", ["a", "b"], [n % 4 != 0, bool(n % 2)]) for n in range(problems)]
        return quality(prm(tmp_path, *ours), processbench(tmp_path, *people)).steps.agreement

    few, many = figure(16), figure(400)
    assert few.low <= few.value <= few.high
    assert many.high - many.low < (few.high - few.low) / 3
    assert figure(16) == few


def test_where_all_labels_are_one_kappa_is_not_defined(tmp_path: Path) -> None:
    found = quality(prm(tmp_path, ("P?", ["a"], [True])), processbench(tmp_path, ("P?", ["a"], -1)))
    assert found.steps.agreement.value == 1
    assert found.steps.kappa.value is None
    assert found.first_errors.erroneous.value is None


def test_a_solution_without_all_its_labels_counts_for_steps_only(tmp_path: Path) -> None:
    labels = prm(tmp_path, ("P?", ["a", "b", "c"], [True, None, True]))
    found = quality(labels, processbench(tmp_path, *PEOPLE))
    assert found.steps.steps == 2
    assert found.first_errors.solutions == 0


def test_several_labels_of_one_step_are_decided_by_majority(tmp_path: Path) -> None:
    people = processbench(tmp_path, ("P?", ["a"], -1), ("Q?", ["a"], -1))
    labels = [("P?", ["a"], [False]), ("P?", ["a"], [True]), ("P?", ["a"], [False]), ("Q?", ["a"], [1])]
    found = quality(prm(tmp_path, *labels), people)
    assert found.steps.agreement.value == 0.5
    # Even numbers decide nothing.
    assert quality(prm(tmp_path, *labels[1:]), people).steps.steps == 1


def test_hrm_rows_of_single_steps(tmp_path: Path) -> None:
    table = pa.table(
        {
            "prompt": ["P?"] * 4,
            "previous": ["", "a\n\n", "", "a\n\nb\n\n"],
            "current": ["a\n\n", "b\n\n", "a\n\nb\n\n", "c"],
            "span": [1, 1, 2, 1],
            "hard": [True, False, True, None],
        }
    )
    (tmp_path / "data").mkdir()
    pq.write_table(table, tmp_path / "data" / "train-00000-of-00001.parquet")
    found = quality(tmp_path / "data", processbench(tmp_path, *PEOPLE))
    assert (found.steps.steps, found.steps.agreement.value) == (2, 0.5)


def tree() -> Tree:
    builder = TreeBuilder()
    first = builder.add(0, "a\n")
    builder.add(first, "b", finish=Finish.ANSWERED, answer="1", verdict=Verdict.CORRECT)
    builder.add(first, "x", finish=Finish.ANSWERED, answer="2", verdict=Verdict.INCORRECT)
    builder.add(0, "y", finish=Finish.ANSWERED, answer="1", verdict=Verdict.CORRECT)
    return builder.freeze()


def test_a_run_by_level(tmp_path: Path) -> None:
    problems = [
        make_problem(question, "1", meta={"level": f"Level {n}"}) for n, question in enumerate(("P?", "Q?"), start=1)
    ]
    run = write_run(tmp_path / "run", [tree(), tree()], problems=problems)
    people = processbench(tmp_path, ("P?", ["a", "b"], -1), ("P?", ["a", "x"], 1), ("Q?", ["y"], 0))
    with pytest.raises(RunError, match="treeforge label"):
        quality(run, people)
    views.label(run)
    found = quality(run, people)
    # `a` leads to one right and one wrong end: 0.5 is not greater than the threshold.
    assert (found.steps.steps, found.steps.agreement.value) == (4, 0.5)
    assert {name: group.steps for name, group in found.by_level.items()} == {"Level 1": 3, "Level 2": 1}


def test_labels_that_are_older_than_the_trees(tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", [tree(), None], problems=[make_problem("P?", "1"), make_problem("Q?", "1")])
    views.label(run)
    people = processbench(tmp_path, ("P?", ["a", "b"], -1))
    assert quality(run, people).steps.steps == 2
    with RunFolder.open(run) as folder:
        folder.lock()
        folder.finish(1, ended(tree()))
    with pytest.raises(RunError, match="older labels"):
        quality(run, people)


def test_what_cannot_be_compared(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    people = processbench(tmp_path, *PEOPLE)
    with pytest.raises(DataError, match="no step in common"):
        quality(prm(tmp_path, ("other", ["a"], [True])), people)
    with pytest.raises(DataError, match=r"labels\.jsonl:1"):
        quality(prm(tmp_path, ("P?", ["a"], ["yes"])), people)
    with pytest.raises(DataError, match=r"people\.jsonl:1"):
        quality(prm(tmp_path, ("P?", ["a"], [True])), people, format="prm800k")
    labels = prm(tmp_path, ("P?", ["a", "b", "c"], [True, True, True]))
    assert invoke(["quality", str(labels), "--against", str(people)]) == 0
    shown = capsys.readouterr().out
    assert "all steps" in shown
    assert "3 of 7 steps" in shown
    assert invoke(["quality", str(labels), "--against", str(people), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["steps"]["steps"] == 3
