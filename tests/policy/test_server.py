"""`ServerPolicy` against a server of ours that fails on purpose."""

import asyncio
import logging
import math
from collections import Counter
from contextlib import suppress
from typing import Any

import msgspec
import pytest
from support.misbehaving import MisbehavingServer
from support.served import CHAT, COMPLETION, STEP, make, request, started

from treeforge.config import SamplingConfig
from treeforge.errors import ConfigError, PolicyError, PolicyUnavailableError, RequestFailedError
from treeforge.policy.base import Policy, PromptCache, Request, Sample
from treeforge.policy.server import ServerPolicy
from treeforge.policy.steps import parse, split_steps
from treeforge.problem import make_problem
from treeforge.tree import Finish


async def start(*servers: MisbehavingServer | str) -> None:
    async with started(*servers):
        pass


def sample(server: MisbehavingServer, asked: Request, *faults: str, **options: Any) -> tuple[Sample, ...]:
    """Start, then ask once; the faults come after the start."""

    async def run() -> tuple[Sample, ...]:
        async with started(server, **options) as policy:
            server.script(*faults)
            return await policy.sample(asked)

    return asyncio.run(run())


# Samples


@pytest.mark.parametrize("steps", [COMPLETION, CHAT], ids=["completion", "chat"])
def test_rollouts_come_in_one_request_with_counts_and_logprobs_of_every_step(steps):
    with MisbehavingServer() as server:
        samples = sample(server, request(), steps=steps)
        again = sample(server, request(), steps=steps)
        other = sample(server, request(seed=6), steps=steps)
        assert [post.payload["n"] for post in server.posts] == [4]
    assert samples == again != other
    assert len({each.text for each in samples}) > 1
    for each in samples:
        assert each.finish == "stop"
        assert len(each.step_tokens) == len(each.step_logprobs) == len(split_steps(each.text, "\n")) == 2
        assert sum(each.step_tokens) == each.tokens
        assert math.isclose(math.fsum(each.step_logprobs), each.logprob)


@pytest.mark.parametrize("engine", ["vllm", "llama.cpp", "plain", "proxy"])
@pytest.mark.parametrize("steps", [COMPLETION, CHAT], ids=["completion", "chat"])
def test_a_step_ends_at_the_delimiter_or_at_the_end_of_the_text(engine, steps):
    def write(prompt: str, _: object) -> str:
        return "The answer is 42" if prompt.endswith("= 42\n") else "So 17 + 25 = 42\nThe answer is 42"

    with MisbehavingServer(engine=engine, write=write) as server:
        (first,) = sample(server, request("step", n=1), steps=steps)
        (last,) = sample(server, request("step", n=1, prefix=STEP), steps=steps)
    assert (first.text, first.finish) == ("So 17 + 25 = 42", "delimiter")
    assert (last.text, last.finish) == ("The answer is 42", "stop")
    assert sum(first.step_tokens) == first.tokens
    assert len(first.step_tokens) == 1


@pytest.mark.parametrize(("engine", "finish"), [("vllm", "stop"), ("llama.cpp", "stop"), ("plain", "delimiter")])
def test_the_end_of_a_text_without_an_answer_is_told_from_a_delimiter_where_the_server_lets_us(engine, finish):
    with MisbehavingServer(engine=engine, write=lambda *_: "I give up") as server:
        (only,) = sample(server, request("step", n=1))
    assert (only.text, only.finish) == ("I give up", finish)


def test_the_token_limit_of_a_step_is_not_that_of_a_rollout():
    sampling = SamplingConfig(max_tokens=7, max_step_tokens=3)
    with MisbehavingServer() as server:
        (rollout,) = sample(server, request(n=1), sampling=sampling)
        (step,) = sample(server, request("step", n=1), sampling=sampling)
    assert (rollout.finish, rollout.tokens, step.finish, step.tokens) == ("length", 7, "length", 3)


