"""The answer checker on known pairs: representative cases by kind, the faults of other checkers, the shared files."""

from __future__ import annotations

import json
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

from treeforge.answers import after_hashes, last_boxed
from treeforge.errors import ConfigError
from treeforge.label import PRESETS, CheckPolicy, check, check_many, gold_problem
from treeforge.verdict import Verdict

HERE = Path(__file__).resolve().parent
SHARED = HERE.parents[1].parent / "shared"


def rows(path: Path) -> list[dict[str, Any]]:
    if not path.exists():
        pytest.skip(f"{path.name} is not here: it lies in ../shared beside the checkout")
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


CASES = rows(HERE / "cases.jsonl")


@pytest.mark.parametrize("case", CASES, ids=[f"{i}-{case['category']}" for i, case in enumerate(CASES)])
def test_representative_cases(case: dict[str, Any]) -> None:
    judgement = check(case["prediction"], case["gold"])
    assert (judgement.verdict is Verdict.CORRECT) == case["equal"], judgement


EQUAL = [
    ("$\\frac34.$", "\\frac{3}{4}"),
    ("pi/2", "\\frac{\\pi}{2}"),
    ("exp(16)", "e^{16}"),
    ("√2", "\\sqrt{2}"),
    ("½", "0.5"),
    ("1\\,234", "1234"),
    ("1 1/2", "\\frac{3}{2}"),
    ("\\sqrt[3]2", "2^{1/3}"),
    ("\\sqrt{1/n}", "\\frac{1}{\\sqrt{n}}"),
    ("2x>2", "x>1"),
    ("0<x<5", "(0,5)"),
    ("e^{i\\pi}", "-1"),
    ("**73**", "73"),
    ("x² + 1", "x^2+1"),
    ("−5", "-5"),
    ("\\{1, 2\\}", "2, 1"),
    ("x \\in [1, 2)", "1 \\le x < 2"),
    ("x < -1 \\text{ or } x > 3", "(-\\infty,-1)\\cup(3,\\infty)"),
    ("x \\neq 5", "(-\\infty,5)\\cup(5,\\infty)"),
    ("0.\\overline{3}", "1/3"),
    ("100 cm", "1\\text{ m}"),
    ("\\log_{10} 100", "2"),
    ("\\log 100", "2"),
    ("\\ln x^2", "2\\ln x"),
    ("(-8)^{1/3} \\cdot 1", "(-8)^{1/3}"),
    ("\\sqrt[3]{-8}", "-2"),
    ("\\frac{\\sqrt{2}}{2}", "\\frac{1}{\\sqrt{2}}"),
    ("\\sin^2 x + \\cos^2 x", "1"),
    ("(x+1)^2", "x^2+2x+1"),
    ("2x - y = 3", "4x - 2y - 6 = 0"),
    ("\\binom{10}{3}", "120"),
    ("5!", "120"),
    ("\\langle 1, 2\\rangle", "(1,2)"),
    ("0.30000000000000004", "0.3"),
    ("3.1416", "\\pi"),
    ("7:05 p.m.", "\\text{7:05 PM}"),
    ("2:3", "4:6"),
    ("\\text{east}", "East"),
]
DIFFERENT = [
    ("52_8", "52_9"),
    ("1e-7", "2e-7"),
    ("1/2004!", "1/2006!"),
    ("2^{-99}", "2^{-98}"),
    ("x=x+1", "x=x+2"),
    ("1-\\frac{1}{\\mathrm{e}}", "1+\\frac{1}{\\mathrm{e}}"),
    ("(a,b]", "[a,b]"),
    ("(1,2)", "[1,2]"),
    ("100", "1"),
    ("0.5", "50"),
    ("1 1/2", "11/2"),
    ("3.14", "\\pi"),
    ("x", "|x|"),
    ("\\sqrt{x^2}", "x"),
    ("-\\sqrt{2}", "\\sqrt{2}"),
    ("100000000000000000001", "100000000000000000000"),
    ("1.0000000000000001", "1"),
    ("2\\pi", "2"),
    ("x>1", "x\\ge 1"),
    ("x>1", "-x>-1"),
    ("1:00", "12:00"),
    ("7 am", "7 pm"),
    ("10 cm", "10 m"),
    ("1,2", "1,2,3"),
    ("(1,2)", "(2,1)"),
    ("\\pm 3", "3"),
    ("i", "-i"),
    ("\\begin{pmatrix}1\\\\2\\end{pmatrix}", "\\begin{pmatrix}2\\\\1\\end{pmatrix}"),
    ("2^{1/2^{1000}}", "1"),
    ("x=5", "y=5"),
    ("(B)", "C"),
    ("\\sin x", "\\cos x"),
    ("9x^2", "9x^3"),
    ("Evelyn", "\\text{Nevely}"),
]


@pytest.mark.parametrize(("prediction", "gold"), EQUAL)
def test_known_faults_wrongly_different(prediction: str, gold: str) -> None:
    assert check(prediction, gold).verdict is Verdict.CORRECT
    assert check(gold, prediction).verdict is Verdict.CORRECT


