import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from treeforge.errors import ConfigError, PolicyUnavailableError
from treeforge.policy import fleet as fleet_module
from treeforge.policy.fleet import Fleet, Launch, Patience, free_ports, pinned, shares
from treeforge.policy.vllm_options import cause_in_log

FAKE = Path(__file__).parents[1] / "support" / "fake_vllm.py"
QUICK = Patience(start=30, check=0.05, silent=2, stop=1, backoff=0.05, restarts=2)


def launch(folder: Path, port: int) -> Launch:
    folder.mkdir(exist_ok=True)
    return Launch(
        command=(sys.executable, str(FAKE), str(port), str(folder)),
        port=port,
        environment=dict(os.environ),
        log=folder / "logs" / "server.log",
    )


def pids(folder: Path) -> list[int]:
    """Of every start so far: the server's and its child's."""
    path = folder / "pids"
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


async def until(condition, what: str) -> None:
    for _ in range(1000):
        if condition():
            return
        await asyncio.sleep(0.03)
    raise AssertionError(f"not within 30 s: {what}")


async def ready_for_long(fleet: Fleet) -> None:
    while True:
        await fleet.ready()
        await asyncio.sleep(0.02)


def until_dead(found: list[int]) -> None:
    assert found
    asyncio.run(until(lambda: not any(map(alive, found)), f"the end of {found}"))


def test_starts_all_and_ends_them_with_their_children(tmp_path):
    async def run():
        launches = [launch(tmp_path / str(i), port) for i, port in enumerate(free_ports(2))]
        fleet = Fleet(launches, cause_in_log, QUICK)
        await fleet.start()
        await fleet.ready()
        assert fleet.urls == [f"http://127.0.0.1:{one.port}" for one in launches]
        found = [pid for i in range(2) for pid in pids(tmp_path / str(i))]
        assert len(found) == 4
        assert all(map(alive, found))
        await fleet.stop()
        await fleet.stop()
        return found

    until_dead(asyncio.run(run()))


@pytest.mark.slow
def test_a_crashed_server_is_started_again_at_its_address(tmp_path):
    async def run():
        fleet = Fleet([launch(tmp_path, free_ports(1)[0])], cause_in_log, QUICK)
        await fleet.start()
        before = pids(tmp_path)
        (tmp_path / "crash").touch()
        await until(lambda: not alive(before[0]), "the crash")
        (tmp_path / "crash").unlink()
        await until(lambda: len(pids(tmp_path)) == 4, "the second start")
        await until(lambda: fleet.restarts == 1, "the restart's count")
        await fleet.ready()
        # What the crashed server had started would keep its GPU's memory.
        assert not alive(before[1])
        await fleet.stop()
        return pids(tmp_path)

    until_dead(asyncio.run(run()))


@pytest.mark.slow
def test_a_silent_server_is_replaced(tmp_path, monkeypatch):
    monkeypatch.setattr(fleet_module, "_CHECK_TIMEOUT", 0.2)

    async def run():
        fleet = Fleet([launch(tmp_path, free_ports(1)[0])], cause_in_log, QUICK)
        await fleet.start()
        before = pids(tmp_path)
        (tmp_path / "silent").touch()
        await until(lambda: not alive(before[0]), "the end of the silent one")
        (tmp_path / "silent").unlink()
        await until(lambda: len(pids(tmp_path)) > 2, "a new one")
        await fleet.ready()
        await fleet.stop()

    asyncio.run(run())


@pytest.mark.slow
def test_after_so_many_restarts_it_is_given_up_in_its_own_words(tmp_path):
    async def run():
        fleet = Fleet([launch(tmp_path, free_ports(1)[0])], cause_in_log, QUICK)
        await fleet.start()
        (tmp_path / "crash").touch()
        await until(lambda: len(pids(tmp_path)) == 6 and not alive(pids(tmp_path)[-2]), "the end of the last one")
        with pytest.raises(PolicyUnavailableError) as raised:
            await asyncio.wait_for(ready_for_long(fleet), 30)
        await fleet.stop()
        return str(raised.value)

    said = asyncio.run(run())
    assert "all servers were given up" in said
    assert "RuntimeError: the card fell off the bus" in said
    assert "started again 2 times" in said
    assert str(tmp_path / "logs" / "server.log") in said
    assert len(pids(tmp_path)) == 2 * 3


@pytest.mark.slow
def test_one_given_up_server_leaves_the_others_to_work(tmp_path):
    async def run():
        launches = [launch(tmp_path / str(i), port) for i, port in enumerate(free_ports(2))]
        fleet = Fleet(launches, cause_in_log, QUICK)
        await fleet.start()
        (tmp_path / "0" / "crash").touch()
        await until(lambda: len(pids(tmp_path / "0")) == 6, "the last restart")
        await until(lambda: not alive(pids(tmp_path / "0")[-2]), "its end")
        await fleet.ready()
        assert alive(pids(tmp_path / "1")[0])
        await fleet.stop()

    asyncio.run(run())


