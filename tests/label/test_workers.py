"""The symbolic worker in every kind of host: event loops, threads, forks, pytest-xdist, code from standard input."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from treeforge.label import check, workers
from treeforge.label.parse import parse
from treeforge.label.syntax import Node
from treeforge.label.workers import SymbolicWorker

pytestmark = pytest.mark.slow

ASKS_SYMPY = "\\sum_{k=1}^{\\infty} 3^{-k}"
HARD = "\\int_0^1 \\frac{x^{17}\\sin(x^3)\\ln(1+x)}{\\sqrt{1+x^5}} dx"


def nodes(a: str, b: str) -> tuple[Node, Node]:
    return parse(a), parse(b)


def run(code: str, *, stdin: str = "", args: tuple[str, ...] = ()) -> str:
    """Standard output of a Python process of its own, which must succeed."""
    command = [sys.executable, *(args or ("-c", code))]
    result = subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_it_works_in_an_event_loop_and_in_its_threads() -> None:
    async def main() -> list[str]:
        here = check(ASKS_SYMPY, "1/2").route
        pairs = [(f"\\sum_{{n=1}}^{{\\infty}} {k}^{{-n}}", f"1/{k - 1}") for k in range(3, 8)]
        there = await asyncio.gather(*(asyncio.to_thread(check, *pair) for pair in pairs))
        return [here, *(judgement.route for judgement in there)]

    assert asyncio.run(main()) == ["symbolic"] * 6


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_it_works_in_forked_pools() -> None:
    code = f"""
import multiprocessing
from treeforge.label import check
check({ASKS_SYMPY!r}, "1/2")
with multiprocessing.get_context("fork").Pool(2) as pool:
    pairs = [({ASKS_SYMPY!r}, f"{{k}}/{{2 * k}}") for k in range(1, 9)]
    print(sorted(set(judgement.route for judgement in pool.starmap(check, pairs))))
"""
    assert run(code).strip() == "['symbolic']"


def test_it_works_where_the_host_has_no_file() -> None:
    code = f"from treeforge.label import check\nprint(check({ASKS_SYMPY!r}, '1/2').route)\n"
    assert run("", stdin=code, args=("-",)).strip() == "symbolic"


def test_it_works_under_pytest_xdist(tmp_path: Path) -> None:
    tests = "\n".join(
        f"def test_{k}():\n    assert check({ASKS_SYMPY!r}, '{k}/{2 * k}').route == 'symbolic'" for k in range(1, 5)
    )
    (tmp_path / "test_one.py").write_text(f"from treeforge.label import check\n{tests}\n")
    args = ("-m", "pytest", "-q", "-n", "2", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", str(tmp_path))
    assert "4 passed" in run("", args=args)


def test_no_module_of_the_working_directory_is_loaded(tmp_path: Path) -> None:
    (tmp_path / "sympy.py").write_text(f"open({str(tmp_path / 'executed')!r}, 'w')")
    code = f"import os; os.chdir({str(tmp_path)!r})\nfrom treeforge.label import check\n"
    code += f"print(check({ASKS_SYMPY!r}, '1/2').route)"
    assert run(code).strip() == "symbolic"
    assert not (tmp_path / "executed").exists()


def test_a_worker_that_was_killed_is_replaced() -> None:
    worker = SymbolicWorker(seconds=20)
    worker.start()
    first = worker._process
    assert first is not None
    os.kill(first.pid, signal.SIGKILL)
    first.wait()
    assert worker.same(*nodes(ASKS_SYMPY, "1/2")) is True
    assert worker._process is not None
    assert worker._process.pid != first.pid
    worker.close()


def test_a_worker_is_recycled_after_its_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "JOBS_A_LIFE", 2)
    worker = SymbolicWorker(seconds=20)
    pids = set()
    for _ in range(4):
        worker.start()
        assert worker._process is not None
        pids.add(worker._process.pid)
        assert worker.same(*nodes(ASKS_SYMPY, "1/2")) is True
    assert len(pids) == 2
    worker.close()


def test_the_clock_starts_with_the_work() -> None:
    """An easy job behind hard ones waits longer than a job may take, and is answered."""
    worker = SymbolicWorker(seconds=1)
    worker.start()
    found: list[bool | None] = []
    hard = [threading.Thread(target=lambda: worker.same(*nodes(HARD, "1"))) for _ in range(2)]
    for thread in hard:
        thread.start()
    while not worker._lock.locked():
        time.sleep(0.01)
    easy = threading.Thread(target=lambda: found.append(worker.same(*nodes(ASKS_SYMPY, "1/2"))))
    easy.start()
    for thread in (*hard, easy):
        thread.join()
    assert found == [True]
    worker.close()


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_no_worker_outlives_its_host() -> None:
    code = f"""
import os, signal
from treeforge.label import check, checker
check({ASKS_SYMPY!r}, "1/2")
print(checker._WORKER._process.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    host = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    pid = int(host.stdout)
    end = time.monotonic() + 30
    while time.monotonic() < end and Path(f"/proc/{pid}").exists():
        time.sleep(0.1)
    assert not Path(f"/proc/{pid}").exists()
