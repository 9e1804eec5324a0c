"""Hierarchical Node Compression: a golden tree, and what must hold for every tree."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from support.hand_drawn import A1, A2, A3, A4, B1, B2, B3, B4, A, B, C, D, G, P, hand_drawn
from support.strategies import same, trees

from treeforge.compress import Compressed, CompressReport, compress, total
from treeforge.config import CompressConfig
from treeforge.errors import TreeError
from treeforge.evidence import Evidence, Levels, leaf_share, outcomes
from treeforge.tree import TREE_FIELDS, Finish, Tree, TreeBuilder
from treeforge.value import estimate
from treeforge.verdict import NO_VERDICT

ESTIMATORS = ("policy_mean", "leaf_share")
FIRST_CHILD = CompressConfig(probability=1.0, rule="paper")
"""Every eligible node merges with its first evaluated child."""

configs = st.builds(
    CompressConfig,
    probability=st.sampled_from([0.5, 1.0]),
    rule=st.sampled_from(["uniform", "paper"]),
    seed=st.integers(0, 9),
    min_children=st.sampled_from([2, 4]),
    max_label_shift=st.sampled_from([1.0, 0.1]),
    target_noise=st.sampled_from([0.0, 0.0, 0.02]),
)
options = {"estimator": st.sampled_from(ESTIMATORS), "truncated": st.sampled_from(["wrong", "skip"])}


def merged(compressed: Compressed) -> dict[int, int]:
    """The merges of a compressed tree: p -> x."""
    return {rows[0]: rows[1] for rows in compressed.tree.merged_from if rows}


@pytest.mark.parametrize("estimator", ESTIMATORS)
def test_golden_tree(estimator: Any) -> None:
    """g has one child and stays; p merges with a; a has moved, so it stays; b merges with b1.

    root
    └── g
        ├── p
        │   ├── b
        │   │   ├── b2, b3, b4
        │   ├── b+b1
        │   ├── c
        │   └── d
        └── p+a
            └── a1, a2, a3, a4
    """
    tree = hand_drawn()
    compressed = compress(tree, FIRST_CHILD, key="golden", estimator=estimator, threshold=0.45)
    after = compressed.tree
    after.check()
    assert after.children() == [
        [G],
        [P, A],
        [B, C, D, B1],
        [A1, A2, A3, A4],
        [B2, B3, B4],
        *[[] for _ in range(10)],
    ]
    assert (after.text[A], after.text[B1]) == ("p\na\n", "b\nb1\n")
    assert after.prefix(A4) == "g\np\na\na4\n"
    assert (after.depth[A], after.depth[A4], after.depth[B1], after.depth[B2]) == (2, 3, 3, 4)
    assert (after.token_count[A], after.logprob[A]) == (2 + 3, -(2 + 3))
    assert {row: origin for row, origin in enumerate(after.merged_from) if origin} == {A: (P, A), B1: (B, B1)}
    assert not after.visits.any()
    assert not after.value_sum.any()
    assert np.isnan(after.prior).all()

    before, values = estimate(tree, estimator).value, estimate(after, estimator).value
    others = np.setdiff1d(np.arange(tree.size), [P, B])
    np.testing.assert_allclose(values[others], before[others], atol=1e-12)
    if estimator == "policy_mean":
        assert (before[P], values[P]) == pytest.approx((0.5, (0.25 + 0 + 1) / 3))
        assert after.multiplicity[[P, A, B, B1]].tolist() == [3.0, 1.0, 0.75, 0.25]
        shifts = [1 / 12, 1 / 4]
    else:
        assert (before[P], values[P]) == pytest.approx((5 / 10, 2 / 6))
        assert same(after.multiplicity, tree.multiplicity)
        shifts = [1 / 6, 1 / 4]
    assert (before[B], values[B]) == (0.25, 0.0)
    assert np.flatnonzero(compressed.shifted).tolist() == [P, B]
    report = compressed.report
    assert report == CompressReport(
        trees=1,
        nodes=15,
        evaluated=14,
        eligible=2,
        merges=2,
        changed=2,
        hard_flips=1,
        shift_sum=report.shift_sum,
        shift_max=report.shift_max,
        observed_sum=report.observed_sum,
        observed_max=report.observed_max,
        by_depth=report.by_depth,
    )
    assert (report.observed_sum, report.observed_max) == pytest.approx((report.shift_sum, report.shift_max))
    assert {depth: found.merges for depth, found in report.by_depth.items()} == {2: 1, 3: 1}
    assert sum(found.shift_sum for found in report.by_depth.values()) == pytest.approx(report.shift_sum)
    assert (report.shift_sum, report.shift_max) == pytest.approx((sum(shifts), max(shifts)))
    assert (report.mean_shift, report.noise) == pytest.approx((sum(shifts) / 2, sum(shifts) / 14))


def test_merges_that_shift_too_far_are_refused() -> None:
    config = CompressConfig(probability=1.0, rule="paper", max_label_shift=0.1)
    compressed = compress(hand_drawn(), config, key="golden")
    assert merged(compressed) == {P: A}
    assert (compressed.report.eligible, compressed.report.refused) == (2, 1)


@settings(deadline=None)
@given(tree=trees(), config=configs, **options)
def test_only_merged_nodes_change_their_value(
    tree: Tree, config: CompressConfig, estimator: Any, truncated: Any
) -> None:
    compressed = compress(tree, config, key="k", estimator=estimator, truncated=truncated)
    before = estimate(tree, estimator, truncated=truncated).value
    after = estimate(compressed.tree, estimator, truncated=truncated).value
    others = np.setdiff1d(np.arange(tree.size), list(merged(compressed)))
    np.testing.assert_allclose(after[others], before[others], atol=1e-9)
    assert (np.isnan(after) == np.isnan(before)).all()

    shift = np.nan_to_num(np.abs(after - before))
    assert (shift <= config.max_label_shift + 1e-9).all()
    assert ((shift > 1e-9) == compressed.shifted).all()
    assert compressed.report.shift_sum == pytest.approx(shift.sum(), abs=1e-9)
    assert compressed.report.shift_max == pytest.approx(shift.max(), abs=1e-9)
    assert compressed.report.changed == compressed.shifted.sum() <= compressed.report.merges == len(merged(compressed))


@settings(deadline=None)
@given(tree=trees(), config=configs)
def test_leaf_share_moves_by_the_formula(tree: Tree, config: CompressConfig) -> None:
    compressed = compress(tree, config, key="k", estimator="leaf_share")
    merges = merged(compressed)
    assume(merges)
    evidence = Evidence.of(tree)
    decided = outcomes(evidence, truncated="wrong", undecided="left out")
    means = leaf_share(decided, Levels.of(evidence), evidence.multiplicity)
    after = estimate(compressed.tree, "leaf_share").value
    for p, x in merges.items():
        t, t_x, s, s_x = means.weight[p], means.weight[x], means.value[p], means.value[x]
        assert after[p] - s == pytest.approx(t_x / (t - t_x) * (s - s_x), abs=1e-9)


@settings(deadline=None)
@given(tree=trees(), config=configs, **options)
def test_nothing_is_lost_and_the_tree_is_valid(
    tree: Tree, config: CompressConfig, estimator: Any, truncated: Any
) -> None:
    columns = {name: getattr(tree, name) for name in TREE_FIELDS}
    copies = {name: column.copy() if isinstance(column, np.ndarray) else column for name, column in columns.items()}
    compressed = compress(tree, config, key="k", estimator=estimator, truncated=truncated)
    assert all(same(copies[name], getattr(tree, name)) for name in TREE_FIELDS), "the input has changed"

    after = compressed.tree
    after.check()
    assert [after.prefix(row) for row in range(tree.size)] == [tree.prefix(row) for row in range(tree.size)]
    assert (after.is_leaf == tree.is_leaf).all()
    for name in ("finish", "answer", "verdict", "observation", "rollouts", "rollouts_correct", "rollouts_undecided"):
        assert same(getattr(after, name), getattr(tree, name)), name
    if estimator == "leaf_share":
        assert same(after.multiplicity, tree.multiplicity)
    again = compress(tree, config, key="k", estimator=estimator, truncated=truncated)
    assert all(same(getattr(after, name), getattr(again.tree, name)) for name in TREE_FIELDS)


@settings(deadline=None)
@given(tree=trees(), config=configs, **options)
def test_split_multiplicities_add_up(tree: Tree, config: CompressConfig, estimator: Any, truncated: Any) -> None:
    """p and p+x together stand for as many samples from g as p did."""
    after = compress(tree, config, key="k", estimator=estimator, truncated=truncated)
    for p, x in merged(after).items():
        if estimator == "policy_mean":
            assert after.tree.multiplicity[p] + after.tree.multiplicity[x] == pytest.approx(tree.multiplicity[p])
    untouched = np.setdiff1d(np.arange(tree.size), [row for pair in merged(after).items() for row in pair])
    assert same(after.tree.multiplicity[untouched], tree.multiplicity[untouched])


@settings(deadline=None)
@given(tree=trees(), config=configs)
def test_who_merges_with_whom(tree: Tree, config: CompressConfig) -> None:
    compressed = compress(tree, config, key="k")
    merges, children = merged(compressed), tree.children()
    value = estimate(tree).value
    assert not set(merges) & set(merges.values()), "a node enters at most one merge"
    for p, x in merges.items():
        assert p != 0
        assert tree.parent[x] == p
        assert compressed.tree.parent[x] == tree.parent[p]
        assert len(children[p]) >= config.min_children
        assert not tree.observation[p]
        assert not np.isnan(value[x])
        own = tree.rollouts[p] - tree.rollouts_undecided[p]
        assert own > 0 or sum(not np.isnan(value[child]) for child in children[p]) > 1

    if config.probability == 1 and config.max_label_shift == 1 and not config.target_noise:
        may_merge = {
            p
            for p in range(1, tree.size)
            if p not in merges.values()
            and len(children[p]) >= config.min_children
            and not tree.observation[p]
            and any(not np.isnan(value[x]) for x in children[p])
            and tree.rollouts[p] - tree.rollouts_undecided[p] + sum(not np.isnan(value[x]) for x in children[p]) > 1
        }
        assert set(merges) == may_merge
        assert compressed.report.eligible == len(may_merge)


def fan(nodes: int, children: int = 5) -> Tree:
    """Many nodes of the same kind under the root, each with `children` children of values 0, 1/8, 2/8 …"""
    builder = TreeBuilder()
    for i in range(nodes):
        p = builder.add(0, f"p{i}\n")
        for k in range(children):
            x = builder.add(p, f"x{k}\n")
            builder.rollouts[x], builder.rollouts_correct[x] = 8, k
    return builder.freeze()


def chosen_children(compressed: Compressed) -> Counter[str]:
    tree = compressed.tree
    return Counter(tree.text[x].split("\n")[1] for x in merged(compressed).values())


def test_uniform_rule_merges_by_chance_and_favours_no_child() -> None:
    n, q = 6000, 0.4
    chosen = chosen_children(compress(fan(n), CompressConfig(probability=q), key="uniform"))
    assert sum(chosen.values()) == pytest.approx(n * q, abs=4 * (n * q * (1 - q)) ** 0.5)
    for k in range(5):
        assert chosen[f"x{k}"] == pytest.approx(n * q / 5, abs=4 * (n * q / 5) ** 0.5)


def test_paper_rule_favours_the_first_children() -> None:
    n, q = 6000, 0.4
    chosen = chosen_children(compress(fan(n), CompressConfig(probability=q, rule="paper"), key="paper"))
    for k in range(5):
        expected = n * q * (1 - q) ** k
        assert chosen[f"x{k}"] == pytest.approx(expected, abs=4 * expected**0.5)


@pytest.mark.parametrize("rule", ["uniform", "paper"])
def test_probability_zero_merges_nothing(rule: Any) -> None:
    compressed = compress(fan(50), CompressConfig(probability=0.0, rule=rule), key="none")
    assert (compressed.report.merges, compressed.report.eligible) == (0, 50)
    assert compressed.tree.text == fan(50).text


@pytest.mark.parametrize("rule", ["uniform", "paper"])
def test_target_noise_is_reached_and_hardly_passed(rule: Any) -> None:
    tree = fan(400)
    for target in (0.001, 0.005):
        report = compress(tree, CompressConfig(rule=rule, target_noise=target), key="target").report
        assert target <= report.noise < target + report.shift_max / report.evaluated
        assert report.target_missed == 0
        assert report.merges < report.eligible


def test_target_noise_out_of_reach_is_reported() -> None:
    report = compress(hand_drawn(), CompressConfig(target_noise=0.5), key="target").report
    assert report.target_missed == 1
    assert 0 < report.noise < 0.5
    unmoved = compress(fan(9), CompressConfig(rule="paper", probability=0.0, target_noise=0.1), key="target").report
    assert (unmoved.merges, unmoved.target_missed) == (0, 1)


def test_key_and_seed_choose_the_merges() -> None:
    tree = fan(100)
    picks = {
        tuple(merged(compress(tree, CompressConfig(seed=seed), key=key)).items())
        for seed in (0, 1)
        for key in ("a", "b")
    }
    assert len(picks) == 4


def test_a_node_without_evidence_of_its_own_is_left_alone() -> None:
    """Four children, one evaluated: without it, p has no value. An own rollout of p changes that."""
    for rollouts, expected in ((0, {}), (1, {1: 2})):
        builder = TreeBuilder()
        p = builder.add(0, "p\n")
        for k in range(4):
            builder.add(p, f"x{k}\n")
        builder.rollouts[2] = 3
        builder.rollouts[p] = rollouts
        assert merged(compress(builder.freeze(), FIRST_CHILD, key="k")) == expected


def test_a_merged_text_may_equal_a_siblings() -> None:
    """g's child "ab" was sampled as one step; p="a" merged with x="b" reads alike. Both stay: they are two origins."""
    builder = TreeBuilder()
    g = builder.add(0, "g")
    p, twin = builder.add(g, "a"), builder.add(g, "ab")
    for text in ("b", "c", "d", "e"):
        builder.rollouts[builder.add(p, text)] = 2
    builder.rollouts[twin] = 2
    after = compress(builder.freeze(), FIRST_CHILD, key="k").tree
    after.check()
    assert [after.text[row] for row in after.children()[g]] == ["a", "ab", "ab"]
    assert after.merged_from[twin] == ()