def test_the_recipe_s_sampling_is_sent_in_full_so_that_no_server_default_holds():
    with MisbehavingServer() as server:
        sample(server, request(), sampling=SamplingConfig(temperature=0.7, top_p=0.9, top_k=20))
        sent = server.posts[0].payload
        sample(server, request())
        off = server.posts[0].payload
    assert (sent["temperature"], sent["top_p"], sent["top_k"]) == (0.7, 0.9, 20)
    assert (off["top_k"], off["min_p"], off["repetition_penalty"]) == (-1, 0.0, 1.0)


def test_chat_continues_the_assistant_s_message_where_there_is_one():
    with MisbehavingServer() as server:
        sample(server, request(), steps=CHAT)
        fresh = server.posts[0].payload
        sample(server, request(prefix=STEP), steps=CHAT)
        going_on = server.posts[0].payload
    assert [message["role"] for message in fresh["messages"]] == ["system", "user"]
    assert "continue_final_message" not in fresh
    assert going_on["messages"][-1] == {"role": "assistant", "content": STEP}
    assert going_on["continue_final_message"] is True
    assert going_on["add_generation_prompt"] is False


def test_the_start_of_the_message_is_taken_off_where_the_server_repeats_it():
    with MisbehavingServer(echoes=True, engine="llama.cpp") as server:
        echoed = sample(server, request(prefix=STEP), steps=CHAT)
    with MisbehavingServer(engine="llama.cpp") as server:
        assert sample(server, request(prefix=STEP), steps=CHAT) == echoed
    assert echoed[0].text == "The answer is 42."


def reasoner(prompt: str, _: object) -> str:
    lines = ["<think>", "Add 17 and 25.", "Wait, 42.", "</think>", "The answer is 42."]
    written = [i for i, line in enumerate(lines, 1) if f"{line}\n" in prompt]
    return "\n".join(lines[max(written, default=0) :])


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", ""])
def test_hidden_reasoning_is_part_of_the_text(field):
    whole = "<think>\nAdd 17 and 25.\nWait, 42.\n</think>\nThe answer is 42."
    with MisbehavingServer(write=reasoner, reasoning=field) as server:
        for cut in range(1, len(split_steps(whole, "\n"))):
            prefix = "".join(split_steps(whole, "\n")[:cut])
            (rollout,) = sample(server, request(n=1, prefix=prefix), steps=CHAT)
            assert prefix + rollout.text == whole
            assert sum(rollout.step_tokens) == rollout.tokens
        (fresh,) = sample(server, request(n=1), steps=CHAT)
        assert (fresh.text, fresh.finish) == (whole, "stop")
        opened = msgspec.structs.replace(CHAT, think_open="")  # as by templates that open the section themselves
        (rollout,) = sample(server, request(n=1, prefix="\nAdd 17 and 25.\n"), steps=opened)
        assert rollout.text == "Wait, 42.\n</think>\nThe answer is 42."
        (step,) = sample(server, request("step", n=1, prefix="<think>\nAdd 17 and 25.\n"), steps=CHAT)
        assert (step.text, step.finish) == ("Wait, 42.", "delimiter")


# What servers cannot do


def test_a_chat_that_answers_the_steps_anew_is_found_by_the_lengths_of_prompts(caplog):
    started_steps = msgspec.structs.replace(CHAT, assistant_start="Let us see. ")
    for steps in (CHAT, started_steps):
        for options in ({"ignores": {"continue"}}, {}, {"engine": "llama.cpp", "echoes": True}, {"ignores": {"usage"}}):
            caplog.clear()
            with MisbehavingServer(**options) as server:
                sample(server, request(), steps=steps)
            assert ("does not continue the assistant's message" in caplog.text) == ("continue" in str(options))


def test_a_server_that_ignores_n_is_asked_once_a_sample_with_other_seeds():
    with MisbehavingServer(takes={"logprobs", "seed", "sampling"}, ignores={"n"}) as server:
        samples = sample(server, request(n=8))
        assert len(server.posts) == 8
        assert not any("n" in post.payload for post in server.posts)
        assert len({post.payload["seed"] for post in server.posts}) == 8
        assert samples == sample(server, request(n=8))
    assert len({each.text for each in samples}) > 1


