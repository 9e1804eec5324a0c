"""Datasets and runs to the Hugging Face Hub and back: `push` and `pull`, over huggingface_hub's own client.

The client streams, skips what is there already, and goes on where an upload stopped; here is what to send, what to
delete, and what its errors mean. The token stays with the client: it is read from the environment or from
`hf auth login`, and neither logged nor written.
"""

from __future__ import annotations

import logging
import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from treeforge.config import Machine
from treeforge.configuration import to_dict
from treeforge.errors import ConfigError, HubError, MissingExtraError, RunError, TreeforgeError
from treeforge.export.card import CARD
from treeforge.export.dataset import DEFAULT_FOLDER
from treeforge.export.formats import FORMATS
from treeforge.export.plots import FOLDER as PLOTS
from treeforge.printable import one_line
from treeforge.store.files import storage_error
from treeforge.store.run import GIVEN_FILE, OPEN, RunFolder
from treeforge.store.views import view_state

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_log = logging.getLogger("treeforge.hub")
T = TypeVar("T")

RUN_FOLDER = "run"
"""Where a run's trees lie in a Hub dataset."""
_SHARDS = "*-?????-of-?????.parquet"
_PASSING = frozenset((409, 429, 500, 502, 503, 504))
"""HTTP statuses that may be gone a moment later; 409 is another commit at the same time."""
WAITS = (1.0, 4.0, 15.0)
"""Seconds before a failed call is made again. Most calls of the client have been tried several times by then."""


class PushReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a push sent."""

    repo: str
    files: dict[str, int]
    """Bytes by path in the repository: all that belongs there, whether it was there already or not."""
    changed: bool
    """Something was committed; False also for a dry run."""
    url: str
    """The commit, or the pull request; '' for a dry run."""


def push(
    path: Path | str,
    repo: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    pr: bool = False,
    trees: bool = False,
    message: str = "",
    dry_run: bool = False,
) -> PushReport:
    """Upload a run's dataset (or an exported dataset folder) as the Hub dataset `repo`, made where it is missing.

    Shards of an earlier push that are no longer there are deleted in the same commit; other files of the repository
    stay. `trees` adds the run's trees below `run/`, for `pull`. `revision` is a branch, made where it is missing, or
    `refs/pr/N`; `pr` opens a pull request instead. `dry_run` asks nothing of the Hub. The same bytes again commit
    nothing, and after an interruption the same call goes on. A dataset that is older than
    its run's labels is warned of.

    Raises `HubError` (no token, no right, no network …), `ConfigError` (a name that cannot be), `RunError` (nothing
    was exported, or the run's trees have not all ended).
    """
    path = Path(path)
    _check_name(repo)
    if pr and revision:
        raise ConfigError("--pr opens a pull request against the default branch; leave --revision out")
    with _staged(path, trees) as (stage, files):
        if dry_run:
            return PushReport(repo=repo, files=files, changed=False, url="")
        api = _api()
        if not pr:
            _retried(repo, lambda: api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True))
        there = _retried(repo, lambda: api.repo_info(repo, repo_type="dataset"))
        if private and there.private is False:
            raise HubError(f"{repo} exists and is public; make it private on the Hub first. Nothing was uploaded")
        if revision and not revision.startswith("refs/"):
            _retried(repo, lambda: api.create_branch(repo, repo_type="dataset", branch=revision, exist_ok=True))
        before = _retried(repo, lambda: api.repo_info(repo, repo_type="dataset", revision=revision)).sha
        commit = _retried(
            repo,
            lambda: api.upload_folder(
                repo_id=repo,
                repo_type="dataset",
                folder_path=stage,
                revision=revision,
                create_pr=pr,
                commit_message=message or "Upload with treeforge",
                delete_patterns=[f"{name}/{_SHARDS}" for name in (DEFAULT_FOLDER, *FORMATS)]
                + [f"{PLOTS}/*.svg"]
                + ([f"{RUN_FOLDER}/*"] if trees else []),
            ),
            # A pull request whose answer was lost may be open already: the caller must look.
            waits=() if pr else WAITS,
        )
    changed = bool(commit.pr_url) if pr else commit.oid != before
    return PushReport(repo=repo, files=files, changed=changed, url=str(commit.pr_url or commit.commit_url))


def pull(repo: str, out: Path | str, *, revision: str | None = None) -> RunFolder:
    """Bring the trees of a run that was pushed with `trees` back as the run folder `out`.

    It has no journal: its trees can be labelled, compressed, exported and looked at, and not grown further. An
    interrupted pull goes on. Raises `HubError` where the repository cannot be read or has no run, `RunError` where
    `out` holds something or what came is no whole run.
    """
    out = Path(out)
    _check_name(repo)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise RunError(f"{out} holds something already; choose another --out")
    api = _api(needs_token=False)
    sha = _retried(repo, lambda: api.repo_info(repo, repo_type="dataset", revision=revision)).sha
    listed = _retried(repo, lambda: list(api.list_repo_tree(repo, repo_type="dataset", revision=sha, recursive=True)))
    sizes = {
        item.path: item.size for item in listed if hasattr(item, "size") and item.path.startswith(f"{RUN_FOLDER}/")
    }
    if f"{RUN_FOLDER}/manifest.json" not in sizes:
        raise HubError(f"{repo} holds no run; one gets there by `treeforge push RUN {repo} --trees`")
    parts = out.with_name(f".{out.name}.pull")
    try:
        parts.mkdir(parents=True, exist_ok=True)
        _retried(
            repo,
            lambda: api.snapshot_download(
                repo, repo_type="dataset", revision=sha, local_dir=parts, allow_patterns=f"{RUN_FOLDER}/*"
            ),
        )
        # Where the Hub is out of reach the client hands back what lies there, whole or not.
        if missing := [name for name, size in sizes.items() if _size(parts / name) != size]:
            raise HubError(f"{missing[0]} of {repo} did not arrive whole; the same command goes on from here")
        _disarm(parts / RUN_FOLDER)
        out.parent.mkdir(parents=True, exist_ok=True)
        (parts / RUN_FOLDER).replace(out)
        shutil.rmtree(parts, ignore_errors=True)
    except OSError as error:
        raise storage_error(error, out) from error
    return RunFolder.open(out)


def _disarm(folder: Path) -> None:
    """A run from elsewhere must not say what servers this machine talks to and which of its files it writes."""
    run = RunFolder.open(folder)
    run.manifest["machine"] = to_dict(Machine())
    run.write_manifest()
    (folder / "logs").mkdir(exist_ok=True)


@contextmanager
def _staged(path: Path, trees: bool) -> Iterator[tuple[Path, dict[str, int]]]:
    """A folder of links to all that is to be uploaded, and the sizes by path."""
    is_run = (path / "manifest.json").is_file()
    dataset = path / "dataset" if is_run else path
    if not (dataset / CARD).is_file():
        what = f"{path} has no exported dataset" if is_run else f"{path} is neither a run nor an exported dataset"
        raise RunError(f"{what}; make one with `treeforge export {path if is_run else 'RUN'}`")
    if is_run and _is_older(path):
        _log.warning(
            "%s is older than what it is made of: trees, labels or compressed trees have been made since. It goes up "
            "as it is; `treeforge export %s` makes it anew",
            dataset,
            path,
        )
    if trees and not is_run:
        raise RunError(f"{path} is a dataset and has no trees; name the run folder")
    links = {str(file.relative_to(dataset)): file for file in dataset.rglob("*") if _is_ours(file, dataset)}
    with tempfile.TemporaryDirectory(prefix="treeforge-push-") as name:
        stage = Path(name)
        try:
            if trees:
                run = RunFolder.open(path)
                _stage_run(run, stage / RUN_FOLDER)
                links |= {f"{RUN_FOLDER}/trees/{file.name}": file for file in (run.path / "trees").glob("*.parquet")}
                if (given := run.path / GIVEN_FILE).is_file():
                    links[f"{RUN_FOLDER}/{GIVEN_FILE}"] = given
            for target, file in links.items():
                (stage / target).parent.mkdir(parents=True, exist_ok=True)
                (stage / target).symlink_to(file.resolve())
        except OSError as error:
            raise storage_error(error, stage) from error
        found = sorted(file for file in stage.rglob("*") if file.is_file())
        yield stage, {str(file.relative_to(stage)): file.stat().st_size for file in found}


def _is_older(path: Path) -> bool:
    """Whether a run's labels or compressed trees are younger than its dataset, or its labels than its trees."""
    card = (path / "dataset" / CARD).stat().st_mtime_ns
    views = (path / folder / "view.json" for folder in ("labels", "compressed"))
    if any(view.is_file() and view.stat().st_mtime_ns > card for view in views):
        return True
    labels = view_state(RunFolder.open(path), "labels")
    return labels is not None and bool(labels["stale"])


def _stage_run(run: RunFolder, folder: Path) -> None:
    """Manifest and problems as they go to the Hub: without this machine's half of the settings, with all statuses."""
    statuses = run.statuses()
    if unfinished := sum(status == OPEN for status in statuses.values()):
        raise RunError(
            f"{run.path}: {unfinished} of {len(statuses)} trees have not ended; finish them with "
            f"`treeforge resume {run.path}`, or push without --trees"
        )
    folder.mkdir()
    staged = RunFolder(folder, run.manifest | {"machine": to_dict(Machine())}, run.problems, statuses)
    staged.write_manifest()
    staged.write_problems()


def _is_ours(file: Path, dataset: Path) -> bool:
    hidden = any(part.startswith(".") for part in file.relative_to(dataset).parts)
    return file.is_file() and not hidden


def _check_name(repo: str) -> None:
    _hub()
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except ValueError as error:
        raise ConfigError(f"{one_line(repo)!r} is no name on the Hub: {one_line(str(error))}") from None
    if repo.count("/") != 1:
        raise ConfigError(f"{one_line(repo)!r} is no name on the Hub; write OWNER/NAME")


def _hub() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError("the Hub", "hub") from None
    return huggingface_hub


def _api(*, needs_token: bool = True) -> HfApi:
    hub = _hub()
    if needs_token and hub.get_token() is None:
        raise HubError("there is no Hub token. Put one into the variable HF_TOKEN, or log in with `hf auth login`")
    api: HfApi = hub.HfApi(library_name="treeforge")
    return api


def _retried(repo: str, call: Callable[[], T], waits: tuple[float, ...] | None = None) -> T:
    """The call's result; after a fault that may pass, that of a later try. `HubError` for all others."""
    waits = WAITS if waits is None else waits
    for wait in (*waits, None):
        try:
            return call()
        except TreeforgeError:
            raise
        except Exception as error:  # what its HTTP library and its threads raise
            status, cause = _status(error)
            passing = status in _PASSING or (status is None and _is_network(cause))
            if wait is None or not passing:
                raise HubError(_message(repo, status, cause)) from error
            _log.warning("%s; trying again in %.0f s", _message(repo, status, cause), wait)
            time.sleep(wait)
    raise AssertionError("unreachable")


def _status(error: BaseException) -> tuple[int | None, BaseException]:
    """The HTTP status of an error or of what caused it, and that error; threads wrap theirs."""
    found: BaseException | None = error
    while found is not None:
        response = getattr(found, "response", None)
        if response is not None:
            return int(response.status_code), found
        if _is_network(found):
            return None, found
        found = found.__cause__
    return None, error


def _is_network(error: BaseException) -> bool:
    """Whether the Hub could not be reached, as far as the error's kind says."""
    return isinstance(error, ConnectionError | TimeoutError) or type(error).__module__.startswith(("httpx", "httpcore"))


def _message(repo: str, status: int | None, error: BaseException) -> str:
    """What happened and what to do. The client's own words hold no token; ours is taken out all the same."""
    from huggingface_hub import errors, get_token

    said = str(error)
    if token := get_token():
        said = said.replace(token, "…")
    said = one_line(" ".join(said.split()), 300)
    if isinstance(error, errors.OfflineModeIsEnabled):
        return "the Hub is switched off by HF_HUB_OFFLINE; unset it"
    if isinstance(error, errors.RevisionNotFoundError):
        return f"{repo} has no such revision ({said})"
    match status:
        case 401:
            return (
                f"the Hub does not accept the token for {repo}: it is wrong or has ended. `hf auth login` sets another"
            )
        case 403:
            return f"the token has no right to do that in {repo}; one with write access to it is needed ({said})"
        case 404:
            return f"there is no dataset {repo} on the Hub, or none that this token may see"
        case 409:
            return f"{repo} is being changed by another commit ({said}); run the same command again"
        case 429:
            return f"the Hub answers that there are too many requests; wait and run the same command again ({said})"
        case int() if status >= 500:
            return f"the Hub fails (HTTP {status}); run the same command again, which goes on ({said})"
        case None if _is_network(error):
            return f"the Hub cannot be reached ({said}); the same command goes on when it can"
        case _:
            return f"the Hub's client failed ({said}); the same command goes on from what was done"


def _size(path: Path) -> int:
    return path.stat().st_size if path.is_file() else -1
