"""How samples become nodes and rollouts."""

import math

import pytest
from support.runs import EqualStringJudge, problems

from treeforge.config import Recipe, SearchConfig, StepsConfig
from treeforge.policy.steps import step_costs
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


def test_a_request_is_the_same_however_its_prefix_came_about():
    """Step by step, as a path of a whole solution, or as a prefix cut out of a rollout."""
    sample = Sample(f"a\nb\n{RIGHT}", "stop", 9)
    trees = [growing() for _ in range(3)]
    trees[0].absorb(0, [sample])
    trees[0].request(1, "rollout", 1, 0)
    trees[0].absorb(1, [Sample(f"b\n{RIGHT}", "stop")])
    trees[1].absorb_solutions([sample])
    trees[2].absorb(0, [sample], as_rollouts=True)
    node = trees[2].prefix_node(trees[2].prefix_node(0, "a\n", 1, -1.0), "b\n", 1, -1.0)
    assert node == trees[2].prefix_node(1, "b\n", 1, -1.0) == 2, "found again"
    assert trees[2].builder.multiplicity == [1, 0, 0]
    assert len({(r.digest, r.seed, r.prefix) for r in (tree.request(2, "rollout", 4, 1) for tree in trees)}) == 1


def test_a_purpose_of_its_own_has_seeds_of_its_own():
    tree = growing()
    requests = [tree.request(0, "rollout", 4, 0, purpose) for purpose in ("", "rollout", "screen")]
    assert requests[0] == requests[1]
    assert requests[0].seed != requests[2].seed
    assert requests[0].digest != requests[2].digest


def test_a_path_of_thousands_of_steps_can_be_asked_from():
    tree = growing(max_steps=5000)
    tree.absorb_solutions([Sample("".join(f"s{i}\n" for i in range(4000)) + RIGHT, "stop", 4001)])
    assert tree.builder.size == 4002
    assert tree.request(4000, "rollout", 1, 0).prefix.endswith("s3999\n")


def test_outcomes_count_without_changing_the_tree():
    tree = growing()
    samples = [Sample(f"a\n{RIGHT}", "stop"), Sample(WRONG, "stop"), Sample("", "stop"), Sample("HTTP 500", "error")]
    assert tree.outcomes(samples) == (1, 2, 0)
    assert (tree.samples, tree.builder.size, tree.rollouts, tree.errors) == (0, 1, [], [])


def test_visits_in_flight_are_taken_back_also_where_nothing_was_judged():
    tree = growing()
    tree.builder.visits[0] = 4
    tree.absorb(0, [Sample("HTTP 500", "error")] * 4, in_flight=4)
    assert tree.builder.visits == [0]


def test_step_costs_are_shared_out_by_characters_where_the_policy_does_not_say():
    steps = ["aaaa\n", "b\n", "ccc"]
    assert step_costs(Sample("", "stop", 20), steps)[0] == [10, 4, 6]
    assert step_costs(Sample("", "stop", 20, -7.0, (7, 8, 5), (-1.0, -4.0, -2.0)), steps) == ([7, 8, 5], [-1, -4, -2])
    assert step_costs(Sample("", "stop", 20, -7.0), ["abc"]) == ([20], [-7.0])
    assert step_costs(Sample("", "stop"), []) == ([], [])
