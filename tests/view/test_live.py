"""A run while it goes on, from its metrics and its journal."""

import json
import subprocess
import sys
import time

import pytest
from support.folders import write_run
from support.hand_drawn import hand_drawn
from support.runs import problems

from treeforge.sample import Request, Sample
from treeforge.store.run import RunFolder
from treeforge.view.growing import MAX_SAMPLES, growing_data, journal_rows
from treeforge.view.live import live_data, read_metrics
from treeforge.view.reader import RunReader


def line(seconds, **fields):
    row = {"time": 100.0 + seconds, "seconds": seconds, "tokens_per_second": 5.0, "completions_per_second": 1.0}
    return json.dumps(row | fields) + "\n"


@pytest.mark.parametrize("content", [None, "", "{}\n", "[1]\n\xff\n", '{"time": "late", "seconds": 1}\n'])
def test_no_metrics_to_read(tmp_path, content):
    file = tmp_path / "metrics.jsonl"
    if content is not None:
        file.write_text(content, encoding="latin-1")
    assert read_metrics(file) == []


def test_only_the_last_sitting_counts_and_torn_lines_do_not(tmp_path):
    file = tmp_path / "metrics.jsonl"
    file.write_text(line(1) + line(50) + line(0.5, tokens=7) + "torn" + line(2) + line(3, tokens=9) + line(4)[:20])
    assert [(found.seconds, found.tokens) for found in read_metrics(file)] == [(0.5, 7), (3, 9)]


@pytest.fixture
def fresh(tmp_path):
    """A run of which one tree has ended, with metrics of this moment."""
    path = write_run(tmp_path / "run", [hand_drawn(), None, None])
    now = time.time()
    rows = [line(0, finished=0, time=now - 10), line(10, finished=1, time=now, tokens=90, judged=4, correct=3)]
    (path / "logs" / "metrics.jsonl").write_text("".join(rows))
    return path


def test_a_run_that_goes_on(fresh):
    with RunFolder.open(fresh) as run:
        run.lock()
        data = live_data(RunReader(fresh))
    assert (data["going"], data["problems"], data["by_status"]) == (True, 3, {"done": 1, "open": 2})
    assert (data["now"]["tokens"], data["now"]["correct"]) == (90, 3)
    assert data["points"] == [[0, 5.0, 1.0], [10, 5.0, 1.0]]
    assert data["seconds_left"] == 20.0


def test_a_killed_run_has_stopped_at_once(fresh):
    code = "import sys, time, treeforge as tf; run = tf.RunFolder.open(sys.argv[1]); run.lock(); print(flush=True); "
    child = subprocess.Popen([sys.executable, "-c", code + "time.sleep(600)", str(fresh)], stdout=subprocess.PIPE)
    try:
        child.stdout.readline()
        reader = RunReader(fresh)
        assert live_data(reader)["going"] is True
    finally:
        child.kill()
        child.wait()
    data = live_data(reader)
    assert (data["going"], data["seconds_left"]) == (False, None)


@pytest.mark.parametrize(("seconds", "going"), [(10, True), (1_000, False)])
def test_where_the_lock_tells_nothing_the_metrics_do(fresh, monkeypatch, seconds, going):
    monkeypatch.setattr(RunFolder, "is_locked", lambda run: None)
    (fresh / "logs" / "metrics.jsonl").write_text(line(0, time=time.time() - seconds))
    assert live_data(RunReader(fresh))["going"] is going


def test_trees_that_grow_now(tmp_path):
    path = write_run(tmp_path / "run", [hand_drawn(), None, None])
    with RunFolder.open(path) as run:
        run.lock()
        for tree, key, count in ((0, 1, 1), (2, 2, 2), (2, 3, MAX_SAMPLES)):
            request = Request(
                problem=problems(3)[tree], prefix="", n=1, mode="rollout", seed=0, digest=bytes([key]) * 16, tree=tree
            )
            run.journal.record(request, tuple(Sample(f"<i>{key}-{n}</i>\x1b", "stop", 3) for n in range(count)))
        run.journal.flush()
    reader = RunReader(path)
    assert live_data(reader)["growing"] == [{"number": 2, "requests": 2, "question": "What is 2 + 2?"}]
    growing = growing_data(journal_rows(reader.run, 2))
    assert (growing["requests"], growing["completions"], growing["tokens"]) == (2, MAX_SAMPLES + 2, 3 * MAX_SAMPLES + 6)
    assert len(growing["samples"]) == MAX_SAMPLES
    assert growing["samples"][0]["text"] == f"<i>3-{MAX_SAMPLES - 1}</i>␛"
    assert growing_data(journal_rows(reader.run, 1))["samples"] == []


def test_an_imported_run_has_no_journal(tmp_path):
    path = write_run(tmp_path / "run", [hand_drawn(), None])
    (path / "journal.sqlite").unlink()
    reader = RunReader(path)
    assert growing_data(journal_rows(reader.run, 1)) == {"requests": 0, "completions": 0, "tokens": 0, "samples": []}
    assert live_data(reader)["growing"] == []
