"""What the strategies ask for and when they end, driven by hand (no scheduler, no clock)."""

import pytest
from support.driving import drive

from treeforge.config import BudgetConfig, SearchConfig
from treeforge.policy import World
from treeforge.tree import Finish


def test_mcts_spends_its_simulations_in_waves_of_distinct_leaves():
    tree, waves, ended = drive(BudgetConfig(simulations=20), world=World(branching=50, duplicate_rate=0), wave=4)
    assert sum(map(len, waves)) == 20
    assert ended == ("done", "20 simulations")
    assert [len(w) for w in waves[:2]] == [1, 4]
    for wave in waves:
        assert len({r.prefix for r in wave}) == len(wave)
    assert tree.samples == 80
    frozen = tree.builder.freeze()
    assert frozen.visits[0] == 80
    assert frozen.rollouts.sum() + frozen.multiplicity[frozen.is_leaf & (frozen.finish == Finish.ANSWERED)].sum() == 80


def test_virtual_loss_leaves_no_trace():
    tree, _, _ = drive(BudgetConfig(simulations=30), wave=8)
    frozen = tree.builder.freeze()
    children = frozen.children()
    for row in range(frozen.size):
        below = sum(int(frozen.visits[c]) for c in children[row])
        own = int(frozen.rollouts[row]) if not children[row] else 0
        assert frozen.visits[row] >= below
        assert frozen.value_sum[row] >= sum(frozen.value_sum[c] for c in children[row]) - 1e-9
        if own:
            assert frozen.visits[row] == own


def test_search_prefers_the_better_branch():
    world = World(error_rate=0.3, error_spread=0, recovery_rate=0, branching=3)
    tree, _, _ = drive(BudgetConfig(simulations=40), world=world, exploration=0.3, children=12)
    on_track = [c for c in tree.builder.children[0] if "we get 17" in tree.builder.text[c]]
    off_track = [c for c in tree.builder.children[0] if c not in on_track]
    assert on_track
    assert off_track
    expanded = {row for row in range(tree.builder.size) if tree.builder.children[row]}
    assert len(expanded & set(on_track)) / len(on_track) >= len(expanded & set(off_track)) / len(off_track)
    mean_on = sum(tree.builder.visits[c] for c in on_track) / len(on_track)
    mean_off = sum(tree.builder.visits[c] for c in off_track) / len(off_track)
    assert mean_on > 2 * mean_off


def test_uct_and_puct_differ_and_both_are_deterministic():
    grown = {
        s: [drive(BudgetConfig(simulations=30), selection=s)[0].builder.text for _ in range(2)] for s in ("uct", "puct")
    }
    assert grown["uct"][0] == grown["uct"][1]
    assert grown["puct"][0] == grown["puct"][1]
    assert grown["uct"][0] != grown["puct"][0]


@pytest.mark.parametrize("sample", ["rollout", "step"])
def test_mcts_ends_when_every_branch_is_closed(sample):
    tree, waves, ended = drive(
        BudgetConfig(simulations=0), world=World(depth=2, branching=1), sample=sample, children=3
    )
    assert ended == ("done", "every branch is closed")
    assert 1 <= len(waves) < 20
    assert max(tree.builder.depth) <= 2


def test_a_leaf_picked_again_takes_the_next_index():
    _, waves, _ = drive(BudgetConfig(simulations=4), expansions=2, wave=2)
    assert len(waves[0]) == 2
    first, second = waves[0]
    assert first.prefix == second.prefix == ""
    assert first.seed != second.seed
    assert first.digest != second.digest


def test_stepwise_mcts_evaluates_a_leaf_before_it_expands_it():
    tree, waves, _ = drive(BudgetConfig(simulations=12), sample="step", wave=1)
    assert [r.mode for w in waves[:3] for r in w] == ["step", "rollout", "rollout"]
    modes: dict[str, list[str]] = {}
    for wave in waves:
        for request in wave:
            modes.setdefault(request.prefix, []).append(request.mode)
    assert all(asked == ["rollout", "step"][: len(asked)] for prefix, asked in modes.items() if prefix)
    assert tree.builder.freeze().rollouts.sum() > 0


def test_max_depth_bounds_nodes_not_trajectories():
    tree, _, _ = drive(BudgetConfig(simulations=0), max_depth=2, world=World(depth=6, branching=2))
    assert max(tree.builder.depth) == 2
    assert max(len(r.steps) for r in tree.rollouts) >= 4


@pytest.mark.parametrize(
    ("budget", "measure"),
    [
        ({"nodes": 20}, lambda t: t.builder.size),
        ({"rollouts": 40}, lambda t: t.samples),
        ({"tokens": 1000}, lambda t: t.tokens),
    ],
)
def test_counting_budgets_stop_at_wave_boundaries(budget, measure):
    (limit,) = budget.values()
    tree, waves, (status, reason) = drive(BudgetConfig(simulations=0, **budget), wave=2)
    assert status == "exhausted"
    assert str(limit) in reason
    assert limit <= measure(tree)
    shorter = drive(BudgetConfig(simulations=sum(map(len, waves[:-1])), **budget), wave=2)[0]
    assert measure(shorter) < limit


def test_exhaustive_is_the_papers_complete_tree():
    world = World(depth=6, branching=40, duplicate_rate=0)
    tree, waves, ended = drive(world=world, strategy="exhaustive", children=3, levels=3, merge_duplicates=False)
    assert [len(w) for w in waves] == [1, 3, 9]
    assert [w[0].mode for w in waves] == ["step", "step", "rollout"]
    frozen = tree.builder.freeze()
    assert [int((frozen.depth == d).sum()) for d in range(5)] == [1, 3, 9, 27, 0]
    assert frozen.rollouts[frozen.depth == 3].tolist() == [1] * 27
    assert frozen.rollouts[frozen.depth < 3].sum() == 0
    assert all(len(r.steps) == 3 for r in tree.rollouts)
    assert ended == ("done", "3 levels")


def test_exhaustive_default_is_five_by_five_levels():
    config = SearchConfig(strategy="exhaustive")
    assert (config.children, config.levels) == (5, 5)


def test_exhaustive_ends_early_where_every_branch_has_answered():
    _, waves, ended = drive(world=World(depth=2), strategy="exhaustive")
    assert len(waves) == 2
    assert ended == ("done", "2 levels")
