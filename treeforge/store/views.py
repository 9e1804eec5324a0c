"""Derived folders of a run (`verdicts/`, `labels/`, `compressed/`): tables a block, and what they were made from.

A view is complete when its `view.json` stands there; it is stale when trees have ended or were reopened since. It can
be deleted and made again without the model.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Callable, Iterator, Sequence
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np
import pyarrow as pa

from treeforge.errors import RunLockedError, StorageError
from treeforge.hashing import digest_object
from treeforge.store.files import atomic_file, storage_error
from treeforge.store.parquet import foreign, read_table, write_table
from treeforge.store.run import RunFolder
from treeforge.tree import TreeRecord


@contextmanager
def view_lock(run: RunFolder, *, wait: bool = False) -> Iterator[None]:
    """Be the only one that makes views of this run, which may itself go on.

    Where another does, `RunLockedError`, or with `wait` its end is waited for.
    """
    path = run.path / ".views.lock"
    try:
        # In a folder that cannot be written, a lock file that is there can be locked all the same: its views may be
        # read, and a dataset made of them elsewhere.
        writable = os.access(run.path, os.W_OK) or not path.exists()
        stream: IO[bytes] = path.open("ab" if writable else "rb")
    except OSError as error:
        raise storage_error(error, path) from error
    with stream:
        try:
            fcntl.flock(stream, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise RunLockedError(f"{run.path}: another process labels or exports this run; wait for it") from None
        yield


def write_view(
    run: RunFolder,
    folder: str,
    stem: str,
    schema: pa.Schema,
    config: dict[str, Any],
    make: Callable[[int, TreeRecord], pa.Table | None],
    report: Callable[[], dict[str, Any]],
) -> None:
    """Make a view of every tree that ended: `make` gives a tree's rows, `report` what `view.json` says beside them."""

    def make_block(members: Sequence[int]) -> dict[str, pa.Table]:
        tables = [table for number, record in run.records(members) if (table := make(number, record)) is not None]
        return {stem: pa.concat_tables(tables)} if tables else {}

    write_view_blocks(run, folder, config, make_block, report)


def write_view_blocks(
    run: RunFolder,
    folder: str,
    config: dict[str, Any],
    make: Callable[[Sequence[int]], dict[str, pa.Table]],
    report: Callable[[], dict[str, Any]],
) -> None:
    """`write_view` a block at once: `make` gives the rows of some trees of a block, by the stem of the file's name."""
    root = run.path / folder
    statuses = run.statuses()
    try:
        (root / "view.json").unlink(missing_ok=True)
        for old in root.glob("*.parquet"):
            old.unlink()
    except OSError as error:
        raise storage_error(error, root) from error
    files: list[str] = []
    for block in run.blocks:
        members = [n for n in run.members(block) if statuses[n][0] != "open"]
        for stem, table in (make(members) if members else {}).items():
            file = _file(run, folder, stem, block)
            files.append(file.name)
            write_table(table, file)
    about = {"config": config, "trees": _trees_digest(run, statuses), "report": report(), "files": files}
    with atomic_file(root / "view.json") as stream:
        stream.write(json.dumps(about, indent=2, sort_keys=True).encode() + b"\n")


def view_state(run: RunFolder, folder: str) -> dict[str, Any] | None:
    """The view's `config` and `report`, and whether it is `stale`: other trees ended since, or files are missing.

    None where there is no view.
    """
    try:
        about = json.loads((run.path / folder / "view.json").read_text(encoding="utf-8"))
        whole = all((run.path / folder / name).exists() for name in about["files"])
        stale = about["trees"] != _trees_digest(run, run.statuses()) or not whole
        return {"config": about["config"], "report": about["report"], "stale": stale}
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise StorageError(
            f"{run.path / folder / 'view.json'} is damaged ({error}); delete the folder and make it again"
        ) from error


def read_view(run: RunFolder, folder: str, stem: str, schema: pa.Schema, block: int) -> pa.Table:
    """The rows of one block; an empty table where the block has none. `StorageError` for trees of other blocks."""
    path = _file(run, folder, stem, block)
    if not path.exists():
        return schema.empty_table()
    table = read_table(path, schema)
    trees, members = table["tree_id"].to_numpy(), run.members(block)
    if len(trees) and not members.start <= trees.min() <= trees.max() < members.stop:
        raise foreign(path, f"trees that are none of {members.start} to {members.stop - 1}")
    return table


def check_sizes(run: RunFolder, folder: str, stem: str, block: int, sizes: Any, grown: Any) -> None:
    """`StorageError` unless the trees of a view's table (`sizes`, int[trees]) have as many nodes as the run's."""
    if not np.array_equal(sizes, grown):
        raise foreign(
            _file(run, folder, stem, block),
            f"other trees than {run.path / 'trees'} (their numbers of nodes differ)",
        )


def check_whole(
    run: RunFolder, folder: str, stem: str, block: int, numbers: Sequence[int], ended: AbstractSet[int]
) -> None:
    """`StorageError` unless a view's table (of the trees `numbers`) has all of a block that had ended before it was
    made."""
    if missing := (ended & set(run.members(block))) - set(numbers):
        raise foreign(_file(run, folder, stem, block), f"no tree {min(missing)}, which has ended")


def _file(run: RunFolder, folder: str, stem: str, block: int) -> Path:
    """Where a view's table of a block lies."""
    return run.path / folder / f"{stem}-{block:05d}.parquet"


def _trees_digest(run: RunFolder, statuses: dict[int, tuple[str, str]]) -> str:
    """Digest of how the trees ended, and of how often ended ones were grown again."""
    outcomes = [[number, *outcome] for number, outcome in sorted(statuses.items())]
    return digest_object([*outcomes, run.manifest.get("reopened", 0)]).hex()