def test_samples_that_are_missing_are_asked_for_again():
    with MisbehavingServer() as server:

        async def run() -> tuple[Sample, ...]:
            async with started(server) as policy:
                server.behaviour.takes -= {"n"}  # since the probe
                server.behaviour.ignores |= {"n"}
                return await policy.sample(request())

        samples = asyncio.run(run())
        assert [post.payload.get("n", 1) for post in server.posts] == [4, 1, 1, 1]
    assert len(samples) == 4


def test_n_beyond_the_server_s_limit_is_learned():
    with MisbehavingServer(most=3) as server:

        async def run() -> list[tuple[Sample, ...]]:
            async with started(server) as policy:
                return [await policy.sample(request(n=8, seed=seed)) for seed in range(2)]

        assert [len(samples) for samples in asyncio.run(run())] == [8, 8]
        sizes = [post.payload["n"] for post in server.posts]
    assert sizes == [8, 4, 2, 2, 2, 2, 2, 2, 2, 2]  # 8 and 4 are refused, then 2 is known


@pytest.mark.parametrize("how", ["refused", "ignored"])
def test_without_logprobs_they_are_unknown_and_tokens_come_from_usage(how):
    options = {"n", "seed", "sampling"}
    with MisbehavingServer(takes=options, ignores={"logprobs"} if how == "ignored" else set()) as server:
        samples = sample(server, request())
        assert "logprobs" not in server.posts[0].payload
    assert {each.logprob for each in samples} == {None}
    assert {each.step_tokens for each in samples} == {()}
    assert all(8 < each.tokens < 14 for each in samples)  # a share of all four's


def test_a_server_that_counts_no_tokens_is_reported(caplog):
    with MisbehavingServer(takes={"n", "seed"}, ignores={"usage", "logprobs", "sampling"}) as server:
        samples = sample(server, request())
    assert {each.tokens for each in samples} == {0}
    assert "counts no tokens" in caplog.text


def test_stop_strings_that_are_ignored_cut_the_text_here():
    with MisbehavingServer(ignores={"stop"}) as server:
        samples = sample(server, request())
        (step,) = sample(server, request("step", n=1))
    for each in samples:
        assert "Question" not in each.text
        assert each.finish == "stop"
        assert len(each.step_tokens) == 2
        assert sum(each.step_tokens) < each.tokens  # what lies beyond was paid for
    assert "\n" not in step.text
    assert step.finish == "delimiter"


def test_options_that_a_server_refuses_are_not_sent(caplog):
    with MisbehavingServer(takes=set()) as server:
        samples = sample(server, request(n=2), steps=CHAT)
        assert set(server.posts[0].payload) == {"model", "messages", "temperature", "top_p", "max_tokens", "stop"}
    assert len(samples) == 2
    assert "top_k, min_p" in caplog.text
    assert "continue_final_message" in caplog.text


def test_a_recipe_s_top_k_that_the_server_refuses_is_an_error_before_the_run():
    with MisbehavingServer(takes={"n"}) as server, pytest.raises(ConfigError, match="top_k"):
        sample(server, request(), sampling=SamplingConfig(top_k=40))


def test_what_was_found_is_logged(caplog):
    caplog.set_level(logging.INFO, "treeforge.policy.server")
    with MisbehavingServer() as server:
        sample(server, request())
        assert f"{server.url} serves world; samples a request: n; log-probabilities: yes; seeds: repeat" in caplog.text
    caplog.clear()
    with MisbehavingServer(takes={"sampling"}, ignores={"n", "seed", "stop", "logprobs"}) as server:
        sample(server, request())
    for found in ("samples a request: one", "log-probabilities: no", "seeds: taken, without effect", "cut here"):
        assert found in caplog.text


