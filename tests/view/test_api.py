"""What the page gets to see of trees: shapes, figures, texts that are cut, the exact prompt."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from support.folders import ended, engine_error
from support.hand_drawn import A4, B, P, hand_drawn
from support.strategies import trees

from treeforge.config import LabelConfig, StepsConfig
from treeforge.label.steps import label_nodes
from treeforge.policy.prompts import render, render_chat
from treeforge.problem import make_problem
from treeforge.tree import Finish, TreeBuilder
from treeforge.value import estimate
from treeforge.verdict import Verdict
from treeforge.view import ValuedTree, api
from treeforge.view.reader import PageTree

HOSTILE = "<script>alert(1)</script>\x1b[2J\u202e & שלום 🎉"
STEPS = StepsConfig(prompt="Q: {question}\nA:", assistant_start="\n", delimiter="\n")
CHAT = StepsConfig(template="chat", system="Be brief.", prompt="{question}", delimiter="\n")


def paged(tree, record=None):
    config, values = LabelConfig(), estimate(tree)
    record = record or ended(tree)
    shown = ValuedTree(
        number=0,
        problem=make_problem("How many?", "7", problem_id="p"),
        record=record,
        values=values,
        hard=label_nodes(tree, values, config).hard,
        saved=True,
        config=config,
    )
    return PageTree.of(shown)


def one_step(text, **fields):
    builder = TreeBuilder()
    builder.add(0, text, **fields)
    return builder.freeze()


def said(text_data):
    return "".join(part if isinstance(part, str) else part["tex"] for part in text_data["parts"])


@given(trees())
@settings(max_examples=30)
def test_every_column_has_every_node_and_all_of_it_is_json(tree):
    found = paged(tree)
    data = json.loads(api.encoded(api.tree_data(found, 0)))
    for name in ("parent", "value", "low", "high", "outcomes", "size", "verdict", "finish", "hard"):
        assert len(data[name]) == tree.size
    assert data["parent"] == tree.parent.tolist()
    assert all(node < tree.size for node in data["best"])
    assert set(data["first_errors"]) == set(np.flatnonzero(found.first_error).tolist())
    labels = api.labels_data(found, range(tree.size))
    assert labels.keys() == {str(node) for node in range(1, tree.size)}
    for node in range(tree.size):
        json.loads(api.encoded(api.node_data(found, node)))
        steps = api.prefix_data(found, node)["steps"]
        assert [step["node"] for step in steps] == tree.path(node)[:-1]


def test_a_node_with_its_evidence():
    found = paged(hand_drawn())
    data = api.node_data(found, P)
    assert data["step"]["outcomes"] == 10
    assert data["step"]["value"] == pytest.approx(found.shown.values.value[P])
    assert data["multiplicity"] == 4
    assert data["own"]["all"] == 0
    ending = api.node_data(found, A4)["step"]
    assert (ending["verdict"], ending["finish"], ending["answer"]) == ("incorrect", "answered", ["7"])
    assert [step["node"] for step in api.prefix_data(found, B)["steps"]] == [1, P]


def test_own_rollouts_are_listed_where_they_started():
    tree = hand_drawn()
    record = ended(tree)
    record = type(record)("", tree, (*record.rollouts, engine_error(P, "HTTP <500>")), "done", "")
    found = paged(tree, record)
    assert [rollout["verdict"] for rollout in api.node_data(found, 1)["rollouts"]] == ["correct", "incorrect"]
    (failed,) = api.node_data(found, P)["rollouts"]
    assert (failed["finish"], failed["verdict"], failed["answer"]) == ("error", None, ["HTTP <500>"])
    assert api.whole_text(found, 1, "rollout", 0) == "and so\nthe answer"
    assert api.whole_text(found, P, "rollout", 0) is None


def test_more_rollouts_than_are_shown_are_counted():
    builder = TreeBuilder()
    builder.rollouts[0] = api.MAX_ROLLOUTS + 7
    data = api.node_data(paged(builder.freeze()), 0)
    assert (len(data["rollouts"]), data["more_rollouts"]) == (api.MAX_ROLLOUTS, 7)


def test_a_long_step_is_cut_and_to_be_had_whole():
    text = "word " * 1_000_000
    found = paged(one_step(text))
    step = api.node_data(found, 1)["step"]["text"]
    assert (step["length"], step["cut"]) == (5_000_000, True)
    assert len(said(step)) <= api.PANEL_CHARS
    (label,) = api.labels_data(found, [1]).values()
    assert len(label[0]) == api.LABEL_CHARS + 1
    assert api.whole_text(found, 1, "text", -1) == text


def test_what_would_reorder_or_control_is_made_visible():
    found = paged(one_step(HOSTILE, finish=Finish.ANSWERED, answer=HOSTILE, verdict=Verdict.INCORRECT))
    texts = [said(api.node_data(found, 1)["step"]["text"]), *api.labels_data(found, [1])["1"]]
    texts += [*api.node_data(found, 1)["step"]["answer"], api.whole_text(found, 1, "text", -1)]
    for text in texts:
        assert "<script>" in text
        assert "\u202e" not in text
        assert "\x1b" not in text
        assert "<U+202E>" in text
        assert "שלום 🎉" in text


def test_the_prompt_is_the_policys():
    problem = make_problem("What is {x}?", "7")
    data = api.prompt_data(STEPS, problem, "First.\n")
    assert [message["text"] for message in data["messages"]] == [render(STEPS, problem.question, "First.\n")]
    data = api.prompt_data(CHAT, problem, "First.\n")
    assert [(m["role"], m["text"]) for m in data["messages"]] == [
        (m["role"], m["content"]) for m in render_chat(CHAT, problem.question, "First.\n")
    ]


def test_a_long_prompt_shows_its_end():
    problem = make_problem("q" * 10_000, "7")
    (message,) = api.prompt_data(STEPS, problem, "last step\n")["messages"]
    assert message["text"].endswith("last step\n")
    assert message["omitted"] == len(render(STEPS, problem.question, "last step\n")) - api.PANEL_CHARS
    (message,) = api.prompt_data(STEPS, problem, "last step\n", None)["messages"]
    assert message["omitted"] == 0
    assert message["text"].startswith("Q: qqq")


def test_texts_are_found_whatever_the_case():
    builder = TreeBuilder()
    builder.add(0, "Add THEM\n")
    builder.add(0, "subtract\n", observation="them too")
    found = paged(builder.freeze())
    assert api.search_data(found, "them") == {"nodes": [1, 2], "found": 2}
    assert api.search_data(found, "them", most=1) == {"nodes": [1], "found": 2}
    assert api.search_data(found, ".*") == {"nodes": [], "found": 0}
