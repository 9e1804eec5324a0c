import random
import sqlite3

import pytest
from support.runs import problems

from treeforge.errors import StorageError
from treeforge.sample import Request, Sample
from treeforge.store import payloads
from treeforge.store.journal import Journal

WORDS = (
    "so",
    "the",
    "total",
    "number",
    "of",
    "red",
    "cups",
    "is",
    "equal",
    "to",
    "half",
    "therefore",
    "we",
    "subtract",
)


def solution(chance, words=60):
    steps = [
        " ".join(chance.choice(WORDS) for _ in range(12)) + f" {chance.randrange(100)}." for _ in range(words // 12)
    ]
    return Sample("\n".join(steps), "stop", words, -chance.random())


def write(journal, rows, seed=0, first=0):
    chance = random.Random(seed)
    written = {}
    for key in range(first, first + rows):
        samples = tuple(solution(chance) for _ in range(4))
        digest = key.to_bytes(16, "little")
        problem = problems(1)[0]
        journal.record(
            Request(problem=problem, prefix="", n=4, mode="rollout", seed=1, digest=digest, tree=key % 7), samples
        )
        written[digest] = samples
    journal.flush()
    return written


def everything(journal):
    return {digest: samples for tree in range(7) for digest, samples in journal.rows(tree).items()}


def stored(journal):
    return dict(sqlite3.connect(journal.path).execute("SELECT digest, payload FROM samples"))


@pytest.fixture
def small(monkeypatch):
    """A dictionary after 200 kB, so that a test need not write megabytes."""
    monkeypatch.setattr(payloads, "MATERIAL_BYTES", 200_000)


def wait_for_dictionary(journal):
    if journal._payloads._training is not None:
        journal._payloads._training.result()
        write(journal, 1, seed=9, first=10**6)
        journal._db.execute("DELETE FROM samples WHERE digest = ?", ((10**6).to_bytes(16, "little"),))
    assert journal._select("SELECT count(*) FROM dictionaries") == [(1,)]


def test_a_dictionary_is_made_on_the_way_and_everything_comes_back(tmp_path, small):
    journal = Journal.open(tmp_path / "journal.sqlite")
    before = write(journal, 250)
    wait_for_dictionary(journal)
    after = write(journal, 50, seed=1, first=250)
    assert everything(journal) == before | after
    rows = stored(journal)
    size = {digest: len(payload) for digest, payload in rows.items()}
    assert sum(size[d] for d in after) / len(after) < 0.5 * sum(size[d] for d in before) / len(before)
    journal.close()


def test_a_reader_and_a_later_sitting_find_the_dictionary(tmp_path, small):
    journal = Journal.open(tmp_path / "journal.sqlite")
    reader = Journal.open(tmp_path / "journal.sqlite", read_only=True)
    assert reader.rows(0) == {}
    written = write(journal, 250)
    wait_for_dictionary(journal)
    written |= write(journal, 20, seed=1, first=250)
    assert everything(reader) == written
    journal.close()
    again = Journal.open(tmp_path / "journal.sqlite")
    later = write(again, 20, seed=2, first=270)
    assert all(payload[:4] == b"\x28\xb5\x2f\xfd" for digest, payload in stored(again).items() if digest in later)
    assert everything(again) == written | later
    reader.close()
    again.close()


def test_small_rows_are_left_as_they_are(tmp_path, small):
    journal = Journal.open(tmp_path / "journal.sqlite")
    write(journal, 250)
    wait_for_dictionary(journal)
    problem = problems(1)[0]
    journal.record(
        Request(problem=problem, prefix="", n=1, mode="step", seed=1, digest=b"s" * 16, tree=0), (Sample("7", "stop"),)
    )
    journal.flush()
    assert stored(journal)[b"s" * 16][:1] == b"\x91"
    assert journal.rows(0)[b"s" * 16] == (Sample("7", "stop"),)
    journal.close()


def test_compaction_keeps_every_sample_and_gives_space_back(tmp_path):
    journal = Journal.open(tmp_path / "journal.sqlite")
    written = write(journal, 600)
    big = journal.totals().bytes
    journal.compact()
    assert everything(journal) == written
    assert journal.totals().bytes < 0.6 * big
    journal.compact()  # and once more, with a dictionary there already
    more = write(journal, 10, seed=3, first=600)
    journal.close()
    again = Journal.open(tmp_path / "journal.sqlite", read_only=True)
    assert everything(again) == written | more
    again.close()


def test_compaction_of_a_journal_too_small_for_a_dictionary(tmp_path):
    journal = Journal.open(tmp_path / "journal.sqlite")
    written = write(journal, 3)
    journal.compact()
    assert everything(journal) == written
    journal.close()


@pytest.mark.parametrize(
    "damage", [b"\x28\xb5\x2f\xfd\x00", b"", b"\x91\xc1", b"\x28\xb5\x2f\xfd\x27\x07\x00\x00\x00\x20\x00"]
)
def test_a_damaged_row_is_named(tmp_path, damage):
    journal = Journal.open(tmp_path / "journal.sqlite")
    write(journal, 1)
    journal._db.execute("UPDATE samples SET payload = ?", (damage,))
    with pytest.raises(StorageError, match=r"journal\.sqlite: a row"):
        journal.rows(0)
    journal.close()


def test_a_damaged_dictionary_is_found_out(tmp_path):
    journal = Journal.open(tmp_path / "journal.sqlite")
    write(journal, 600)
    journal.compact()
    (data,) = journal._db.execute("SELECT data FROM dictionaries").fetchone()
    damaged = data[:-20] + bytes([data[-20] ^ 1]) + data[-19:]
    journal._db.execute("UPDATE dictionaries SET data = ?", (damaged,))
    journal.close()
    again = Journal.open(tmp_path / "journal.sqlite", read_only=True)
    with pytest.raises(StorageError, match="cannot be read"):
        everything(again)
    again.close()
