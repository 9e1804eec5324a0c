"""The run folder: manifest, problems, journal, trees in blocks. Layout in `docs/formats.md`.

A finished tree is spilled at once to a file of its own and merged into its block's tables when every tree of the block
has ended, so that memory holds open trees only and the order of finishing leaves no trace. Spills can be made again
from the journal; therefore they are not synced.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import IO, Any

import msgspec
import pyarrow as pa

from treeforge.errors import DataError, RunError, StorageError
from treeforge.hashing import digest_object
from treeforge.problem import Problem
from treeforge.store.blocks import Kind, TreeFiles
from treeforge.store.files import remove_file, storage_error
from treeforge.store.journal import Journal, TreeCost
from treeforge.store.lock import is_locked, take_lock
from treeforge.store.manifest_file import read_manifest, write_manifest
from treeforge.store.parquet import read_table, write_table
from treeforge.store.saved_problems import PROBLEMS, SavedProblems, TextColumn
from treeforge.store.tables import rollouts_from_table, trees_from_table
from treeforge.tree import TreeRecord

_log = logging.getLogger("treeforge.store")

GIVEN_FILE = "given.parquet"
"""The solutions that a run labels, where it was started with some (`treeforge.store.given`)."""

OPEN = ("open", "")


def distinct(problems: Iterable[Problem]) -> list[Problem]:
    """Each problem once, in order. `DataError` where two with one id have different texts."""
    known: dict[str, Problem] = {}
    for problem in problems:
        old = known.setdefault(problem.problem_id, problem)
        if (old.question, old.gold_answer) != (problem.question, problem.gold_answer):
            raise DataError(
                f"two problems have the id {problem.problem_id!r} and different texts",
                path=problem.source or None,
                fix="Give one of them another id",
            )
    return list(known.values())


class RunFolder:
    """One run on disk. Writers hold its lock; readers need none."""

    def __init__(
        self,
        path: Path,
        manifest: dict[str, Any],
        problems: Sequence[Problem],
        saved: dict[int, tuple[str, str]] | None = None,
    ) -> None:
        """`saved`: statuses for a folder without a journal; those of `problems` where they were read from a run."""
        self.path, self.manifest = path, manifest
        self.problems = problems
        """In the order of their numbers. Read from a run they are made as they are asked for, so keep what you use."""
        self._files = TreeFiles(path / "trees")
        self._saved_status = saved
        self._lock: IO[bytes] | None = None
        self.journal: Journal | None = None
        self._ended: dict[int, tuple[str, str]] = {}

    @classmethod
    def create(
        cls,
        path: Path,
        manifest: dict[str, Any],
        problems: Sequence[Problem],
        *,
        given: pa.Table | None = None,
        replace: bool = False,
    ) -> RunFolder:
        """Make a new run folder, locked and with an open journal. `RunError` where there is a run already.

        `given` is the table of the solutions that the run labels. `replace` writes over a run whose policy never
        started.
        """
        if (path / "manifest.json").exists() and not replace:
            raise RunError(
                f"{path} holds a run already. Go on with `treeforge resume {path}`, or choose another --out."
            )
        try:
            path.mkdir(parents=True, exist_ok=True)
            (path / "trees").mkdir(exist_ok=True)
            (path / "logs").mkdir(exist_ok=True)
        except OSError as error:
            raise storage_error(error, path) from error
        run = cls(path, manifest, list(problems))
        run.lock()
        run.write_problems()
        if given is not None:
            write_table(given, path / GIVEN_FILE)
        else:
            remove_file(path / GIVEN_FILE)
        run.write_manifest()
        return run

    @classmethod
    def open(cls, path: Path | str) -> RunFolder:
        """Open for reading. `RunError` for a folder that is no run or has another schema."""
        path = Path(path)
        manifest = read_manifest(path)
        try:
            table = read_table(path / "problems.parquet", PROBLEMS)
        except (StorageError, DataError) as error:
            raise StorageError(
                f"{path / 'problems.parquet'} is missing or damaged, and the run's only copy of its problems: restore "
                f"it from a copy, or start a new run folder. ({error.__cause__ or error})"
            ) from error
        return cls(path, manifest, SavedProblems(table, path / "problems.parquet"))

    def lock(self) -> None:
        """Become the one writer of this folder and open the journal. `RunLockedError` where there is one already."""
        if self._lock is not None:
            return
        self._lock = take_lock(self.path)
        file = self.path / "journal.sqlite"
        if self.manifest.get("policy") is not None and not (file.exists() and file.stat().st_size):
            self.close()
            raise StorageError(
                f"{file} is gone, and with it every completion of this run. Restore it from a copy; the trees that "
                "ended can still be labelled and exported. To grow them anew, start a new run folder."
            )
        try:
            commit_rows = int(self.manifest.get("machine", {}).get("commit_rows", 256))
            self.journal = Journal.open(self.path / "journal.sqlite", commit_rows=commit_rows)
            self._recover()
        except BaseException:
            self.close()
            raise

    def is_locked(self) -> bool | None:
        """Whether some process has this folder's lock, as one that grows it does; None where that cannot be told."""
        return is_locked(self.path)

    def close(self) -> None:
        """Close the journal and let go of the lock; may be called twice."""
        try:
            if self.journal is not None:
                self.journal.close()
        finally:
            self.journal = None
            if self._lock is not None:
                self._lock.close()
                self._lock = None

    def __enter__(self) -> RunFolder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # The manifest and the problems -------------------------------------------------------------------------------

    def write_manifest(self) -> None:
        """Write `manifest.json` atomically."""
        write_manifest(self.path, self.manifest)

    def write_problems(self) -> None:
        """Write `problems.parquet` with every problem's present status."""
        statuses = list(self.statuses().values())
        columns: dict[str, list[Any]] = {
            "tree_id": list(range(len(self.problems))),
            **{name: self.column(name) for name in ("problem_id", "question", "gold_answer", "source")},
            "meta": [msgspec.json.encode(p.meta, order="deterministic").decode() for p in self.problems],
            "status": [status for status, _ in statuses],
            "reason": [reason for _, reason in statuses],
        }
        write_table(pa.Table.from_pydict(columns, schema=PROBLEMS), self.path / "problems.parquet")

    def add_problems(self, more: Sequence[Problem]) -> int:
        """Append problems that the run does not have yet; how many were new. Same id, other text: `DataError`."""
        before = len(self.problems)
        self.problems = distinct([*self.problems, *more])
        return len(self.problems) - before

    def column(self, name: TextColumn) -> list[str]:
        """One field of every problem, in order."""
        problems = self.problems
        return problems.column(name) if isinstance(problems, SavedProblems) else [getattr(p, name) for p in problems]

    def problems_digest(self) -> str:
        """Digest of the problems' ids and texts, in order."""
        columns = (self.column(name) for name in ("problem_id", "question", "gold_answer"))
        return digest_object([list(row) for row in zip(*columns, strict=True)]).hex()

    def statuses(self) -> dict[int, tuple[str, str]]:
        """(status, reason) of every problem by its number; `open` where its tree has not ended."""
        ended = self._ended if self.journal is not None else self._read_outcomes()
        return {number: ended.get(number, OPEN) for number in range(len(self.problems))}

    def number_of(self, problem: str) -> int:
        """The tree's number for a problem's id (or an unambiguous start of it), or for the number itself as text."""
        ids = self.column("problem_id")
        if problem in ids:
            return ids.index(problem)
        found = [number for number, name in enumerate(ids) if name.startswith(problem)]
        if len(found) == 1:
            return found[0]
        if problem.isdecimal() and int(problem) < len(ids):
            return int(problem)
        if found:
            some = ", ".join(ids[number] for number in found[:4])
            raise RunError(f"'{problem}' is the start of {len(found)} problems' ids ({some} …); write more of it")
        raise RunError(f"{self.path} has no problem '{problem}'. Ids are listed by `treeforge show {self.path}`.")

    # Trees --------------------------------------------------------------------------------------------------------

    @property
    def imported_from(self) -> str:
        """The format of the files that `treeforge import` made this run of; '' where a policy grew its trees."""
        identity = self.manifest.get("policy") or {}
        return str(identity.get("format", "")) if identity.get("backend") == "imported" else ""

    @property
    def strategy(self) -> str:
        """The search strategy that grew the trees; `imported` where none did."""
        return "imported" if self.imported_from else str(self.manifest["recipe"]["search"]["strategy"])

    @property
    def block(self) -> int:
        """Problems in one file of `trees/`."""
        return int(self.manifest["recipe"]["block"])

    @property
    def blocks(self) -> range:
        """The numbers of the run's blocks."""
        return range(-(-len(self.problems) // self.block))

    def members(self, block: int) -> range:
        """The numbers of a block's trees."""
        return range(block * self.block, min((block + 1) * self.block, len(self.problems)))

    def unfinished(self) -> list[int]:
        """Numbers of the trees that have not ended, in order."""
        return [number for number in range(len(self.problems)) if number not in self._ended]

    def finish(self, number: int, record: TreeRecord) -> None:
        """Spill a tree that ended and note its outcome; merge its block when that is whole."""
        assert self.journal is not None
        self._files.spill(number, record)
        self.journal.record_outcome(number, record.status, record.reason, record.tree.size)
        self._ended[number] = (record.status, record.reason)
        self._merge(number // self.block)

    def reopen(self, numbers: Sequence[int]) -> None:
        """Let these trees grow again, from the journal on.

        They may end as before and yet be other trees; the manifest counts it, so that their views are stale.
        """
        assert self.journal is not None
        if numbers:
            self.manifest["reopened"] = self.manifest.get("reopened", 0) + 1
            self.write_manifest()
        self.journal.forget_outcomes(list(numbers))
        for number in numbers:
            self._ended.pop(number, None)

    def records(self, numbers: Sequence[int] | None = None) -> Iterator[tuple[int, TreeRecord]]:
        """The trees that ended, in order, a block in memory at a time; of `numbers` only, where given."""
        wanted = range(len(self.problems)) if numbers is None else set(numbers)
        if not wanted:
            return
        first, last = min(wanted), max(wanted)
        # A caller that goes block by block must not read the statuses of all each time.
        statuses = self._ended if self.journal is not None else self._read_outcomes(first, last)
        for block in range(first // self.block, last // self.block + 1):
            members = [n for n in self.members(block) if n in statuses and n in wanted]
            if not members:
                continue
            nodes, rollouts = self._files.read(block, set(members))
            rows = dict(rollouts_from_table(rollouts))
            for number, tree in trees_from_table(nodes):
                status, reason = statuses[number]
                yield number, TreeRecord(self.problems[number].problem_id, tree, rows.get(number, ()), status, reason)

    def block_nodes(self, members: Sequence[int]) -> pa.Table:
        """Nodes of trees of one block that ended, in order."""
        return self._files.read_nodes(members[0] // self.block, set(members))

    def costs(self, numbers: Sequence[int]) -> list[TreeCost]:
        """What those of these trees took that ended and did not fail."""
        statuses = self.statuses()
        with closing(Journal.open(self.path / "journal.sqlite", read_only=True)) as journal:
            return journal.costs([number for number in numbers if statuses[number][0] in ("done", "exhausted")])

    def node_counts(self) -> dict[int, int]:
        """Nodes of every tree that ended, as the journal has it; empty where there is none."""
        file = self.path / "journal.sqlite"
        if not file.exists():
            return {}
        with closing(Journal.open(file, read_only=True)) as journal:
            return journal.node_counts()

    def spilled(self, numbers: Iterable[int]) -> Iterator[tuple[int, pa.Table, pa.Table]]:
        """(number, nodes, rollouts) of those trees that wait for the rest of their block; they go before its tables."""
        return self._files.spilled(numbers)

    def table_files(self, kind: Kind) -> list[Path]:
        """The blocks' tables that stand by now. They may hold trees that were reopened or spilled again since."""
        return self._files.tables(kind, self.blocks)

    def _merge(self, block: int) -> None:
        members = self.members(block)
        if all(number in self._ended for number in members):
            self._files.merge(block, members)

    def _recover(self) -> None:
        """After a stop at any moment: forget outcomes whose trees are not on disk, finish merges cut short."""
        assert self.journal is not None
        outcomes = self.journal.outcomes()
        present = self._files.present(self.blocks, outcomes)
        lost = sorted(outcomes.keys() - present)
        if lost:
            _log.warning("%d finished trees are not on disk and are made again from the journal", len(lost))
            self.journal.forget_outcomes(lost)
        self._ended = {number: outcome for number, outcome in outcomes.items() if number in present}
        self._files.clean(self._ended)
        for block in self.blocks:
            self._merge(block)

    def _read_outcomes(self, first: int = 0, last: int = 2**62) -> dict[int, tuple[str, str]]:
        file = self.path / "journal.sqlite"
        if not file.exists():
            saved = self._saved_status
            if saved is None:
                saved = self.problems.statuses() if isinstance(self.problems, SavedProblems) else {}
            return {number: status for number, status in saved.items() if status != OPEN and first <= number <= last}
        with closing(Journal.open(file, read_only=True)) as journal:
            return journal.outcomes(first, last)

    def tidy(self) -> None:
        """At a run's end: drop what is left over."""
        self._files.tidy()
