import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.config import StepsConfig
from treeforge.errors import RequestFailedError
from treeforge.policy.base import Sample
from treeforge.policy.replies import Stops, Told, completion_tokens, prompt_tokens, read_choices, to_samples
from treeforge.policy.steps import split_steps

STEPS = StepsConfig(delimiter="\n", stop=("Question:",), answer_markers=("The answer is",))
ROLLOUT = Stops.of(STEPS, "rollout")
STEP = Stops.of(STEPS, "step")


def completion(text: str, reason: str = "stop", **more: Any) -> dict[str, Any]:
    return {"choices": [{"index": 0, "text": text, "finish_reason": reason, **more}]}


def listing(tokens: list[str], logprob: float = -0.5) -> dict[str, Any]:
    return {"tokens": tokens, "token_logprobs": [logprob] * len(tokens)}


def only(reply: dict[str, Any], stops: Stops = ROLLOUT, **options: Any) -> Sample:
    (sample,) = to_samples(read_choices(reply, Told(False, **options)), stops, completion_tokens(reply))
    return sample


pieces = st.lists(st.text(alphabet="a \n😀é", min_size=1, max_size=4), min_size=1, max_size=30)


@given(tokens=pieces, shape=st.sampled_from(["legacy", "content"]))
def test_the_steps_tokens_and_logprobs_add_up_to_the_completion_s(tokens, shape):
    text = "".join(tokens)
    values = [-(i + 1) / 8 for i in range(len(tokens))]
    if shape == "legacy":
        logprobs: dict[str, Any] = {"tokens": tokens, "token_logprobs": values}
    else:
        logprobs = {"content": [{"token": t, "logprob": v} for t, v in zip(tokens, values, strict=True)]}
    sample = only(completion(text, logprobs=logprobs), Stops.of(StepsConfig(), "rollout"))
    assert sample.text == text
    assert sample.tokens == len(tokens)
    assert sample.logprob == sum(values)
    assert len(sample.step_tokens) == len(sample.step_logprobs) == len(split_steps(text, "\n"))
    if sample.step_tokens:
        assert sum(sample.step_tokens) == len(tokens)
        assert math.isclose(sum(sample.step_logprobs), sum(values))


def test_a_token_belongs_to_the_step_in_which_it_starts():
    tokens = ["2 + 2", " = 4", ".\nSo", " 4", "\n", "<eos>"]
    sample = only(completion("2 + 2 = 4.\nSo 4\n", logprobs=listing(tokens)))
    assert sample.step_tokens == (3, 3)
    assert sample.step_logprobs == (-1.5, -1.5)


def test_tokens_that_are_not_listed_belong_to_the_last_step():
    reply = completion("one\ntwo", logprobs=listing(["one", "\n", "two"])) | {"usage": {"completion_tokens": 4}}
    sample = only(reply)
    assert (sample.tokens, sample.step_tokens) == (4, (2, 2))


def test_a_character_in_several_tokens_is_put_together_by_its_bytes():
    whole = "é😀\nx".encode()
    content = [{"token": "\ufffd", "bytes": [byte], "logprob": -1.0} for byte in whole]
    sample = only(completion("é😀\nx", logprobs={"content": content}))
    assert sample.step_tokens == (7, 1)  # é has two bytes, the smiley four


@pytest.mark.parametrize(
    "logprobs",
    [
        None,
        [],
        {},
        {"content": ["x"]},
        {"content": [{"token": 5, "logprob": -1.0}]},
        {"tokens": ["a", "b"], "token_logprobs": [-1.0]},
        {"tokens": ["a"], "token_logprobs": [None]},
        {"tokens": ["a"], "token_logprobs": [float("nan")]},
    ],
)
def test_logprobs_that_are_missing_or_broken_are_unknown(logprobs):
    sample = only(completion("a", logprobs=logprobs))
    assert (sample.text, sample.logprob, sample.step_tokens) == ("a", None, ())