def test_a_server_that_does_not_start_is_an_error_at_once_and_nothing_runs_on(tmp_path):
    async def run():
        launches = [launch(tmp_path / str(i), port) for i, port in enumerate(free_ports(2))]
        (tmp_path / "1" / "broken").touch()
        fleet = Fleet(launches, cause_in_log, QUICK)
        with pytest.raises(ConfigError, match=r"replica 1 does not start: .*ValueError: no room for the weights"):
            await fleet.start()

    asyncio.run(run())
    if found := pids(tmp_path / "0"):
        until_dead(found)


def test_not_ready_in_time_is_an_error(tmp_path, monkeypatch):
    async def run():
        (tmp_path / "silent").touch()
        fleet = Fleet([launch(tmp_path, free_ports(1)[0])], cause_in_log, Patience(start=0.2, check=0.1, stop=1))
        with pytest.raises(ConfigError, match=r"not ready after 0\.2 s"):
            await fleet.start()

    monkeypatch.setattr(fleet_module, "_CHECK_TIMEOUT", 0.1)
    asyncio.run(run())


def test_a_log_that_cannot_be_written_is_an_error(tmp_path):
    async def run():
        (tmp_path / "logs").write_text("in the way")
        fleet = Fleet([launch(tmp_path, free_ports(1)[0])], cause_in_log, QUICK)
        with pytest.raises(ConfigError, match="cannot be started"):
            await fleet.start()

    asyncio.run(run())


def test_sigterm_that_is_ignored_is_followed_by_sigkill(tmp_path):
    async def run():
        tmp_path.joinpath("stubborn").touch()
        fleet = Fleet([launch(tmp_path, free_ports(1)[0])], cause_in_log, QUICK)
        await fleet.start()
        await fleet.stop()

    asyncio.run(run())
    until_dead(pids(tmp_path))


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_no_orphans_whatever_death_the_parent_dies(tmp_path, number):
    program = f"""
import asyncio, json, os, sys
sys.path.insert(0, {str(Path(__file__).parents[1])!r})
from pathlib import Path
from treeforge.policy.fleet import Fleet, Launch, Patience
from treeforge.policy.vllm_options import cause_in_log
async def main():
    given = json.loads(sys.argv[1])
    launch = Launch(command=tuple(given["command"]), port=given["port"], environment=dict(os.environ),
                    log=Path(given["log"]))
    fleet = Fleet([launch], cause_in_log, Patience(check=0.05, stop=1))
    await fleet.start()
    print("ready", flush=True)
    try:
        await asyncio.sleep(600)
    finally:
        await fleet.stop()
asyncio.run(main())
"""
    one = launch(tmp_path, free_ports(1)[0])
    given = json.dumps({"command": one.command, "port": one.port, "log": str(one.log)})
    parent = subprocess.Popen([sys.executable, "-c", program, given], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    assert parent.stdout is not None
    assert parent.stdout.readline() == b"ready\n"
    found = pids(tmp_path)
    assert len(found) == 2
    assert all(map(alive, found))
    parent.send_signal(number)
    parent.wait(30)
    parent.stdout.close()
    until_dead(found)


def test_the_guard_ends_processes_that_others_started(tmp_path):
    stranger = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
    try:
        keeper = Path(fleet_module.keeper.__file__)
        guard = subprocess.Popen([sys.executable, "-I", str(keeper), "1", str(stranger.pid)], stdin=subprocess.PIPE)
        time.sleep(0.3)
        assert stranger.poll() is None
        guard.communicate()
        assert stranger.wait(10) == -signal.SIGTERM
    finally:
        stranger.kill()


def test_free_ports_are_different():
    assert len(set(free_ports(20))) == 20


def test_shares():
    assert shares(["0", "1", "2", "3", "4"], 2) == [["0", "1"], ["2", "3"]]
    assert shares(["0"], 2) == [[], []]


def test_gpus_are_pinned():
    assert [pinned({}, i, 3, 2)["CUDA_VISIBLE_DEVICES"] for i in range(3)] == ["0,1", "2,3", "4,5"]
    seen = {"CUDA_VISIBLE_DEVICES": "3,GPU-abc,5", "OTHER": "x"}
    assert pinned(seen, 1, 3, 1) == {"CUDA_VISIBLE_DEVICES": "GPU-abc", "OTHER": "x"}
    with pytest.raises(ConfigError, match="2 replicas of 2 GPU each need 4 GPUs; CUDA_VISIBLE_DEVICES names 3"):
        pinned(seen, 0, 2, 2)
