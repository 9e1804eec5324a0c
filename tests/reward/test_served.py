"""Reward models behind a server, with a real one on the loopback that speaks vLLM's shapes."""

import asyncio

import numpy as np
import pytest
from support.reward_server import RewardServer

from treeforge.errors import ConfigError, PolicyUnavailableError
from treeforge.reward.base import Window, windows_of
from treeforge.reward.score import load_reward_model
from treeforge.reward.served import ServedModel, read_address

pytest.importorskip("aiohttp", reason="pip install 'treeforge[server]'")

WINDOWS = windows_of("Is it?", ["yes 1\n", "no 2\n", "yes 3\n"], "hrm")


def by_length(inputs):
    """A chance for each text, no two alike."""
    return [1 / len(text) for text in inputs]


def expected(ask):
    more = "\n\nRight (+) or wrong (-)?\n" if ask else ""
    return [
        1 / len(f"Question:\n{w.question}\n\nReasoning so far:\n{w.previous}\n\nTo judge:\n{w.current}{more}")
        for w in WINDOWS
    ]


@pytest.mark.parametrize(("head", "classes"), [("classifier", 2), ("soft", 1)])
def test_classes_of_texts(head, classes):
    with RewardServer(by_length, classes=classes) as server:
        model = ServedModel(f"{server.url}?task=hrm&head={head}", batch=2)
        assert model.probabilities(WINDOWS) == pytest.approx(expected(ask=False))
        assert (model.name, model.task) == ("hrm", "hrm")
        assert sorted(len(payload["input"]) for _, payload in server.posts) == [1, 2, 2]
        assert {payload["model"] for _, payload in server.posts} == {"hrm"}


@pytest.mark.parametrize("dialect", ["vllm", "llama.cpp"])
def test_verdicts_as_the_next_token(dialect):
    with RewardServer(by_length, dialect=dialect) as server:
        model = ServedModel(f"{server.url}/v1?task=prm&head=token")
        assert model.probabilities(WINDOWS) == pytest.approx(expected(ask=True))
        [(path, payload)] = server.posts
        assert path == "/v1/completions"
        assert payload["max_tokens"] == 1


def test_a_verdict_that_is_not_listed_is_no_likelier_than_the_last_that_is():
    with RewardServer(lambda inputs: [0.75 for _ in inputs], listed=("+", "x")) as server:
        found = ServedModel(f"{server.url}?task=prm&head=token").probabilities(WINDOWS[:1])
        assert found == pytest.approx(0.9 * 0.75 / (0.9 * 0.75 + 0.001))


def test_no_windows_no_request():
    with RewardServer(by_length) as server:
        assert ServedModel(f"{server.url}?task=prm").probabilities([]).shape == (0,)
        assert server.posts == []


def test_sglang_has_it_below_v1():
    with RewardServer(by_length, route="/v1/classify") as server:
        model = ServedModel(f"{server.url}?task=hrm", batch=1)
        assert model.probabilities(WINDOWS) == pytest.approx(expected(ask=False))
        found = [path for path, _ in server.posts].count("/v1/classify")
        assert model.probabilities(WINDOWS) == pytest.approx(expected(ask=False))
        assert [path for path, _ in server.posts].count("/v1/classify") == found + len(WINDOWS)
        assert server.posts[-1][0] == "/v1/classify"


def test_a_busy_server_is_asked_again():
    with RewardServer(by_length) as server:
        model = ServedModel(f"{server.url}?task=hrm", backoff=0)
        server.script((429, {"Retry-After": "0"}), 500, 503)
        assert model.probabilities(WINDOWS) == pytest.approx(expected(ask=False))
        assert len(server.posts) == 4


def test_a_server_that_stays_broken_ends_it():
    with RewardServer(by_length) as server:
        model = ServedModel(f"{server.url}?task=hrm", attempts=3, backoff=0)
        server.script(500, 500, 500)
        with pytest.raises(PolicyUnavailableError, match="told to answer 500"):
            model.probabilities(WINDOWS)
        assert len(server.posts) == 3


def test_a_server_that_goes_away_ends_it():
    with RewardServer(by_length) as server:
        model = ServedModel(f"{server.url}?task=hrm", attempts=2, backoff=0)
    with pytest.raises(PolicyUnavailableError, match="cannot be reached"):
        model.probabilities(WINDOWS)


def test_nobody_there():
    with RewardServer(by_length) as server:
        url = server.url
    with pytest.raises(PolicyUnavailableError, match="no reward model answers"):
        load_reward_model(f"{url}?task=hrm")


def test_a_text_that_is_too_long_is_no_reason_to_ask_again():
    with RewardServer(by_length) as server:
        model = ServedModel(f"{server.url}?task=hrm", backoff=0)
        server.script(400)
        with pytest.raises(ConfigError, match=r"told to answer 400\. If a text is too long, name .* folder="):
            model.probabilities(WINDOWS)
        assert len(server.posts) == 1


def test_a_server_without_classes():
    with RewardServer(by_length, route="/nowhere") as server:
        model = ServedModel(f"{server.url}?task=hrm")
        with pytest.raises(ConfigError, match="Serve the folder of a model with the head classifier"):
            model.probabilities(WINDOWS)


