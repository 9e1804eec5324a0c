"""`LocalPolicy` on the real default model, and the reading of llama.cpp's events on made-up ones.

The real model is used where it lies in the user's cache; slow tests download it.
"""

import asyncio
import importlib.util
import math
import subprocess
import sys
import textwrap
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from treeforge.config import SamplingConfig, StepsConfig
from treeforge.errors import ConfigError, MissingExtraError, PolicyUnavailableError, RequestFailedError
from treeforge.policy import models
from treeforge.policy.base import PromptCache
from treeforge.policy.llamacpp import _failure
from treeforge.policy.local import LocalPolicy, _context, _Stream
from treeforge.policy.prompts import PRESETS, render, render_chat
from treeforge.policy.steps import parse, split_steps
from treeforge.problem import make_problem
from treeforge.sample import Mode, Request, Sample
from treeforge.tree import Finish

T = TypeVar("T")
MODEL = "smollm2-135m"
PRESET = PRESETS["smollm"]
# One example instead of eight: evaluating the eight takes most of a short test's time.
EXAMPLE = "Question: What is 7 * 8 - 15?\nAnswer:\nFirst, 7 * 8 = 56.\nThen, 56 - 15 = 41.\nThe answer is 41.\n\n"
BRIEF = msgspec.structs.replace(PRESET.steps, prompt=EXAMPLE + "Question: {question}\nAnswer:\n")
QUICK = SamplingConfig(temperature=0.8, max_tokens=24, max_step_tokens=24)
ENDLESS = SamplingConfig(temperature=0.8, max_tokens=400)
QUESTION = "Ann has 5 red cups and 3 blue cups. How many cups does Ann have?"


def request(mode: Mode = "rollout", n: int = 2, prefix: str = "", seed: int = 7, question: str = QUESTION) -> Request:
    return Request(problem=make_problem(question, "8"), prefix=prefix, n=n, mode=mode, seed=seed, digest=b"", tree=0)


def with_policy(
    use: Callable[[LocalPolicy], Awaitable[T]],
    *,
    steps: StepsConfig = BRIEF,
    sampling: SamplingConfig = QUICK,
    slots: int = 4,
    model: str = MODEL,
) -> T:
    async def run() -> T:
        policy = LocalPolicy(model, steps, sampling, slots=slots)
        try:
            await policy.start()
            return await use(policy)
        finally:
            await policy.close()

    return asyncio.run(run())


def sample_once(*requests: Request, **options: Any) -> list[tuple[Sample, ...]]:
    async def use(policy: LocalPolicy) -> list[tuple[Sample, ...]]:
        return [await policy.sample(one) for one in requests]

    return with_policy(use, **options)


def need_xllamacpp() -> None:
    # Not imported here: its OpenMP would be loaded without the settings that the policy gives it.
    if importlib.util.find_spec("xllamacpp") is None:
        pytest.skip("xllamacpp is not installed")


@pytest.fixture
def cached_model() -> None:
    need_xllamacpp()
    if models.cached(models.MODELS[MODEL]) is None:
        pytest.skip(f"{MODEL} is not downloaded; the slow tests do, or: treeforge models pull {MODEL}")


@pytest.fixture(scope="module")
def pulled_model() -> None:
    need_xllamacpp()
    models.pull(MODEL)


# Without a model ------------------------------------------------------------------------------------------------------


class Texts:
    """Stands in for the engine where only token texts are asked for."""

    def __init__(self, texts: dict[int, str]) -> None:
        self.texts = texts

    def token_text(self, token: int) -> str:
        return self.texts[token]


def event(
    text: str, token: int, predicted: int, logprob: float = -1.0, *, ended: tuple[str, str] | None = None
) -> dict[str, Any]:
    native: dict[str, Any] = {"content": text, "tokens": [token], "tokens_predicted": predicted, "stop": False}
    native["completion_probabilities"] = [{"id": token, "logprob": logprob}]
    if ended is not None:
        native |= {"stop": True, "stop_type": ended[0], "stopping_word": ended[1], "tokens": []}
        del native["completion_probabilities"]
    return {"choices": [{"index": 0}], "__verbose": native}


