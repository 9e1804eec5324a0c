"""Atomic files: written beside their place, synced, renamed. A reader sees the old file or the new one, whole."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from treeforge.errors import DataError, StorageError

MAX_POINTER_BYTES = 1024
"""The largest Git LFS pointer, by its specification."""
_POINTER = b"version https://git-lfs.github.com/spec/"

_FIXES = {
    errno.ENOSPC: "The disk is full: free some space, then run the same command again",
    errno.EDQUOT: "Your disk quota is used up: free some space, then run the same command again",
    errno.EROFS: "The file system is read-only: choose a folder that can be written",
    errno.EACCES: "No right to do that here: change the folder's permissions or choose another one",
    errno.EPERM: "No right to do that here: change the folder's permissions or choose another one",
    errno.ENOTDIR: "A part of this path is a file, not a folder",
    errno.ENAMETOOLONG: "The name is too long: choose a shorter path",
}


def storage_error(error: OSError, path: Path, doing: str = "written") -> StorageError:
    """The `StorageError` for an `OSError` at `path`: what could not be done, why, and what to do."""
    cause = os.strerror(error.errno) if error.errno else str(error)
    fix = _FIXES.get(error.errno or 0)
    return StorageError(f"{path} cannot be {doing}: {cause}." + (f" {fix}." if fix else ""))


@contextmanager
def atomic_file(path: Path) -> Iterator[BinaryIO]:
    """Open a binary stream whose bytes become the file `path` when the block ends without an exception.

    They are written to `.NAME.tmp` in the same folder (made where it is missing), synced to the disk and renamed. On an
    exception the temporary file is removed and `path` is as before; after a kill, the next write of the same path
    replaces what was left. An `OSError`, also one raised in the block, becomes a `StorageError`.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with temporary.open("wb") as stream:
                yield stream
                stream.flush()
                os.fsync(stream.fileno())
            temporary.replace(path)
        except BaseException:
            temporary.unlink(missing_ok=True)
            raise
        sync_folder(path.parent)
    except OSError as error:
        raise storage_error(error, path) from error


def remove_file(path: Path) -> None:
    """Remove a file that may be there."""
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise storage_error(error, path, "removed") from error


def sync_folder(folder: Path) -> None:
    """Make renames and new names in `folder` survive a power cut; no-op where a folder cannot be opened (Windows)."""
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except PermissionError:
        return
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def refuse_pointer(path: Path) -> None:
    """Raise `DataError` for what a clone without Git LFS has in a file's place."""
    try:
        if not path.is_file() or path.stat().st_size > MAX_POINTER_BYTES:
            return
        with path.open("rb") as stream:
            start = stream.read(len(_POINTER))
    except OSError:
        return  # Whoever reads it says why it cannot be read.
    if start == _POINTER:
        raise DataError("is a Git LFS pointer, not the file itself", path=path, fix="Fetch it with `git lfs pull`")
