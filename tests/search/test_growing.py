"""How samples become nodes and rollouts."""

import math

import pytest
from support.runs import EqualStringJudge, problems

from treeforge.config import Recipe, SearchConfig, StepsConfig
from treeforge.sample import Sample
from treeforge.search.growing import GrowingTree, request_base
from treeforge.tree import Finish
from treeforge.verdict import Judgement, Verdict

STEPS = StepsConfig(preset="custom", delimiter="\n", answer_markers=("The answer is",))


def growing(judge=None, **search):
    recipe = Recipe(steps=STEPS, search=SearchConfig(**search))
    return GrowingTree(0, problems(2)[1], recipe, judge or EqualStringJudge(), request_base(recipe, {}))


RIGHT, WRONG = "The answer is 2.", "The answer is 3."


def test_first_steps_become_children_and_the_rest_their_rollouts():
    tree = growing()
    samples = [
        Sample(f"a\nb\n{RIGHT}", "stop", 9),
        Sample(f"a\n{WRONG}", "stop", 5),
        Sample(f"c\n{RIGHT}", "stop", 5),
        Sample(RIGHT, "stop", 4),
    ]
    assert tree.absorb(0, samples) == (4, 3, [1, 2, 3])
    frozen = tree.builder.freeze()
    assert frozen.text == ("", "a\n", "c\n", RIGHT)
    assert frozen.multiplicity.tolist() == [1, 2, 1, 1]
    assert frozen.finish.tolist() == [Finish.OPEN, Finish.OPEN, Finish.OPEN, Finish.ANSWERED]
    assert frozen.verdict.tolist() == [-1, -1, -1, Verdict.CORRECT]
    assert frozen.rollouts.tolist() == [0, 2, 1, 0]
    assert frozen.rollouts_correct.tolist() == [0, 1, 1, 0]
    assert frozen.visits.tolist() == [4, 2, 1, 1]
    assert frozen.value_sum.tolist() == [3, 1, 1, 1]
    assert [(r.node, r.steps, r.answer) for r in tree.rollouts] == [
        (1, ("b\n", RIGHT), "2"),
        (1, (WRONG,), "3"),
        (2, (RIGHT,), "2"),
    ]
    assert tree.tokens == 23


def test_visits_reach_the_root_from_a_deep_node():
    tree = growing()
    tree.absorb(0, [Sample(f"a\n{RIGHT}", "stop")])
    tree.absorb(1, [Sample(f"b\n{WRONG}", "stop"), Sample(f"d\n{RIGHT}", "stop")])
    assert tree.builder.visits == [3, 3, 1, 1]
    assert tree.builder.value_sum == [2, 2, 0, 1]


def test_duplicates_stay_apart_where_merging_is_off():
    tree = growing(merge_duplicates=False)
    tree.absorb(0, [Sample(f"a\n{RIGHT}", "stop")] * 3)
    assert tree.builder.multiplicity == [1, 1, 1, 1]
    digests = {tree.request(row, "step", 1, 0).digest for row in (1, 2, 3)}
    seeds = {tree.request(row, "step", 1, 0).seed for row in (1, 2, 3)}
    assert len(digests) == len(seeds) == 3


def test_requests_differ_by_node_mode_and_index_and_repeat_exactly():
    def requests():
        tree = growing()
        tree.absorb(0, [Sample(f"a\n{RIGHT}", "stop"), Sample(f"b\n{RIGHT}", "stop")])
        return [
            tree.request(row, mode, 4, index) for row in (0, 1, 2) for mode in ("step", "rollout") for index in (0, 1)
        ]

    first, second = requests(), requests()
    assert [r.digest for r in first] == [r.digest for r in second]
    assert len({r.digest for r in first}) == len({r.seed for r in first}) == 12
    assert [r.prefix for r in first[::4]] == ["", "a\n", "b\n"]


def test_an_engine_error_counts_nowhere_and_is_kept():
    tree = growing()
    assert tree.absorb(0, [Sample("HTTP 500", "error")] * 2) == (0, 0, [])
    assert tree.builder.freeze().rollouts.tolist() == [0]
    assert [(r.finish, r.verdict, r.answer) for r in tree.rollouts] == [(Finish.ERROR, -1, "HTTP 500")] * 2


def test_an_empty_completion_is_a_wrong_rollout_of_the_node_itself():
    tree = growing()
    assert tree.absorb(0, [Sample("", "stop"), Sample(" \n", "stop")]) == (2, 0, [])
    assert tree.builder.rollouts == [2]
    assert [r.verdict for r in tree.rollouts] == [Verdict.NO_ANSWER] * 2


def test_truncation_is_flagged_and_counts_as_wrong():
    tree = growing()
    assert tree.absorb(0, [Sample("a\nb", "length"), Sample("c", "length")]) == (2, 0, [1, 2])
    frozen = tree.builder.freeze()
    assert frozen.rollouts_truncated.tolist() == [0, 1, 0]
    assert frozen.finish.tolist() == [Finish.OPEN, Finish.OPEN, Finish.TRUNCATED]


def test_same_text_with_another_ending_is_another_node():
    tree = growing()
    tree.absorb(0, [Sample("c", "length"), Sample("c", "stop"), Sample("c", "stop")])
    assert tree.builder.finish[1:] == [Finish.TRUNCATED, Finish.STOP]
    assert tree.builder.multiplicity[1:] == [1, 2]


def test_a_stop_right_after_a_delimiter_is_an_open_node_with_a_wrong_rollout():
    tree = growing()
    tree.absorb(0, [Sample("a\n", "stop"), Sample(f"a\n{RIGHT}", "stop")])
    assert tree.builder.finish == [Finish.OPEN, Finish.OPEN]
    assert (tree.builder.rollouts, tree.builder.rollouts_correct) == ([0, 2], [0, 1])


def test_undecided_answers_widen_but_do_not_count():
    class Undecided:
        def judge(self, problem, text):
            return Judgement(Verdict.UNDECIDED, "x", "limit")

    tree = growing(Undecided())
    assert tree.absorb(0, [Sample(f"a\n{RIGHT}", "stop")])[:2] == (0, 0)
    assert tree.builder.rollouts_undecided == [0, 1]
    assert tree.builder.visits == [0, 0]


def test_costs_are_split_between_node_and_rollout():
    tree = growing()
    tree.absorb(
        0, [Sample(f"a\n{RIGHT}", "stop", 10, -3.0, (4, 6), (-1.0, -2.0)), Sample("bb\nThe answer is 4", "stop", 9)]
    )
    assert tree.builder.token_count[1:] == [4, round(9 * 3 / 18)]
    assert tree.builder.logprob[1] == -1.0
    assert math.isnan(tree.builder.logprob[2])
    assert [r.tokens for r in tree.rollouts] == [6, 7]
    assert tree.rollouts[0].logprob == -2.0


@pytest.mark.parametrize("depth", [1, 3])
def test_trajectories_longer_than_max_steps_are_truncated(depth):
    tree = growing(max_steps=depth, max_depth=depth, levels=depth)
    tree.absorb(0, [Sample("".join(f"s{i}\n" for i in range(depth)) + RIGHT, "stop")])
    assert tree.builder.rollouts_truncated[1] == 1
    assert tree.rollouts[0].finish == Finish.TRUNCATED
