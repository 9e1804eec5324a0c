"""Python in a process of its own that cannot reach the Hub."""

import os
import subprocess
import sys
from pathlib import Path


def run_offline(code: str, folder: Path) -> str:
    """Run Python in a fresh process that cannot reach the Hub and has an empty cache."""
    environment = {
        **os.environ,
        "HF_HUB_OFFLINE": "1",
        "HF_HOME": str(folder / "hf"),
        "HF_DATASETS_CACHE": str(folder / "hf" / "datasets"),
        "HF_DATASETS_DISABLE_PROGRESS_BARS": "1",
    }
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
