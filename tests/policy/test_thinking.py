"""Long reasoning: thinking sections, sentences and turns as steps."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from support.runs import EqualStringJudge, problems

from treeforge.config import Recipe, SearchConfig, StepsConfig
from treeforge.errors import ConfigError
from treeforge.policy.steps import parse, split_text, starts_thinking
from treeforge.recipes import load_config
from treeforge.sample import Sample
from treeforge.search.growing import GrowingTree, request_base
from treeforge.tree import Finish

SENTENCES = StepsConfig(preset="custom", split="sentence")
TURNS = StepsConfig(preset="custom", split="turns")
LINES = StepsConfig(preset="custom", delimiter="\n", answer_markers=("\\boxed{",))
OPENED = StepsConfig(preset="custom", delimiter="\n", answer_markers=("\\boxed{",), think_open="")
PIECES = st.sampled_from(
    [
        "Wait, ",
        "so. ",
        "3.14 ",
        "$a. b$ ",
        "$",
        "\\[",
        "\\]",
        "\n",
        "\n\n",
        "e.g. x",
        "? ",
        '." ',
        "1. A",
        "</think>",
        " ",
        "é. ",
        "Alternatively ",
    ]
)


@pytest.mark.parametrize("config", [SENTENCES, TURNS])
@given(parts=st.lists(PIECES, max_size=30))
@example(parts=["</think>", "\n"])
def test_steps_concatenate_and_none_is_blank(config, parts):
    text = "".join(parts)
    steps = split_text(text, config)
    assert "".join(steps) == text
    if text.strip():
        assert all(step.strip() for step in steps)


@pytest.mark.parametrize(
    ("text", "steps"),
    [
        ("We add. Then we stop.", ["We add. ", "Then we stop."]),
        ("Is it 3.5? No! Yes.", ["Is it 3.5? ", "No! ", "Yes."]),
        ('He said "go." Then left.', ['He said "go." ', "Then left."]),
        ("Use e.g. Dr. Smith vs. Mr. Jones. Done.", ["Use e.g. Dr. Smith vs. Mr. Jones. ", "Done."]),
        ("1. First add.\n2. Then stop.", ["1. First add.\n", "2. Then stop."]),
        ("Let $f(x) = 1. x$ hold. So.", ["Let $f(x) = 1. x$ hold. ", "So."]),
        ("Now \\[a\n= b. c\\] holds. So.", ["Now \\[a\n= b. c\\] holds. ", "So."]),
        ("It costs $5. He pays $7. Fine.\n\nNext. End.", ["It costs $5. He pays $7. ", "Fine.\n\n", "Next. ", "End."]),
        ("Let $x = 1.$ Then \\[y = 2.\\]So 3.", ["Let $x = 1.$ ", "Then \\[y = 2.\\]", "So 3."]),
        ("a $b\n\nc. d", ["a $b\n\n", "c. ", "d"]),
        ("think.</think>So 5.", ["think.</think>", "So 5."]),
        ("", []),
        ("   ", ["   "]),
    ],
)
def test_sentences(text, steps):
    assert split_text(text, SENTENCES) == steps


def test_turns():
    text = "It is 5. Then 6. Wait, no. It is 7.\nAlternatively, 8. Waiting is fine.</think>So 8."
    assert split_text(text, TURNS) == [
        "It is 5. Then 6. ",
        "Wait, no. It is 7.\n",
        "Alternatively, 8. Waiting is fine.</think>",
        "So 8.",
    ]


def test_ten_thousand_tokens_are_split_in_linear_time():
    trace = "".join(
        f"So we get $x_{i} = {i}.5$, e.g. as before. " + ("Wait, no. " if i % 7 == 0 else "") for i in range(2_000)
    )
    assert 1_900 < len(split_text(trace, SENTENCES)) < 2_500
    assert len(split_text(trace, TURNS)) == 287
    for hostile in ("$" * 200_000, "\\[" * 100_000, ". " * 100_000, "e.g. " * 50_000, "\n" * 200_000, '.")' * 70_000):
        assert "".join(split_text(hostile, SENTENCES)) == hostile


@pytest.mark.parametrize(
    ("text", "finish", "config", "steps", "ended"),
    [
        ("<think>\nso \\boxed{4}?\nno\n</think>\nIt is \\boxed{5}.\nBye", "stop", LINES, 5, Finish.ANSWERED),
        ("<think>\nso \\boxed{4}?\n", "stop", LINES, 2, Finish.TRUNCATED),
        ("<think>\nso \\boxed{4}?", "length", LINES, 2, Finish.TRUNCATED),
        ("<think>\nso 4", "delimiter", LINES, 2, Finish.OPEN),
        ("<think>a</think>", "stop", LINES, 1, Finish.STOP),
        ("so \\boxed{4}?\n</think>\n\\boxed{5}", "stop", OPENED, 3, Finish.ANSWERED),
        ("so \\boxed{4}?\n", "stop", LINES, 1, Finish.ANSWERED),
    ],
)
def test_an_answer_inside_the_thinking_section_ends_nothing(text, finish, config, steps, ended):
    found, how = parse(Sample(text, finish), config, max_steps=9)
    assert (len(found), how) == (steps, ended)


def test_where_thinking_starts():
    assert not starts_thinking(LINES)
    assert starts_thinking(OPENED)
    assert starts_thinking(StepsConfig(preset="custom", assistant_start="<think>\n"))
    assert not starts_thinking(StepsConfig(preset="custom", think_open="", think_close=""))


def test_a_node_inside_the_section_goes_on_inside_it():
    recipe = Recipe(steps=LINES, search=SearchConfig())
    tree = GrowingTree(0, problems(1)[0], recipe, EqualStringJudge(), request_base(recipe, {}))
    tree.absorb(0, [Sample("<think>\nmaybe \\boxed{0}\n</think>\n\\boxed{0}", "stop")])
    tree.absorb(1, [Sample("or \\boxed{1}\n</think>\n\\boxed{0}", "stop"), Sample("still \\boxed{1}", "stop")])
    closed, cut = tree.rollouts[1], tree.builder
    assert closed.steps == ("</think>\n", "\\boxed{0}")
    assert cut.finish[3] == Finish.TRUNCATED
    tree.absorb(2, [Sample("</think>\nso\n", "stop")])
    assert 2 in tree._thinking
    assert 1 in tree._thinking


def test_sentences_need_whole_completions():
    with pytest.raises(ConfigError, match="needs whole completions"):
        load_config(None, ["steps.split=sentence", "search.sample=step"], backend="scripted", preset="custom")
    assert load_config(None, ["steps.split=turns"], backend="scripted", preset="custom").recipe.steps.split == "turns"
