"""`ServerPolicy` over several servers of ours that die, hang, fail, refuse and come back."""

import asyncio
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from support.misbehaving import MisbehavingServer
from support.served import COMPLETION, SAMPLING, make, request, started

from treeforge.cli.options import machine_overrides
from treeforge.configuration import load
from treeforge.errors import ConfigError, PolicyUnavailableError, RequestFailedError
from treeforge.policy import balance, replica, server
from treeforge.policy.addresses import read_servers
from treeforge.policy.base import Sample
from treeforge.policy.server import ServerPolicy


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost and drained servers are looked for all the time."""
    monkeypatch.setattr(replica, "REST_SECONDS", 0.0)
    monkeypatch.setattr(replica, "REFUSED_SECONDS", 0.0)
    monkeypatch.setattr(server, "TEND_SECONDS", 0.0)
    monkeypatch.setattr(balance, "REVIEW_SECONDS", 0.0)


@asynccontextmanager
async def fleet(count: int, **options: Any) -> AsyncIterator[tuple[ServerPolicy, list[MisbehavingServer]]]:
    with ExitStack() as stack:
        servers = [stack.enter_context(MisbehavingServer()) for _ in range(count)]
        async with started(*servers, **options) as policy:
            yield policy, servers


async def until(holds: Callable[[], bool], policy: ServerPolicy) -> None:
    """Ask now and then, for many trees, until it holds."""
    for tree in range(1000):
        if holds():
            return
        await policy.sample(request(n=1, seed=1, tree=tree))
        await asyncio.sleep(0.01)
    raise AssertionError("it never came about")


async def homes(policy: ServerPolicy, servers: list[MisbehavingServer], trees: range) -> list[int]:
    """The number of the server that each tree's request went to."""
    found = []
    for tree in trees:
        before = [len(server.posts) for server in servers]
        await policy.sample(request(n=1, tree=tree))
        (home,) = [i for i, server in enumerate(servers) if len(server.posts) > before[i]]
        found.append(home)
    return found


def test_a_tree_keeps_its_server_and_a_lost_server_moves_its_own_trees_only():
    async def run() -> None:
        async with fleet(3) as (policy, servers):
            trees = range(30)
            first = await homes(policy, servers, trees)
            assert await homes(policy, servers, trees) == first
            assert min(Counter(first).values()) >= 3
            assert len(Counter(first)) == 3
            servers[0].die()
            second = await homes(policy, servers, trees)
            assert [b for a, b in zip(first, second, strict=True) if a != 0] == [a for a in first if a != 0]
            assert {b for a, b in zip(first, second, strict=True) if a == 0} == {1, 2}
            servers[0].revive()
            await until(lambda: policy._balancer.members[0].alive, policy)
            assert await homes(policy, servers, trees) == first

    asyncio.run(run())


def test_only_when_all_servers_are_gone_the_model_is_unavailable():
    async def run() -> None:
        async with fleet(2) as (policy, servers):
            servers[0].die()
            assert len(await policy.sample(request())) == 4
            servers[1].die()
            with pytest.raises(PolicyUnavailableError) as caught:
                await policy.sample(request())
            assert all(server.url in str(caught.value) for server in servers)

    asyncio.run(run())


def test_a_server_that_is_there_and_fails_is_not_left_for_another():
    async def run() -> None:
        async with fleet(2) as (policy, servers):
            for server in servers:
                server.script("500")
            with pytest.raises(RequestFailedError, match="500"):
                await policy.sample(request())
            assert sorted(len(server.posts) for server in servers) == [0, 1]

    asyncio.run(run())


def test_one_server_that_is_missing_at_the_start_joins_later(caplog):
    async def run() -> None:
        with MisbehavingServer() as here, MisbehavingServer() as late:
            late.die()
            async with started(here, late) as policy:
                assert "going on without one server" in caplog.text
                assert set(await homes(policy, [here, late], range(12))) == {0}
                late.revive()
                await until(lambda: policy._balancer.members[1].alive, policy)
                assert set(await homes(policy, [here, late], range(12))) == {0, 1}

    asyncio.run(run())