# Failures


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "wait", "says"),
    [
        ("429:7", 7.0, "a scripted 429"),
        ("429", None, "HTTP 429"),
        ("500", None, "a scripted 500"),
        ("502", None, "HTTP 502"),
        ("503:3", 3.0, "HTTP 503"),
        ("html", None, "coffee machine"),
        ("not-object", None, "not a JSON object"),
        ("no-choices", None, "no choices"),
        ("no-text", None, "lacks its text"),
        ("no-reason", None, "finish_reason"),
        ("abort", None, "'abort'"),
        ("cut", None, "connection broke"),
        ("reset", None, "connection broke"),
        ("slow:60", None, "within 3 s"),
        ("drip:0.1", None, "within 3 s"),
        ("endless", None, "longer than"),
    ],
)
def test_a_request_that_fails_on_a_server_that_is_there_may_be_retried(fault, wait, says):
    timeout = 3.0 if fault.startswith(("slow", "drip")) else 60.0
    with MisbehavingServer() as server:

        async def run() -> None:
            async with started(server, timeout=timeout) as policy:
                server.script(fault)
                with pytest.raises(RequestFailedError, match=says) as caught:
                    await policy.sample(request())
                assert caught.value.retryable
                assert caught.value.retry_after == wait
                assert len(server.posts) == 1  # retries are the scheduler's
                assert len(await policy.sample(request())) == 4

        asyncio.run(run())


@pytest.mark.parametrize("status", ["400", "404", "413", "422"])
def test_a_request_that_can_never_succeed_is_not_retryable(status):
    with MisbehavingServer() as server, pytest.raises(RequestFailedError, match=f"a scripted {status}") as caught:
        sample(server, request(n=1), status)
    assert not caught.value.retryable


def test_retry_after_may_be_a_date():
    with MisbehavingServer() as server, pytest.raises(RequestFailedError) as caught:
        sample(server, request(), "429:date")
    assert 15 < caught.value.retry_after <= 20


@pytest.mark.parametrize("status", ["401", "403"])
def test_a_refused_key_names_the_variable_and_not_the_key(status):
    with MisbehavingServer() as server, pytest.raises(ConfigError, match="TREEFORGE_API_KEY") as caught:
        sample(server, request(), status, api_key="sk-secret-1")
    assert "sk-secret" not in str(caught.value)


def test_an_empty_account_stops_the_run():
    with MisbehavingServer() as server, pytest.raises(PolicyUnavailableError, match="402"):
        sample(server, request(), "402")


@pytest.mark.parametrize(
    ("fault", "text"), [("nul", "a\ufffdb"), ("surrogate", "a\ufffdb"), ("bad-utf8", "a\ufffd\ufffdb")]
)
def test_broken_text_is_replaced(fault, text):
    with MisbehavingServer() as server:
        samples = sample(server, request(), fault)
    assert {each.text for each in samples} == {text}


def test_empty_and_huge_completions_are_samples():
    with MisbehavingServer() as server:
        (empty,) = sample(server, request("step", n=1), "empty")
        (huge,) = sample(server, request(n=1), "huge")
    assert empty.text == ""
    assert parse(empty, COMPLETION, max_steps=8) == ([], Finish.STOP)
    assert len(huge.text) > 1 << 20


def test_text_that_no_json_can_carry_is_cleaned_before_it_is_sent():
    with MisbehavingServer() as server:
        asked = msgspec.structs.replace(request(n=1), problem=make_problem("What\0 is 1 + \ud800 1?", "2"))
        assert len(sample(server, asked)) == 1
        assert "What\ufffd is 1 + \ufffd 1?" in server.posts[0].prompt


def test_samples_that_came_are_not_asked_for_again_when_others_of_the_request_fail():
    with MisbehavingServer(takes={"seed"}, ignores={"n", "logprobs", "sampling"}) as server:

        async def run() -> None:
            async with started(server) as policy:
                good = await policy.sample(request(n=4))
                server.forget()
                server.script("slow:0.2", "500", "reset", None)
                with pytest.raises(RequestFailedError, match="500"):
                    await policy.sample(request(n=4))
                assert await policy.sample(request(n=4)) == good
                assert Counter(post.fault for post in server.posts) == {"slow:0.2": 1, "500": 1, "reset": 1, None: 3}
                assert await policy.sample(request(n=4)) == good  # an answered request is forgotten
                assert len(server.posts) == 10

        asyncio.run(run())


