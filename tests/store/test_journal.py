import sqlite3
import subprocess
import sys
import textwrap

import pytest
from support.runs import problems

from treeforge.errors import StorageError
from treeforge.sample import Request, Sample
from treeforge.store.journal import Journal

SAMPLES = (
    Sample("a\nThe answer is 4.", "stop", 9, -1.5, (4, 5), (-0.5, -1.0)),
    Sample("\ufffd é 😀", "length", 3),
    Sample("", "stop"),
    Sample("x", "delimiter", 1, 0.0),
)


def request(tree=0, key=1, n=4):
    return Request(
        problem=problems(1)[0], prefix="", n=n, mode="rollout", seed=1, digest=key.to_bytes(16, "little"), tree=tree
    )


@pytest.fixture
def journal(tmp_path):
    journal = Journal.open(tmp_path / "journal.sqlite", commit_rows=3)
    yield journal
    journal.close()


def test_requests_are_counted_by_tree(journal):
    for tree, key in ((2, 1), (2, 2), (0, 3)):
        journal.record(request(tree=tree, key=key), SAMPLES)
    journal.flush()
    assert journal.requests_by_tree() == {0: 1, 2: 2}


def test_samples_come_back_as_they_were(journal):
    journal.record(request(tree=2, key=7), SAMPLES)
    journal.flush()
    assert journal.rows(2) == {(7).to_bytes(16, "little"): SAMPLES}
    assert journal.rows(0) == {}


def test_a_request_is_held_once(journal):
    for text in ("first", "second"):
        journal.record(request(), (Sample(text, "stop"),))
        journal.flush()
    assert [s.text for samples in journal.rows(0).values() for s in samples] == ["first"]


def test_rows_are_committed_in_groups_and_by_flush(journal):
    other = Journal.open(journal.path, read_only=True)
    for key in range(4):
        journal.record(request(key=key), SAMPLES)
    assert len(other.rows(0)) == 3
    journal.flush()
    assert len(other.rows(0)) == 4
    other.close()


def test_totals_and_errors(journal):
    journal.record(request(tree=0, key=1), SAMPLES)
    journal.record(request(tree=3, key=2), (Sample("HTTP 500", "error"),) * 4)
    journal.flush()
    totals = journal.totals()
    assert (totals.requests, totals.completions, totals.tokens, totals.failed) == (2, 8, 13, 1)
    assert totals.bytes > 0
    assert journal.forget_errors() == [3]
    assert journal.totals().requests == 1


def test_cutoffs_and_outcomes(journal):
    journal.record_cutoff(4, 2, "run budget: 10 tokens")
    journal.record_outcome(4, "exhausted", "run budget: 10 tokens", 7)
    journal.record_outcome(5, "done", "", 5)
    assert journal.cutoff(4) == (2, "run budget: 10 tokens")
    assert journal.cutoff(5) is None
    journal.forget_outcomes([4])
    assert journal.outcomes() == {5: ("done", "")}
    assert journal.clear_cutoffs() == 1
    assert journal.cutoff(4) is None


@pytest.mark.parametrize("content", [b"this is no database" * 100, b"SQLite format 3\x00" + b"\xff" * 5000])
def test_a_damaged_file_is_named(tmp_path, content):
    path = tmp_path / "journal.sqlite"
    path.write_bytes(content)
    with pytest.raises(StorageError, match=r"journal\.sqlite"):
        Journal.open(path).rows(0)


def test_a_damaged_row_is_named(journal):
    journal.record(request(), SAMPLES)
    journal.flush()
    raw = sqlite3.connect(journal.path)
    raw.execute("UPDATE samples SET payload = x'c1c1'")
    raw.commit()
    with pytest.raises(StorageError, match="damaged"):
        journal.rows(0)


def test_another_version_is_refused(journal, tmp_path):
    raw = sqlite3.connect(tmp_path / "new.sqlite")
    raw.execute("PRAGMA user_version=99")
    raw.close()
    with pytest.raises(StorageError, match="version 99"):
        Journal.open(tmp_path / "new.sqlite")


def test_a_full_disk_is_a_clear_error_and_the_journal_stays_whole(journal):
    journal.record(request(key=1), SAMPLES)
    journal.flush()
    pages = journal._db.execute("PRAGMA page_count").fetchone()[0]
    journal._db.execute(f"PRAGMA max_page_count={pages}")
    with pytest.raises(StorageError, match="disk is full"):  # noqa: PT012 - which row meets the limit is sqlite's choice
        for key in range(2, 100):
            journal.record(request(key=key), (Sample("x" * 5000, "stop"),))
    journal._db.execute("PRAGMA max_page_count=1000000")
    assert (1).to_bytes(16, "little") in journal.rows(0)
    journal.flush()
    assert len(journal.rows(0)) > 1


def test_what_was_flushed_survives_a_kill(tmp_path):
    code = textwrap.dedent(
        f"""
        import os, signal, sys
        sys.path.insert(0, {str(__file__).rpartition("/store/")[0]!r})
        from pathlib import Path
        from support.runs import problems
        from treeforge.sample import Request, Sample
        from treeforge.store.journal import Journal
        journal = Journal.open(Path({str(tmp_path / "j.sqlite")!r}), commit_rows=1000)
        problem = problems(1)[0]
        for key in range(60):
            digest = key.to_bytes(16, "little")
            request = Request(problem=problem, prefix="", n=1, mode="step", seed=1, digest=digest, tree=0)
            journal.record(request, (Sample("kept" if key < 50 else "not flushed", "stop"),))
            if key == 49:
                journal.flush()
        os.kill(os.getpid(), signal.SIGKILL)
        """
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == -9
    journal = Journal.open(tmp_path / "j.sqlite")
    assert {s.text for samples in journal.rows(0).values() for s in samples} == {"kept"}
    assert len(journal.rows(0)) == 50
    journal.close()
