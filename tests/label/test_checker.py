"""`AnswerChecker` as a judge in the engine's loop."""

from __future__ import annotations

from treeforge.label import AnswerChecker
from treeforge.problem import make_problem
from treeforge.verdict import Verdict

PROBLEM = make_problem("How many?", "72")


def test_it_judges_the_last_steps_of_a_trajectory() -> None:
    checker = AnswerChecker()
    assert checker.judge(PROBLEM, "So 70 + 2 = 72.\nThe answer is 72.").verdict is Verdict.CORRECT
    assert checker.judge(PROBLEM, "The answer is 73.").verdict is Verdict.INCORRECT
    assert checker.judge(PROBLEM, "Thus \\boxed{72}.").verdict is Verdict.CORRECT
    assert checker.judge(PROBLEM, "").verdict is Verdict.NO_ANSWER


def test_its_own_markers_are_found() -> None:
    checker = AnswerChecker(markers=("==>",))
    assert checker.judge(PROBLEM, "maybe 5 ==> 72").answer == "72"


def test_a_remembered_tail_gives_what_the_whole_text_gives() -> None:
    texts = [
        "a \\boxed{72}.",
        "\\boxed{70} and \\boxed{2}",
        "\\fbox{1} \\boxed{72}",
        "The answer is 72. No: The answer is 7.",
        "\\boxed{72} The answer is 7.",
        "The answer is 7. \\boxed{72}",
        "nothing here",
    ]
    warm = AnswerChecker()
    for _ in range(2):
        for text in texts:
            assert warm.judge(PROBLEM, text) == AnswerChecker().judge(PROBLEM, text)


def test_what_is_remembered_is_bounded() -> None:
    checker = AnswerChecker(cache_size=10)
    for i in range(100):
        checker.judge(PROBLEM, f"The answer is {i}.")
    assert len(checker._cache) <= 10
    checker.judge(PROBLEM, "The answer is 72. " + "And so on. " * 1000)
    assert all(len(tail) < 2000 for tail, _ in checker._cache)


def test_a_marker_with_nothing_after_it_is_no_answer() -> None:
    assert AnswerChecker().judge(PROBLEM, "70 + 2 = 72. The answer is").verdict is not Verdict.CORRECT


def test_statistics_count_what_was_remembered_and_how_the_rest_was_decided() -> None:
    checker = AnswerChecker()
    for answer in ("72", "72", "72.0", "73", "144/2", "\\sqrt{5184}"):
        checker.judge(PROBLEM, f"The answer is {answer}.")
    found = checker.statistics
    assert (found.hits, found.checks) == (1, 5)
    assert sum(found.routes.values()) == sum(found.verdicts.values()) == 5
    assert found.verdicts == {"correct": 4, "incorrect": 1}
    assert found.slowest == sorted(found.slowest, reverse=True)
