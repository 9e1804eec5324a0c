"""kill -9 the real command at seeded random moments: the rest goes on to the same bytes and pays nothing twice."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
from support.runs import problems, table_bytes

from treeforge.policy import ScriptedPolicy, World
from treeforge.sample import Request

COMMAND = [sys.executable, str(Path(__file__).parent / "support" / "counting_command.py")]
KILLS = 20
PROBLEMS, SIMULATIONS = 60, 12

pytestmark = pytest.mark.slow


class Run:
    """One run folder and the notes of what its policy answered, across all its processes."""

    name = "run"

    def __init__(self, folder: Path, *options: str) -> None:
        self.out, self.notes, self.options = folder / "run", folder / "answered", options
        folder.mkdir()
        self.problems = folder / "problems.jsonl"
        self.problems.write_text("".join(json.dumps(row) + "\n" for row in self.rows()))
        self.notes.touch()

    def rows(self) -> list[dict]:
        return [{"id": p.problem_id, "question": p.question, "answer": p.gold_answer} for p in problems(PROBLEMS)]

    def command(self) -> list[str]:
        name, source, out = self.name, str(self.problems), str(self.out)
        return [name, source, "--out", out, "--policy", "scripted", "--quiet", *self.options]

    def start(self, *, in_background: bool = False) -> subprocess.Popen:
        return subprocess.Popen(
            [*COMMAND, str(self.notes), *self.command()],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            preexec_fn=(lambda: signal.signal(signal.SIGINT, signal.SIG_IGN)) if in_background else None,
        )

    def finish(self) -> None:
        process = self.start()
        _, errors = process.communicate(timeout=300)
        assert process.returncode == 0, errors

    def answered(self) -> list[str]:
        return self.notes.read_text().split()

    def journaled(self) -> set[str]:
        file = self.out / "journal.sqlite"
        if not file.exists():
            return set()
        with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as db:
            try:
                return {digest.hex() for (digest,) in db.execute("SELECT digest FROM samples")}
            except sqlite3.OperationalError:
                return set()


class Annotation(Run):
    """The same for solutions that were there before."""

    name = "annotate"

    def rows(self) -> list[dict]:
        writer = ScriptedPolicy(World(error_rate=0.3, branching=8))
        return [
            {"question": p.question, "answer": p.gold_answer, "responses": [sample.text for sample in samples]}
            for number, p in enumerate(problems(24))
            for samples in [writer.sample_now(Request(p, "", 3, "rollout", number, b"", 0))]
        ]

    def command(self) -> list[str]:
        return super().command() if self.problems.exists() else ["resume", str(self.out), "--quiet"]


OPTIONS = (f"--simulations={SIMULATIONS}", "--set=block=8", "--set=search.wave=3", "--concurrency=6")
SLOW_WORLD = ("--set=policy.scripted.latency=0.004", "--set=policy.scripted.latency_sigma=1.0")


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory) -> dict[str, bytes]:
    run = Run(tmp_path_factory.mktemp("whole") / "r", *OPTIONS, *SLOW_WORLD)
    run.finish()
    assert len(run.answered()) == len(set(run.answered())) > 500
    return table_bytes(run.out)


def test_twenty_kills_while_it_grows(tmp_path, undisturbed):
    run = Run(tmp_path / "r", *OPTIONS, *SLOW_WORLD)
    moments = random.Random(7)
    kills = 0
    while kills < KILLS:
        known, before = run.journaled(), len(run.answered())
        process = run.start()
        target = before + moments.randrange(0, 20)
        while process.poll() is None and len(run.answered()) < target:
            time.sleep(0.002)
        time.sleep(moments.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        kills += 1
        assert not known & set(run.answered()[before:]), "a journaled completion was asked for again"
    assert 0 < len(run.journaled()) < PROBLEMS * SIMULATIONS, "every kill came while trees were growing"
    known, before = run.journaled(), len(run.answered())
    run.finish()
    assert not known & set(run.answered()[before:])
    assert table_bytes(run.out) == undisturbed


def test_kills_while_tables_and_shards_are_written(tmp_path, undisturbed):
    run = Run(tmp_path / "r", *OPTIONS, *SLOW_WORLD)
    run.finish()
    answered = run.answered()
    moments = random.Random(11)
    for _ in range(8):
        for table in run.out.glob("*/*.parquet"):
            if moments.random() < 0.5:
                table.unlink()
        process = run.start()
        time.sleep(0.3 + moments.random() * 1.5)
        process.send_signal(signal.SIGKILL)
        process.wait()
    run.finish()
    assert table_bytes(run.out) == undisturbed
    assert run.answered() == answered


@pytest.mark.parametrize("strategy", ["step-rollouts", "omega", "adaptive"])
def test_kills_while_given_solutions_are_labelled(tmp_path, strategy):
    """The last sitting has no file of solutions any more."""
    options = (f"--strategy={strategy}", "--set=block=8", "--set=search.wave=3", "--concurrency=6", *SLOW_WORLD)
    whole = Annotation(tmp_path / "whole", *options)
    whole.finish()
    assert len(whole.answered()) == len(set(whole.answered())) > 60
    run = Annotation(tmp_path / "r", *options)
    moments = random.Random(13)
    for _ in range(8):
        known, before = run.journaled(), len(run.answered())
        process = run.start()
        target = before + moments.randrange(0, 8)
        while process.poll() is None and len(run.answered()) < target:
            time.sleep(0.002)
        time.sleep(moments.random() * 0.01)
        process.send_signal(signal.SIGKILL)
        process.wait()
        assert not known & set(run.answered()[before:]), "a journaled completion was asked for again"
    assert 0 < len(run.journaled()) < len(whole.answered()), "every kill came while trees were growing"
    run.problems.unlink()
    run.finish()
    assert table_bytes(run.out) == table_bytes(whole.out)


@pytest.mark.parametrize(
    ("stop", "code", "in_background"),
    [(signal.SIGINT, 130, False), (signal.SIGTERM, 143, False), (signal.SIGTERM, 143, True)],
)
def test_ctrl_c_and_sigterm_leave_a_resumable_run(tmp_path, undisturbed, stop, code, in_background):
    """In the background of a script SIGINT is ignored; SIGTERM must stop the run there too."""
    run = Run(tmp_path / "r", *OPTIONS, *SLOW_WORLD)
    process = run.start(in_background=in_background)
    while len(run.answered()) < 60:
        time.sleep(0.005)
    process.send_signal(stop)
    _, errors = process.communicate(timeout=120)
    assert process.returncode == code
    assert "resume" in errors
    assert "Traceback" not in errors
    assert set(run.answered()) == run.journaled() or len(run.answered()) - len(run.journaled()) <= 6
    run.finish()
    assert table_bytes(run.out) == undisturbed
