"""The symbolic judge and its worker process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator

import pytest

from treeforge.errors import TreeforgeError
from treeforge.label import AnswerChecker, check
from treeforge.label.parse import parse
from treeforge.label.syntax import Node
from treeforge.label.workers import SymbolicWorker
from treeforge.verdict import Verdict

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def worker() -> Iterator[SymbolicWorker]:
    worker = SymbolicWorker(seconds=20)
    worker.start()
    yield worker
    worker.close()


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ("\\sum_{n=0}^{\\infty} \\frac{1}{n!}", "e", True),
        ("\\sum_{k=1}^{\\infty} \\frac{1}{k^2}", "\\frac{\\pi^2}{6}", True),
        ("\\lim_{x\\to 0} \\frac{\\sin x}{x}", "1", True),
        ("\\lim_{x\\to 0} \\frac{\\sin x}{x}", "2", False),
        ("\\int_0^1 \\sqrt{x} dx", "\\frac{2}{3}", True),
        ("x^2<4", "|x|<2", True),
        ("x^2<4", "x^2<5", False),
    ],
)
def test_sympy_decides_what_stayed_open(worker: SymbolicWorker, a: str, b: str, expected: bool) -> None:
    assert worker.same(parse(a), parse(b)) is expected


def test_check_takes_the_symbolic_route_only_when_asked() -> None:
    AnswerChecker().start()
    judgement = check("\\sum_{k=1}^{\\infty} 2^{-k}", "1")
    assert judgement.route == "symbolic", judgement
    assert check("\\sum_{k=1}^{\\infty} 2^{-k}", "1", symbolic=False).verdict is Verdict.UNDECIDED


def hard() -> tuple[Node, Node]:
    return parse("\\int_0^1 \\frac{x^{17}\\sin(x^3)\\ln(1+x)}{\\sqrt{1+x^5}} dx"), parse("1")


def test_a_job_over_its_time_is_killed_and_the_worker_replaced() -> None:
    worker = SymbolicWorker(seconds=0.5)
    worker.start()
    first = worker._process
    assert worker.same(*hard()) is None
    assert first is not None
    assert first.poll() is not None
    worker.seconds = 20
    assert worker.same(parse("\\sum_{k=1}^{\\infty} 3^{-k}"), parse("1/2")) is True
    worker.close()


def test_threads_share_a_worker(worker: SymbolicWorker) -> None:
    found: dict[int, bool | None] = {}

    def run(k: int) -> None:
        found[k] = worker.same(parse(f"\\sum_{{n=1}}^{{\\infty}} {k}^{{-n}}"), parse(f"1/{k - 1}"))

    threads = [threading.Thread(target=run, args=(k,)) for k in range(3, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert found == dict.fromkeys(range(3, 7), True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_a_worker_of_its_own() -> None:
    code = """
import os
from treeforge.label import check
assert check("\\\\sum_{k=1}^{\\\\infty} 2^{-k}", "1").route == "symbolic"
child = os.fork()
if child == 0:
    os._exit(0 if check("\\\\sum_{k=1}^{\\\\infty} 3^{-k}", "1/2").route == "symbolic" else 1)
assert os.waitpid(child, 0)[1] == 0
assert check("\\\\sum_{k=1}^{\\\\infty} 5^{-k}", "1/4").route == "symbolic"
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=600)


def test_a_worker_that_cannot_start_is_an_error_at_start_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    worker = SymbolicWorker()
    with pytest.raises(TreeforgeError, match="did not start"):
        worker.start()
    assert worker.same(parse("x"), parse("y")) is None


def test_the_checker_starts_its_worker() -> None:
    checker = AnswerChecker()
    checker.start()