def read(
    *events: dict[str, Any], texts: dict[int, str] | None = None, step: bool = False, delimiter: str = "\n"
) -> Sample:
    stream = _Stream(Texts(texts or {}), delimiter, step)  # type: ignore[arg-type]
    for one in events:
        stream.add(one)
    return stream.sample()


def test_tokens_belong_to_the_step_in_which_they_start():
    sample = read(
        event("a", 1, 1, -0.5),
        event("\n", 2, 2, -0.25),
        event("b", 3, 3, -2.0),
        event("", 0, 4, -1.0),  # end of text: paid for, and part of the last step's chance
        event("", 0, 4, ended=("eos", "")),
    )
    assert sample == Sample("a\nb", "stop", 4, -3.75, (2, 2), (-0.75, -3.0))


def test_text_kept_back_for_a_stop_string_is_given_to_its_own_tokens():
    # "\n" may be the start of the stop string "\n\n", so llama.cpp sends it together with the next token's text.
    sample = read(
        event("a", 1, 1),
        event("", 2, 2, -0.25),
        event("\nb", 3, 3, -2.0),
        event("", 3, 3, ended=("limit", "")),
        texts={2: "\n"},
    )
    assert sample == Sample("a\nb", "length", 3, -3.25, (2, 1), (-1.25, -2.0))


def test_tokens_that_end_inside_a_character_are_counted():
    sample = read(event("a\n", 1, 1), event("🙂", 2, 4), event("b", 3, 5), event("", 0, 5, ended=("eos", "")))
    assert sample == Sample("a\n🙂b", "stop", 5, None, (1, 4), ())


@pytest.mark.parametrize(
    ("ended", "step", "finish"),
    [
        (("word", "\n"), True, "delimiter"),
        (("word", "\n"), False, "stop"),
        (("word", "Question:"), True, "stop"),
        (("eos", ""), True, "stop"),
        (("limit", ""), True, "length"),
    ],
)
def test_finish_reasons(ended: tuple[str, str], step: bool, finish: str):
    assert read(event("a", 1, 1), event("", 0, 1, ended=ended), step=step).finish == finish


def test_a_completion_that_is_broken_off_is_asked_for_again():
    with pytest.raises(RequestFailedError) as caught:
        read(event("a", 1, 1), event("", 0, 1, ended=("none", "")))
    assert caught.value.retryable


def test_what_the_cache_had_of_the_prompt_comes_with_the_end():
    stream = _Stream(Texts({}), "\n", False)  # type: ignore[arg-type]
    assert stream.prompt == PromptCache(0, 0)
    last = event("", 0, 1, ended=("eos", ""))
    last["__verbose"]["timings"] = {"cache_n": 30, "prompt_n": 12}
    stream.add(last)
    assert stream.prompt == PromptCache(42, 30)


def test_an_empty_completion_has_no_steps():
    assert read(event("", 0, 1, -0.5), event("", 0, 1, ended=("eos", ""))) == Sample("", "stop", 1, -0.5)


@given(
    tokens=st.lists(st.sampled_from(["a", "b c", ".\n", "\n", "\n\n", "Step 2:", " "]), min_size=1, max_size=30),
    kept=st.lists(st.booleans(), min_size=30, max_size=30),
)
def test_alignment_whatever_is_kept_back(tokens: list[str], kept: list[bool]):
    events, pending = [], ""
    for i, token in enumerate(tokens):
        pending += token
        held = kept[i] and i < len(tokens) - 1
        events.append(event("" if held else pending, i, i + 1, -float(i)))
        if not held:
            pending = ""
    events.append(event("", 0, len(tokens), ended=("limit", "")))
    sample = read(*events, texts=dict(enumerate(tokens)), delimiter="\n\n")
    text = "".join(tokens)
    steps = split_steps(text, "\n\n")
    expected, position = [0] * len(steps), 0
    ends = [sum(map(len, steps[: i + 1])) for i in range(len(steps))]
    for token in tokens:
        expected[next(i for i, end in enumerate(ends) if position < end)] += 1
        position += len(token)
    assert sample.text == text
    assert sample.step_tokens == tuple(expected)
    assert sum(sample.step_tokens) == sample.tokens == len(tokens)
    assert math.isclose(sum(sample.step_logprobs), sample.logprob or 0.0)


