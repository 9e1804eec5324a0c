"""Prompts: literal substitution, presets that hold together with the step splitter, few-shot problems of our own."""

import json
import re
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.config import StepsConfig
from treeforge.policy.prompts import PRESETS, render, render_chat
from treeforge.policy.steps import parse
from treeforge.sample import Sample
from treeforge.tree import Finish

DATASETS = Path(__file__).resolve().parents[2] / "datasets"
SMOLLM = PRESETS["smollm"].steps


def shots() -> list[tuple[str, str]]:
    return re.findall(r"Question: (.*)\nAnswer:\n((?:.+\n)+)", SMOLLM.prompt)


def test_render_puts_question_start_and_prefix_in_order():
    config = StepsConfig(prompt="Q: {question}\nA:", assistant_start=" Step", delimiter="\n")
    assert render(config, "1 + 1?", " one\n") == "Q: 1 + 1?\nA: Step one\n"


@given(question=st.text(), prefix=st.text())
def test_question_and_prefix_are_literal(question: str, prefix: str):
    config = StepsConfig(prompt="{a} {question} {} {{question}}")
    assert render(config, question, prefix) == "{a} " + question + " {} {" + question + "}" + prefix


def test_a_question_that_holds_the_placeholder_is_not_expanded_again():
    assert render(StepsConfig(prompt="[{question}]"), "what is {question}?", "") == "[what is {question}?]"


def test_chat_messages():
    config = StepsConfig(template="chat", system="Be brief.", prompt="Solve: {question}")
    user = {"role": "user", "content": "Solve: 1 + 1?"}
    assert render_chat(config, "1 + 1?", "") == [{"role": "system", "content": "Be brief."}, user]
    assert render_chat(StepsConfig(template="chat", prompt="Solve: {question}"), "1 + 1?", "Step 1") == [
        user,
        {"role": "assistant", "content": "Step 1"},
    ]
    started = StepsConfig(template="chat", prompt="Solve: {question}", assistant_start="Step 1:")
    assert render_chat(started, "1 + 1?", "")[-1] == {"role": "assistant", "content": "Step 1:"}
    assert render_chat(started, "1 + 1?", " two")[-1] == {"role": "assistant", "content": "Step 1: two"}


def test_presets_are_named_as_they_are_keyed():
    assert set(PRESETS) == {"smollm", "qwen-chat", "qwen-math", "hrm-paper"}
    for name, preset in PRESETS.items():
        assert preset.steps.preset == name
        assert preset.about
        assert "\n" not in preset.about


def test_few_shot_solutions_are_what_the_step_splitter_expects():
    found = shots()
    assert len(found) >= 3
    for _, solution in found:
        text = solution.rstrip("\n")
        assert not any(stop in text for stop in SMOLLM.stop)
        parsed = parse(Sample(text=text, finish="stop"), SMOLLM, max_steps=16)
        assert parsed[1] == Finish.ANSWERED
        assert parsed[0] == [*(line + "\n" for line in text.split("\n")[:-1]), text.split("\n")[-1]]
        assert re.fullmatch(r"The answer is \d+\.", parsed[0][-1])


def test_few_shot_arithmetic_is_right():
    for _, solution in shots():
        equations = re.findall(r"([\d *+/-]*\d) = (\d+)", solution)
        assert equations
        for left, right in equations:
            value: float | None = None
            for sign, number in re.findall(r"([*+/-]?) *(\d+)", left):
                n = float(number)
                value = n if value is None else {"+": value + n, "-": value - n, "*": value * n, "/": value / n}[sign]
            assert value == float(right), (left, right)
        assert solution.endswith(f"The answer is {equations[-1][1]}.\n")


@pytest.mark.parametrize("name", ["arithmetic.jsonl", "word_problems.jsonl"])
def test_few_shot_problems_are_not_in_the_datasets(name: str):
    rows = [json.loads(line) for line in (DATASETS / name).read_text(encoding="utf-8").splitlines()]
    assert not {question for question, _ in shots()} & {row["question"] for row in rows}


@pytest.mark.parametrize("name", ["qwen-chat", "qwen-math", "hrm-paper"])
def test_paragraphs_end_steps_and_a_box_ends_the_solution(name: str):
    text = "# Step 1\nSubtract.\n\n# Step 2\nAdd.\n\n# Answer\n\\boxed{7}"
    parsed = parse(Sample(text=text, finish="stop"), PRESETS[name].steps, max_steps=16)
    assert parsed[0] == ["# Step 1\nSubtract.\n\n", "# Step 2\nAdd.\n\n", "# Answer\n\\boxed{7}"]
    assert parsed[1] == Finish.ANSWERED