@pytest.mark.parametrize(("prediction", "gold"), DIFFERENT)
def test_known_faults_wrongly_equal(prediction: str, gold: str) -> None:
    assert check(prediction, gold).verdict is Verdict.INCORRECT
    assert check(gold, prediction).verdict is Verdict.INCORRECT


def test_verdicts_and_routes() -> None:
    assert check("", "3") == check("   ", "3")
    assert check("", "3").verdict is Verdict.NO_ANSWER
    assert check("\\frac{1", "3").verdict is Verdict.UNPARSABLE
    assert check("3", "\\frac{1").verdict is Verdict.UNDECIDED
    assert check("\\frac{1", "\\frac{1").verdict is Verdict.CORRECT
    assert check("7", "7").route == "string"
    assert check("6/4", "3/2").route == "exact"
    assert check("\\sqrt{8}", "2\\sqrt{2}").route == "numeric"
    assert check("10^{10^{10^{10}}}", "1").route == "limit"
    assert check("the answer is 5 apples", "5").answer == "5 apples"


def test_percent_never_turns_a_plain_number_a_hundredfold() -> None:
    assert check("50\\%", "0.5").verdict is Verdict.CORRECT
    assert check("50", "0.5").verdict is Verdict.INCORRECT
    assert check("50\\%", "50").reason == "a percent sign on one side only"
    assert check("50\\%", "50", "strict").verdict is Verdict.INCORRECT
    assert check("5000\\%", "0.5").verdict is Verdict.INCORRECT


def test_policies() -> None:
    assert check("5 cm", "5", "strict").verdict is Verdict.INCORRECT
    assert check("2, 1", "1, 2", CheckPolicy(lists="ordered")).verdict is Verdict.INCORRECT
    assert check("52", "52_8").verdict is Verdict.CORRECT
    assert check("52", "52_8", "strict").verdict is Verdict.INCORRECT
    assert check("3.1416", "\\pi", CheckPolicy(decimal_digits=0)).verdict is Verdict.INCORRECT
    assert all(check("7", "7", name).verdict is Verdict.CORRECT for name in PRESETS)
    with pytest.raises(ConfigError, match="default"):
        check("1", "1", "lenient")


def test_check_many_keeps_the_order() -> None:
    verdicts = [judgement.verdict for judgement in check_many([("1", "1"), ("2", "3"), ("", "4")])]
    assert verdicts == [Verdict.CORRECT, Verdict.INCORRECT, Verdict.NO_ANSWER]


def test_gold_problem_names_what_cannot_be_read() -> None:
    assert gold_problem("\\frac{1}{2}") is None
    assert gold_problem("\\text{Evelyn}") is None
    assert "cannot be read" in (gold_problem("\\frac{1") or "")
    assert "cannot be read" in (gold_problem("") or "")


@pytest.mark.parametrize(("name", "bar"), [("answers.jsonl", 0.97), ("answers_rewritten.jsonl", 0.999)])
def test_shared_cases(name: str, bar: float) -> None:
    cases = [case for case in rows(SHARED / "cases" / name) if not case.get("convention")]
    wrong = [
        case for case in cases if (check(case["prediction"], case["gold"]).verdict is Verdict.CORRECT) != case["equal"]
    ]
    assert len(wrong) <= (1 - bar) * len(cases), wrong
    assert not [case for case in wrong if not case["equal"]], "a near miss was accepted"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "field"), [("gsm8k_test", "answer"), ("math500", "solution"), ("math_test", "solution")]
)
def test_golds_are_equal_to_themselves_and_can_be_read(name: str, field: str) -> None:
    for row in rows(SHARED / "data" / f"{name}.jsonl"):
        gold = after_hashes(row[field]) if name == "gsm8k_test" else last_boxed(row[field])
        assert gold is not None
        assert gold_problem(gold) is None
        for written in (gold, f"${gold}$", f"\\boxed{{{gold}}}", f"The answer is ${gold}$."):
            assert check(written, gold).verdict is Verdict.CORRECT, written


def test_threads_do_not_disturb_each_other() -> None:
    """The interval library's precision is global."""
    wrong: list[str] = []

    def run(k: int) -> None:
        pairs = [(f"\\sqrt{{{i * 9}}}+{k}", f"3\\sqrt{{{i}}}+{k}") for i in range(2, 60)]
        wrong.extend(a for a, b in pairs if check(a, b).verdict is not Verdict.CORRECT)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [threading.Thread(target=run, args=(k,)) for k in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(interval)
    assert not wrong


def test_final_steps_of_annotated_solutions() -> None:
    """Completions that a person rated right end in the gold answer, those rated wrong do not; one gold is wrong."""
    disagreeing = total = 0
    for row in rows(SHARED / "data" / "prm800k_phase1_test.jsonl"):
        for completion in row["label"]["steps"][-1]["completions"] or [] if row["label"]["steps"] else []:
            if "# Answer" in completion["text"] and completion["rating"] in (1, -1):
                total += 1
                correct = check(completion["text"], row["question"]["ground_truth_answer"]).verdict is Verdict.CORRECT
                disagreeing += correct != (completion["rating"] == 1)
    assert total > 150
    assert disagreeing <= 1