def test_errors_of_the_native_server():
    too_long = _failure(
        {"error": {"code": 400, "type": "exceed_context_size_error", "message": "…", "n_prompt_tokens": 9, "n_ctx": 4}}
    )
    assert isinstance(too_long, RequestFailedError)
    assert not too_long.retryable
    assert "9 tokens" in str(too_long)
    overloaded = _failure({"error": {"code": 503, "type": "unavailable_error", "message": "busy"}})
    assert isinstance(overloaded, RequestFailedError)
    assert overloaded.retryable
    refused = _failure({"code": 400, "message": "bad field"})
    assert isinstance(refused, RequestFailedError)
    assert not refused.retryable
    assert isinstance(_failure({"choices": []}), PolicyUnavailableError)


def test_without_xllamacpp_the_pip_line_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    file = tmp_path / "any.gguf"
    file.write_bytes(b"GGUF")
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"pip install 'treeforge\[local\]'"):
        sample_once(request(), model=str(file))


def test_an_unknown_model_is_a_config_error():
    with pytest.raises(ConfigError, match="no model 'nonsense'"):
        sample_once(request(), model="nonsense")


def test_sampling_before_start_and_after_close():
    async def run() -> None:
        policy = LocalPolicy(MODEL, PRESET.steps, QUICK, slots=1)
        assert policy.identity == {}
        with pytest.raises(PolicyUnavailableError, match="not started"):
            await policy.sample(request())
        await policy.close()
        await policy.close()
        with pytest.raises(PolicyUnavailableError, match="closed"):
            await policy.sample(request())

    asyncio.run(run())


def test_a_slot_holds_template_question_steps_and_completion():
    assert _context(StepsConfig(), SamplingConfig(max_tokens=256)) == 1536 + 256
    assert _context(PRESETS["qwen-math"].steps, PRESETS["qwen-math"].sampling) > 2 * 2048 + 1024


@pytest.mark.parametrize("data", [b"GGUF", b"GGUF" + b"\xff" * 4096])
def test_a_damaged_file_is_told_before_the_run(data: bytes, tmp_path: Path):
    need_xllamacpp()
    file = tmp_path / "damaged.gguf"
    file.write_bytes(data)
    with pytest.raises(PolicyUnavailableError, match=r"cannot load damaged\.gguf"):
        sample_once(request(), model=str(file))


class CountingServer:
    """llama.cpp's server, and what reached it: completions started and events sent back."""

    def __init__(self, server: Any) -> None:
        self.server, self.started, self.events = server, 0, 0

    def handle_completions(self, body: dict[str, Any], receive: Callable[[dict[str, Any]], bool]) -> None:
        def counted(chunk: dict[str, Any]) -> bool:
            self.events += 1
            return receive(chunk)

        self.started += 1
        self.server.handle_completions(body, counted)

    async def first_event(self) -> None:
        while self.events == 0:
            await asyncio.sleep(0.01)


def count(policy: LocalPolicy) -> CountingServer:
    engine = policy._engine
    assert engine is not None
    engine._server = CountingServer(engine._server)
    return engine._server


# With the real model --------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("cached_model")
def test_a_step_and_a_rollout():
    (steps, rollouts) = sample_once(request("step"), request("rollout"), slots=2)
    assert all(sample.finish in ("delimiter", "stop", "length") for sample in steps + rollouts)
    for sample in steps:
        assert "\n" not in sample.text
        if sample.finish == "delimiter" and sample.text.strip():
            parsed = parse(sample, PRESET.steps, max_steps=16)
            assert parsed[0] == [sample.text + "\n"]
            assert parsed[1] in (Finish.OPEN, Finish.ANSWERED)
    for sample in rollouts:
        assert 1 <= sample.tokens <= QUICK.max_tokens
        assert len(sample.step_tokens) == len(split_steps(sample.text, "\n"))
        assert sample.logprob is not None
        assert sample.logprob < 0