@pytest.mark.slow
def test_a_server_that_hangs_at_the_start_keeps_nobody_back(monkeypatch, caplog):
    monkeypatch.setattr(server, "START_SECONDS", 0.2)

    async def run() -> None:
        with MisbehavingServer() as here, MisbehavingServer(["hang"]) as late:
            async with started(here, late, timeout=2.0) as policy:
                assert f"going on without one server: {late.url}: has not answered yet" in caplog.text
                assert set(await homes(policy, [here, late], range(12))) == {0}
                await until(lambda: policy._balancer.members[1].alive, policy)  # the hanging request is given up

    asyncio.run(run())


def test_servers_with_different_models_are_refused():
    with (
        MisbehavingServer(models=("/a/tiny.gguf",)) as first,
        MisbehavingServer(models=("/b/tiny.gguf", "tiny.gguf")) as same,
        MisbehavingServer(models=("/b/tiny.GGUF",)) as other,
    ):

        async def run() -> None:
            async with started(first, same, model="tiny"):
                pass
            with pytest.raises(ConfigError, match=r"serves 'tiny\.GGUF', the others 'tiny\.gguf'"):
                async with started(first, other, model="tiny"):
                    pass

        asyncio.run(run())


def test_what_a_dying_server_had_not_answered_is_asked_of_another_one():
    async def run() -> None:
        async with fleet(2, concurrency=32) as (policy, servers):
            requests = [request(seed=seed, n=2, tree=seed) for seed in range(16)]
            good = [await policy.sample(asked) for asked in requests]
            for each in servers:
                each.forget()
            servers[0].behaviour.latency = 30.0
            tasks = [asyncio.create_task(policy.sample(asked)) for asked in requests]
            while sum(len(each.posts) for each in servers) < 16:
                await asyncio.sleep(0.01)
            servers[0].die()
            assert await asyncio.gather(*tasks) == good
            lost, others = servers
            assert lost.posts
            assert not lost.asked
            assert len(others.posts) == 16
            assert set(others.asked.values()) == {1}
            payloads = [post.payload for post in others.posts]
            assert all(post.payload in payloads for post in lost.posts)

    asyncio.run(run())


def test_a_busy_server_s_trees_go_to_the_next_one_and_when_all_are_busy_the_shortest_wait_counts():
    async def run() -> None:
        async with fleet(2) as (policy, servers):
            first, second = servers if (await homes(policy, servers, range(1))) == [0] else servers[::-1]
            first.script("429:60")
            assert len(await policy.sample(request())) == 4
            first.script("429:60")
            second.script("429:7")
            with pytest.raises(RequestFailedError, match="429") as caught:
                await policy.sample(request())
            assert caught.value.retry_after == 7.0
            assert not any(member.health.drained for member in policy._balancer.members)

    asyncio.run(run())


def test_a_server_that_always_fails_is_drained_and_taken_back_when_it_is_well(monkeypatch, caplog):
    monkeypatch.setattr(balance, "REST_SECONDS", 0.0)

    async def run() -> None:
        async with fleet(2, concurrency=2) as (policy, servers):
            bad = policy._balancer.members[0]
            servers[0].script(*["500"] * 5)
            failed = 0
            for tree in range(0, 60, 2):  # two at a time: there is work enough for trials
                pair = (policy.sample(request(n=1, tree=tree + i)) for i in range(2))
                results = await asyncio.gather(*pair, return_exceptions=True)
                failed += sum(isinstance(result, RequestFailedError) for result in results)
            assert failed == 5  # 4 until it was drained, and a trial
            assert "fails again and again" in caplog.text
            assert not bad.health.drained
            assert "is well again" in caplog.text
            assert await homes(policy, servers, range(30)) == await homes(policy, servers, range(30))

    asyncio.run(run())


def test_a_server_that_hangs_holds_no_more_than_its_share_and_is_drained(caplog):
    async def run() -> None:
        async with fleet(3, concurrency=48) as (policy, servers):
            await asyncio.gather(*(policy.sample(request(n=1, tree=tree)) for tree in range(48)))
            servers[0].script(*["hang"] * 100)
            tasks = set()
            for tree in range(600):
                tasks.add(asyncio.create_task(policy.sample(request(n=1, tree=tree))))
                await asyncio.sleep(0)
                if len(tasks) == 48:
                    _, tasks = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            hung = [post for post in servers[0].posts if post.fault == "hang"]
            assert len(hung) <= 20  # ceil(1.25 * 48 / 3)
            await until(lambda: policy._balancer.members[0].health.drained, policy)
            assert "it is drained" in caplog.text
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    asyncio.run(run())


