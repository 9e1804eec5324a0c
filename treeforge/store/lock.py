"""The lock of a run folder: one process writes it at a time, and others can see whether one does.

It is the kernel's (flock on `.lock`), so that it goes with its process, however that ends.
"""

from __future__ import annotations

import fcntl
import time
from pathlib import Path
from typing import IO

from treeforge.errors import RunLockedError
from treeforge.store.files import storage_error

LOCK = ".lock"
_ATTEMPTS, _BETWEEN = 4, 0.02
"""How often the lock is asked for, and the seconds between."""


def take_lock(folder: Path) -> IO[bytes]:
    """Lock the folder until the stream is closed. `RunLockedError` where another process has it."""
    file = folder / LOCK
    try:
        stream = file.open("ab")
    except OSError as error:
        raise storage_error(error, file) from error
    for attempt in range(_ATTEMPTS, 0, -1):
        try:
            fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except OSError:
            if attempt > 1:  # A reader in `is_locked` has it for an instant.
                time.sleep(_BETWEEN)
                continue
            stream.close()
            raise RunLockedError(
                f"{folder} is in use by another treeforge process; wait for it or stop it first."
            ) from None
    return stream


def is_locked(folder: Path) -> bool | None:
    """Whether a process has the folder's lock; None where that cannot be told."""
    try:
        with (folder / LOCK).open("rb") as stream:
            fcntl.flock(stream, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except (FileNotFoundError, BlockingIOError) as error:
        return isinstance(error, BlockingIOError)
    except OSError:
        return None
    return False
