"""`VllmPolicy` on the real vLLM and a small real model, on the CPU. `make test-vllm` runs this in its own environment.

One engine serves all tests; see `conftest.py`.
"""

import asyncio
import importlib.util
import json
import math
import re
from pathlib import Path
from typing import Any

import msgspec
import pytest
from support.real_vllm import ENGINE, MAX_LEN, MODEL, QUESTIONS, QUICK, STEPS, request

from treeforge.config import Machine, PolicyConfig, SamplingConfig, StepsConfig
from treeforge.errors import ConfigError, RequestFailedError
from treeforge.policy import models
from treeforge.policy.checkpoint import Checkpoint
from treeforge.policy.prompts import PRESETS, render
from treeforge.policy.steps import split_steps
from treeforge.sample import Sample

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(importlib.util.find_spec("vllm") is None, reason="needs vLLM: make test-vllm"),
]


def test_converted_weights_are_those_of_the_gguf_file(folder):
    import gguf
    from safetensors.torch import load_file

    reader = gguf.GGUFReader(models.find_model(MODEL))
    tensor = next(one for one in reader.tensors if one.name == "blk.3.ffn_down.weight")
    expected = gguf.dequantize(tensor.data, tensor.tensor_type)
    found = load_file(folder / "model.safetensors")["model.layers.3.mlp.down_proj.weight"].numpy()
    assert found.shape == expected.shape
    assert abs(found - expected).max() == 0
    assert "<|im_start|>" in (folder / "chat_template.jinja").read_text()


def test_identity(loaded, adapter):
    identity = loaded.policy.identity
    assert identity["backend"] == "vllm"
    assert identity["model"] == MODEL
    assert identity["engine"] == "vllm 0.32.0"
    assert identity["options"] == ENGINE
    assert {len(identity[key]) for key in ("weights", "tokenizer", "adapter")} == {32}
    assert "/" not in json.dumps(identity)


def test_n_samples_with_tokens_and_logprobs_a_step(loaded):
    (samples,) = loaded.ask(request(n=6))
    assert len(samples) == 6
    assert len({one.text for one in samples}) > 1
    for one in samples:
        steps = split_steps(one.text, STEPS.delimiter)
        assert one.finish in ("stop", "length")
        assert one.tokens == QUICK.max_tokens if one.finish == "length" else 0 < one.tokens <= QUICK.max_tokens
        assert len(one.step_tokens) == len(one.step_logprobs) == len(steps)
        assert sum(one.step_tokens) == one.tokens
        assert math.fsum(one.step_logprobs) == pytest.approx(one.logprob)
        assert one.logprob < 0
        assert not any(string in one.text for string in STEPS.stop)


def test_logprobs_are_the_models_own(loaded, folder):
    """At temperature 1, whatever the sampling's temperature and top_k: checked with transformers."""
    import torch
    from transformers import AutoModelForCausalLM

    sampling = SamplingConfig(temperature=0.5, top_k=20, max_tokens=12)
    policy = loaded.variant(sampling=sampling)
    (one,) = loaded.run(policy.sample(request(n=1)))
    prompt, _ = policy._prefixes.tokens(QUESTIONS[0], "")
    ids = Checkpoint(MODEL, {}).encode(one.text, False)[: one.tokens]
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.no_grad():
        logits = model(torch.tensor([prompt + ids])).logits[0]
    logprobs = torch.log_softmax(logits, -1)
    expected = [float(logprobs[len(prompt) - 1 + i, token]) for i, token in enumerate(ids)]
    first = len(Checkpoint(MODEL, {}).encode(split_steps(one.text, "\n")[0], False))
    assert one.step_logprobs[0] == pytest.approx(sum(expected[:first]), abs=2e-3)


def test_seeds_repeat_exactly_and_each_sample_has_its_own(loaded):
    # The first one fills the cache; the last bits of a cold prompt's logits are others.
    _, once, again, shifted, other = loaded.ask(
        *(request(n=3, seed=seed) for seed in (7, 7, 7, 8, 1234567)), sampling=SamplingConfig(max_tokens=16)
    )
    assert again == once
    assert [one.text for one in shifted[:2]] == [one.text for one in once[1:]]
    assert [one.text for one in other] != [one.text for one in once]


