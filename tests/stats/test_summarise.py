"""The figures of `summarise`, by hand, against a slow recount, and on runs in every state."""

import math
from collections import Counter

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.folders import ended, engine_error, write_run
from support.runs import EqualStringJudge, problems, scripted_config
from support.strategies import trees

from treeforge import views
from treeforge.config import LabelConfig
from treeforge.errors import StorageError
from treeforge.pipeline import run as run_pipeline
from treeforge.stats import problem_rows, summarise
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict


def summary_of(path):
    return summarise(RunFolder.open(path))


def small_tree():
    """Root ─ a (×2, 1 of 2 own rollouts right) ─ right answer (×3)
    └ b: truncated
    """
    builder = TreeBuilder()
    a = builder.add(0, "a\n", token_count=10)
    builder.multiplicity[a] = 2
    builder.rollouts[a], builder.rollouts_correct[a] = 2, 1
    right = builder.add(a, "7", token_count=4, finish=Finish.ANSWERED, answer="7", verdict=Verdict.CORRECT)
    builder.multiplicity[right] = 3
    builder.add(0, "b", token_count=30, finish=Finish.TRUNCATED, verdict=Verdict.NO_ANSWER)
    return builder.freeze()


def right_tree():
    builder = TreeBuilder()
    builder.add(0, "7", token_count=2, finish=Finish.ANSWERED, answer="7", verdict=Verdict.CORRECT)
    return builder.freeze()


def failed_record():
    record = ended(TreeBuilder().freeze(), "failed", "every request failed: HTTP 500")
    return type(record)(
        record.problem_id, record.tree, (engine_error(0), engine_error(0)), record.status, record.reason
    )


@pytest.fixture
def by_hand(tmp_path):
    """Block 0 is merged, of block 1 one tree is spilled and one still open."""
    return write_run(tmp_path / "run", [small_tree(), right_tree(), failed_record(), None])


def test_every_figure_by_hand(by_hand):
    assert list(by_hand.glob("trees/spill/*"))
    assert len(list(by_hand.glob("trees/nodes-*"))) == 1
    summary = summary_of(by_hand)

    counted = summary.problems
    assert (counted.total, counted.by_status) == (4, {"done": 2, "failed": 1, "open": 1})
    assert [(r.status, r.problems) for r in counted.reasons] == [("done", 2), ("failed", 1)]
    assert (counted.mixed, counted.all_correct, counted.all_wrong) == (1, 1, 0)

    shape = summary.trees
    assert (shape.trees, shape.nodes, shape.leaves, shape.nodes_by_depth) == (3, 7, 4, (3, 3, 1))
    assert shape.nodes_per_tree == pytest.approx(7 / 3)
    assert shape.leaf_depth == pytest.approx((2 + 1 + 1 + 0) / 4)
    assert (shape.max_depth, shape.branching, shape.max_branching) == (2, pytest.approx(4 / 3), 2)
    assert shape.duplicate_share == pytest.approx(1 - 4 / 7)

    lengths = summary.step_tokens
    assert (lengths.steps, lengths.mean, lengths.median, lengths.p90, lengths.max) == (4, 11.5, 4, 30, 30)

    outcomes = summary.outcomes
    assert (outcomes.completions, outcomes.correct, outcomes.engine_errors) == (3 + 2 + 1 + 1, 5, 2)
    assert outcomes.share_correct == pytest.approx(5 / 7)
    assert outcomes.truncated_share == pytest.approx(1 / 7)
    assert outcomes.by_finish == {"stop": 0, "answered": 6, "truncated": 1, "error": 2}
    assert outcomes.by_verdict == {"correct": 5, "incorrect": 1, "no_answer": 1, "unparsable": 0, "undecided": 0}

    assert [(row.k, row.problems) for row in outcomes.pass_at] == [(1, 2), (2, 1), (4, 1)]
    assert outcomes.pass_at[0].share == pytest.approx((4 / 6 + 1) / 2)
    assert outcomes.pass_at[1].share == pytest.approx(1 - 1 / 15)
    assert (shape.median_nodes, shape.max_nodes) == (2, 4)
    assert (summary.disputed.undecided, summary.disputed.unparsable, summary.disputed.problems) == (0, 0, 0)
    assert (summary.disputed.rechecked, summary.disputed.numeric, summary.load) == (None, None, None)
    assert summary.strategy == "mcts"

    assert (summary.labels, summary.compression) == (None, None)
    assert summary.cost.requests == 0
    assert summary.cost.seconds is None
    assert [warning.split()[0] for warning in summary.warnings] == ["1", "2", "14.3%"]