def test_a_server_that_fails_by_chance_gives_in_the_end_what_a_good_one_gives():
    chances = {"500": 0.1, "reset": 0.1, "cut": 0.1, "html": 0.1, "429:0": 0.1, "no-text": 0.05}
    requests = [request(seed=seed, n=2) for seed in range(30)]

    async def insist(policy: ServerPolicy, asked: Request) -> tuple[Sample, ...]:
        for _ in range(20):
            with suppress(RequestFailedError):
                return await policy.sample(asked)
        raise AssertionError("20 failures in a row")

    async def run(server: MisbehavingServer) -> list[tuple[Sample, ...]]:
        async with started(server) as policy:
            return await asyncio.gather(*(insist(policy, asked) for asked in requests))

    with MisbehavingServer() as server:
        good = asyncio.run(run(server))
    with MisbehavingServer(chances, seed=3, after=3) as server:
        assert asyncio.run(run(server)) == good
        assert sum(post.fault is not None for post in server.posts) > 5
        assert set(server.asked.values()) == {1}


# Nobody there


def test_no_server_at_the_start_says_where_and_what_to_do():
    with MisbehavingServer() as server:
        url = server.url
    with pytest.raises(PolicyUnavailableError, match="Start the server") as caught:
        asyncio.run(start(url))
    assert url in str(caught.value)
    with pytest.raises(PolicyUnavailableError, match="does-not-exist"):
        asyncio.run(start("http://does-not-exist.invalid:1"))


def test_a_server_that_dies_and_comes_back():
    with MisbehavingServer() as server:

        async def run() -> None:
            async with started(server) as policy:
                good = await policy.sample(request())
                server.die()
                for _ in range(3):
                    with pytest.raises(PolicyUnavailableError, match="no server answers"):
                        await policy.sample(request())
                server.revive()
                assert await policy.sample(request()) == good

        asyncio.run(run())


def test_a_server_that_dies_with_requests_in_flight():
    with MisbehavingServer(latency=0.05) as server:

        async def run() -> None:
            async with started(server) as policy:
                server.behaviour.latency = 30.0
                tasks = [asyncio.create_task(policy.sample(request(seed=seed))) for seed in range(6)]
                while server.busiest < 6:
                    await asyncio.sleep(0.01)
                server.die()
                results = await asyncio.gather(*tasks, return_exceptions=True)
                assert {type(result) for result in results} == {PolicyUnavailableError}

        asyncio.run(run())


def test_a_gateway_with_nobody_behind_it_is_nobody_there():
    with MisbehavingServer() as server:

        async def run() -> None:
            async with started(server) as policy:
                server.behaviour.away = True
                with pytest.raises(PolicyUnavailableError, match="503"):
                    await policy.sample(request())
                server.behaviour.away = False
                assert len(await policy.sample(request())) == 4

        asyncio.run(run())


def test_a_start_survives_a_busy_server_and_not_a_broken_one(monkeypatch):
    monkeypatch.setattr("treeforge.policy.probe._WAITS", (0.01, 0.01))
    with MisbehavingServer(["500", "429:0", None, "html", "no-text"]) as server:
        assert len(sample(server, request())) == 4
    with MisbehavingServer({"html": 1.0}) as server, pytest.raises(PolicyUnavailableError, match="coffee machine"):
        sample(server, request())


# Models and keys


def test_an_unknown_model_is_an_error_that_lists_the_known_ones():
    with (
        MisbehavingServer(models=("first", "org/second")) as server,
        pytest.raises(ConfigError, match=r"no model 'world'; it serves: first, org/second"),
    ):
        asyncio.run(start(server))


@pytest.mark.parametrize("name", ["/models/tiny.Q4_1.gguf", "tiny.Q4_1.gguf", "tiny.Q4_1"])
def test_a_model_served_under_its_path_is_known_by_its_file_name_and_no_path_is_in_the_identity(name):
    with MisbehavingServer(models=("/models/tiny.Q4_1.gguf",)) as server:

        async def run() -> None:
            async with started(server, model=name) as policy:
                assert policy.identity == {"backend": "server", "model": "tiny.Q4_1.gguf"}
                await policy.sample(request())

        asyncio.run(run())
        assert server.posts[0].payload["model"] == "/models/tiny.Q4_1.gguf"


def test_a_server_without_a_list_of_models_is_taken_at_our_word():
    with MisbehavingServer(models=()) as server:
        assert len(sample(server, request())) == 4


