"""The command line: one file a command, thin. Data on stdout, everything else on stderr."""

from __future__ import annotations

import copy
import logging
import signal
import sys
from typing import Any

from treeforge.printable import printable

_EXIT_INTERRUPTED = 130
_EXIT_TERMINATED = 143


class _Brief(logging.Formatter):
    """Messages without tracebacks; those stand in the run's `logs/run.log`."""

    def format(self, record: logging.LogRecord) -> str:
        brief = copy.copy(record)
        brief.exc_info = brief.exc_text = None
        return printable(super().format(brief))


def main() -> None:
    """Run the `treeforge` command.

    Exit codes: 0 done; 1 failed; 2 usage, bad input or a run folder that does not allow it; 3 no policy (resumable);
    4 storage (resumable); 130 Ctrl-C and 143 SIGTERM (both resumable).
    """
    sys.exit(invoke(sys.argv[1:]))


def invoke(arguments: list[str]) -> int:
    """Run one command and return its exit code."""
    from treeforge.errors import TreeforgeError

    terminated = False

    def terminate(number: int, frame: Any) -> None:
        nonlocal terminated
        terminated = True
        signal.raise_signal(signal.SIGINT)

    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # As in `treeforge … &` of a script, where SIGTERM must stop us.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, terminate)
    logger = logging.getLogger("treeforge")
    if not logger.handlers:
        console = logging.StreamHandler()
        console.setLevel(logging.WARNING)
        console.setFormatter(_Brief("treeforge: %(message)s"))
        logger.addHandler(console)
        logger.setLevel(logging.INFO)
    from treeforge.cli.app import app

    try:
        app(args=arguments, prog_name="treeforge", standalone_mode=True)
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        if code == _EXIT_INTERRUPTED:
            advice = "A run that was going on can be resumed: treeforge resume RUN"
            if arguments[:1] == ["train"]:
                advice = "The same command goes on with the training"
            print(f"treeforge: stopped. {advice}", file=sys.stderr)
            return _EXIT_TERMINATED if terminated else _EXIT_INTERRUPTED
        return code
    except TreeforgeError as error:
        print(f"treeforge: {printable(str(error))}", file=sys.stderr)
        return error.exit_code
    return 0
