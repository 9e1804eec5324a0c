"""Datasets and runs to the Hugging Face Hub, over huggingface_hub's own client; back: `hub_pull.py`.

The client streams, skips what is there already, and goes on where an upload stopped; here is what to send and what to
delete. The token stays with the client: it is read from the environment or from `hf auth login`, and neither logged
nor written.
"""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from treeforge.config import Machine
from treeforge.configuration import to_dict
from treeforge.errors import ConfigError, HubError, RunError
from treeforge.export.card import CARD
from treeforge.export.dataset import DEFAULT_FOLDER
from treeforge.export.formats import FORMATS
from treeforge.export.hub_client import check_name, check_revision, hub_api, retried
from treeforge.export.plots import FOLDER as PLOTS
from treeforge.store.files import storage_error
from treeforge.store.run import GIVEN_FILE, OPEN, RunFolder
from treeforge.store.views import view_state

_log = logging.getLogger("treeforge.hub")

RUN_FOLDER = "run"
"""Where a run's trees lie in a Hub dataset."""
_SHARDS = "*-?????-of-?????.parquet"


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
    check_name(repo)
    check_revision(revision)
    if pr and revision:
        raise ConfigError("--pr opens a pull request against the default branch; leave --revision out")
    with _staged(path, trees) as (stage, files):
        if dry_run:
            return PushReport(repo=repo, files=files, changed=False, url="")
        api = hub_api()
        if not pr:
            retried(repo, lambda: api.create_repo(repo, repo_type="dataset", private=private, exist_ok=True))
        there = retried(repo, lambda: api.repo_info(repo, repo_type="dataset"))
        if private and there.private is False:
            raise HubError(f"{repo} exists and is public; make it private on the Hub first. Nothing was uploaded")
        if revision and not revision.startswith("refs/"):
            retried(repo, lambda: api.create_branch(repo, repo_type="dataset", branch=revision, exist_ok=True))
        before = retried(repo, lambda: api.repo_info(repo, repo_type="dataset", revision=revision)).sha
        commit = retried(
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
            waits=() if pr else None,
        )
    changed = bool(commit.pr_url) if pr else commit.oid != before
    return PushReport(repo=repo, files=files, changed=changed, url=str(commit.pr_url or commit.commit_url))


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
