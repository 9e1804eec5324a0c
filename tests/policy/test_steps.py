import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.config import StepsConfig
from treeforge.policy.steps import clean_text, parse, split_steps
from treeforge.sample import Sample
from treeforge.tree import Finish

LINES = StepsConfig(preset="custom", delimiter="\n", answer_markers=("The answer is", "\\boxed{"))
PARAGRAPHS = StepsConfig(preset="custom", delimiter="\n\n", answer_markers=("\\boxed{",))


@given(st.text(alphabet="ab \n", max_size=40), st.sampled_from(["\n", "\n\n"]))
def test_steps_concatenate_to_the_text_and_none_is_blank(text, delimiter):
    steps = split_steps(text, delimiter)
    assert "".join(steps) == text
    if text.strip():
        assert all(step.strip() for step in steps)


@given(st.text(max_size=60), st.sampled_from(["stop", "length", "delimiter"]), st.integers(1, 5))
def test_parse_bounds_every_completion(text, finish, max_steps):
    config = StepsConfig(preset="custom", delimiter="\n", max_step_chars=10)
    steps, ended = parse(Sample(text, finish), config, max_steps=max_steps)
    assert len(steps) <= max_steps
    assert all(len(step) <= 10 for step in steps)
    assert (text + "\n").startswith("".join(steps))
    assert finish == "delimiter" or ended != Finish.OPEN


@pytest.mark.parametrize(
    ("text", "finish", "steps", "ended"),
    [
        ("So 3.\nThe answer is 3.\nQuestion: more", "stop", ["So 3.\n", "The answer is 3.\n"], Finish.ANSWERED),
        ("So 3.\nThe answer is 1", "length", ["So 3.\n", "The answer is 1"], Finish.TRUNCATED),
        ("So 3.\nThe answer is 12.\nAnd", "length", ["So 3.\n", "The answer is 12.\n"], Finish.ANSWERED),
        ("So 3.\nand then", "stop", ["So 3.\n", "and then"], Finish.STOP),
        ("So 3.", "delimiter", ["So 3.\n"], Finish.OPEN),
        ("The answer is 4.", "delimiter", ["The answer is 4.\n"], Finish.ANSWERED),
        ("", "stop", [], Finish.STOP),
        ("  \n ", "stop", [], Finish.STOP),
        ("", "length", [], Finish.TRUNCATED),
        ("\n\nSo 3.\n\n\nThen 4.", "stop", ["\n\nSo 3.\n\n\n", "Then 4."], Finish.STOP),
        ("no delimiter here", "stop", ["no delimiter here"], Finish.STOP),
        ("boom", "error", [], Finish.ERROR),
    ],
)
def test_how_completions_end(text, finish, steps, ended):
    assert parse(Sample(text, finish), LINES, max_steps=9) == (steps, ended)


def test_too_many_steps_truncate():
    text = "".join(f"step {i}\n" for i in range(9)) + "The answer is 9."
    assert parse(Sample(text, "stop"), LINES, max_steps=10)[1] == Finish.ANSWERED
    steps, ended = parse(Sample(text, "stop"), LINES, max_steps=9)
    assert (len(steps), ended) == (9, Finish.TRUNCATED)


def test_a_megabyte_without_delimiter_is_cut():
    steps, ended = parse(Sample("x" * 1_000_000, "stop"), LINES, max_steps=9)
    assert ([len(s) for s in steps], ended) == ([LINES.max_step_chars], Finish.TRUNCATED)


def test_paragraph_steps_keep_their_lines():
    steps, ended = parse(Sample("Step 1: a\nb\n\nStep 2: \\boxed{3}", "stop"), PARAGRAPHS, max_steps=9)
    assert (steps, ended) == (["Step 1: a\nb\n\n", "Step 2: \\boxed{3}"], Finish.ANSWERED)


def test_clean_text_takes_what_no_format_can_carry():
    assert clean_text("a\0b\ud800c\udfffd é 😀") == "a\ufffdb\ufffdc\ufffdd é 😀"
    assert clean_text("plain") == "plain"
