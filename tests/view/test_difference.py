"""`show --diff`: every merge of an HNC pass, and nothing else."""

import json

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from rich.cells import cell_len
from rich.console import Console
from support.folders import write_run
from support.strategies import trees

from treeforge import views
from treeforge.cli import invoke
from treeforge.config import CompressConfig
from treeforge.errors import RunError
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.verdict import Verdict
from treeforge.view import load_tree
from treeforge.view.difference import difference, difference_lines, load_after

ALL = CompressConfig(probability=1.0, min_children=2)
HOSTILE = "\x1b[2J[red]\u202e\r\n"


def compressed(path, tree, config=ALL):
    write_run(path, [tree])
    views.label(path)
    views.compress(path, config)
    run = RunFolder.open(path)
    before = load_tree(run, 0)
    return before, load_after(run, before, 1)


def bushy(text="step"):
    """Two steps below the root: node 1 has three children, of which one is right; node 2 ends wrong."""
    builder = TreeBuilder()
    p = builder.add(0, f"{text} p\n")
    builder.add(0, f"{text} q\n", finish=Finish.ANSWERED, answer="8", verdict=Verdict.INCORRECT)
    for answer, verdict in (("7", Verdict.CORRECT), ("8", Verdict.INCORRECT), ("9", Verdict.INCORRECT)):
        builder.add(p, f"{text} {answer}\n", finish=Finish.ANSWERED, answer=answer, verdict=verdict)
    return builder.freeze()


def test_a_merge_by_hand(tmp_path):
    before, after = compressed(tmp_path / "run", bushy())
    found = difference(before, after, 1)
    (merge,) = found.merges
    assert (merge.p, merge.depth, found.nodes, found.moved) == (1, 1, 6, 1)
    assert merge.x in (3, 4, 5)
    assert merge.value_before == pytest.approx(1 / 3)
    assert merge.value_after == (0.0 if merge.x == 3 else 0.5)
    lines = [line.plain for line in difference_lines(before, after, found, Console(width=80))]
    assert lines[0].startswith("HNC pass 1  1 merges in 6 nodes, 1 nodes moved up")
    assert f"1 + {merge.x}  at depth 1" in lines
    assert any(line.startswith(f"  - {merge.x}") and "below it" in line for line in lines)
    joined = next(line for line in lines if line.startswith(f"  + {merge.x}"))
    assert "step p ↵ step" in joined


@given(trees(max_nodes=40, observations=False))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@pytest.mark.slow
def test_merges_are_those_of_the_report(tmp_path_factory, tree):
    path = tmp_path_factory.mktemp("difference") / "run"
    before, after = compressed(path, tree)
    found = difference(before, after, 1)
    report = json.loads((path / "compressed" / "view.json").read_text())["report"]
    assert len(found.merges) == report["merges"]
    assert found.mean_shift == pytest.approx(report["observed_noise"], abs=1e-9)
    merged = {merge.x for merge in found.merges}
    assert all(before.record.tree.parent[merge.x] == merge.p for merge in found.merges)
    new = after.record.tree
    assert merged == {row for row in range(tree.size) if new.text[row] != tree.text[row]}
    assert found.moved == int(np.sum(new.depth < tree.depth))
    assert all(cell_len(line.plain) <= 80 for line in difference_lines(before, after, found, Console(width=80)))


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    path = tmp_path / "run"
    compressed(path, bushy(HOSTILE))
    for arguments in ([], ["--full"]):
        assert invoke(["show", str(path), "0", "--diff", *arguments]) == 0
        out = capsys.readouterr().out
        assert out.startswith("Problem 0  sum-0  done")
        assert "HNC pass 1" in out
        assert all(character.isprintable() or character == "\n" for character in out)
        assert "[red]" in out
    assert invoke(["show", str(path), "0", "--diff", "--json"]) == 0
    data = json.loads(capsys.readouterr().out)
    assert (data["number"], len(data["merges"])) == (1, 1)


def test_a_tree_without_a_merge(tmp_path):
    before, after = compressed(tmp_path / "run", bushy(), CompressConfig(probability=0.0))
    found = difference(before, after, 1)
    assert (found.merges, found.mean_shift, found.hard_flips) == ((), 0.0, 0)
    assert "Nothing was merged" in "\n".join(line.plain for line in difference_lines(before, after, found, Console()))


def test_what_is_refused(tmp_path, capsys):
    path = write_run(tmp_path / "run", [bushy(), None])
    run = RunFolder.open(path)
    with pytest.raises(RunError, match="no compressed trees"):
        load_after(run, load_tree(run, 0), 1)
    views.label(path)
    views.compress(path, ALL)
    for arguments, complaint in (
        (["0", "--diff", "--pass", "2"], "has 1 HNC pass, not 2"),
        (["1", "--diff"], "has not ended yet"),
        (["--diff"], "name its PROBLEM"),
        (["0", "--diff", "--node", "1"], "without --node"),
    ):
        assert invoke(["show", str(path), *arguments]) == 2
        assert complaint in capsys.readouterr().err
    with RunFolder.open(path) as writer:
        writer.lock()
        writer.finish(1, next(record for _, record in writer.records([0])))
    assert invoke(["show", str(path), "0", "--diff"]) == 2
    assert "older than its trees" in capsys.readouterr().err