def test_a_merged_trajectory_end_keeps_its_verdict_and_counts_once() -> None:
    tree = hand_drawn()
    compressed = compress(tree, FIRST_CHILD, key="golden")
    values = estimate(compressed.tree)
    assert compressed.tree.finish[B1] == Finish.ANSWERED
    assert (values.value[B1], values.rollouts[B1]) == (1.0, 1), "a quarter of a sample is still one completion"
    assert values.rollouts[0] == estimate(tree).rollouts[0]


def test_a_compressed_tree_is_not_compressed_again() -> None:
    compressed = compress(hand_drawn(), FIRST_CHILD, key="golden")
    with pytest.raises(TreeError, match="compressed before"):
        compress(compressed.tree, FIRST_CHILD, key="golden")


def test_a_tree_of_its_root_alone() -> None:
    compressed = compress(TreeBuilder().freeze(), CompressConfig(target_noise=0.1), key="k")
    assert compressed.report.merges == 0
    assert compressed.tree.verdict.tolist() == [NO_VERDICT]
    assert (compressed.report.mean_shift, compressed.report.noise) == (0, 0)


def test_reports_add_up() -> None:
    reports = [compress(fan(50), CompressConfig(), key=str(i)).report for i in range(3)]
    both = total(reports)
    assert (both.trees, both.nodes) == (3, 3 * reports[0].nodes)
    assert both.merges == sum(report.merges for report in reports)
    assert both.shift_max == max(report.shift_max for report in reports)
    assert both.noise == pytest.approx(np.mean([report.noise for report in reports]))
    assert total([]) == CompressReport()