def test_labels_are_counted_and_staleness_is_told(by_hand):
    views.label(by_hand)
    labels = summary_of(by_hand).labels
    assert not labels.stale
    assert (labels.positive, labels.negative, labels.unlabelled) == (3, 1, 0)
    assert labels.positive_share == 0.75
    assert [(row.depth, row.positive, row.negative) for row in labels.by_depth] == [(1, 2, 1), (2, 1, 0)]
    assert sum(labels.value_histogram) == 4
    assert (labels.always_wrong, labels.always_right) == (1, 2)
    assert labels.value_histogram[8] == 1  # a: 1 of 2 own rollouts and 3 right samples, 4/5
    # Only a has an interval: 5 draws, of which 3 are one text. The wrong own rollout of a, which is positive, goes
    # wrong later; b is wrong at the first step.
    assert (sum(labels.interval_histogram), sum(labels.effective_histogram)) == (1, 1)
    assert (labels.first_errors, labels.first_error_later, labels.first_error_unknown) == ((1,), 1, 0)
    assert labels.pairs == {"positive_positive": 1}

    with RunFolder.open(by_hand) as run:
        run.lock()
        run.finish(3, ended(right_tree()))
    summary = summary_of(by_hand)
    assert summary.labels.stale
    assert summary.labels.positive == 3
    assert any("older than the trees" in warning for warning in summary.warnings)


def naive(run):
    """The same figures, counted one by one."""
    trees, finish, verdict = [], Counter(), Counter()
    for _, record in run.records():
        tree = record.tree
        trees.append(tree)
        for row in range(tree.size):
            if tree.finish[row] != Finish.OPEN:
                count = max(round(tree.multiplicity[row]), 1)
                finish[int(tree.finish[row])] += count
                verdict[int(tree.verdict[row])] += count
        for rollout in record.rollouts:
            finish[rollout.finish] += 1
            verdict[rollout.verdict] += 1
    return trees, finish, verdict


@given(st.lists(trees(), min_size=1, max_size=4), st.booleans())
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_trees_are_counted_as_one_by_one(tmp_path_factory, some, open_at_the_end):
    path = write_run(
        tmp_path_factory.mktemp("stats") / "run", [*some, *[None] * open_at_the_end], merge_duplicates=False
    )
    run = RunFolder.open(path)
    summary, (there, finish, verdict) = summarise(run), naive(run)
    leaves = [depth for tree in there for depth in tree.depth[tree.is_leaf].tolist()]
    families = [len(children) for tree in there for children in tree.children() if children]
    distinct = sum(len({(p, tree.text[row]) for row, p in enumerate(tree.parent.tolist()) if row}) for tree in there)
    tokens = sorted(count for tree in there for count in tree.token_count[1:].tolist())

    shape = summary.trees
    assert (shape.trees, shape.nodes, shape.leaves) == (len(there), sum(t.size for t in there), len(leaves))
    assert shape.leaf_depth == pytest.approx(sum(leaves) / len(leaves))
    assert shape.branching == pytest.approx(sum(families) / len(families))
    assert shape.max_branching == max(families)
    assert shape.duplicate_share == pytest.approx(1 - distinct / sum(t.multiplicity[1:].sum() for t in there))
    assert sum(shape.nodes_by_depth) == shape.nodes
    assert len(shape.nodes_by_depth) == 1 + max(leaves)

    assert summary.step_tokens.mean == pytest.approx(sum(tokens) / len(tokens))
    assert summary.step_tokens.median == tokens[math.ceil(len(tokens) / 2) - 1]
    assert summary.step_tokens.max == tokens[-1]
    assert summary.outcomes.by_finish == {f.name.lower(): finish[f] for f in Finish if f}
    assert summary.outcomes.by_verdict == {v.name.lower(): verdict[v] for v in Verdict}
    rows = problem_rows(run)
    assert [row.nodes for row in rows] == [tree.size for tree in there] + [0] * open_at_the_end
    decided = sum(verdict[v] for v in Verdict) - verdict[Verdict.UNDECIDED]
    assert sum(row.completions for row in rows) == decided
    assert sum(round((row.share_correct or 0) * row.completions) for row in rows) == verdict[Verdict.CORRECT]


def test_spilled_and_merged_trees_count_alike(tmp_path):
    merged = summary_of(write_run(tmp_path / "run", [small_tree(), right_tree()], block=2))
    spilled_run = write_run(tmp_path / "other", [small_tree(), right_tree(), None], block=3)
    assert not list(spilled_run.glob("trees/*.parquet"))
    spilled = summary_of(spilled_run)
    assert (spilled.trees, spilled.outcomes, spilled.step_tokens) == (merged.trees, merged.outcomes, merged.step_tokens)