def test_a_seed_repeats_in_other_company(loaded):
    short = SamplingConfig(max_tokens=16)

    async def together() -> list[tuple[Sample, ...]]:
        policy = loaded.variant(sampling=short)
        return await asyncio.gather(*(policy.sample(request(seed=seed)) for seed in range(4)))

    alone = loaded.ask(*(request(seed=seed) for seed in range(4)), sampling=short)
    assert [[one.text for one in many] for many in loaded.run(together())] == [
        [one.text for one in many] for many in alone
    ]


def test_step_mode_stops_at_the_delimiter(loaded):
    (samples,) = loaded.ask(request(mode="step", n=6))
    assert any(one.finish == "delimiter" for one in samples)
    assert not any("\n" in one.text for one in samples)


def test_stop_strings_inside_a_token(loaded):
    greedy = SamplingConfig(temperature=0, max_tokens=24)
    ((plain,),) = loaded.ask(request(n=1), sampling=greedy)
    token = re.findall("[A-Za-z]{4,}", plain.text)[-1]
    inside = token[1:3]
    cut = plain.text.index(inside)
    stops = msgspec.structs.replace(STEPS, stop=(inside,))
    ((stopped,),) = loaded.ask(request(n=1), steps=stops, sampling=greedy)
    assert stopped.text == plain.text[:cut]
    assert stopped.finish == "stop"
    # The token that was cut counts: it was sampled.
    kept = Checkpoint(MODEL, {}).encode(plain.text[: plain.text.index(token)], False)
    assert stopped.tokens == sum(stopped.step_tokens) > len(kept)
    delimiter = msgspec.structs.replace(STEPS, delimiter=inside, stop=())
    ((step,),) = loaded.ask(request(mode="step", n=1), steps=delimiter, sampling=greedy)
    assert (step.text, step.finish) == (plain.text[:cut], "delimiter")


def test_length_and_greedy(loaded):
    ((first, second, third),) = loaded.ask(request(n=3), sampling=SamplingConfig(temperature=0, max_tokens=3))
    assert first == second == third
    assert (first.finish, first.tokens) == ("length", 3)


def test_a_prefix_is_sent_with_the_ids_that_were_sampled_and_hits_the_cache(loaded):
    policy = loaded.variant(sampling=SamplingConfig(max_tokens=4, max_step_tokens=32))
    llm, sent, outputs = policy._engine.llm, [], []

    class Listening:
        async def generate(self, prompt: Any, *rest: Any, **options: Any) -> Any:
            sent.append(prompt["prompt_token_ids"])
            async for output in llm.generate(prompt, *rest, **options):
                outputs.append(output)
                yield output

    policy._engine.llm = Listening()
    loaded.run(policy.sample(request(mode="step", n=8)))
    newline = Checkpoint(MODEL, {}).encode("\n", False)
    sampled: dict[str, list[int]] = {}
    for one in outputs[0].outputs:
        if one.stop_reason == "\n" and one.token_ids[-1:] == newline:
            sampled.setdefault(one.text, list(one.token_ids))
    assert sampled
    for text, ids in sampled.items():
        before = policy.prompt_cache.cached
        loaded.run(policy.sample(request(n=1, prefix=text + "\n")))
        assert sent[-1] == sent[0] + ids
        # All full blocks of 32 tokens of the prompt before are there.
        assert policy.prompt_cache.cached - before >= len(sent[0]) // 32 * 32


def test_a_prompt_that_is_too_long_is_refused_for_good(loaded):
    with pytest.raises(RequestFailedError, match=rf"vLLM: .*{MAX_LEN}") as raised:
        loaded.ask(request(question="cups " * 3000))
    assert not raised.value.retryable