def test_a_prompt_that_the_server_refuses_is_an_error_before_the_run():
    with MisbehavingServer(["400"] * 2) as server, pytest.raises(ConfigError, match="a scripted 400"):
        asyncio.run(start(server))


def test_a_server_that_comes_back_with_another_model_stops_the_run():
    with MisbehavingServer() as server:

        async def run() -> None:
            async with started(server) as policy:
                server.behaviour.models = ("another",)
                with pytest.raises(PolicyUnavailableError, match="does not exist"):
                    await policy.sample(request())
                with pytest.raises(ConfigError, match="it serves: another"):
                    await policy.sample(request())

        asyncio.run(run())


def test_the_key_is_in_the_header_and_nowhere_else(caplog):
    caplog.set_level(logging.DEBUG)
    with MisbehavingServer(api_key="sk-secret-1") as server:
        policy = make(server, api_key=" sk-secret-1\n")
        assert len(sample(server, request(), api_key=" sk-secret-1\n")) == 4
        assert server.posts[0].headers["authorization"] == "Bearer sk-secret-1"
        with pytest.raises(ConfigError, match="Incorrect API key provided: Bearer \\*\\*\\*") as caught:
            sample(server, request(), api_key="sk-secret-2")
    assert "sk-secret" not in repr(policy) + str(policy.__dict__) + str(caught.value) + caplog.text


@pytest.mark.parametrize("key", ["sk-s\u00e9cret", "sk-secret\nX-Evil: 1", "sk secret"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(key):
    with pytest.raises(ConfigError, match="API key") as caught:
        make("http://127.0.0.1:1", api_key=key)
    assert "cret" not in str(caught.value)


def test_the_identity_is_known_after_the_start_only():
    policy: Policy = make("http://127.0.0.1:1")
    with pytest.raises(PolicyError, match="once the policy has started"):
        _ = policy.identity
    with pytest.raises(ConfigError, match="at least one server"):
        make()


# Many requests at once


def test_requests_in_flight_and_connections_fit_the_concurrency():
    with MisbehavingServer(latency=0.01, takes={"seed"}, ignores={"n", "logprobs", "sampling"}) as server:

        async def run() -> None:
            async with started(server, concurrency=5) as policy:
                await asyncio.gather(*(policy.sample(request(n=3, seed=seed)) for seed in range(10)))
                await policy.close()

        asyncio.run(run())
        assert len(server.posts) == 30
        assert server.busiest == 5
        assert server.connections <= 6  # connections are kept alive; one more for the start


@pytest.mark.slow
def test_the_clock_of_a_request_that_waits_for_a_slot_does_not_run():
    with MisbehavingServer(latency=0.5) as server:

        async def run() -> list[tuple[Sample, ...]]:
            async with started(server, concurrency=1, timeout=2.5) as policy:
                return await asyncio.gather(*(policy.sample(request(seed=seed)) for seed in range(8)))

        assert len(asyncio.run(run())) == 8


# Its prefix cache


@pytest.mark.parametrize("told", ["usage", "timings"])
@pytest.mark.parametrize("steps", [COMPLETION, CHAT], ids=["completion", "chat"])
def test_what_the_servers_caches_did_adds_up_from_the_first_prompt_on(told, steps):
    async def run() -> None:
        async with started(one, other, steps=steps) as policy:
            assert policy.prompt_cache is None
            for prefix in ("", STEP, "", STEP):
                await asyncio.gather(*(policy.sample(request(prefix=prefix, tree=tree)) for tree in range(6)))
            posts = one.posts + other.posts
            prompt, cached = sum(post.prompt_tokens for post in posts), sum(post.cached_tokens for post in posts)
            assert policy.prompt_cache == PromptCache(prompt, cached)
            assert 0 < cached < prompt

    with MisbehavingServer(cache=told) as one, MisbehavingServer(cache=told) as other:
        asyncio.run(run())


def test_of_servers_that_do_not_say_what_their_cache_does_nothing_is_known():
    async def run() -> None:
        async with started(server) as policy:
            for _ in range(2):
                await policy.sample(request())
            assert policy.prompt_cache is None

    with MisbehavingServer() as server:
        asyncio.run(run())
        assert server.posts[-1].cached_tokens
