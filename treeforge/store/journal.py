"""The journal: every completion of a run, once, in one sqlite file (WAL).

A request's samples are one row under the digest of all that determines them. Rows are committed in groups that never
wait for a further reply. A commit survives `kill -9`; what a power cut may take is the last moments, never the file's
integrity (synchronous=NORMAL).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from pathlib import Path

import msgspec

from treeforge.errors import StorageError
from treeforge.sample import Request, Sample
from treeforge.store.payloads import MOST_MATERIAL, Payloads, train

SCHEMA_VERSION = 1

_SCHEMA = """
CREATE TABLE IF NOT EXISTS samples (
    tree INTEGER NOT NULL, digest BLOB NOT NULL, tokens INTEGER NOT NULL, completions INTEGER NOT NULL,
    failed INTEGER NOT NULL, payload BLOB NOT NULL
);
CREATE UNIQUE INDEX IF NOT EXISTS samples_by_request ON samples (tree, digest);
CREATE TABLE IF NOT EXISTS dictionaries (id INTEGER PRIMARY KEY, made INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS cutoffs (tree INTEGER PRIMARY KEY, wave INTEGER NOT NULL, reason TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS outcomes (
    tree INTEGER PRIMARY KEY, status TEXT NOT NULL, reason TEXT NOT NULL, nodes INTEGER NOT NULL
);
"""

_INSERT = "INSERT OR IGNORE INTO samples (tree, digest, tokens, completions, failed, payload) VALUES (?, ?, ?, ?, ?, ?)"


class JournalTotals(msgspec.Struct, frozen=True):
    """Sums over the whole journal."""

    requests: int
    completions: int
    tokens: int
    failed: int
    """Requests that were given up and stand as `error` samples."""
    bytes: int
    """Size of the database with its write-ahead log."""


class TreeCost(msgspec.Struct, frozen=True):
    """What one tree took."""

    requests: int
    completions: int
    tokens: int


class Journal:
    """Open with `Journal.open`, close when done. One process writes; others may read with `read_only`."""

    def __init__(self, connection: sqlite3.Connection, path: Path, commit_rows: int, *, writes: bool = True) -> None:
        self._db, self.path, self._commit_rows = connection, path, commit_rows
        self._pending: list[tuple[int, bytes, int, int, int, bytes]] = []
        self._payloads = Payloads(self._dictionary)
        if writes and (newest := self._select("SELECT data FROM dictionaries ORDER BY made DESC LIMIT 1")):
            self._payloads.use(newest[0][0])

    @classmethod
    def open(cls, path: Path, *, commit_rows: int = 256, read_only: bool = False) -> Journal:
        """Open or make a journal. Raises `StorageError` for a damaged file or one of another version."""
        try:
            if read_only:
                db = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)
            else:
                db = sqlite3.connect(path, isolation_level=None)
            db.execute("PRAGMA busy_timeout=10000")
            version = int(db.execute("PRAGMA user_version").fetchone()[0])
            if version not in (0, SCHEMA_VERSION):
                raise StorageError(f"{path} is a journal of version {version}; this treeforge reads {SCHEMA_VERSION}")
            if not read_only:
                # Large pages: a row is about a kilobyte, and half as much time goes into writing it.
                db.execute("PRAGMA page_size=16384")
                db.execute("PRAGMA journal_mode=WAL")
                db.execute("PRAGMA synchronous=NORMAL")
                db.executescript(_SCHEMA)
                db.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        except sqlite3.Error as error:
            raise _storage_error(error, path) from error
        return cls(db, path, commit_rows, writes=not read_only)

    def rows(self, tree: int) -> dict[bytes, tuple[Sample, ...]]:
        """All samples journaled for a tree, by request digest."""
        try:
            return {digest: self._payloads.decode(payload) for digest, payload in self._rows(tree)}
        except StorageError as error:
            raise _storage_error(error, self.path) from error

    def _rows(self, tree: int) -> list[tuple[bytes, bytes]]:
        return self._select("SELECT digest, payload FROM samples WHERE tree = ? ORDER BY rowid", (tree,))

    def record(self, request: Request, samples: tuple[Sample, ...]) -> None:
        """Take in a request's samples; durable at the latest after `flush`."""
        tokens = 0
        for sample in samples:
            tokens += sample.tokens
        failed = samples[0].finish == "error"
        payload = self._payloads.encode(samples)
        self._pending.append((request.tree, request.digest, tokens, len(samples), failed, payload))
        if len(self._pending) >= self._commit_rows:
            self.flush()

    def flush(self) -> None:
        """Commit everything recorded, in one transaction. Raises `StorageError`; then the rows stay pending."""
        if self._pending:
            self._transaction(_INSERT, self._pending)
            self._pending.clear()
            if (data := self._payloads.trained()) is not None:
                self._keep(data)

    def cutoff(self, tree: int) -> tuple[int, str] | None:
        """(wave before which this tree stops, reason), as journaled."""
        row = self._select("SELECT wave, reason FROM cutoffs WHERE tree = ?", (tree,))
        return (row[0][0], row[0][1]) if row else None

    def record_cutoff(self, tree: int, wave: int, reason: str) -> None:
        """Journal a cut-off, durably, before it acts."""
        self.flush()
        self._transaction("INSERT OR REPLACE INTO cutoffs VALUES (?, ?, ?)", [(tree, wave, reason)])

    def clear_cutoffs(self) -> int:
        """Forget all cut-offs, so that their trees grow on; how many there were."""
        count = int(self._select("SELECT count(*) FROM cutoffs")[0][0])
        self._transaction("DELETE FROM cutoffs", [()])
        return count

    def record_outcome(self, tree: int, status: str, reason: str, nodes: int) -> None:
        """Note how a tree ended, and its number of nodes."""
        self.record_outcomes([(tree, status, reason, nodes)])

    def record_outcomes(self, outcomes: list[tuple[int, str, str, int]]) -> None:
        """Note how several trees ended, all or none: tree, status, reason and number of nodes of each."""
        self._transaction("INSERT OR REPLACE INTO outcomes VALUES (?, ?, ?, ?)", outcomes)

    def outcomes(self, first: int = 0, last: int = 2**62) -> dict[int, tuple[str, str]]:
        """(status, reason) of every tree that ended, of those with these numbers and between them."""
        select = "SELECT tree, status, reason FROM outcomes WHERE tree BETWEEN ? AND ?"
        return {tree: (status, reason) for tree, status, reason in self._select(select, (first, last))}

    def nodes(self) -> int:
        """Nodes of all trees that ended."""
        return int(self._select("SELECT coalesce(sum(nodes), 0) FROM outcomes")[0][0])

    def node_counts(self) -> dict[int, int]:
        """Nodes of every tree that ended."""
        return dict(self._select("SELECT tree, nodes FROM outcomes"))

    def forget_outcomes(self, trees: Iterator[int] | list[int]) -> None:
        """Forget how these trees ended, so that they are grown again from the journal."""
        self._transaction("DELETE FROM outcomes WHERE tree = ?", [(tree,) for tree in trees])

    def forget_errors(self) -> list[int]:
        """Delete the `error` samples; the trees that had some, for `resume --retry-errors`."""
        trees = [
            int(row[0]) for row in self._select("SELECT DISTINCT tree FROM samples WHERE failed = 1 ORDER BY tree")
        ]
        self._transaction("DELETE FROM samples WHERE failed = 1", [()])
        return trees

    def totals(self) -> JournalTotals:
        """Sums over the whole journal."""
        row = self._select(
            "SELECT count(*), coalesce(sum(completions), 0), coalesce(sum(tokens), 0), coalesce(sum(failed), 0) "
            "FROM samples"
        )[0]
        log = self.path.with_name(self.path.name + "-wal")
        size = sum(file.stat().st_size for file in (self.path, log) if file.exists())
        return JournalTotals(row[0], row[1], row[2], row[3], size)

    def requests_of(self, trees: Iterable[int]) -> int:
        """Rows of these trees."""
        return sum(cost.requests for cost in self.costs(trees))

    def costs(self, trees: Iterable[int]) -> list[TreeCost]:
        """What each of these trees took."""
        rows = self._select("SELECT tree, count(*), sum(completions), sum(tokens) FROM samples GROUP BY tree")
        known = {tree: TreeCost(*cost) for tree, *cost in rows}
        return [known.get(tree, TreeCost(0, 0, 0)) for tree in trees]

    def copy_to(self, path: Path) -> None:
        """Write a copy of the whole journal as it stands, also while another process writes to it."""
        try:
            with closing(sqlite3.connect(path)) as copy:
                self._db.backup(copy)
        except sqlite3.Error as error:
            raise _storage_error(error, path) from error

    def tokens_by_tree(self) -> dict[int, int]:
        """Tokens sampled for every tree that has any, by its number."""
        return dict(self._select("SELECT tree, sum(tokens) FROM samples GROUP BY tree"))

    def requests_by_tree(self) -> dict[int, int]:
        """Requests journaled for every tree that has any; read from the index alone, also of a large journal."""
        return dict(self._select("SELECT tree, count(*) FROM samples GROUP BY tree"))

    def payloads(self) -> Iterator[tuple[int, tuple[Sample, ...], int]]:
        """(tree, samples, bytes of the payload) of every row, in the order of writing."""
        try:
            for tree, payload in self._db.execute("SELECT tree, payload FROM samples ORDER BY rowid"):
                yield tree, self._payloads.decode(payload), len(payload)
        except (sqlite3.Error, StorageError) as error:
            raise _storage_error(error, self.path) from error

    def compact(self) -> None:
        """Write all rows anew with one dictionary made of the whole journal, and give the space back.

        All or nothing: a stop at any moment leaves the journal as it was. Takes room for a second journal meanwhile.
        """
        self.flush()
        db, old = self._db, self._payloads
        rows = int(self._select("SELECT count(*) FROM samples")[0][0])
        every = max(1, rows // MOST_MATERIAL)
        material = self._select("SELECT payload FROM samples WHERE rowid % ? = 0 LIMIT ?", (every, MOST_MATERIAL))
        data = train([old.plain(payload) for (payload,) in material])
        if data is None:
            return
        new = Payloads(self._dictionary)
        new.use(data)
        try:
            db.create_function("again", 1, lambda payload: new.compress(old.plain(payload)), deterministic=True)
            db.execute("BEGIN IMMEDIATE")
            try:
                db.execute("UPDATE samples SET payload = again(payload)")
                db.execute("DELETE FROM dictionaries")
                self._insert(new, data)
                db.execute("COMMIT")
            except sqlite3.Error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
            self._payloads = new
            db.execute("VACUUM")
            db.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        except sqlite3.Error as error:
            raise _storage_error(error, self.path) from error

    def _keep(self, data: bytes) -> None:
        """Store a dictionary, durably, before a row needs it."""
        try:
            self._insert(self._payloads, data)
        except sqlite3.Error as error:
            raise _storage_error(error, self.path) from error

    def _insert(self, payloads: Payloads, data: bytes) -> None:
        made = int(self._db.execute("SELECT coalesce(max(made), 0) + 1 FROM dictionaries").fetchone()[0])
        self._db.execute("INSERT OR REPLACE INTO dictionaries VALUES (?, ?, ?)", (payloads.use(data), made, data))

    def _dictionary(self, number: int) -> bytes | None:
        found = self._select("SELECT data FROM dictionaries WHERE id = ?", (number,))
        return found[0][0] if found else None

    def close(self) -> None:
        """Commit and close; may be called twice."""
        try:
            self.flush()
        finally:
            self._db.close()

    def _select(self, sql: str, parameters: tuple[object, ...] = ()) -> list[tuple]:  # type: ignore[type-arg]
        try:
            return self._db.execute(sql, parameters).fetchall()
        except sqlite3.Error as error:
            raise _storage_error(error, self.path) from error

    def _transaction(self, sql: str, rows: list[tuple]) -> None:  # type: ignore[type-arg]
        db = self._db
        try:
            db.execute("BEGIN IMMEDIATE")
            try:
                db.executemany(sql, rows)
                db.execute("COMMIT")
            except sqlite3.Error:
                if db.in_transaction:
                    db.execute("ROLLBACK")
                raise
        except sqlite3.Error as error:
            raise _storage_error(error, self.path) from error


def _storage_error(error: Exception, path: Path) -> StorageError:
    text = str(error)
    if "full" in text:
        advice = "The disk is full: free some space and resume; what was journaled is intact."
    elif "readonly" in text or "unable to open" in text:
        advice = "The folder cannot be written: check its permissions, or choose another with --out."
    elif "I/O error" in text:
        advice = "The disk may be full or failing, or a limit on file sizes reached; what was journaled is intact."
    elif "locked" in text:
        advice = "Another process holds it."
    else:
        advice = "The file may be damaged: restore it from a copy, or start a new run folder."
    return StorageError(f"{path}: {text}. {advice}")
