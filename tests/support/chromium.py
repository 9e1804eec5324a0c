"""A Chromium for the tests of pages: found or installed, else the test is skipped, loudly."""

import fcntl
import os
import shutil
import subprocess
import tempfile
import warnings
from pathlib import Path

import pytest

INSTALL = Path(__file__).resolve().parents[2] / "scripts" / "install_chromium.sh"


def chromium_path() -> str:
    """The browser's file; skips, and says so, where there is none and none can be installed."""
    with (Path(tempfile.gettempdir()) / f"treeforge-chromium-{os.getuid()}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # One worker installs, the others wait.
        installed = subprocess.run(["bash", str(INSTALL)], capture_output=True, text=True, check=False)
    found = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if installed.returncode or found is None:
        why = f"THE PAGE IS NOT TESTED IN A BROWSER: {installed.stderr.strip()[-300:] or 'no Chromium'}"
        warnings.warn(why, stacklevel=2)
        pytest.skip(why)
    return found
