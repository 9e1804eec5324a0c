"""`given.parquet`: the solutions that a run of `treeforge annotate` labels, as they came; part of its input.

Written before the run starts, beside `problems.parquet`; the file they were read from may vanish. Solutions of further
problems are added behind them (`add_given`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import groupby, islice
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.compute
import pyarrow.parquet as pq

from treeforge.errors import DataError, StorageError
from treeforge.given import GivenSolution
from treeforge.hashing import digest
from treeforge.store.parquet import SCHEMA_VERSION, TABLE_KEY, VERSION_KEY, read_table, write_table
from treeforge.store.run import GIVEN_FILE, RunFolder

SECTION = "given"
"""The manifest's section: source, format, counts and digest; absent in a run that samples its own solutions."""

GIVEN = pa.schema(
    [
        pa.field("tree_id", pa.int32(), nullable=False),
        pa.field("solution", pa.int32(), nullable=False),
        pa.field("step", pa.int32(), nullable=False),
        pa.field("parent", pa.int32(), nullable=False),
        pa.field("text", pa.string(), nullable=False),
        pa.field("ends", pa.bool_(), nullable=False),
        pa.field("row", pa.int64(), nullable=False),
    ],
    metadata={TABLE_KEY: b"given", VERSION_KEY: str(SCHEMA_VERSION)},
)
"""One row a step: its solution's place among its problem's, its own place in it, the place of the step before (-1:
none), whether it may state the final answer, and the row of the source file that it came from (0: unknown)."""

_BATCH_ROWS = 8192
_Trees = Iterable[tuple[int, Sequence[GivenSolution]]]


def given_table(trees: Sequence[Sequence[GivenSolution]], first: int = 0) -> pa.Table:
    """The rows (`GIVEN`) of each tree's solutions, trees and solutions in the order given; trees count from `first`."""
    columns: dict[str, list[Any]] = {name: [] for name in GIVEN.names}
    for number, solutions in enumerate(trees, start=first):
        for place, solution in enumerate(solutions):
            count, ends = len(solution.steps), set(solution.ends)
            columns["tree_id"] += [number] * count
            columns["solution"] += [place] * count
            columns["step"] += range(count)
            columns["parent"] += solution.parents
            columns["text"] += solution.steps
            columns["ends"] += [step in ends for step in range(count)]
            columns["row"] += [solution.row] * count
    return pa.Table.from_pydict(columns, schema=GIVEN)


def given_section(trees: Sequence[Sequence[GivenSolution]], source: str, format: str) -> dict[str, Any]:
    """The manifest's section about these solutions."""
    every = [solution for solutions in trees for solution in solutions]
    return {
        "source": source,
        "format": format,
        "trees": len(trees),
        "solutions": len(every),
        "steps": sum(len(solution.steps) for solution in every),
        "digest": given_digest(enumerate(trees)),
    }


def given_digest(trees: _Trees) -> str:
    """Digest of all that trees depend on: steps, their order and which may end a solution, not where they came from."""
    content = b""
    for number, solutions in trees:
        plain = [(solution.steps, solution.parents, solution.ends) for solution in solutions]
        content = digest(content, msgspec.json.encode((number, plain)))
    return content.hex()


class GivenSolutions:
    """The given solutions of a run, read as its trees are opened: in ascending order, one batch in memory at a time."""

    def __init__(self, run: RunFolder) -> None:
        """Raises `StorageError` unless the file holds what the run was started with."""
        self._path = run.path / GIVEN_FILE
        try:
            read_table(self._path, GIVEN, columns=["tree_id"])
            section = run.manifest[SECTION]
            # Behind them there may be those of an `add_given` that was killed before it wrote the manifest.
            known = islice(_trees(self._path), section.get("trees", run.manifest["problems"].get("count")))
            same = given_digest(known) == section["digest"]
        except (StorageError, DataError) as error:
            raise _lost(self._path, str(error.__cause__ or error)) from error
        if not same:
            raise _lost(self._path, "it holds other solutions than the run was started with")
        self._rest = _trees(self._path)
        self._next: tuple[int, Sequence[GivenSolution]] | None = next(self._rest, None)

    def of(self, number: int) -> Sequence[GivenSolution]:
        """The solutions of a tree, in order; numbers that ascend are quick. None are ()."""
        if self._next is None or number < self._next[0]:
            self._rest.close()
            self._rest = _trees(self._path)
            self._next = next(self._rest, None)
        while self._next is not None and self._next[0] < number:
            self._next = next(self._rest, None)
        return self._next[1] if self._next is not None and self._next[0] == number else ()


def add_given(run: RunFolder, first: int, trees: Sequence[Sequence[GivenSolution]]) -> None:
    """Add the solutions of the trees `first`, `first` + 1, … to a run that is locked, and note them in its manifest.

    The caller adds their problems afterwards: a stop in between leaves solutions without problems, which nothing reads
    and the next call replaces.
    """
    path, section = run.path / GIVEN_FILE, run.manifest[SECTION]
    GivenSolutions(run)
    table = read_table(path, GIVEN)
    kept = table.filter(pa.compute.less(table["tree_id"], first))
    write_table(pa.concat_tables([kept, given_table(trees, first)]), path)
    every = [own for _, own in _trees(path)]
    run.manifest[SECTION] = given_section(every, section["source"], section["format"])
    run.write_manifest()


def open_given(run: RunFolder) -> GivenSolutions | None:
    """The run's given solutions; None where it samples its own."""
    return GivenSolutions(run) if SECTION in run.manifest else None


def _trees(path: Path) -> Generator[tuple[int, list[GivenSolution]]]:
    """(number, solutions) of each tree in the file."""
    for number, rows in groupby(_rows(path), lambda row: row["tree_id"]):
        solutions = []
        for _, group in groupby(rows, lambda row: row["solution"]):
            steps = list(group)
            solutions.append(
                GivenSolution(
                    tuple([step["text"] for step in steps]),
                    tuple([step["parent"] for step in steps]),
                    tuple([step["step"] for step in steps if step["ends"]]),
                    steps[0]["row"],
                )
            )
        yield number, solutions


def _rows(path: Path) -> Generator[dict[str, Any]]:
    try:
        with pq.ParquetFile(path, page_checksum_verification=True) as file:
            for batch in file.iter_batches(_BATCH_ROWS):
                yield from batch.to_pylist()
    except (OSError, pa.ArrowException, UnicodeDecodeError) as error:
        raise StorageError(f"{path} cannot be read: {' '.join(str(error).split())[:200]}") from error


def _lost(path: Path, why: str) -> StorageError:
    return StorageError(
        f"{path} is missing, damaged or changed, and the run's only copy of its given solutions: restore it from a "
        f"copy, or start a new run folder. ({' '.join(why.split())[:300]})"
    )
