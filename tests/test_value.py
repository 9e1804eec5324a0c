"""Values: by hand, against a plain recursive oracle, and against simulation."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.strategies import trees

from treeforge.errors import ConfigError
from treeforge.evidence import Evidence
from treeforge.tree import Finish, Tree, TreeBuilder
from treeforge.value import estimate, wilson
from treeforge.verdict import NO_VERDICT, Verdict

ESTIMATORS = ("policy_mean", "leaf_share")


def hand_drawn() -> Tree:
    """A tree whose values are worked out in the tests.

    root
    ├── a  m=3, 3 own rollouts, 1 correct
    │   ├── c  answered, correct
    │   └── d  answered, undecided
    ├── b  answered, incorrect
    ├── e  truncated
    └── f  engine error
    """
    builder = TreeBuilder()
    a = builder.add(0, "a\n")
    builder.multiplicity[a], builder.rollouts[a], builder.rollouts_correct[a] = 3.0, 3, 1
    builder.add(0, "b\n", finish=Finish.ANSWERED, verdict=Verdict.INCORRECT)
    builder.add(a, "c\n", finish=Finish.ANSWERED, verdict=Verdict.CORRECT)
    builder.add(a, "d\n", finish=Finish.ANSWERED, verdict=Verdict.UNDECIDED)
    builder.add(0, "e\n", finish=Finish.TRUNCATED, verdict=Verdict.NO_ANSWER)
    builder.add(0, "f\n", finish=Finish.ERROR)
    return builder.freeze()


ROOT, A, B, C, D, E, F = range(7)


def evidence(parent: list[int], multiplicity: list[float], rollouts: list[int], correct: list[int]) -> Evidence:
    """A forest of open nodes with own rollouts only; parents stand before children."""
    n = len(parent)
    depth = np.zeros(n, dtype=np.int16)
    for row, above in enumerate(parent):
        depth[row] = 0 if above < 0 else depth[above] + 1
    none = np.zeros(n, dtype=np.int32)
    return Evidence(
        parent=np.array(parent, dtype=np.int32),
        depth=depth,
        multiplicity=np.array(multiplicity),
        finish=np.zeros(n, dtype=np.int8),
        verdict=np.full(n, NO_VERDICT, dtype=np.int8),
        rollouts=np.array(rollouts, dtype=np.int32),
        rollouts_correct=np.array(correct, dtype=np.int32),
        rollouts_undecided=none,
        rollouts_truncated=none,
        visits=none,
        value_sum=np.zeros(n),
    )


def test_policy_mean_by_hand() -> None:
    values = estimate(hand_drawn(), "policy_mean")
    assert values.value[A] == pytest.approx((1 + 1) / (3 + 1))
    assert values.value[ROOT] == pytest.approx((3 * 0.5 + 0 + 0) / (3 + 1 + 1))
    assert values.value[[B, C, E]].tolist() == [0, 1, 0]
    assert np.isnan(values.value[[D, F]]).all()
    # Var a = (1·¼ + 2·¼ + 1·¼) / (4·3); root: (3·(.04 + 2·Var a) + .09 + .09) / (5·4).
    assert values.stderr[A] == pytest.approx(math.sqrt(1 / 12))
    assert values.stderr[ROOT] == pytest.approx(0.2)
    assert values.rollouts.tolist() == [6, 4, 1, 1, 0, 1, 0]
    assert values.undecided.tolist() == [1, 1, 0, 0, 1, 0, 0]


def test_leaf_share_by_hand() -> None:
    values = estimate(hand_drawn(), "leaf_share")
    assert values.value[A] == pytest.approx(2 / 4)
    assert values.value[ROOT] == pytest.approx(2 / 6)
    low, high = wilson(np.array([2 / 7, 3 / 7]), np.array([7.0, 7.0]), 0.9)
    assert (values.low[ROOT], values.high[ROOT]) == pytest.approx((low[0], high[1])), "d counted wrong, counted right"


def test_visit_mean_is_what_the_search_saw() -> None:
    tree = hand_drawn()
    visits, value_sum = np.array([6, 4, 1, 1, 0, 1, 0], dtype=np.int32), np.array([3.0, 2, 0, 1, 0, 0, 0])
    values = estimate(replace(tree, visits=visits, value_sum=value_sum), "visit_mean")
    assert values.value[[ROOT, A, B, C, E]].tolist() == [0.5, 0.5, 0, 1, 0]
    assert np.isnan(values.value[[D, F]]).all()
    assert values.rollouts.tolist() == [6, 4, 1, 1, 0, 1, 0]
    assert values.undecided.tolist() == [1, 1, 0, 0, 1, 0, 0]
    assert values.stderr[ROOT] == pytest.approx(math.sqrt(0.25 / 6))
    low, high = wilson(np.array([3 / 7, 4 / 7]), np.array([7.0, 7.0]), 0.9)
    assert (values.low[ROOT], values.high[ROOT]) == pytest.approx((low[0], high[1])), "d counted wrong, counted right"
    assert np.isnan(estimate(tree, "visit_mean").value[A]), "a compressed tree has no visits"


@settings(deadline=None)
@given(tree=trees())
def test_visit_mean_of_searched_completions_is_their_share(tree: Tree) -> None:
    """Where all completions were backed up, W/N is the share of right ones among what was decided at or below."""
    share = estimate(tree, "leaf_share")
    known = ~np.isnan(share.value)
    right = np.where(known, share.value * share.rollouts, 0.0)
    visits = estimate(replace(tree, visits=share.rollouts.astype(np.int32), value_sum=right), "visit_mean")
    for name in ("value", "rollouts", "undecided", "stderr", "low", "high"):
        np.testing.assert_allclose(getattr(visits, name), getattr(share, name), atol=1e-6)


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_a_prefix_that_stands_for_no_sample_tells_its_parents_nothing(estimator: str) -> None:
    """`omega`: a cut rollout stays an own rollout of where it started, and its steps have multiplicity 0."""
    builder = TreeBuilder()
    a = builder.add(0, "a\n")
    end = builder.add(a, "b", finish=Finish.ANSWERED, verdict=Verdict.INCORRECT)
    for row, rollouts, correct in ((0, 4, 2), (a, 4, 3)):
        builder.rollouts[row], builder.rollouts_correct[row] = rollouts, correct
    builder.multiplicity[a] = builder.multiplicity[end] = 0.0
    values = estimate(builder.freeze(), estimator)  # type: ignore[arg-type]
    assert values.value[[a, end]].tolist() == [0.75, 0]
    assert values.value[ROOT] == (0.5 if estimator == "policy_mean" else 5 / 8)
    behind = 4 if estimator == "policy_mean" else 8
    assert values.rollouts.tolist() == [behind, 4, 1], "the cut rollout counts once, and only where it is in the value"
    assert (values.low[end], values.high[end]) == (0, 0)


def test_truncated_trajectories_can_be_left_out() -> None:
    assert estimate(hand_drawn(), "policy_mean", truncated="skip").value[ROOT] == pytest.approx(1.5 / 4)
    leaf_share = estimate(hand_drawn(), "leaf_share", truncated="skip")
    assert leaf_share.value[ROOT] == pytest.approx(2 / 5)
    assert np.isnan(leaf_share.value[E])
    assert leaf_share.rollouts[ROOT] == 5


def test_interval_of_what_is_known_exactly_and_not_at_all() -> None:
    for estimator in ESTIMATORS:
        values = estimate(hand_drawn(), estimator)
        assert (values.low[C], values.high[C], values.low[B], values.high[B]) == (1, 1, 0, 0)
        assert (values.low[D], values.high[D], values.low[F], values.high[F]) == (0, 1, 0, 1)
        step = values.at(A)
        assert (step.value, step.rollouts, step.estimator) == (0.5, 4, estimator)
        assert 0 < step.low < 0.5 < step.high < 1


def test_an_engine_error_counts_nowhere() -> None:
    """Not as an outcome, not as a draw, and not through rollouts that someone hung on it."""
    tree = hand_drawn()
    counts = {name: getattr(tree, name).copy() for name in ("rollouts", "rollouts_undecided", "rollouts_correct")}
    for column, count in zip(counts.values(), (5, 1, 4), strict=True):
        column[F] = count
    for estimator in ESTIMATORS:
        with_error, without = estimate(replace(tree, **counts), estimator), estimate(tree, estimator)
        assert np.isnan(with_error.value[F])
        for name in ("value", "rollouts", "undecided", "stderr", "low", "high"):
            np.testing.assert_array_equal(getattr(with_error, name), getattr(without, name))


def test_wilson_matches_the_published_interval() -> None:
    low, high = wilson(np.array([0.5, 0.0]), np.array([10.0, 10.0]), 0.95)
    assert low == pytest.approx([0.2366, 0.0], abs=1e-4)
    assert high == pytest.approx([0.7634, 0.2775], abs=1e-4)


@pytest.mark.parametrize("correct", [0, 3, 8])
def test_own_rollouts_alone_are_a_binomial_sample(correct: int) -> None:
    values = estimate(evidence([-1], [1.0], [8], [correct]), "policy_mean", confidence=0.8)
    low, high = wilson(np.array([correct / 8]), np.array([8.0]), 0.8)
    assert (values.low[0], values.high[0]) == pytest.approx((low[0], high[0]))


def test_one_draw_tells_little_however_much_is_known_below_it() -> None:
    """1,000 rollouts below the only first step that was drawn say nothing of other first steps."""
    values = estimate(evidence([-1, 0], [1.0, 1.0], [0, 1000], [0, 500]))
    low, high = wilson(np.array([0.5]), np.array([1.0]), 0.9)
    assert (values.low[0], values.high[0]) == pytest.approx((low[0], high[0]))
    assert values.high[1] - values.low[1] < 0.06


@pytest.mark.parametrize("estimator", ["human", "mean"])
def test_other_estimators_are_refused(estimator: str) -> None:
    with pytest.raises(ConfigError, match="must be policy_mean, leaf_share, visit_mean"):
        estimate(hand_drawn(), estimator)  # type: ignore[arg-type]


def test_impossible_options_are_refused() -> None:
    with pytest.raises(ConfigError, match="confidence"):
        estimate(hand_drawn(), confidence=1.0)
    with pytest.raises(ConfigError, match="wrong or skip"):
        estimate(hand_drawn(), truncated="drop")  # type: ignore[arg-type]


def oracle(tree: Tree, *, skip: bool) -> dict[str, list[float]]:
    """The two estimators as one would write them down first: recursive, a node at a time, from the definitions."""
    n, children = tree.size, tree.children()
    out: dict[str, list[float]] = {name: [math.nan] * n for name in ("policy_mean", "leaf_share", "variance")}
    right, all_ = [0.0] * n, [0.0] * n
    for row in reversed(range(n)):
        if tree.finish[row] == Finish.ERROR:
            continue
        if tree.verdict[row] != NO_VERDICT:
            if tree.verdict[row] != Verdict.UNDECIDED and not (skip and tree.finish[row] == Finish.TRUNCATED):
                all_[row] = tree.multiplicity[row]
                right[row] = all_[row] * (tree.verdict[row] == Verdict.CORRECT)
                out["policy_mean"][row] = out["leaf_share"][row] = float(tree.verdict[row] == Verdict.CORRECT)
                out["variance"][row] = 0.0
            continue
        c = int(tree.rollouts_correct[row])
        r = int(tree.rollouts[row] - tree.rollouts_undecided[row]) - (int(tree.rollouts_truncated[row]) if skip else 0)
        draws = [(1.0, 1.0, 0.0)] * c + [(1.0, 0.0, 0.0)] * (r - c)
        right[row], all_[row] = float(c), float(r)
        for child in children[row]:
            right[row], all_[row] = right[row] + right[child], all_[row] + all_[child]
            if not math.isnan(out["policy_mean"][child]):
                draws.append((float(tree.multiplicity[child]), out["policy_mean"][child], out["variance"][child]))
        if draws:
            m = sum(draw[0] for draw in draws)
            v = sum(draw[0] * draw[1] for draw in draws) / m
            w = [draw[0] / m for draw in draws]
            out["policy_mean"][row], out["leaf_share"][row] = v, right[row] / all_[row]
            spread = sum(draw[0] * (draw[1] - v) ** 2 for draw in draws)
            within = sum(wk * (wk - 1 / m) * draw[2] for wk, draw in zip(w, draws, strict=True))
            out["variance"][row] = spread / (m - 1) / m + m / (m - 1) * within if m > 1 else v * (1 - v)
    return out


@settings(deadline=None)
@given(tree=trees(), skip=st.booleans())
def test_estimates_agree_with_the_oracle(tree: Tree, skip: bool) -> None:
    expected = oracle(tree, skip=skip)
    for estimator in ESTIMATORS:
        values = estimate(tree, estimator, truncated="skip" if skip else "wrong")
        np.testing.assert_allclose(values.value, expected[estimator], atol=1e-12)
        known = ~np.isnan(values.value)
        assert (values.low[known] <= values.value[known]).all()
        assert (values.value[known] <= values.high[known]).all()
        assert ((values.rollouts > 0) == known).all()
    np.testing.assert_allclose(
        estimate(tree, truncated="skip" if skip else "wrong").stderr, np.sqrt(expected["variance"]), atol=1e-7
    )


@settings(deadline=None)
@given(forest=st.lists(trees(max_nodes=12), min_size=2, max_size=3))
def test_many_trees_at_once_give_the_same_bits(forest: list[Tree]) -> None:
    for estimator in ESTIMATORS:
        together = estimate(Evidence.of(*forest), estimator)
        start = 0
        for tree in forest:
            alone, rows = estimate(tree, estimator), slice(start, start + tree.size)
            for name in ("value", "rollouts", "undecided", "stderr", "low", "high"):
                np.testing.assert_array_equal(getattr(together, name)[rows], getattr(alone, name), strict=True)
            start += tree.size


@settings(deadline=None)
@given(tree=trees())
def test_undecided_outcomes_only_widen_the_interval(tree: Tree) -> None:
    """Deciding every undecided outcome, either way, gives a value inside the interval."""
    wide = estimate(tree)
    for right in (0, 1):
        decided = Evidence.of(tree)
        undecided = decided.rollouts_undecided
        resolved = Evidence(
            **{name: getattr(decided, name) for name in Evidence.__dataclass_fields__}
            | {
                "verdict": np.where(decided.verdict == Verdict.UNDECIDED, right, decided.verdict).astype(np.int8),
                "rollouts_correct": decided.rollouts_correct + right * undecided,
                "rollouts_undecided": np.zeros_like(undecided),
            }
        )
        values = estimate(resolved)
        known = ~np.isnan(values.value)
        assert (wide.low[known] - 1e-12 <= values.value[known]).all()
        assert (values.value[known] <= wide.high[known] + 1e-12).all()


def two_stage_forest(rng: np.random.Generator, trees: int, draws: int, per_draw: int) -> Evidence:
    """Nodes that were asked `draws` times; equal answers are merged; `per_draw` rollouts follow each draw."""
    chance, true = np.array([0.5, 0.3, 0.2]), np.array([0.9, 0.5, 0.1])
    parent: list[int] = []
    multiplicity: list[float] = []
    rollouts: list[int] = []
    correct: list[int] = []
    for _ in range(trees):
        root = len(parent)
        parent.append(-1)
        multiplicity.append(1.0)
        rollouts.append(0)
        correct.append(0)
        for m, v in zip(rng.multinomial(draws, chance).tolist(), true, strict=True):
            if m:
                parent.append(root)
                multiplicity.append(float(m))
                rollouts.append(m * per_draw)
                correct.append(int(rng.binomial(m * per_draw, v)))
    return evidence(parent, multiplicity, rollouts, correct)


def test_two_stage_variance_is_unbiased() -> None:
    forest = two_stage_forest(np.random.default_rng(0), trees=8000, draws=6, per_draw=2)
    values = estimate(forest)
    roots = forest.parent < 0
    claimed, real = (values.stderr[roots] ** 2).mean(), values.value[roots].var()
    assert claimed == pytest.approx(real, rel=0.05)
    share = estimate(forest, "leaf_share")
    assert (share.stderr[roots] ** 2).mean() < 0.8 * real, "as if leaves under one child were independent"


def test_intervals_cover_where_children_differ() -> None:
    """Nominal 90%. Few draws with many rollouts each are the hard case: the draws may all fall on one kind."""
    forest = two_stage_forest(np.random.default_rng(1), trees=2000, draws=4, per_draw=8)
    values = estimate(forest)
    roots = forest.parent < 0
    truth = 0.5 * 0.9 + 0.3 * 0.5 + 0.2 * 0.1
    assert ((values.low <= truth) & (truth <= values.high))[roots].mean() > 0.88


def test_a_tree_of_a_thousand_levels() -> None:
    n = 1000
    values = estimate(evidence(list(range(-1, n - 1)), [1.0] * n, [0] * (n - 1) + [4], [0] * (n - 1) + [1]))
    assert (values.value == 0.25).all()
    assert (values.rollouts == 4).all()