def test_a_server_that_refuses_the_key_is_left_out_and_said_once(caplog):
    async def run() -> None:
        async with fleet(2, api_key="sk-1") as (policy, servers):
            servers[0].behaviour.api_key = "sk-2"
            for tree in range(20):
                await policy.sample(request(n=1, tree=tree))
            assert caplog.text.count("it gets no requests") == 1
            servers[1].behaviour.api_key = "sk-2"
            with pytest.raises(ConfigError, match="TREEFORGE_API_KEY"):
                await policy.sample(request())

    asyncio.run(run())
    assert "sk-" not in caplog.text.replace("Bearer ***", "")


@pytest.mark.parametrize("noticed", [True, False])
def test_a_server_that_comes_back_with_another_model_is_left_out(noticed):
    """Also where nobody asked it while it was away, so that only its next reply tells."""

    async def run() -> None:
        with (
            MisbehavingServer(models=("/a/tiny.gguf",)) as first,
            MisbehavingServer(models=("/a/tiny.gguf",)) as second,
        ):
            async with started(first, second, model="tiny") as policy:
                first.die()
                if noticed:
                    await until(lambda: not all(member.alive for member in policy._balancer.members), policy)
                first.behaviour.models = ("/a/tiny.GGUF",)
                first.revive()
                for tree in range(20):
                    await policy.sample(request(n=1, tree=tree))
                    await asyncio.sleep(0.01)
                assert len(first.asked) <= 3 * 20  # probed, and asked for nothing else
                asked = [post for post in first.posts if "random numbers" not in post.prompt]
                assert len(asked) <= (0 if noticed else 1)  # which it refused

    asyncio.run(run())


def test_warnings_about_servers_alike_are_said_once(caplog):
    async def run() -> None:
        with ExitStack() as stack:
            servers = [stack.enter_context(MisbehavingServer(takes={"n"})) for _ in range(3)]
            async with started(*servers) as policy:
                servers[0].die()
                await policy.sample(request())
                servers[0].revive()
                await until(lambda: all(member.alive for member in policy._balancer.members), policy)

    asyncio.run(run())
    for what in ("takes no top_k", "takes no seeds", "gives no log-probabilities"):
        assert caplog.text.count(what) == 1


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_a_fleet_that_dies_fails_and_revives_by_a_seeded_schedule_gives_what_a_good_server_gives(seed):
    requests = [request(seed=i, n=2, tree=i % 7) for i in range(60)]
    faults = {"500": 0.05, "reset": 0.05, "cut": 0.05, "html": 0.03, "429:0": 0.05, "slow:0.05": 0.1}

    async def insist(policy: ServerPolicy, asked: Any, turn: asyncio.Semaphore) -> tuple[Sample, ...]:
        async with turn:
            for _ in range(60):
                try:
                    return await policy.sample(asked)
                except (RequestFailedError, PolicyUnavailableError):
                    await asyncio.sleep(0.01)
        raise AssertionError("60 failures in a row")

    async def storm(policy: ServerPolicy, servers: list[MisbehavingServer]) -> list[tuple[Sample, ...]]:
        turn = asyncio.Semaphore(6)
        tasks = [asyncio.create_task(insist(policy, asked, turn)) for asked in requests]
        for each in servers * 2:
            await asyncio.sleep(0.05)
            each.die()
            await asyncio.sleep(0.03)
            each.revive()
        return await asyncio.gather(*tasks)

    async def run() -> None:
        with MisbehavingServer() as good:
            async with started(good) as policy:
                expected = [await policy.sample(asked) for asked in requests]
        with ExitStack() as stack:
            servers = [
                stack.enter_context(MisbehavingServer(faults, seed=10 * seed + i, after=3, latency=0.01))
                for i in range(3)
            ]
            async with started(*servers) as policy:
                assert await storm(policy, servers) == expected
        assert sum(post.fault is not None for each in servers for post in each.posts) > 5

    asyncio.run(run())


# The file of servers


def write(path: Path, *lines: str) -> None:
    """As a careful person would: the new file takes the old one's place at once."""
    new = path.with_suffix(".new")
    new.write_text("\n".join(lines))
    os.replace(new, path)


