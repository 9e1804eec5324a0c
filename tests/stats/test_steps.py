"""Sums over labelled steps against a recount, one step at a time."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.folders import ended, write_run
from support.strategies import trees

from treeforge import views
from treeforge.config import LabelConfig
from treeforge.evidence import Evidence, Levels, outcomes, policy_mean
from treeforge.label.steps import label_nodes
from treeforge.stats import summarise
from treeforge.stats.steps import effective_size
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.value import estimate, wilson
from treeforge.verdict import Verdict

NAMES = {-1: "unlabelled", 0: "negative", 1: "positive"}
WRONG = (Verdict.INCORRECT, Verdict.NO_ANSWER, Verdict.UNPARSABLE)


@given(st.floats(0, 1), st.floats(0.5, 5_000), st.sampled_from([0.5, 0.9, 0.99]))
def test_the_effective_size_is_read_off_the_interval(value, size, confidence):
    low, high = wilson(np.array([value]), np.array([size]), confidence)
    assert effective_size(np.array([value]), high - low, confidence)[0] == pytest.approx(size, rel=1e-3, abs=1e-3)


@given(trees(max_nodes=30))
@settings(deadline=None)
def test_it_is_the_estimators_own_size_where_nothing_is_undecided(tree):
    evidence = Evidence.of(tree)
    values = estimate(evidence)
    means = policy_mean(
        outcomes(evidence, truncated="wrong", undecided="left out"), Levels.of(evidence), evidence.multiplicity
    )
    plain = (values.undecided == 0) & (values.high > values.low) & ~np.isnan(values.value)
    width = values.high[plain] - values.low[plain]
    assert effective_size(values.value[plain], width, 0.9) == pytest.approx(means.effective[plain], rel=1e-3, abs=1e-3)


def first_error(tree, hard, node):
    """As `first_errors` says it: the place, -1 for none, -2 for unknown."""
    unsure = False
    for place, row in enumerate(tree.path(node)):
        if hard[row] == 0:
            return -2 if unsure else place
        unsure = hard[row] == -1
    return -2 if unsure else -1


def recount(forest, config):
    errors, pairs, widths = Counter(), Counter(), []
    for tree in forest:
        values = estimate(tree)
        hard = label_nodes(tree, values, config).hard
        for node in range(tree.size):
            wrong = int(tree.rollouts[node] - tree.rollouts_correct[node] - tree.rollouts_undecided[node])
            if tree.finish[node] != Finish.OPEN:
                wrong = round(tree.multiplicity[node]) if tree.verdict[node] in WRONG else 0
            if wrong:
                errors[first_error(tree, hard, node)] += wrong
            if tree.depth[node] >= 2:
                pairs[f"{NAMES[hard[tree.parent[node]]]}_{NAMES[hard[node]]}"] += 1
            if node and not np.isnan(values.value[node]) and values.high[node] > values.low[node]:
                widths.append(values.high[node] - values.low[node])
    return errors, pairs, widths


@given(st.lists(trees(), min_size=1, max_size=4), st.sampled_from([1, 3]))
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_labels_are_counted_as_one_by_one(tmp_path_factory, some, least):
    path = write_run(tmp_path_factory.mktemp("steps") / "run", some, block=2)
    config = LabelConfig(min_rollouts=least)
    views.label(path, config)
    labels = summarise(RunFolder.open(path)).labels
    errors, pairs, widths = recount(some, config)
    assert dict(enumerate(labels.first_errors)) == {place: errors[place] for place in range(len(labels.first_errors))}
    assert sum(labels.first_errors) == sum(count for place, count in errors.items() if place >= 0)
    assert (labels.first_error_later, labels.first_error_unknown) == (errors[-1], errors[-2])
    assert labels.pairs == dict(pairs)
    assert sum(labels.interval_histogram) == sum(labels.effective_histogram) == len(widths)
    assert labels.interval_width == (pytest.approx(np.mean(widths)) if widths else None)


def test_labels_of_fewer_trees_count_for_these_alone(tmp_path):
    """The rest of the block ended after `label`: rows no longer lie beside one another."""

    def tree(steps):
        builder = TreeBuilder()
        node = 0
        for step in range(steps):
            node = builder.add(node, f"{step}\n")
        builder.add(node, "8", finish=Finish.ANSWERED, answer="8", verdict=Verdict.INCORRECT)
        return builder.freeze()

    path = write_run(tmp_path / "run", [None, tree(2), None, tree(3)], block=4)
    views.label(path)
    before = summarise(RunFolder.open(path)).labels
    assert (before.first_errors, before.pairs) == ((2,), {"negative_negative": 5})
    with RunFolder.open(path) as run:
        run.lock()
        run.finish(0, ended(tree(5)))
        run.finish(2, ended(tree(1)))
    after = summarise(RunFolder.open(path)).labels
    assert (after.first_errors, after.pairs, after.stale) == (before.first_errors, before.pairs, True)
    assert after.negative == before.negative == 7
