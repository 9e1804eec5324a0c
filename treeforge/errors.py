"""The exceptions treeforge raises on purpose. Everything else is a bug.

TreeforgeError                 exit 1
├── ConfigError                exit 2   a key, a value or an option that cannot be
├── DataError                  exit 2   a file that cannot be read as asked (file, line, field, fix)
├── MissingExtraError          exit 2   an optional dependency that is not installed
├── TreeError                  exit 1   a tree that breaks an invariant
├── PolicyError                exit 1
│   ├── RequestFailedError     exit 1   one request; the model is alive
│   ├── PolicyUnavailableError exit 3   no model, no server: the run stops and resumes
│   └── ScorerError            exit 1   a scorer of the caller's own failed: the run stops and resumes
├── TrainingError              exit 1   a training that cannot go on: no finite loss, no memory
├── HubError                   exit 1   the Hub refused, or is out of reach
├── RunError                   exit 2   the run folder does not allow what was asked
│   ├── RunLockedError         exit 2   another process works on this folder
│   └── RecipeChangedError     exit 2   resume with another recipe
└── StorageError               exit 4   disk full, read-only folder, damaged file
"""

from __future__ import annotations

from pathlib import Path


class TreeforgeError(Exception):
    """Base of every error treeforge raises on purpose. `exit_code` is what the command line returns."""

    exit_code = 1


class ConfigError(TreeforgeError):
    """A configuration key or value that cannot be; the message names the key and the allowed values."""

    exit_code = 2


class DataError(TreeforgeError):
    """Input that cannot be read as asked. The message names file, line (1-based), field and fix."""

    exit_code = 2

    def __init__(
        self,
        problem: str,
        *,
        path: str | Path | None = None,
        line: int | None = None,
        field: str | None = None,
        fix: str | None = None,
    ) -> None:
        self.problem, self.path, self.line, self.field, self.fix = problem, path, line, field, fix
        where = "" if path is None else str(path) + (f":{line}" if line is not None else "") + ": "
        what = f"field '{field}': " if field else ""
        super().__init__(f"{where}{what}" + (f"{problem.rstrip('.')}. {fix}" if fix else problem))


class MissingExtraError(TreeforgeError):
    """An optional dependency is not installed; the message is the pip line that installs it."""

    exit_code = 2

    def __init__(self, what: str, extra: str) -> None:
        super().__init__(f"{what} needs an optional dependency. Install it with: pip install 'treeforge[{extra}]'")


class TreeError(TreeforgeError):
    """A tree that breaks an invariant of `treeforge.tree.Tree`."""


class PolicyError(TreeforgeError):
    """The language model did not answer as asked."""


class RequestFailedError(PolicyError):
    """One request failed while the model may be alive.

    `retryable` says whether asking again can succeed; `retry_after` is the server's own wish in seconds.
    """

    def __init__(self, message: str, *, retryable: bool = True, retry_after: float | None = None) -> None:
        super().__init__(message)
        self.retryable, self.retry_after = retryable, retry_after


class PolicyUnavailableError(PolicyError):
    """No model, no server, or an outage that outlasted the retries: the run stops cleanly and can be resumed."""

    exit_code = 3


class ScorerError(PolicyError):
    """A scorer that a caller gave raised, or gave no number. The run stops; it resumes with one that works."""


class TrainingError(TreeforgeError):
    """A training cannot go on as it was set up; its checkpoints stay."""


class HubError(TreeforgeError):
    """The Hugging Face Hub refused, or is out of reach. The same command goes on from what was done."""


class RunError(TreeforgeError):
    """The run folder does not allow what was asked."""

    exit_code = 2


class RunLockedError(RunError):
    """Another process works on this run folder."""


class RecipeChangedError(RunError):
    """Resume was asked with another recipe than the run was started with."""

    def __init__(self, folder: str | Path, changes: dict[str, tuple[object, object]], *, hint: str = "") -> None:
        self.changes = changes
        lines = "\n".join(
            f"  {key}: the run has {_short(old)}, this command has {_short(new)}" for key, (old, new) in changes.items()
        )
        advice = hint or (
            f"Go on as it is with `treeforge resume {folder}`, add problems or budget with `treeforge extend {folder}`"
        )
        super().__init__(
            f"{folder} was started with another recipe, so its samples would not fit:\n{lines}\n"
            f"{advice}, or start a new run folder with --out."
        )


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 70 else text[:50] + " … " + text[-15:]


class StorageError(TreeforgeError):
    """Disk full, read-only folder or damaged file; what was journaled before stays intact."""

    exit_code = 4