def test_a_file_of_servers_has_one_a_line_with_comments(tmp_path):
    file = tmp_path / "fleet.txt"
    file.write_text("# ours\n\n gpu1:8000  # the old one\nhttps://api.example.com/v1\r\ngpu1:8000\n")
    assert read_servers(file) == ("http://gpu1:8000/v1", "https://api.example.com/v1")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"gpu1:8000\nftp://gpu2\n", r"fleet\.txt:2: 'ftp://gpu2' is no address"),
        (b"http://me:geheim@gpu1\n", r"fleet\.txt:1: the address of gpu1 holds a user name"),
        (b"# nobody\n\n", r"fleet\.txt names no server"),
        (b"\xff\xfe", r"fleet\.txt is no UTF-8"),
        (None, r"fleet\.txt cannot be read"),
    ],
)
def test_a_bad_file_of_servers_is_an_error_at_the_start_that_names_the_line(tmp_path, content, says):
    file = tmp_path / "fleet.txt"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(ConfigError, match=says) as caught:
        make(servers_file=file)
    assert "geheim" not in str(caught.value)


def test_servers_come_and_go_with_the_file_and_a_bad_file_changes_nothing(tmp_path, caplog):
    file = tmp_path / "fleet.txt"

    async def run() -> None:
        with ExitStack() as stack:
            servers = [stack.enter_context(MisbehavingServer()) for _ in range(3)]
            a, b, c = (each.url for each in servers)
            write(file, a, b)
            async with started(servers_file=file) as policy:

                def alive() -> set[str]:
                    return {member.url for member in policy._balancer.members if member.alive}

                assert alive() == {a, b}
                first = await homes(policy, servers, range(20))
                assert set(first) == {0, 1}
                write(file, a, b, "gpu:port")
                assert await homes(policy, servers, range(20)) == first
                assert "the list of servers stays as it was" in caplog.text
                assert f"{file}:3: 'gpu:port' is no address" in caplog.text
                file.unlink()
                assert await homes(policy, servers, range(20)) == first
                assert caplog.text.count("stays as it was") == 2  # said once for each change
                write(file, b, c)
                await until(lambda: alive() == {b, c}, policy)
                second = await homes(policy, servers, range(20))
                assert set(second) == {1, 2}
                assert all(x in (y, 2) for x, y in zip(second, first, strict=True) if y != 0)

    asyncio.run(run())


def test_a_server_that_is_taken_off_the_list_answers_what_it_was_asked(tmp_path):
    file = tmp_path / "fleet.txt"

    async def run() -> None:
        with MisbehavingServer() as old, MisbehavingServer() as new:
            write(file, old.url)
            async with started(servers_file=file) as policy:
                old.script("slow:0.5")
                before = len(old.posts)
                task = asyncio.create_task(policy.sample(request()))
                while len(old.posts) == before:
                    await asyncio.sleep(0.01)
                write(file, new.url)
                await until(lambda: policy._balancer.members[0].alive, policy)
                await policy.sample(request(seed=9))
                assert len(await task) == 4
                assert len(old.posts) == before + 1

    asyncio.run(run())


def test_a_whole_fleet_that_moves_is_followed(tmp_path):
    file = tmp_path / "fleet.txt"

    async def run() -> None:
        with MisbehavingServer() as old, MisbehavingServer() as new:
            write(file, old.url)
            async with started(servers_file=file) as policy:
                good = await policy.sample(request())
                old.die()
                with pytest.raises(PolicyUnavailableError, match="no server answers"):
                    await policy.sample(request())
                write(file, new.url)
                assert await policy.sample(request()) == good

    asyncio.run(run())


def test_servers_are_named_in_one_place(tmp_path):
    with pytest.raises(ConfigError, match="in one place"):
        ServerPolicy(
            "world",
            COMPLETION,
            SAMPLING,
            servers=("http://127.0.0.1:1",),
            servers_file=tmp_path / "fleet.txt",
            api_key=None,
            timeout=1.0,
            concurrency=1,
        )


def test_servers_on_the_command_line_take_the_place_of_those_of_the_run():
    listed, filed = {"machine": {"servers": ["http://a:1/v1"]}}, {"machine": {"servers_file": "old.txt"}}
    machine = load(None, machine_overrides(None, None, Path("it's new.txt")), base=listed).machine
    assert (machine.servers, machine.servers_file) == ((), "it's new.txt")
    machine = load(None, machine_overrides(None, ["http://b:2/v1"]), base=filed).machine
    assert (machine.servers, machine.servers_file) == (("http://b:2/v1",), "")
    with pytest.raises(ConfigError, match="in one place"):
        load(None, machine_overrides(None, ["http://b:2/v1"], Path("new.txt")))