def test_a_cancelled_request_leaves_the_engine(loaded):
    async def work() -> int:
        policy = loaded.variant(sampling=SamplingConfig(max_tokens=300))
        tasks = [asyncio.create_task(policy.sample(request(n=4, seed=seed))) for seed in range(3)]
        while policy._engine.llm.get_num_unfinished_requests() < 12:
            await asyncio.sleep(0.01)
        for task in tasks:
            task.cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(isinstance(one, asyncio.CancelledError) for one in done)
        return policy._engine.llm.get_num_unfinished_requests()

    assert loaded.run(work()) == 0


def test_an_adapter_changes_the_answers(loaded):
    greedy = SamplingConfig(temperature=0, max_tokens=16)
    plain, adapted = loaded.ask(request(n=1), sampling=greedy), loaded.ask(request(n=1), sampling=greedy, adapted=True)
    assert plain[0][0].text != adapted[0][0].text


def test_chat_is_the_tokenizers_own_template():
    checkpoint = Checkpoint(MODEL, {})
    chat = PRESETS["qwen-chat"].steps
    found = render(checkpoint.as_completion(chat), "What is {1+1}?", "Step 1: Add.\n\n")
    messages = [{"role": "user", "content": chat.prompt.replace("{question}", "What is {1+1}?")}]
    template = checkpoint._tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert found == template + "Step 1: Add.\n\n"
    continued = [*messages, {"role": "assistant", "content": "Step 1: Add.\n\nStep 2"}]
    assert (found + "Step 2").startswith(
        checkpoint._tokenizer.apply_chat_template(continued, tokenize=False, continue_final_message=True)
    )


@pytest.mark.parametrize(
    ("template", "said"),
    [
        (None, "has no chat template: a base model"),
        ("{{ raise_exception('roles must alternate') }}", "does not fit .* chat template: roles must alternate"),
        ("{{ messages[0]['role'] }}", "leaves the user's message out"),
        ("{{ messages[-1]['content'] }}", "leaves the system message out"),
    ],
)
def test_wrong_chat_templates(template, said):
    checkpoint = Checkpoint(MODEL, {})
    checkpoint._tokenizer.chat_template = template
    with pytest.raises(ConfigError, match=said):
        checkpoint.as_completion(PRESETS["qwen-math"].steps)


def start(model: str = MODEL, *, logs: Path | None = None, steps: StepsConfig = STEPS, **engine: Any) -> None:
    from treeforge.policy.vllm import VllmPolicy

    config = PolicyConfig(backend="vllm", model=model, engine=engine)
    policy = VllmPolicy(config, steps, QUICK, Machine(), logs=logs)

    async def work() -> None:
        try:
            await policy.start()
        finally:
            await policy.close()

    asyncio.run(work())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max_model_length": 9}, "vllm 0.32.0 has no such engine argument; did you mean max_model_len"),
        ({"dtype": "float33"}, "policy.engine: vLLM refuses model or arguments: .*float33"),
        ({"max_model_len": 10**6}, "policy.engine: vLLM refuses model or arguments: .*8192"),
        ({"quantization": "awq"}, "policy.engine: vLLM refuses model or arguments: .*awq"),
        ({"model": "somebody/no-such-model"}, "'somebody/no-such-model' cannot be read as a model"),
        ({"model": "/no/such/folder"}, "there is no folder /no/such/folder"),
        ({"model": "qwen2.5-coder-0.5b"}, "`treeforge models convert qwen2.5-coder-0.5b`"),
    ],
)
def test_errors_before_anything_is_loaded(options, said, monkeypatch, tmp_path):
    if options.get("model") == "qwen2.5-coder-0.5b":
        monkeypatch.setenv("TREEFORGE_CACHE", str(tmp_path))
    with pytest.raises(ConfigError, match=said):
        start(**options)


@pytest.mark.vllm_long
def test_a_model_that_does_not_fit_says_so(tmp_path):
    with pytest.raises(ConfigError, match=r"vLLM cannot load smollm2-135m: ValueError: .*KV cache.*vllm\.log"):
        start(logs=tmp_path, dtype="float32", max_model_len=8192, kv_cache_memory_bytes=64 << 20, enforce_eager=True)
    assert "Traceback" in (tmp_path / "vllm.log").read_text()
