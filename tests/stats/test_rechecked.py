"""Statistics by the verdicts of a recheck: the same figures as of the trees that are labelled and shown."""

import pytest
from support.folders import write_run

import treeforge as tf
from treeforge import views
from treeforge.label import CheckPolicy
from treeforge.recheck import saved_verdicts
from treeforge.stats import problem_rows, summarise
from treeforge.stats.blocks import read_blocks
from treeforge.stats.groups import groups
from treeforge.stats.scan import collect, scan_run
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, Rollout, TreeBuilder, TreeRecord
from treeforge.verdict import Verdict
from treeforge.view.index import Query, find, problem_index
from treeforge.view.reader import RunReader
from treeforge.view.routes import overview_data

RIGHT, WRONG, NONE = Verdict.CORRECT, Verdict.INCORRECT, Verdict.NO_ANSWER
OWN = CheckPolicy(name="as written")


def tree(times):
    """Ends and own rollouts that the search judged wrongly, in `times` samples; others that stay as they are."""
    builder = TreeBuilder()
    step = builder.add(0, "Let us see.\n")
    builder.add(step, "The answer is 1/2.", finish=Finish.ANSWERED, answer="1/2", verdict=WRONG)
    builder.multiplicity[-1] = times
    builder.add(step, "The answer is 0.5.", finish=Finish.STOP, answer="", verdict=NONE)
    builder.add(step, "The answer is 3.", finish=Finish.ANSWERED, answer="3", verdict=WRONG)
    builder.add(step, "The answer is", finish=Finish.TRUNCATED, verdict=NONE)
    said = [("0.5", RIGHT), ("2/4", WRONG), ("7", WRONG), ("1/2", Verdict.UNDECIDED)]
    rollouts = [
        Rollout(step, ("So\n", f"The answer is {answer}."), answer, int(verdict), int(Finish.ANSWERED), 5, -1.0)
        for answer, verdict in said * times
    ]
    builder.rollouts[step] = len(rollouts)
    builder.rollouts_correct[step] = sum(r.verdict == RIGHT for r in rollouts)
    builder.rollouts_undecided[step] = sum(r.verdict == Verdict.UNDECIDED for r in rollouts)
    return TreeRecord("", builder.freeze(), tuple(rollouts), "done", "")


@pytest.fixture
def path(tmp_path):
    """Two blocks, of which the last waits for a tree that grows still."""
    asked = [tf.make_problem(f"How much is {n}?", "0.5", problem_id=f"half-{n}") for n in range(4)]
    return write_run(tmp_path / "run", [tree(1), tree(3), tree(2), None], problems=asked)


def test_every_frame_has_the_verdicts_that_count(path):
    before = summarise(RunFolder.open(path)).outcomes
    views.recheck(path, OWN)
    run = RunFolder.open(path)
    scan = scan_run(run)
    assert scan.recheck.policy == "as written"
    nodes, rollouts = collect(scan.nodes, scan.rollouts)
    verdicts = saved_verdicts(run)
    judged = [(number, verdicts.apply(number, record)) for number, record in run.records()]
    assert any(verdicts.changes(number) for number, _ in judged)
    columns = ("finish", "verdict", "answer", "rollouts_correct", "rollouts_undecided")
    for name in columns:
        wanted = [(n, i, value) for n, r in judged for i, value in enumerate(getattr(r.tree, name))]
        assert sorted(nodes.select("tree_id", "node_id", name).iter_rows()) == wanted
    wanted = [(n, r.answer, r.verdict, r.finish) for n, record in judged for r in record.rollouts]
    assert list(
        rollouts.sort("tree_id", maintain_order=True)["tree_id", "answer", "verdict", "finish"].iter_rows()
    ) == [(n, answer, int(verdict), finish) for n, answer, verdict, finish in wanted]
    by_block = [count for nodes in read_blocks(run, scan) for count in nodes.evidence.rollouts_correct.tolist()]
    assert by_block == [c for _, r in judged for c in r.tree.rollouts_correct.tolist()]
    after = summarise(run).outcomes
    assert (before.recheck, after.recheck) == (None, "as written")
    assert (before.correct, after.correct) == (6, 6 + 6 + 3 + 6 + 6)
    assert before.completions == after.completions


def test_the_list_the_page_and_the_groups_agree_with_stats(path):
    views.recheck(path, OWN)
    run = RunFolder.open(path)
    outcomes = summarise(run).outcomes
    rows, (_, listed) = problem_rows(run), find(problem_index(run), Query())
    assert [row.share_correct for row in rows] == [row["accuracy"] for row in listed]
    assert rows[0].share_correct == 5 / 8
    assert sum(row.share_correct * row.completions for row in rows[:3]) == pytest.approx(outcomes.correct)
    assert sum(group.correct for group in groups([("run", run)], "depth")) == outcomes.correct
    assert [row["disputed"] for row in listed] == [4, 8, 6, 0]
    assert overview_data(RunReader(path))["recheck"] == "as written"


def test_a_recheck_that_is_older_than_the_trees_counts_nowhere(path):
    views.recheck(path, OWN)
    with RunFolder.open(path) as run:
        run.lock()
        run.finish(3, tree(1))
    run = RunFolder.open(path)
    assert scan_run(run).recheck is None
    assert summarise(run).outcomes.recheck is None
    assert problem_rows(run)[0].share_correct == 1 / 7