def test_a_tree_that_was_grown_again_counts_once(tmp_path):
    path = write_run(tmp_path / "run", [right_tree(), right_tree()], block=2)
    with RunFolder.open(path) as run:
        run.lock()
        run.reopen([0])
    assert summary_of(path).trees.trees == 1
    with RunFolder.open(path) as run:
        run.lock()
        run.reopen([1])
        run.finish(0, ended(small_tree()))
    summary = summary_of(path)
    assert (summary.trees.trees, summary.trees.nodes) == (1, 4)


def test_a_tree_that_a_writer_merges_meanwhile_counts_once(tmp_path, monkeypatch):
    """The writer ends the block while the reader is between its look at the spills and at the tables."""
    path = write_run(tmp_path / "run", [small_tree(), right_tree(), None], block=3)
    reader = RunFolder.open(path)
    look = RunFolder.table_files

    def late(run, kind):
        with RunFolder.open(path) as writer:
            writer.lock()
            if writer.unfinished():
                writer.finish(2, ended(right_tree()))
        return look(run, kind)

    monkeypatch.setattr(RunFolder, "table_files", late)
    assert summarise(reader).trees.nodes == small_tree().size + right_tree().size
    assert not list(path.glob("trees/spill/*"))


def test_a_run_without_any_tree(tmp_path):
    summary = summary_of(write_run(tmp_path / "run", [None, None]))
    assert summary.problems.by_status == {"open": 2}
    assert (summary.trees.trees, summary.trees.nodes, summary.trees.nodes_by_depth) == (0, 0, ())
    assert (summary.trees.branching, summary.trees.leaf_depth, summary.step_tokens.median) == (None, None, None)
    assert (summary.outcomes.share_correct, summary.outcomes.truncated_share) == (None, None)
    assert summary.warnings == ()
    assert [row.status for row in problem_rows(RunFolder.open(tmp_path / "run"))] == ["open", "open"]


def test_a_run_of_failures_says_why(tmp_path):
    path = write_run(tmp_path / "run", [failed_record(), failed_record()])
    views.label(path)
    summary = summary_of(path)
    assert summary.problems.reasons[0].reason == "every request failed: HTTP 500"
    assert (summary.outcomes.completions, summary.outcomes.engine_errors) == (0, 4)
    assert (summary.labels.positive, summary.labels.positive_share) == (0, None)
    assert "2 of 2 problems failed" in summary.warnings[0]


def test_a_real_run_has_its_cost_time_and_compression(tmp_path):
    run_pipeline(problems(6), tmp_path / "run", scripted_config(), judge=EqualStringJudge())
    summary = summary_of(tmp_path / "run")
    cost = summary.cost
    assert cost.completions == summary.outcomes.completions == 6 * 8 * 4
    assert cost.tokens_per_node == pytest.approx(cost.tokens / (summary.trees.nodes - 6))
    labelled = summary.labels.positive + summary.labels.negative
    assert cost.tokens_per_label == pytest.approx(cost.tokens / labelled)
    assert (cost.sittings, cost.failed_requests) == (1, 0)
    assert cost.seconds > 0
    assert summary.compression.report["trees"] == 6
    assert summary.problems.mixed >= 1


def test_without_a_journal_the_tables_are_still_read(by_hand):
    with RunFolder.open(by_hand) as run:
        run.lock()
        run.write_problems()
    for file in by_hand.glob("journal.sqlite*"):
        file.unlink()
    summary = summary_of(by_hand)
    assert summary.trees.trees == 3
    assert (summary.cost.requests, summary.cost.tokens_per_node) == (None, None)


def test_lost_trees_are_told(by_hand):
    next(by_hand.glob("trees/spill/*")).unlink()
    summary = summary_of(by_hand)
    assert summary.trees.trees == 2
    assert "1 finished trees are not on disk" in summary.warnings[0]


def test_a_damaged_table_is_an_error_that_names_it(by_hand):
    table = next(by_hand.glob("trees/nodes-*"))
    table.write_bytes(b"PAR1 no more")
    with pytest.raises(StorageError, match=f"{table.name} is damaged"):
        summary_of(by_hand)


@pytest.mark.parametrize(("strategy", "estimator", "told"), [("mcts", "policy_mean", 1), ("mcts", "smoothed", 0)])
def test_labels_of_hardly_any_completions_are_told_of(tmp_path, strategy, estimator, told):
    run = tmp_path / "run"
    run_pipeline(problems(3), run, scripted_config(strategy=strategy, children=2))
    views.label(run, LabelConfig(estimator=estimator))
    assert sum("estimator=smoothed" in warning for warning in summary_of(run).warnings) == told
