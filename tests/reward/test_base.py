"""Windows, aggregates and scores of solutions, with a reward model that is a plain function."""

import numpy as np
import pytest

from treeforge.errors import ConfigError
from treeforge.reward.base import (
    SolutionScores,
    Window,
    check_aggregate,
    default_aggregate,
    score_solutions,
    windows_of,
)

STEPS = ["a\n", "b\n", "c\n"]


class Counting:
    """Says of a window the share of its last letter in the alphabet, and remembers what it was asked."""

    name, identity = "counting", "0"

    def __init__(self, task):
        self.task, self.asked = task, []

    def probabilities(self, windows):
        self.asked += windows
        return np.array([(ord(window.current.strip()[-1]) - ord("a")) / 26 for window in windows])


def test_a_prm_sees_single_steps_with_all_that_stands_before():
    assert windows_of("q", STEPS, "prm") == [
        Window("q", "", "a\n"),
        Window("q", "a\n", "b\n"),
        Window("q", "a\nb\n", "c\n"),
    ]


def test_an_hrm_sees_pairs_as_well():
    pairs = windows_of("q", STEPS, "hrm")[3:]
    assert pairs == [Window("q", "", "a\nb\n"), Window("q", "a\n", "b\nc\n")]


def test_an_orm_sees_the_whole():
    assert windows_of("q", STEPS, "orm") == [Window("q", "", "a\nb\nc\n")]
    assert score_solutions(Counting("orm"), [("q", STEPS)])[0].single == (2 / 26,)


def test_no_steps_no_windows():
    assert windows_of("q", [], "orm") == []
    assert score_solutions(Counting("hrm"), [("q", [])]) == [SolutionScores(())]


def test_a_corrected_mistake_is_not_lost():
    scores = SolutionScores((0.9, 0.1, 0.8), (0.2, 0.7))
    assert scores.hierarchical() == (0.9, 0.7, 0.8)
    assert scores.aggregate("hierarchical") == 0.7
    assert scores.aggregate("min") == 0.1
    assert scores.aggregate("last") == 0.8
    assert scores.aggregate("mean") == pytest.approx(0.6)
    assert scores.aggregate("product") == pytest.approx(0.072)
    assert SolutionScores(scores.single).aggregate("hierarchical") == 0.1


def test_one_step_has_no_pair():
    assert SolutionScores((0.3,)).aggregate("hierarchical") == 0.3
    assert SolutionScores(()).aggregate("mean") == 0


def test_equal_windows_are_asked_once_and_in_parts():
    model = Counting("hrm")
    scores = score_solutions(model, [("q", STEPS), ("q", ["a\n", "b\n", "d\n"]), ("q", STEPS)], at_once=2)
    assert len(model.asked) == len(set(model.asked)) == 7
    assert scores[0] == scores[2]
    assert scores[1].single == (0, 1 / 26, 3 / 26)
    assert scores[1].pairs == (1 / 26, 3 / 26)


@pytest.mark.parametrize("bad", [[0.5], [[0.5]] * 3, [0.1, 0.2, float("nan")], [0.1, 0.2, 1.5]])
def test_a_model_that_gives_no_chances_is_refused(bad):
    model = Counting("prm")
    model.probabilities = lambda windows: np.array(bad)
    with pytest.raises(ConfigError, match="counting"):
        score_solutions(model, [("q", STEPS)])


def test_the_aggregates_have_names():
    assert check_aggregate("mean") == "mean"
    with pytest.raises(ConfigError, match="hierarchical"):
        check_aggregate("median")
    with pytest.raises(ConfigError, match="hierarchical"):
        SolutionScores((0.3,)).aggregate("median")
    assert [default_aggregate(task) for task in ("orm", "prm", "hrm")] == ["last", "min", "hierarchical"]
