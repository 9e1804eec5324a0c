"""Trees as graphs: read back by the tools' own readers, whatever texts say."""

import io
import json
import re

import networkx as nx
import pydot
import pytest
from hypothesis import HealthCheck, given, settings
from support.folders import write_run
from support.runs import problems
from support.strategies import trees

from treeforge import views
from treeforge.cli import invoke
from treeforge.config import LabelConfig
from treeforge.problem import make_problem
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, TreeBuilder
from treeforge.value import estimate
from treeforge.verdict import Verdict
from treeforge.view import load_tree
from treeforge.view.graphs import MAX_TEXT, dot, graphml, mermaid
from treeforge.view.valued import load_trees

HOSTILE = (
    "\"]; x -> y; subgraph { </data><node id='x'/> ]]> <!-- & &lt; \\\" \\N `md` **b** <script>alert(1)</script> "
    "\x00\x1b[2J \u202e\n%%{init}%% click n0 call f() #quot; end שלום 🎉"
)


def small_tree(text="First we add.\n", answer="7"):
    builder = TreeBuilder()
    step = builder.add(0, text, token_count=4)
    builder.rollouts[step], builder.rollouts_correct[step] = 3, 1
    builder.visits[step] = 5
    builder.add(step, text, finish=Finish.ANSWERED, answer=answer, verdict=Verdict.CORRECT)
    builder.add(0, "x" * 5_000, finish=Finish.ANSWERED, answer="8", verdict=Verdict.INCORRECT)
    builder.add(0, "", finish=Finish.ERROR)
    return builder.freeze()


def shown(path, tree, **problem):
    named = [make_problem(**{"question": "How many?", "gold_answer": "7", "problem_id": "id", **problem})]
    return load_tree(RunFolder.open(write_run(path, [tree], problems=named)), 0)


def read_graphml(text):
    return nx.read_graphml(io.BytesIO(text.encode()), node_type=int)


def read_dot(text):
    (graph,) = pydot.graph_from_dot_data(text)
    return graph


def test_figures_by_hand(tmp_path):
    found = shown(tmp_path / "run", small_tree())
    graph = read_graphml(graphml(found))
    assert graph.graph["question"] == "How many?"
    assert sorted(graph.edges) == [(0, 1), (0, 3), (0, 4), (1, 2)]
    step = graph.nodes[1]
    assert (step["text"], step["depth"], step["visits"], step["tokens"]) == ("First we add.", 1, 5, 4)
    assert step["value"] == pytest.approx(float(found.values.value[1]))
    assert (step["finish"], step["own_rollouts"], step["hard"]) == ("open", 3, 0)
    assert "verdict" not in step
    assert (graph.nodes[2]["verdict"], graph.nodes[2]["answer"]) == ("correct", "7")
    assert graph.nodes[3]["text"] == "x" * (MAX_TEXT - 1) + "…"
    assert "value" not in graph.nodes[4]  # an engine error is no evidence
    drawn = read_dot(dot(found))
    assert len(drawn.get_edges()) == 4
    node = drawn.get_node("2")[0].get_attributes()
    assert (node["verdict"], node["answer"]) == ('"correct"', '"7"')
    lines = mermaid(found).splitlines()
    assert lines[0] == "flowchart TD"
    assert "  n1 --> n2" in lines
    assert '  n2["2#58; 1.00 of 1, correct<br>First we add."]' in lines


