"""`pull`: the trees of a run back from a Hub dataset, which may be anybody's."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import pyarrow as pa

from treeforge.config import Machine
from treeforge.configuration import to_dict
from treeforge.errors import DataError, HubError, RunError, StorageError, TreeError
from treeforge.export.hub import RUN_FOLDER
from treeforge.export.hub_client import check_name, check_revision, hub_api, retried
from treeforge.store.files import storage_error
from treeforge.store.forests import NodeTable
from treeforge.store.imported import SECTION
from treeforge.store.parquet import read_table
from treeforge.store.run import RunFolder
from treeforge.store.tables import NODES, ROLLOUTS, VALUES, tree_bounds

_FILE = re.compile(
    RUN_FOLDER + r"/(manifest\.json|problems\.parquet|given\.parquet|trees/(nodes|rollouts|values)-\d{5}\.parquet)"
)
"""What a run on the Hub has below `run/`; anything else there stays there."""


def pull(repo: str, out: Path | str, *, revision: str | None = None) -> RunFolder:
    """Bring the trees of a run that was pushed with `trees` back as the run folder `out`.

    It has no journal: its trees can be labelled, compressed, exported and looked at, and not grown further. An
    interrupted pull of the same commit goes on. Raises `HubError` where the repository cannot be read or has no run,
    `RunError` where `out` holds something or what came is no whole run.
    """
    out = Path(out).resolve()  # `.` and links stand for a folder elsewhere.
    check_name(repo)
    check_revision(revision)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} holds something already; choose another --out")
    api = hub_api(needs_token=False)
    commit = retried(repo, lambda: api.repo_info(repo, repo_type="dataset", revision=revision)).sha
    listed = retried(repo, lambda: list(api.list_repo_tree(repo, repo_type="dataset", revision=commit, recursive=True)))
    sizes = {item.path: item.size for item in listed if hasattr(item, "size") and _FILE.fullmatch(item.path)}
    if not {f"{RUN_FOLDER}/manifest.json", f"{RUN_FOLDER}/problems.parquet"} <= sizes.keys():
        raise HubError(f"{repo} holds no run; one gets there by `treeforge push RUN {repo} --trees`")
    try:
        parts = _scratch(out, f"{repo} {commit}")
        retried(
            repo,
            lambda: api.snapshot_download(
                repo, repo_type="dataset", revision=commit, local_dir=parts, allow_patterns=sorted(sizes)
            ),
        )
        # Where the Hub is out of reach the client hands back what lies there, whole or not.
        if missing := [name for name, size in sizes.items() if _size(parts / name) != size]:
            raise HubError(f"{missing[0]} of {repo} did not arrive whole; the same command goes on from here")
        try:
            _check(parts / RUN_FOLDER, repo)
        except RunError:
            shutil.rmtree(parts, ignore_errors=True)
            raise
        out.parent.mkdir(parents=True, exist_ok=True)
        (parts / RUN_FOLDER).replace(out)
        shutil.rmtree(parts, ignore_errors=True)
    except OSError as error:
        raise storage_error(error, out) from error
    return RunFolder.open(out)


def _scratch(out: Path, source: str) -> Path:
    """Where files wait until all are there. What was left there of anything but `source` goes."""
    parts = out.with_name(f".{out.name}.pull")
    note = parts / "source"
    if parts.exists() and not (note.is_file() and note.read_text(encoding="utf-8") == source):
        shutil.rmtree(parts)
    parts.mkdir(parents=True, exist_ok=True)
    note.write_text(source, encoding="utf-8")
    return parts


def _check(folder: Path, repo: str) -> None:
    """Raise `RunError` unless this is a whole run; take out of its manifest what is no run's business here.

    A run from elsewhere must not say what servers this machine talks to and which of its files it writes.
    """
    try:
        run = RunFolder.open(folder)
        imported = SECTION in run.manifest
    except (RunError, StorageError, DataError) as error:
        raise RunError(f"{repo} holds no run that can be read: {error}") from error
    if not run.problems:
        raise RunError(f"{repo} holds a run without problems")
    for block in run.blocks:
        sizes = None
        for kind, schema in {"nodes": NODES, "rollouts": ROLLOUTS, **({"values": VALUES} if imported else {})}.items():
            name = f"trees/{kind}-{block:05d}.parquet"
            try:
                table = read_table(folder / name, schema)
                sizes = NodeTable.read(table).sizes if sizes is None else sizes
                _check_rows(table, sizes)
            except (StorageError, DataError, TreeError) as error:
                raise RunError(f"{repo} holds no whole run: {RUN_FOLDER}/{name} is missing or damaged") from error
            if sizes.keys() != set(run.members(block)):
                raise RunError(f"{repo} holds no whole run: {RUN_FOLDER}/{name} has not the trees of its problems")
    run.manifest["machine"] = to_dict(Machine())
    run.write_manifest()
    (folder / "logs").mkdir(exist_ok=True)


def _check_rows(table: pa.Table, sizes: dict[int, int]) -> None:
    """Raise `DataError` unless the table's trees are in order, and its rows of nodes that there are."""
    for number, rows in tree_bounds(table):
        if table["node_id"][rows].to_numpy().max() >= sizes.get(number, 0):
            raise DataError(f"a row of tree {number} is of no node", field="node_id")


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
