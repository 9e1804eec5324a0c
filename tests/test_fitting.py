"""The fitted prior: what it learns from a world of extreme values, and that it is a function of the trees alone."""

from __future__ import annotations

import numpy as np
import pytest
from support.runs import problems, scripted_config

import treeforge as tf
from treeforge import views
from treeforge.config import LabelConfig
from treeforge.evidence import Evidence
from treeforge.fitting import EDGES, fit, fit_prior
from treeforge.forest import Forest
from treeforge.posterior import CELLS, FIXED, JUMP, infer, levels, uniform
from treeforge.store.parquet import read_table
from treeforge.store.tables import VALUES
from treeforge.value import estimate

DRAWS = 4


def extreme_world(chance: np.random.Generator, trees: int = 200, steps: int = 5, jump: float = 0.3):
    """(parent, depth, values, right) of chains whose values are 0.01 or 0.99, and jump between them."""
    values = np.empty((trees, steps + 1))
    values[:, 0] = chance.choice([0.01, 0.99], trees)
    for step in range(1, steps + 1):
        jumps = chance.random(trees) < jump
        values[:, step] = np.where(jumps, chance.choice([0.01, 0.99], trees), values[:, step - 1])
    right = chance.binomial(DRAWS, values)
    place = np.arange(trees * (steps + 1)).reshape(trees, steps + 1)
    parent = np.where(place % (steps + 1) == 0, -1, place - 1)
    depth = np.broadcast_to(np.arange(steps + 1), place.shape)
    return parent.ravel(), depth.ravel(), values.ravel(), right.ravel().astype(float)


def test_where_values_lie_and_how_often_they_jump_is_learned():
    parent, depth, values, right = extreme_world(np.random.default_rng(1))
    shape, draws = levels(parent, depth), np.full(len(parent), float(DRAWS))
    prior = fit(shape, np.flatnonzero(parent < 0), np.ones(len(parent), dtype=bool), draws, right)
    for learned in (prior.root, prior.landing):
        assert learned.sum() == pytest.approx(1)
        assert learned[[0, 1, -2, -1]].sum() > 0.9, "the cells at 0 and 1"
    assert prior.jump > 0.25, "those that land where they began among them, and what moves less than a drift"
    errors = [np.abs(infer(shape, draws, right, each).quantile(0.5) - values).mean() for each in (prior, FIXED)]
    assert errors[0] < errors[1] / 4


def test_a_world_of_a_uniform_prior_is_left_as_it_is():
    chance = np.random.default_rng(2)
    values = chance.random(2000)
    parent, depth = np.full(2000, -1), np.zeros(2000, dtype=int)
    right = chance.binomial(64, values).astype(float)
    prior = fit(levels(parent, depth), np.arange(2000), np.ones(2000, dtype=bool), np.full(2000, 64.0), right)
    assert prior.root == pytest.approx(np.diff(EDGES), abs=0.02)
    assert prior.jump == pytest.approx(JUMP)


def test_without_outcomes_nothing_is_learned():
    parent, depth = np.array([-1, 0, 1]), np.arange(3)
    none = np.zeros(3)
    prior = fit(levels(parent, depth), np.array([0]), none > 0, none, none)
    for learned, known in ((prior.root, np.diff(EDGES)), (prior.landing, np.diff(EDGES)), (prior.jump, JUMP)):
        assert learned == pytest.approx(known)
    assert fit_prior([]).root == pytest.approx(uniform(EDGES).root)


def test_narrow_cells_alone_change_little():
    parent, depth = np.arange(-1, 5), np.arange(6)
    draws, right = np.full(6, 8.0), np.array([4.0, 5.0, 2.0, 3.0, 6.0, 4.0])
    found = [infer(levels(parent, depth), draws, right, prior).mean() for prior in (FIXED, uniform(EDGES))]
    assert found[0] == pytest.approx(found[1], abs=0.02)


def test_deviations_are_those_of_the_cells():
    found = infer(levels(np.array([-1]), np.array([0])), np.zeros(1), np.zeros(1), uniform(EDGES))
    assert found.mean() == pytest.approx([0.5])
    assert found.deviation() == pytest.approx([np.sqrt(1 / 12)])
    assert found.above(0.3) == pytest.approx([0.7])
    assert found.quantile(0.2) == pytest.approx([0.2])


def test_many_nodes_are_thinned_by_blocks(tmp_path, monkeypatch):
    tf.run(problems(4), tmp_path / "run", scripted_config())
    forests = [Forest.of([record.tree]) for _, record in tf.RunFolder.open(tmp_path / "run").records()]
    whole = fit_prior(forests)
    monkeypatch.setattr("treeforge.fitting.MOST_NODES", 2 * max(forest.size for forest in forests))
    thinned = fit_prior(forests)
    assert not np.array_equal(thinned.landing, whole.landing)
    assert any(np.array_equal(thinned.landing, fit_prior(forests[::every]).landing) for every in (2, 4))


def test_labels_by_the_fitted_prior_are_a_view_like_others(tmp_path):
    tables = {}
    for block in (1, 4):
        run = tmp_path / str(block)
        tf.run(problems(4), run, scripted_config(block=block))
        fixed = labelled(run, "fixed")
        tables[block] = labelled(run, "fitted")
        assert not np.array_equal(tables[block], fixed, equal_nan=True)
        assert np.array_equal(labelled(run, "fitted"), tables[block], equal_nan=True)
    assert np.array_equal(tables[1], tables[4], equal_nan=True), "blocks leave no trace"
    trees = [record.tree for _, record in tf.RunFolder.open(tmp_path / "4").records()]
    prior = fit_prior([Forest.of(trees)])
    assert np.array_equal(tables[4], estimate(Evidence.of(*trees), "smoothed", prior=prior).value, equal_nan=True)
    assert len(prior.landing) == CELLS


def labelled(run, prior):
    views.label(run, LabelConfig(estimator="smoothed", prior=prior))
    files = sorted((run / "labels").glob("values-*.parquet"))
    return np.concatenate([read_table(file, VALUES)["value"].to_numpy(zero_copy_only=False) for file in files])
