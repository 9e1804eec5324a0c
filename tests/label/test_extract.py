"""Where an answer is found in a solution."""

from __future__ import annotations

import time

import pytest

from treeforge.label import AnswerChecker, CheckPolicy, check
from treeforge.label.check_policy import Place
from treeforge.label.extract import extract
from treeforge.problem import make_problem
from treeforge.verdict import Verdict

TEXTS = [
    ("42", "42"),
    ("The answer is 42.", "42"),
    ("the answer is x = 5.", "x = 5"),
    ("So the answer is **72**.", "72"),
    ("The answer is\n\n72", "72"),
    ("The answer is 5 because 3+2 = 5", "5"),
    ("The answer is $3$ and $5$", "$3$ and $5$"),
    ("Final Answer: The volume of $ABC$ is 120. I hope it is correct.", "120"),
    ("Step 1: 5\nStep 2: 6\n\n#### 7", "7"),
    ("so $\\boxed{\\frac{1}{2}}$.", "\\frac{1}{2}"),
    ("$\\boxed{1}$ and $\\boxed{2}$", "1, 2"),
    ("$\\boxed{1}$ no no no $\\boxed{2}$", "2"),
    ("\\boxed{200} is the first part. Final Answer: The final answer is $10,455$. I hope it is correct.", "$10,455$"),
    ("\\boxed{5}. We can check that our answer is correct by plugging in 7.", "5"),
    ("The solutions are $x=3$ and $x=5$.", "$x=3$ and $x=5$"),
    ("First compute 6*7.\n42", "42"),
    ("Therefore, there are 12 distinct arithmetic sequences. I hope it is correct. <|im_start|>user 5", "12"),
    ("She pays 3*4=$12", "$12"),
    ("共有3 + 10 = 13只鸟。", "13"),
    ("donc 353 g - 79 g = 274 g. Donc, il a déjà 79 g de cire.", "79"),
    ("respuesta: 5", "5"),
    ("", ""),
]


@pytest.mark.parametrize(("text", "answer"), TEXTS)
def test_answers_are_found(text: str, answer: str) -> None:
    assert extract(text) == answer


def test_the_markers_of_the_step_format_come_after_boxes() -> None:
    assert extract("Result >> 7", [">>"]) == "7"
    assert extract("\\boxed{3}\nResult >> 7", [">>"]) == "3"


def test_an_unclosed_box_holds_an_answer_only_in_a_gold_text() -> None:
    assert extract("so \\boxed{12", gold=True) == "12"
    assert extract("so \\boxed{12") != "12"


@pytest.mark.parametrize("piece", ["\\boxed{", "$", "\\[", "\\(", "answer is ", "(", "1 + ", "a, ", "#### "])
def test_extraction_takes_linear_time(piece: str) -> None:
    def seconds(count: int) -> float:
        start = time.process_time()
        extract(piece * count)
        return time.process_time() - start

    seconds(100)
    assert seconds(40_000) < 10  # quadratic would be minutes


def test_where_to_look_first_is_a_setting() -> None:
    text = "The answer is 4. So \\boxed{5}.\n#### 6"
    assert extract(text) == "5"
    assert extract(text, places=("hashes", "boxes")) == "6"
    assert extract(text, places=("phrases",)) == "4"
    assert extract("nothing here", places=("boxes",)) == ""
    policy = CheckPolicy(extraction=("phrases", "boxes"))
    assert check(text, "4", policy).verdict is Verdict.CORRECT
    assert AnswerChecker(policy=policy).judge(make_problem("q", "4"), text).answer == "4"
    assert AnswerChecker().judge(make_problem("q", "5"), text).verdict is Verdict.CORRECT


@pytest.mark.parametrize("places", [(), ("boxes", "boxes")])
def test_places_are_named_once(places: tuple[Place, ...]) -> None:
    with pytest.raises(ValueError, match="each once"):
        CheckPolicy(extraction=places)
