"""The tree of a problem that grows still, from the journal so far: what the run has, and nothing changed by looking."""

import json

import pytest
from support.page import served_page
from support.runs import scripted_config
from support.stopping import SIMULATIONS, Stops, stopped

import treeforge as tf
from treeforge.config import BeamConfig
from treeforge.errors import PolicyUnavailableError
from treeforge.store.journal import Journal
from treeforge.store.run import RunFolder
from treeforge.view.growing import Growing, journal_rows
from treeforge.view.reader import RunReader


def contents(path):
    """All but sqlite's own files beside the journal, which come and go with its readers."""
    found = (file for file in path.rglob("*") if file.is_file() and not file.name.startswith("journal.sqlite-"))
    return {str(file.relative_to(path)): file.read_bytes() for file in found}


def grown(run, number):
    shown = Growing(run).tree(number, journal_rows(run, number))
    return shown and shown.record


@pytest.mark.parametrize("strategy", ["mcts", "omega", "adaptive", "step-rollouts"])
def test_it_is_the_beginning_of_the_tree_that_the_run_ends_with(tmp_path, strategy):
    config = scripted_config(**SIMULATIONS, strategy=strategy)
    path = stopped(tmp_path / "run", 10, config)
    run = RunFolder.open(path)
    open_ = min(number for number, (status, _) in run.statuses().items() if status == "open")
    before = contents(path)
    found = grown(run, open_)
    assert contents(path) == before
    assert (found.status, found.tree.size > 1) == ("open", True)
    tf.resume(path)
    whole = dict(RunFolder.open(path).records())[open_]
    size = found.tree.size
    assert size < whole.tree.size or found.rollouts != whole.rollouts
    assert found.tree.text == whole.tree.text[:size]
    assert found.tree.parent.tolist() == whole.tree.parent[:size].tolist()
    assert found.rollouts == whole.rollouts[: len(found.rollouts)]


def test_a_wave_that_is_answered_in_part_does_not_count(tmp_path):
    path = stopped(tmp_path / "run", 8, scripted_config(**SIMULATIONS, wave=4))
    run = RunFolder.open(path)
    rows = journal_rows(run, 0)
    whole = Growing(run).tree(0, rows).record.tree
    torn = Growing(run).tree(0, dict(list(rows.items())[:-1])).record.tree
    assert torn.size < whole.size
    assert torn.text == whole.text[: torn.size]


def test_there_is_none_before_the_first_answer(tmp_path):
    run = RunFolder.open(stopped(tmp_path / "run", 0))
    assert grown(run, 0) is None
    run = RunFolder.open(stopped(tmp_path / "more", 9))
    assert grown(run, 2) is None


def test_a_scorer_of_ones_own_is_not_to_be_had(tmp_path):
    config = scripted_config(**SIMULATIONS, strategy="beam", beam=BeamConfig())
    path = stopped(tmp_path / "run", 9, config, scorer=lambda problem, steps: 0.5)
    run = RunFolder.open(path)
    assert journal_rows(run, 0)
    assert grown(run, 0) is None


def test_the_page_follows_a_tree_until_it_has_ended(tmp_path):
    path = stopped(tmp_path / "run", 9)
    with served_page(path) as page:
        first = page.json("problems/0")
        assert (first["status"], first["growing"]["requests"]) == ("open", 9)
        assert len(first["growing"]["samples"]) == min(40, first["growing"]["completions"])
        same = page.json("problems/0", requests=9)
        assert (same["tree"], same["growing"]["same"]) == (None, True)
        assert page.json("problems/2")["tree"] is None
        assert "has not begun" in page.error("problems/2/nodes/0")[1]
        node = page.json("problems/0/nodes/1")
        assert node["step"]["node"] == 1
        assert page.json("problems/0/labels", nodes="1").keys() == {"1"}
        assert page.json("problems/0/nodes/1/prompt", at="node")["messages"][0]["text"].endswith("\n")
        assert page.json("problems/0/nodes/1/checks")["policy"]

        journal = Journal.open(path / "journal.sqlite")
        assert journal.totals().requests == 9
        journal.close()
        with pytest.raises(PolicyUnavailableError):
            tf.resume(path, policy=Stops(5))
        more = page.json("problems/0", requests=9)
        assert more["growing"]["requests"] == 14
        assert more["tree"]["parent"][: first["tree"]["nodes"]] == first["tree"]["parent"]


def test_a_growing_tree_is_kept_while_nothing_came(tmp_path):
    reader = RunReader(stopped(tmp_path / "run", 9))
    rows = journal_rows(reader.run, 0)
    assert reader.growing(0, rows) is reader.growing(0, dict(rows))
    assert json.loads((reader.path / "manifest.json").read_text())["policy"]["backend"] == "scripted"