def test_tokens_are_counted_by_sentence_where_sentences_are_the_steps():
    tokens = ["One", " and", " one.", " Wait", ", two."]
    stops = Stops.of(StepsConfig(split="sentence"), "rollout")
    sample = only(completion("".join(tokens), logprobs=listing(tokens)), stops)
    assert sample.step_tokens == (4, 1)


def test_tokens_that_are_not_the_text_give_a_sum_and_no_steps():
    sample = only(completion("one\ntwo", logprobs=listing(["Ġone", "Ċ", "two"])))
    assert (sample.tokens, sample.logprob, sample.step_tokens) == (3, -1.5, ())


@pytest.mark.parametrize(
    ("reply", "text", "finish"),
    [
        (completion("4 + 4 = 8"), "4 + 4 = 8", "delimiter"),  # nobody says
        (completion(" "), " ", "stop"),
        (completion("The answer is 8"), "The answer is 8", "stop"),
        (completion("So", reason="length"), "So", "length"),
        (completion("So", stop_reason="\n"), "So", "delimiter"),
        (completion("So", stop_reason=None), "So", "stop"),
        (completion("So", stop_reason="Question:"), "So", "stop"),
        (completion("So", matched_stop="\n"), "So", "delimiter"),
        (completion("So", matched_stop=151645), "So", "stop"),
        (completion("So", logprobs=listing(["So", ""])), "So", "stop"),  # llama.cpp's end of text
        (completion("So\nmore"), "So", "delimiter"),  # a server that does not stop
        (completion("So\nmore", reason="length"), "So", "delimiter"),
        (completion("So Question: more\n"), "So ", "stop"),
    ],
)
def test_what_ended_a_step(reply, text, finish):
    sample = only(reply, STEP)
    assert (sample.text, sample.finish) == (text, finish)


def test_a_stop_reason_that_the_probe_found_to_be_no_use_is_not_believed():
    assert only(completion("So", stop_reason=None), STEP, tells=False).finish == "delimiter"


def test_choices_come_by_their_index_and_share_the_count_by_length():
    reply = {
        "choices": [
            {"index": 1, "text": "bbb", "finish_reason": "stop"},
            {"index": 0, "text": "a", "finish_reason": "stop"},
        ],
        "usage": {"completion_tokens": 8},
    }
    samples = to_samples(read_choices(reply, Told(False)), ROLLOUT, completion_tokens(reply))
    assert [(sample.text, sample.tokens) for sample in samples] == [("a", 2), ("bbb", 6)]


@pytest.mark.parametrize("count", [-1, "many", None, 1.5])
def test_a_count_that_is_none_is_unknown(count):
    assert completion_tokens({"usage": {"completion_tokens": count}}) is None
    assert completion_tokens({"usage": count}) is None


def test_a_count_fits_the_tables():
    assert completion_tokens({"usage": {"completion_tokens": 10**15}}) == 2**31 - 1


def test_a_filtered_completion_is_an_error_sample():
    assert only(completion("x", reason="content_filter")).finish == "error"


# Reasoning that a server keeps apart


def thought(content: str | None, reasoning: str = "2 + 2?\n", reason: str = "stop", **more: Any) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "reasoning_content": reasoning}
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason, **more}]}


def said(reply: dict[str, Any], stops: Stops = ROLLOUT, **options: Any) -> Sample:
    (sample,) = to_samples(read_choices(reply, Told(True, **options)), stops, completion_tokens(reply))
    return sample


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"content": "4", "reasoning_content": "2 + 2"}, "<think>2 + 2</think>4"),
        ({"content": "4", "reasoning": "2 + 2"}, "<think>2 + 2</think>4"),
        ({"content": "4", "reasoning_content": "2 + 2", "reasoning": "2 + 2"}, "<think>2 + 2</think>4"),
        ({"content": None, "reasoning_content": "2 + 2"}, "<think>2 + 2"),
        ({"content": "", "reasoning": "2 + 2"}, "<think>2 + 2"),
        ({"reasoning": "2 + 2"}, "<think>2 + 2"),
        ({"content": "4", "reasoning_content": None}, "4"),
        ({"content": "4", "reasoning_content": ""}, "4"),
        ({"content": "4", "reasoning": {"effort": "high"}}, "4"),
        ({"content": "<think>2 + 2</think>4"}, "<think>2 + 2</think>4"),
        ({"content": None}, ""),
    ],
)
def test_reasoning_that_is_kept_apart_is_put_back_where_it_was_written(message, text):
    assert said({"choices": [{"message": message, "finish_reason": "stop"}]}).text == text


