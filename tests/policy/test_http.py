import asyncio

import pytest
from support.misbehaving import MisbehavingServer

from treeforge.errors import ConfigError, RequestFailedError
from treeforge.policy.http import JsonClient, base_url, error_message, retry_after


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:8000", "http://localhost:8000/v1"),
        (" http://10.0.0.1:8000/ ", "http://10.0.0.1:8000/v1"),
        ("http://HOST:8000/v1/", "http://host:8000/v1"),
        ("https://api.example.com/openai/v2", "https://api.example.com/openai/v2"),
        ("http://[::1]:8000", "http://[::1]:8000/v1"),
        ("http://bücher.example", "http://xn--bcher-kva.example/v1"),
    ],
)
def test_an_address_is_completed(text, url):
    assert base_url(text) == url
    assert base_url(url) == url


@pytest.mark.parametrize(
    "text",
    [
        "",
        "ftp://host/v1",
        "http://",
        "http://host:port/v1",
        "http://host/v1?key=geheim",
        "http://a b/v1",
        "http://[::1",
    ],
)
def test_what_is_no_address_is_refused(text):
    with pytest.raises(ConfigError, match="HOST:PORT") as caught:
        base_url(text)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize("text", ["http://me:geheim@host:8000/v1", "me:geheim@[::1"])
def test_a_password_in_an_address_is_refused_without_showing_it(text):
    with pytest.raises(ConfigError) as caught:
        base_url(text)
    assert "geheim" not in str(caught.value)


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        (None, None),
        ("7", 7.0),
        ("0.5", 0.5),
        ("-3", 0.0),
        ("inf", None),
        ("nan", None),
        ("Thu, 01 Jan 1970 00:01:40 GMT", 90.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
        ("soon", None),
        ("", None),
    ],
)
def test_retry_after_in_seconds_or_as_a_date(header, seconds):
    assert retry_after(header, now=10.0) == seconds


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        ({"error": {"message": "no such model", "code": 404}}, "no such model"),
        ({"error": "overloaded"}, "overloaded"),
        ({"object": "error", "message": "too long"}, "too long"),
        ({"detail": [{"loc": ["n"]}]}, '[{"loc": ["n"]}]'),
        ({}, ""),
        (None, ""),
    ],
)
def test_what_an_error_says(reply, says):
    assert error_message(reply) == says


def get(server: MisbehavingServer, **options: object) -> dict[str, object]:
    async def run() -> dict[str, object]:
        client = JsonClient(**({"api_key": None, "timeout": 5.0, "concurrency": 1} | options))
        try:
            return await client.get(f"{server.url}/models")
        finally:
            await client.close()

    return asyncio.run(run())


def test_a_proxy_of_the_environment_is_not_asked_for_a_server_on_this_machine(monkeypatch):
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    with MisbehavingServer() as server:
        assert get(server)["object"] == "list"


def test_an_announced_length_beyond_the_bound_is_refused_before_reading():
    with MisbehavingServer() as server, pytest.raises(RequestFailedError, match="longer than 20 bytes"):
        get(server, max_reply_bytes=20)


def test_a_server_s_message_becomes_one_short_line():
    client = JsonClient(api_key="sk-1", timeout=1.0, concurrency=1)
    assert client.one_line("bad\r\n\x1b[31mkey\x00 sk-1\u202e \ud800") == "bad [31mkey *** \ufffd"
    assert len(client.one_line("x" * 10_000)) < 400
