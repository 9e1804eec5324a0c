from hypothesis import given, settings
from hypothesis import strategies as st
from support.folders import rollouts_of
from support.strategies import trees

from treeforge.tree import Finish, TreeBuilder
from treeforge.value import estimate
from treeforge.verdict import Verdict
from treeforge.view import BestPath, best_path
from treeforge.view.best import WorstPath, worst_path


def found(tree):
    return best_path(tree, estimate(tree), rollouts_of(tree))


def leaf(builder, parent, verdict):
    return builder.add(parent, "7", finish=Finish.ANSWERED, answer="7", verdict=verdict)


@given(trees())
@settings(deadline=None)
def test_it_is_the_best_of_all_ways_to_a_correct_end(tree):
    values, rollouts = estimate(tree), rollouts_of(tree)
    best = best_path(tree, values, rollouts)
    correct = tree.verdict == Verdict.CORRECT
    if best is None:
        assert not correct.any()
        assert not tree.rollouts_correct.any()
        return
    # It is a path, and its end is correct.
    last = best.nodes[-1] if best.nodes else 0
    assert list(best.nodes) == tree.path(last)
    if best.rollout is None:
        assert correct[last]
    else:
        assert (best.rollout.node, best.rollout.verdict) == (last, Verdict.CORRECT)
    # No sibling with a higher value leads to a correct end.
    leads = set()
    for row in range(tree.size):
        if correct[row] or tree.rollouts_correct[row]:
            leads |= {0, *tree.path(row)}
    for row in best.nodes:
        siblings = [s for s in range(1, tree.size) if tree.parent[s] == tree.parent[row] and s in leads]
        assert values.value[row] == max(values.value[s] for s in siblings)
    assert not any(tree.parent[s] == last and s in leads for s in range(1, tree.size))


def test_of_equals_the_one_with_more_outcomes_then_the_first():
    builder = TreeBuilder()
    first, second, third = (builder.add(0, text) for text in ("a\n", "b\n", "c\n"))
    for node, outcomes in ((first, 1), (second, 2), (third, 2)):
        builder.rollouts[node] = builder.rollouts_correct[node] = outcomes
    tree = builder.freeze()
    assert found(tree) == BestPath((second,), rollouts_of(tree)[1])


def test_a_high_value_without_a_correct_end_is_no_way():
    builder = TreeBuilder()
    promising = builder.add(0, "a\n")
    builder.rollouts[promising] = 0
    leaf(builder, promising, Verdict.UNDECIDED)
    right = leaf(builder, 0, Verdict.CORRECT)
    assert found(builder.freeze()) == BestPath((right,), None)


def test_rollouts_of_the_root_alone():
    builder = TreeBuilder()
    builder.rollouts[0], builder.rollouts_correct[0] = 2, 1
    best = found(builder.freeze())
    assert best.nodes == ()
    assert best.rollout.verdict == Verdict.CORRECT


@given(st.integers(0, 3))
def test_nothing_correct_is_no_path(wrong):
    builder = TreeBuilder()
    for _ in range(wrong):
        leaf(builder, 0, Verdict.INCORRECT)
    assert found(builder.freeze()) is None


@given(trees())
@settings(deadline=None)
def test_the_worst_path_is_the_worst_of_all_ways_to_a_wrong_end(tree):
    values, rollouts = estimate(tree), rollouts_of(tree)
    worst = worst_path(tree, values, rollouts)
    wrong = (Verdict.INCORRECT, Verdict.NO_ANSWER, Verdict.UNPARSABLE)
    own = tree.rollouts - tree.rollouts_correct - tree.rollouts_undecided
    leads = set()
    for row in range(tree.size):
        if tree.verdict[row] in wrong or own[row] > 0:
            leads |= {0, *tree.path(row)}
    if worst is None:
        assert not leads
        return
    last = worst.nodes[-1] if worst.nodes else 0
    assert list(worst.nodes) == tree.path(last)
    if worst.rollout is None:
        assert tree.verdict[last] in wrong
    else:
        assert worst.rollout.node == last
        assert worst.rollout.verdict in wrong
    for row in worst.nodes:
        siblings = [s for s in range(1, tree.size) if tree.parent[s] == tree.parent[row] and s in leads]
        assert values.value[row] == min(values.value[s] for s in siblings)
    assert not any(tree.parent[s] == last and s in leads for s in range(1, tree.size))


def test_of_equally_bad_ones_too_the_one_with_more_outcomes():
    builder = TreeBuilder()
    for outcomes in (1, 3, 3):
        node = builder.add(0, f"{outcomes} {builder.size}\n")
        builder.rollouts[node] = outcomes
    tree = builder.freeze()
    assert worst_path(tree, estimate(tree), rollouts_of(tree)) == WorstPath((2,), rollouts_of(tree)[1])


def test_where_all_is_right_there_is_no_worst_path():
    builder = TreeBuilder()
    leaf(builder, 0, Verdict.CORRECT)
    leaf(builder, 0, Verdict.UNDECIDED)
    tree = builder.freeze()
    assert worst_path(tree, estimate(tree), rollouts_of(tree)) is None