def test_reasoning_goes_on_where_the_steps_so_far_were_reasoning():
    assert said(thought("4"), thinking=True).text == "2 + 2?\n</think>4"
    ended = said(thought("4", reasoning=""), thinking=True, apart=True)
    assert ended.text == "</think>4"  # the model's first word was the end of its reasoning
    assert said(thought("4", reasoning=""), thinking=True).text == "4"
    assert said(thought("4"), think_open="<|think|>", think_close="<|/think|>").text == "<|think|>2 + 2?\n<|/think|>4"


@pytest.mark.parametrize("tag", [[], ["<think>"], ["<th", "ink>"]], ids=["template's", "own", "split"])
def test_tokens_of_reasoning_belong_to_its_steps(tag):
    tokens = [*tag, "2", " +", " 2?", "\n", "</think>", "4", "<eos>"]
    content = [{"token": token, "logprob": -0.5} for token in tokens]
    sample = said(thought("4", logprobs={"content": content}))
    assert sample.text == "<think>2 + 2?\n</think>4"
    assert sample.step_tokens == (4 + len(tag), 3)
    assert sample.logprob == -0.5 * len(tokens)


def test_stop_strings_in_reasoning_end_a_step_and_no_rollout():
    reply = thought("So 4 Question: more", reasoning="Question: 2 + 2?\nWait\n")
    assert said(reply).text == "<think>Question: 2 + 2?\nWait\n</think>So 4 "
    step = said(thought("So 4", reasoning="2 + 2?\nWait\n"), STEP)
    assert (step.text, step.finish) == ("<think>2 + 2?", "delimiter")


def test_a_token_limit_within_reasoning_leaves_it_open():
    sample = said(thought(None, reason="length"))
    assert (sample.text, sample.finish) == ("<think>2 + 2?\n", "length")


@pytest.mark.parametrize(
    "reply",
    [
        {},
        {"choices": {}},
        {"choices": []},
        {"choices": ["x"]},
        {"choices": [{"text": "x"}]},
        {"choices": [{"finish_reason": "stop"}]},
        {"choices": [{"text": 5, "finish_reason": "stop"}]},
        {"choices": [{"text": "x", "finish_reason": None}]},
        {"choices": [{"text": "x", "finish_reason": "abort"}]},
    ],
)
@pytest.mark.parametrize("chat", [False, True])
def test_a_reply_that_lacks_a_field_may_be_asked_for_again(reply, chat):
    with pytest.raises(RequestFailedError) as caught:
        read_choices(reply, Told(chat))
    assert caught.value.retryable


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        ({}, (0, None)),
        ({"usage": None}, (0, None)),
        ({"usage": {"prompt_tokens": 12}}, (12, None)),
        ({"usage": {"prompt_tokens": 12, "prompt_tokens_details": None}}, (12, None)),
        ({"usage": {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 8}}}, (12, 8)),
        ({"usage": {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 0}}}, (12, 0)),
        ({"usage": {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": 40}}}, (12, 12)),
        ({"usage": {"prompt_tokens": 12, "prompt_tokens_details": {"cached_tokens": "8"}}}, (12, None)),
        ({"usage": {"prompt_tokens": 12}, "timings": {"cache_n": 8, "prompt_n": 4}}, (12, 8)),
        ({"usage": {"prompt_tokens": 12}, "timings": {"cache_n": -1}}, (12, None)),
        ({"usage": {"prompt_tokens": 10**30, "prompt_tokens_details": {"cached_tokens": 10**30}}}, (2**31 - 1,) * 2),
    ],
)
def test_what_a_reply_says_of_its_prompt(reply, found):
    assert prompt_tokens(reply) == found