@given(trees(max_nodes=10))
@settings(max_examples=6, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_every_node_edge_and_value_comes_back(tmp_path_factory, tree):
    found = shown(tmp_path_factory.mktemp("graphs") / "run", tree)
    edges = {(int(parent), row) for row, parent in enumerate(tree.parent.tolist()) if row}
    graph = read_graphml(graphml(found))
    assert set(graph.edges) == edges
    values = estimate(tree).value.tolist()
    assert [graph.nodes[row].get("value") for row in range(tree.size)] == pytest.approx(
        [None if value != value else value for value in values]
    )
    drawn = read_dot(dot(found))
    assert {(int(e.get_source()), int(e.get_destination())) for e in drawn.get_edges()} == edges
    assert set(re.findall(r"^  n(\d+) --> n(\d+)$", mermaid(found), re.MULTILINE)) == {
        (str(a), str(b)) for a, b in edges
    }


def test_hostile_texts_are_only_labels(tmp_path):
    found = shown(
        tmp_path / "run", small_tree(HOSTILE, HOSTILE), question=HOSTILE, gold_answer=HOSTILE, problem_id=HOSTILE
    )
    graph = read_graphml(graphml(found))
    assert len(graph) == 5
    assert "<script>alert(1)</script> ␀␛[2J <U+202E> ↵" in graph.nodes[1]["text"]
    assert graph.graph["problem_id"].startswith('"]; x -> y;')

    drawn = read_dot(dot(found))
    assert sorted(node.get_name() for node in drawn.get_nodes()) == ["0", "1", "2", "3", "4", "node"]
    assert (len(drawn.get_edges()), drawn.get_subgraphs()) == (4, [])
    quoted = drawn.get_node("1")[0].get_attributes()["text"]
    assert json.loads(quoted) == graph.nodes[1]["text"]

    lines = mermaid(found).splitlines()
    shape = re.compile(
        r'flowchart TD|  n\d+\["[A-Za-z0-9 .,+=/#;<>-]*"\]|  n\d+ --> n\d+|  style n\d+ fill:#\w{6},color:#\w{6}'
    )
    assert [line for line in lines if not shape.fullmatch(line)] == []
    label = next(line for line in lines if line.startswith("  n1["))
    assert set(re.findall(r"<.*?>", label)) == {"<br>"}


def test_mermaid_draws_what_it_can(tmp_path):
    builder = TreeBuilder()
    for row in range(700):
        builder.add(0, f"{row}\n")
    text = mermaid(shown(tmp_path / "run", builder.freeze()))
    assert "500 of 701 nodes" in text
    assert text.count("-->") == 499


def test_the_command(tmp_path, capsys):
    path = write_run(tmp_path / "run", [small_tree(), small_tree(), None], block=2)
    assert invoke(["export", str(path), "--format", "graphml", "--format", "dot", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {"path": str(path / "graphs"), "trees": 2, "files": 4}
    names = ["tree-00000.dot", "tree-00000.graphml", "tree-00001.dot", "tree-00001.graphml"]
    assert sorted(file.name for file in (path / "graphs").iterdir()) == names
    assert len(nx.read_graphml(path / "graphs" / "tree-00001.graphml")) == 5
    out = tmp_path / "one"
    assert invoke(["export", str(path), "--format", "mermaid", "--problem", "sum-1", "--out", str(out)]) == 0
    assert [file.name for file in out.iterdir()] == ["tree-00001.mmd"]
    assert "1 tree as mermaid" in capsys.readouterr().out
    assert not (path / "dataset").exists()


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["--format", "dot", "--format", "hrm"], "dot gives a file a tree"),
        (["--format", "dot", "--balance"], "of the other options it takes --problem"),
        (["--format", "dot", "--problem", "sum-2"], "has not ended yet"),
        (["--format", "dot", "--problem", "nobody"], "no problem 'nobody'"),
        (["--problem", "sum-0"], "--problem goes with"),
    ],
)
def test_what_is_refused(tmp_path, capsys, arguments, complaint):
    path = write_run(tmp_path / "run", [small_tree(), small_tree(), None])
    assert invoke(["export", str(path), *arguments]) == 2
    assert complaint in capsys.readouterr().err


def test_a_run_without_trees_and_places_that_cannot_be_written(tmp_path, capsys):
    empty = write_run(tmp_path / "empty", [None])
    assert invoke(["export", str(empty), "--format", "dot"]) == 2
    assert "no tree has ended yet" in capsys.readouterr().err
    path = write_run(tmp_path / "run", [small_tree()])
    (tmp_path / "file").write_text("")
    assert invoke(["export", str(path), "--format", "dot", "--out", str(tmp_path / "file")]) == 4


def test_trees_are_the_same_read_together_or_one_by_one(tmp_path):
    """Of whole blocks and of spilled trees, with saved values or without."""
    path = write_run(tmp_path / "run", [small_tree()] * 4 + [None], problems=problems(5), block=2)
    for _ in range(2):
        run = RunFolder.open(path)
        together = list(load_trees(run, range(5)))
        assert [found.number for found in together] == [0, 1, 2, 3]
        for found in together:
            alone = load_tree(run, found.number)
            assert alone.saved == found.saved
            assert graphml(alone) == graphml(found)
        views.label(path, LabelConfig(estimator="leaf_share"))
    assert all(found.saved for found in load_trees(RunFolder.open(path), range(5)))
