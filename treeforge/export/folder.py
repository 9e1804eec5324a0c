"""A whole folder replaced at once: a killed export leaves the old one whole, a finished one leaves the new one."""

from __future__ import annotations

import ctypes
import fcntl
import os
import re
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from treeforge.errors import ConfigError, RunLockedError
from treeforge.store.files import storage_error, sync_folder

CARD_MARK = "made with treeforge for training reward models"
"""Stands in every card, so that a folder can be known as an export's own."""
_FILE = re.compile(r"[a-z]+-\d{5}-of-\d{5}\.parquet|[a-z]+\.svg")
_AT_FDCWD, _RENAME_EXCHANGE = -100, 2


@contextmanager
def replaced_folder(out: Path, known: frozenset[str]) -> Iterator[Path]:
    """Yield an empty folder beside `out`, which takes the place of `out` when the block ends without an exception.

    `known` are the names that an earlier export may have left in `out`; a folder that holds anything else is not ours
    to replace (`ConfigError`). Another process that exports to the same place: `RunLockedError`. An `OSError`, also one
    raised in the block: `StorageError`.
    """
    out = Path(os.path.realpath(out))
    if not out.name:
        raise ConfigError(f"{out} cannot be replaced by an export; choose a folder for it")
    temporary, old = out.with_name(f".{out.name}.tmp"), out.with_name(f".{out.name}.old")
    try:
        if old.is_dir() and not out.exists():
            old.rename(out)  # Killed between the two renames of `_swap`.
        _check_replaceable(out, known)
        temporary.mkdir(parents=True, exist_ok=True)
        handle = os.open(temporary, os.O_RDONLY)
        try:
            _lock(handle, out)
            try:
                _clear(temporary)  # What a killed export left.
                yield temporary
                for folder, _, _ in os.walk(temporary):
                    sync_folder(Path(folder))
                _swap(temporary, out, old)
            finally:
                shutil.rmtree(temporary, ignore_errors=True)
        finally:
            os.close(handle)
    except OSError as error:
        raise storage_error(error, out) from error


def _check_replaceable(out: Path, known: frozenset[str]) -> None:
    if not out.is_dir():
        if out.exists() or out.is_symlink():
            raise ConfigError(f"{out} is not a folder; choose another one for the export")
        return
    strange = sorted(str(path.relative_to(out)) for path in out.rglob("*") if not _is_ours(path, out, known))
    if strange:
        listed = ", ".join(strange[:3]) + (" …" if len(strange) > 3 else "")
        raise ConfigError(
            f"{out} holds what no export wrote ({listed}) and an export replaces the whole folder; choose an empty one"
        )


def _is_ours(path: Path, out: Path, known: frozenset[str]) -> bool:
    """Whether an export wrote this: a known folder, a shard or plot in one, or a card that says so."""
    if path.is_symlink():
        return False
    if path.parent == out:
        if path.is_dir():
            return path.name in known
        return path.name in known and CARD_MARK.encode() in path.read_bytes()
    return path.is_file() and _FILE.fullmatch(path.name) is not None


def _lock(handle: int, out: Path) -> None:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise RunLockedError(f"{out} is being written by another export; wait for it or stop it first.") from None


def _clear(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()


def _swap(new: Path, out: Path, old: Path) -> None:
    """Give `new` the name `out`. What was there before gets the name of `new`, or is removed."""
    if not out.is_dir():
        new.rename(out)
    elif not _exchange(new, out):
        shutil.rmtree(old, ignore_errors=True)
        out.rename(old)
        new.rename(out)
        shutil.rmtree(old)
    sync_folder(out.parent)


def _exchange(new: Path, out: Path) -> bool:
    """Swap two names in one step (Linux, renameat2); False where the system or file system cannot."""
    if sys.platform != "linux":
        return False
    renameat2 = getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)
    if renameat2 is None:
        return False
    names = os.fsencode(new), os.fsencode(out)
    return bool(renameat2(_AT_FDCWD, names[0], _AT_FDCWD, names[1], _RENAME_EXCHANGE) == 0)
