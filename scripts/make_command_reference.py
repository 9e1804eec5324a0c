"""Write docs/commands.md from `--help` (`make docs`); a test checks that it is current."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

FILE = Path(__file__).resolve().parent.parent / "docs" / "commands.md"
COMMANDS = ["", "run", "annotate", "resume", "extend", "search", "label", "compress", "export", "stats", "show", "view"]
COMMANDS += ["check", "replay", "journal", "import", "quality", "evaluate", "push", "pull"]
COMMANDS += ["models", "models list", "models pull", "models path", "models convert"]
HEAD = """# Commands

Made from `--help` by `make docs`. Data goes to stdout, progress and messages to stderr. Exit codes: 0 done; 1 failed,
or finished with failed problems, or (`check`) another verdict than expected; 2 usage, bad input, or a run folder that
does not allow it; 3 no policy (resumable); 4 storage (resumable); 130 Ctrl-C and 143 SIGTERM (both resumable).
"""


def reference() -> str:
    """The page."""
    environment = os.environ | {"COLUMNS": "100", "NO_COLOR": "1", "TERM": "dumb"}
    parts = [HEAD]
    for command in COMMANDS:
        words = [str(Path(sys.executable).parent / "treeforge"), *command.split(), "--help"]
        text = subprocess.run(words, capture_output=True, text=True, check=True, env=environment).stdout
        body = "\n".join(line.rstrip() for line in text.strip().splitlines())
        parts.append(f"## treeforge {command}".rstrip() + f"\n\n```text\n{body}\n```\n")
    return "\n".join(parts)


if __name__ == "__main__":
    FILE.write_text(reference(), encoding="utf-8")
