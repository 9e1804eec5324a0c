"""Replay: a run's tables again from its manifest and journal alone, without the model, and compared with what is there.

A tree is a function of (recipe, problem, journal), so the tables must come out byte for byte, with the same pyarrow.
Part of the pipeline.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

from treeforge.config import Machine, Recipe
from treeforge.configuration import convert
from treeforge.errors import RunError
from treeforge.hashing import file_sha256
from treeforge.manifest import check_identity
from treeforge.sample import Request, Sample
from treeforge.search.beam import Scorer
from treeforge.search.progress import Progress
from treeforge.search.scheduler import Forest
from treeforge.store.files import storage_error
from treeforge.store.given import GIVEN, open_given
from treeforge.store.journal import Journal
from treeforge.store.opinions import copy_opinions
from treeforge.store.parquet import read_table, same_rows
from treeforge.store.run import GIVEN_FILE, OPEN, RunFolder
from treeforge.store.scores import SCORES_FOLDER
from treeforge.verdict import Judge
from treeforge.views import compress, export, label

VIEWS: dict[str, Callable[[Path], Any]] = {"labels": label, "compressed": compress, "dataset": export}
"""The folders that are made again where the run has them, in this order."""


class Replayed(msgspec.Struct, frozen=True):
    """What a replay came to."""

    path: Path | None
    """The new run folder; None where the replay was a check only."""
    trees: int
    """Trees that were grown again."""
    requests: int
    """Answered from the journal."""
    unused: int
    """Requests of these trees that the journal holds and no tree asked for."""
    files: dict[str, str]
    """Tables, by their paths in the run folder: `same`, `same rows` (other bytes), `differs`, `missing` (from the
    run) or `extra` (the replay does not make it)."""

    @property
    def same(self) -> bool:
        """Every table holds the same rows."""
        return all(found in ("same", "same rows") for found in self.files.values())


class JournalOnly:
    """The policy of a replay: what the journal does not hold is an error."""

    def __init__(self, run: RunFolder) -> None:
        self._run = run

    @property
    def identity(self) -> dict[str, Any]:
        """The identity of the policy that the run was grown with."""
        identity: dict[str, Any] = self._run.manifest["policy"]
        return identity

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        """Raises `RunError`."""
        raise RunError(
            f"the journal of {self._run.path} lacks a completion that tree {request.tree} (problem "
            f"{request.problem.problem_id}) asks for: rows are missing, or another version of treeforge grew it "
            f"({self._run.manifest['versions'].get('treeforge')})"
        )


class _Reader:
    """The journal of the run, for a forest that must not write to it."""

    def __init__(self, journal: Journal) -> None:
        self.rows, self.cutoff = journal.rows, journal.cutoff

    def record(self, request: Request, samples: tuple[Sample, ...]) -> None:
        raise AssertionError("a replay samples nothing")

    def flush(self) -> None:
        pass

    def record_cutoff(self, tree: int, wave: int, reason: str) -> None:
        raise RunError(f"tree {tree} would stop before its wave {wave} ({reason}), and the journal says nothing of it")


async def replay(
    path: Path, judge: Callable[[Recipe], Judge], out: Path | None = None, scorer: Scorer | None = None
) -> Replayed:
    """Grow all trees of `path` that ended again, and the views that stand there; compare every table.

    With `out` the new run folder stays there, with a copy of the journal, and can be resumed; without, it is removed.
    Raises `RunError` where the journal lacks something, the run never started, or `out` holds a run already.
    """
    source = RunFolder.open(path)
    if source.manifest.get("policy") is None:
        raise RunError(f"{path} never asked its policy for anything: there is nothing to replay")
    if not (path / "journal.sqlite").exists():
        raise RunError(f"{path} has no journal.sqlite; restore it from a copy")
    if out is not None and (out / "manifest.json").exists():
        raise RunError(f"{out} holds a run already; choose another --out")
    folder = out or Path(tempfile.mkdtemp(prefix="treeforge-replay-"))
    try:
        progress, unused, ended = await _grow(source, folder, judge, scorer, keep=out is not None)
        copy_opinions(source, folder)
        for name, make in VIEWS.items():
            if ended and (path / name).is_dir():
                make(folder)
        files = compare(path, folder)
        if len(ended) < len(source.problems):
            files.pop("problems.parquet", None)  # its statuses are those of the last end of a sitting
        return Replayed(out, len(ended), progress.replayed, unused, files)
    finally:
        if out is None:
            shutil.rmtree(folder, ignore_errors=True)


async def _grow(
    source: RunFolder, path: Path, make_judge: Callable[[Recipe], Judge], scorer: Scorer | None, *, keep: bool
) -> tuple[Progress, int, list[int]]:
    recipe, machine = convert(source.manifest["recipe"], Recipe), Machine()
    ended = [number for number, status in source.statuses().items() if status != OPEN]
    if keep:
        _copy_journal(source.path, path)
    journal = Journal.open(source.path / "journal.sqlite", read_only=True)
    progress = Progress(trees=len(ended))
    policy, judge = JournalOnly(source), make_judge(recipe)
    try:
        check_identity(source, policy.identity, judge, scorer=scorer)
        given = open_given(source)
        table = read_table(source.path / GIVEN_FILE, GIVEN) if given else None
        # Until there is a policy's identity, a folder needs no journal.
        manifest = deepcopy(source.manifest) | {"policy": None}
        with RunFolder.create(path, manifest, source.problems, given=table) as folder:
            folder.manifest = deepcopy(source.manifest)
            folder.write_manifest()
            forest = Forest(
                recipe,
                machine,
                policy,
                judge,
                _Reader(journal),
                folder.finish,
                progress=progress,
                scorer=scorer,
                given=given.of if given else None,
                clock=time.monotonic,
            )
            await forest.grow((number, source.problems[number]) for number in ended)
            folder.write_problems()
            folder.tidy()
        return progress, journal.requests_of(ended) - progress.replayed, ended
    finally:
        journal.close()


def _copy_journal(source: Path, out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(error, out) from error
    reader = Journal.open(source / "journal.sqlite", read_only=True)
    try:
        reader.copy_to(out / "journal.sqlite")
    finally:
        reader.close()
    copy = Journal.open(out / "journal.sqlite")
    copy.forget_outcomes(list(copy.outcomes()))
    copy.close()


def compare(old: Path, new: Path) -> dict[str, str]:
    """How each Parquet file below `old` compares with that of `new` (see `Replayed.files`)."""
    here, there = _tables(old), _tables(new)
    found: dict[str, str] = {}
    for name in sorted(here | there):
        if name not in there:
            found[name] = "extra"
        elif name not in here:
            found[name] = "missing"
        elif file_sha256(old / name) == file_sha256(new / name):
            found[name] = "same"
        else:
            found[name] = "same rows" if same_rows(old / name, new / name) else "differs"
    return found


def _tables(path: Path) -> set[str]:
    found = (file.relative_to(path) for file in path.rglob("*.parquet"))
    # Reward models' scores come from models that a replay does not have.
    return {str(file) for file in found if file.parts[0] != SCORES_FOLDER}