@pytest.mark.parametrize(
    ("head", "more", "said"),
    [
        ("classifier", {"classes": 3}, "3 classes, not 2"),
        ("soft", {"classes": 2}, "2 classes, not 1"),
        ("token", {"listed": ("x",)}, "neither [+] nor - is among"),
        ("classifier", {"reply": {"data": []}}, "5 of 5 windows have no answer"),
        ("classifier", {"reply": {"data": "x"}}, "TypeError"),
        ("classifier", {"reply": {"data": [{"index": 9, "probs": [0.5, 0.5]}]}}, "index 9 of 5"),
        ("soft", {"reply": {"data": [{"index": i, "probs": [7.5]} for i in range(5)]}}, r"not within \[0, 1\]"),
        ("token", {"reply": {"choices": [{"index": 0, "logprobs": None}]}}, "TypeError"),
        ("token", {"reply": {"choices": [{"index": 0, "logprobs": {"content": []}}]}}, "IndexError"),
        ("token", {"reply": {}}, "KeyError: 'choices'"),
    ],
)
def test_answers_of_another_shape(head, more, said):
    with RewardServer(by_length, **more) as server:
        model = ServedModel(f"{server.url}?task=hrm&head={head}")
        with pytest.raises(ConfigError, match=f"no answer of a reward model with the head {head} .*{said}"):
            model.probabilities(WINDOWS)


def test_several_models():
    with RewardServer(by_length, models=("a", "b")) as server:
        with pytest.raises(ConfigError, match="name one by model=: a, b"):
            ServedModel(f"{server.url}?task=hrm")
        with pytest.raises(ConfigError, match=r"reward model: .* serves no model 'c'"):
            ServedModel(f"{server.url}?task=hrm&model=c")
        assert ServedModel(f"{server.url}?task=hrm&model=b").name == "b"


def test_a_server_that_names_no_model_is_not_told_one():
    with RewardServer(by_length, models=None) as server:
        ServedModel(f"{server.url}?task=hrm").probabilities(WINDOWS)
        assert "model" not in server.posts[0][1]


def test_it_is_known_by_what_is_served_not_by_where():
    with RewardServer(by_length) as one, RewardServer(by_length) as two, RewardServer(by_length, models=["x"]) as three:
        first, same, other = (ServedModel(f"{server.url}?task=hrm").identity for server in (one, two, three))
        assert first == same != other
        assert ServedModel(f"{one.url}?task=prm").identity != first


def test_it_can_be_asked_where_an_event_loop_runs():
    async def within(model):
        return model.probabilities(WINDOWS)

    with RewardServer(by_length) as server:
        model = ServedModel(f"{server.url}?task=hrm")
        assert asyncio.run(within(model)) == pytest.approx(expected(ask=False))


def test_the_key_goes_into_the_header(monkeypatch):
    monkeypatch.setenv("TREEFORGE_API_KEY", "secret")
    with RewardServer(by_length) as server:
        ServedModel(f"{server.url}?task=hrm").probabilities(WINDOWS)
        assert set(server.keys) == {"Bearer secret"}


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("http://h:1", "task= is one of orm, prm, hrm, head= one of classifier, soft, token"),
        ("http://h:1?task=rm", "task= is one of"),
        ("http://h:1?task=prm&head=x", "head= one of"),
        ("http://h:1?task=prm&window=5", "there is no option window"),
        ("http://h:1?folder=", "task= is one of"),
        ("http://h:1?folder=/nowhere/at/all", "/nowhere/at/all is no reward model"),
        ("http://h:1?folder=x&task=prm", "folder= says what task and head are"),
        ("ftp://h?task=prm", "reward model: 'ftp://h' is no address"),
        ("http://me:pw@h:1?task=prm", "user name or password"),
    ],
)
def test_addresses_that_say_too_little_or_too_much(address, said):
    with pytest.raises(ConfigError) as caught:
        load_reward_model(address)
    assert said in str(caught.value)
    assert "pw" not in str(caught.value).replace("password", "")


def test_an_address():
    at = read_address("127.0.0.1:8000?task=prm&model=a/b")
    assert (at.url, at.task, at.head, at.model) == ("http://127.0.0.1:8000/v1", "prm", "classifier", "a/b")


@pytest.mark.train
def test_windows_as_token_ids_give_what_the_model_itself_gives(trained):
    model = load_reward_model(str(trained["classifier"]))

    def ids(rows):
        assert all(isinstance(token, int) for row in rows for token in row)
        return [float(model._forward([row])[0]) for row in rows]

    long = Window("Is it?", "yes 1\n" * 200, "no 1\n")
    with RewardServer(ids) as server:
        served = load_reward_model(f"{server.url}?folder={trained['classifier']}")
        assert served.task == "hrm"
        assert served.probabilities([*WINDOWS, long]) == pytest.approx(model.probabilities([*WINDOWS, long]), abs=1e-5)
        assert served.truncated == model.truncated == 1
        assert max(len(row) for _, payload in server.posts for row in payload["input"]) == 128
        assert np.ptp(served.probabilities(WINDOWS)) > 0.5


@pytest.mark.train
def test_verdicts_of_token_ids_too(trained):
    model = load_reward_model(str(trained["token"]))
    with RewardServer(lambda rows: [float(model._forward([row])[0]) for row in rows]) as server:
        served = load_reward_model(f"{server.url}?folder={trained['token']}")
        assert served.probabilities(WINDOWS) == pytest.approx(model.probabilities(WINDOWS), abs=1e-5)
