import asyncio
import base64

import pytest
from support.misbehaving import MisbehavingServer

from treeforge.errors import ConfigError, RequestFailedError
from treeforge.policy.http import JsonClient, ReplyError, UnreachableError, base_url, error_message, retry_after


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
        client = JsonClient(**({"api_key": None, "timeout": 5.0} | options))
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


@pytest.fixture
def proxy(monkeypatch):
    """A server that stands between us and the world; what it is sent is in `posts`."""
    for name in ("no_proxy", "NO_PROXY", "HTTP_PROXY", "all_proxy", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    with MisbehavingServer() as server:
        monkeypatch.setenv("http_proxy", f"http://me:ge%20heim@127.0.0.1:{server.port}")
        yield server


def post(url: str, **options: object) -> dict[str, object]:
    async def run() -> dict[str, object]:
        client = JsonClient(**({"api_key": None, "timeout": 5.0} | options))
        try:
            return await client.post(url, {"model": "world", "prompt": "1 + 1", "max_tokens": 5})
        finally:
            await client.close()

    return asyncio.run(run())


def test_a_proxy_of_the_environment_is_asked_for_other_servers_with_its_own_password(proxy):
    assert post("http://api.invalid/v1/completions")["choices"]
    (sent,) = proxy.posts
    assert sent.path == "http://api.invalid/v1/completions"
    login = sent.headers["proxy-authorization"].removeprefix("Basic ")
    assert base64.b64decode(login) == b"me:ge heim"
    proxy.die()
    with pytest.raises(UnreachableError, match="cannot be reached") as caught:
        post("http://api.invalid/v1/completions")
    assert "heim" not in str(caught.value)


def test_no_proxy_is_asked_where_the_environment_says_so(proxy, monkeypatch):
    monkeypatch.setenv("no_proxy", "api.invalid")
    with pytest.raises(UnreachableError):
        post("http://api.invalid/v1/completions")
    assert proxy.posts == []


def test_a_proxy_that_is_none_of_http_is_refused(monkeypatch):
    monkeypatch.setenv("http_proxy", "socks5://127.0.0.1:1080")
    with pytest.raises(ConfigError, match="only http proxies"):
        post("http://api.invalid/v1/completions")


def test_a_redirect_is_not_followed():
    with MisbehavingServer(["307"]) as server, pytest.raises(ReplyError, match="HTTP 307") as caught:
        post(f"{server.url}/completions", api_key="sk-1")
    assert not caught.value.retryable
    assert len(server.posts) == 1


def test_connections_are_kept_and_one_that_the_server_closed_meanwhile_is_no_failure():
    async def run() -> None:
        client = JsonClient(api_key=None, timeout=5.0)
        payload = {"model": "world", "prompt": "1 + 1", "max_tokens": 5}
        for _ in range(3):
            await client.post(f"{server.url}/completions", payload)
        assert server.connections == 1
        server.die()
        server.revive()
        await asyncio.sleep(0.05)
        assert (await client.post(f"{server.url}/completions", payload))["choices"]
        await client.close()
        await client.close()

    with MisbehavingServer() as server:
        asyncio.run(run())


def test_one_client_serves_one_event_loop_after_another():
    client = JsonClient(api_key=None, timeout=5.0)

    async def run() -> None:
        assert (await client.get(f"{server.url}/models"))["object"] == "list"
        await client.close()

    with MisbehavingServer() as server:
        for _ in range(2):
            asyncio.run(run())


def test_what_is_no_http_is_a_broken_connection():
    async def run() -> None:
        async def babble(_: object, writer: asyncio.StreamWriter) -> None:
            writer.write(b"220 mail.example.com ESMTP\r\n")
            await writer.drain()
            writer.close()

        babbler = await asyncio.start_server(babble, "127.0.0.1", 0)
        port = babbler.sockets[0].getsockname()[1]
        client = JsonClient(api_key=None, timeout=5.0)
        with pytest.raises(ReplyError, match="connection broke") as caught:
            await client.get(f"http://127.0.0.1:{port}/v1/models")
        assert caught.value.doubtful
        await client.close()
        babbler.close()

    asyncio.run(run())


def test_an_announced_length_beyond_the_bound_is_refused_before_reading():
    with MisbehavingServer() as server, pytest.raises(RequestFailedError, match="longer than 20 bytes"):
        get(server, max_reply_bytes=20)


def test_a_server_s_message_becomes_one_short_line():
    client = JsonClient(api_key="sk-1", timeout=1.0)
    assert client.one_line("bad\r\n\x1b[31mkey\x00 sk-1\u202e \ud800") == "bad [31mkey *** \ufffd"
    assert len(client.one_line("x" * 10_000)) < 400