@pytest.mark.slow
@pytest.mark.usefixtures("pulled_model")
class TestRealModel:
    def test_samples_of_a_request_have_seeds_of_their_own(self):
        async def use(policy: LocalPolicy) -> None:
            many = request(n=5, seed=2**62 + 11)  # more than the slots
            (samples, others) = await asyncio.gather(policy.sample(many), policy.sample(request(n=5, seed=3)))
            assert len(samples) == len(others) == 5
            assert len({sample.text for sample in samples}) > 1
            assert samples != others

        with_policy(use, slots=2)

    def test_greedy(self):
        greedy = msgspec.structs.replace(QUICK, temperature=0.0)
        (samples,) = sample_once(request(n=3, seed=1), sampling=greedy)
        assert len({sample.text for sample in samples}) == 1

    def test_counts_and_logprobs_add_up(self):
        long = msgspec.structs.replace(QUICK, max_tokens=60)
        (samples,) = sample_once(request(n=4), sampling=long, slots=8)
        assert any(len(split_steps(sample.text, "\n")) > 1 for sample in samples)
        for sample in samples:
            if sample.text:
                assert sum(sample.step_tokens) == sample.tokens
            if sample.logprob is not None:
                assert math.isclose(sum(sample.step_logprobs), sample.logprob if sample.text else 0.0, rel_tol=1e-9)

    def test_a_prompt_counts_once_for_its_samples_and_is_in_the_cache_when_it_is_asked_again(self):
        async def use(policy: LocalPolicy) -> None:
            assert policy.prompt_cache is None
            await policy.sample(request(n=2))
            first = msgspec.structs.replace(policy.prompt_cache)
            await policy.sample(request(n=2, seed=8))
            # At least one token is evaluated, for the first one that is sampled.
            assert policy.prompt_cache == PromptCache(2 * first.prompt, first.cached + first.prompt - 1)

        with_policy(use, slots=4)

    def test_a_step_has_the_same_chance_alone_and_in_a_rollout(self):
        greedy = SamplingConfig(temperature=0.0, max_tokens=80, max_step_tokens=80)
        requests = [request("step", n=1), request("step", n=1), request("rollout", n=1)]
        # The first leaves its prompt in the only slot, so that the other two start alike, to the last rounding.
        (_, (step,), (rollout,)) = sample_once(*requests, sampling=greedy, slots=1)
        assert split_steps(rollout.text, "\n")[0] == step.text + "\n"
        assert rollout.step_tokens[0] == step.tokens
        assert step.logprob is not None
        assert math.isclose(rollout.step_logprobs[0], step.logprob, rel_tol=0.02, abs_tol=0.02)

    @pytest.mark.parametrize("prefix", ["", "Step 1: Add.\n\n"])
    def test_chat_sends_what_the_models_own_template_makes(self, prefix: str):
        steps = msgspec.structs.replace(PRESETS["qwen-chat"].steps, system="Be brief.")

        async def use(policy: LocalPolicy) -> None:
            engine = policy._engine
            assert engine is not None
            expected = engine._post("/apply-template", {"messages": render_chat(steps, QUESTION, prefix)})["prompt"]
            assert render(policy._format, QUESTION, prefix) == expected
            assert "<|im_start|>system\nBe brief.<|im_end|>" in expected
            assert expected.endswith("<|im_start|>assistant\n" + prefix)
            (sample,) = await policy.sample(request("step", n=1, prefix=prefix))
            assert sample.tokens > 0

        with_policy(use, steps=steps)

    def test_every_slot_starts_with_the_few_shot_examples(self):
        async def use(policy: LocalPolicy) -> None:
            engine = policy._engine
            assert engine is not None
            head = PRESET.steps.prompt.partition("{question}")[0]
            for slot in range(4):
                body = {"prompt": head + "What is 5?", "max_tokens": 1, "id_slot": slot}
                (*_, last) = engine.complete(body, lambda: False)
                assert last["timings"]["prompt_n"] < 20 < last["timings"]["cache_n"]

        with_policy(use, steps=PRESET.steps)

    def test_a_prompt_that_does_not_fit(self):
        async def use(policy: LocalPolicy) -> None:
            with pytest.raises(RequestFailedError, match="tokens, and a slot holds") as caught:
                await policy.sample(request(question="two plus " * 5000))
            assert not caught.value.retryable
            assert len(await policy.sample(request())) == 2

        with_policy(use)

    def test_untrusted_characters_in_the_prompt(self):
        (samples,) = sample_once(request(question="a\0b \ud800 {question} 🙂", prefix="é\n"))
        assert len(samples) == 2

    def test_a_template_longer_than_the_context(self):
        steps = msgspec.structs.replace(PRESET.steps, prompt="one two three " * 4000 + "{question}")
        with pytest.raises(ConfigError, match="does not fit"):
            sample_once(request(), steps=steps, slots=1)

    def test_cancelling_frees_the_slots(self):
        async def use(policy: LocalPolicy) -> None:
            counted = count(policy)
            tasks = [asyncio.create_task(policy.sample(request(n=2, seed=i))) for i in range(6)]
            await counted.first_event()
            for task in tasks:
                task.cancel()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(outcome, asyncio.CancelledError) for outcome in done)
            (sample,) = await policy.sample(request("step", n=1))
            assert sample.tokens > 0
            assert counted.started == 2 + 1  # four slots hold two of the six; the others never reached llama.cpp
            assert counted.events < ENDLESS.max_tokens  # of four times that

        with_policy(use, sampling=ENDLESS, steps=msgspec.structs.replace(BRIEF, stop=()))

    def test_closing_while_sampling(self):
        async def use(policy: LocalPolicy) -> None:
            counted = count(policy)
            tasks = [asyncio.create_task(policy.sample(request(n=2, seed=i))) for i in range(12)]
            await counted.first_event()
            await policy.close()
            done = await asyncio.gather(*tasks, return_exceptions=True)
            assert all(isinstance(outcome, PolicyUnavailableError) for outcome in done)
            assert counted.started == 2
            assert counted.events < ENDLESS.max_tokens

        with_policy(use, sampling=ENDLESS, steps=msgspec.structs.replace(BRIEF, stop=()))

    def test_identity(self):
        async def use(policy: LocalPolicy) -> dict[str, Any]:
            return policy.identity

        identity = with_policy(use, slots=1)
        assert identity["backend"] == "local"
        assert identity["model"] == MODEL
        assert identity["sha256"] == models.MODELS[MODEL].sha256
        assert identity["engine"].startswith("xllamacpp ")
        path = models.find_model(MODEL)
        assert with_policy(use, slots=1, model=str(path)) == identity | {"model": path.name}

    def test_nothing_is_printed_and_no_close_is_no_crash(self):
        code = """
            import asyncio
            import msgspec
            from treeforge.policy.local import LocalPolicy
            from treeforge.policy.prompts import PRESETS
            from treeforge.problem import make_problem
            from treeforge.sample import Request

            async def main():
                preset = PRESETS["smollm"]
                steps = msgspec.structs.replace(preset.steps, prompt="{question}")
                policy = LocalPolicy("smollm2-135m", steps, preset.sampling, slots=2)
                await policy.start()
                problem = make_problem("What is 2 + 3?", "5")
                await policy.sample(Request(problem, "", 2, "step", 1, b"", 0))
                asyncio.create_task(policy.sample(Request(problem, "", 2, "rollout", 2, b"", 0)))
                await asyncio.sleep(0.05)

            asyncio.run(main())
        """
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(code)], capture_output=True, text=True, timeout=600, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
