"""Models on the Hugging Face Hub, by name: a GGUF file, `hf://OWNER/NAME/FILE.gguf@REVISION`, or a whole repository.

The Hub's own client fetches them into its own cache, which other programs share: it asks for the token that `hf auth
login` or `HF_TOKEN` gave it, goes on where a download stopped, and takes what lies there without a network.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from treeforge.errors import ConfigError, MissingExtraError, PolicyUnavailableError, StorageError
from treeforge.printable import one_line

T = TypeVar("T")

SCHEME = "hf://"
"""What such a name begins with."""

_MAIN = "main"
_NAME = re.compile(r"hf://(\w[\w.-]*/\w[\w.-]*)(?:@([^/@]+))?/([^@]+\.gguf)(?:@(.+))?", re.IGNORECASE)
_REPOSITORY = re.compile(r"hf://(\w[\w.-]*/\w[\w.-]*)(?:@([^/@]+))?", re.IGNORECASE)
_PART = re.compile(r"-\d{5}-of-(\d{5})\.gguf", re.IGNORECASE)
_COMMIT = re.compile(r"[0-9a-f]{40}")
_SHA256 = re.compile(r"[0-9a-f]{64}")
_ASK_SECONDS = 10.0


class HubFile(msgspec.Struct, frozen=True):
    """A file of a Hub repository at a revision: a commit id, or a branch or tag, which may move."""

    repo: str
    revision: str
    file: str
    """'' for the whole repository."""

    def __str__(self) -> str:
        return f"the Hub's {self.repo}"

    @property
    def place(self) -> str:
        """`hf://OWNER/NAME/FILE.gguf`."""
        return f"{SCHEME}{self.repo}/{self.file}".rstrip("/")

    @property
    def name(self) -> str:
        """The whole of it, as users write it."""
        return f"{self.place}@{self.revision}"


def hub_file(model: str) -> HubFile | None:
    """The file that `hf://OWNER/NAME/FILE.gguf@REVISION` names, of the branch `main` without a revision.

    The Hub's own order, `hf://OWNER/NAME@REVISION/FILE.gguf`, is read as well. None for what is no `hf://` name; raises
    `ConfigError` for one that names no file.
    """
    if not model.startswith(SCHEME):
        return None
    found = _NAME.fullmatch(model)
    if found is None or (found[2] and found[4]) or ".." in found[3].split("/"):
        raise ConfigError(
            f"policy.model: {one_line(model)!r} names no file on the Hub; write hf://OWNER/NAME/FILE.gguf@REVISION"
        )
    if part := _PART.search(found[3]):
        raise ConfigError(
            f"policy.model: {one_line(model)} is one of {int(part[1])} parts; join them with llama.cpp's "
            "llama-gguf-split --merge, and give the path of the whole"
        )
    return HubFile(found[1], found[2] or found[4] or _MAIN, found[3])


def pinned(file: HubFile) -> HubFile:
    """The same file by its commit id, which the Hub is asked for unless the revision is one.

    Without a network, the commit that the client's cache has for it. Raises as `fetch`.
    """
    if _COMMIT.fullmatch(file.revision):
        return file
    hub = _client()

    def ask() -> str:
        url = hub.hf_hub_url(file.repo, file.file, revision=file.revision)
        return str(hub.get_hf_file_metadata(url, timeout=_ASK_SECONDS).commit_hash)

    try:
        commit = _called(file, ask)
    except PolicyUnavailableError:
        if (known := cached_file(file)) is None:
            raise
        commit = known.parts[-1 - len(Path(file.file).parts)]  # snapshots/COMMIT/FILE
    if not _COMMIT.fullmatch(commit):
        raise ConfigError(f"policy.model: the Hub does not say which commit {file.name} is; name one")
    return msgspec.structs.replace(file, revision=commit)


def fetch(file: HubFile) -> Path:
    """The file of a pinned revision, downloaded unless the client's cache has it.

    Raises `ConfigError` (no such repository, revision or file, or no right to it), `PolicyUnavailableError` (the Hub is
    out of reach), `StorageError` (disk full) or `MissingExtraError`.
    """
    hub = _client()
    if (known := cached_file(file)) is not None:
        return known
    return _called(file, lambda: Path(hub.hf_hub_download(file.repo, file.file, revision=file.revision)))


def fetch_repository(name: str, what: str) -> Path:
    """The folder of a model repository, `hf://OWNER/NAME@REVISION`, in the client's cache; what it lacks is downloaded.

    Without a network, what the cache has. Raises as `fetch`; `what`, as in "the reward model", begins the messages.
    """
    found = _REPOSITORY.fullmatch(name)
    if found is None:
        raise ConfigError(f"{what}: {one_line(name)!r} names no model on the Hub; write {SCHEME}OWNER/NAME@REVISION")
    whole = HubFile(found[1], found[2] or _MAIN, "")
    hub = _client()

    def snapshot(*, cached: bool = False) -> Path:
        return Path(hub.snapshot_download(whole.repo, revision=whole.revision, local_files_only=cached))

    try:
        return _called(whole, snapshot, what)
    except PolicyUnavailableError as unreachable:
        try:
            return snapshot(cached=True)
        except hub.errors.LocalEntryNotFoundError:
            raise unreachable from None


def cached_file(file: HubFile) -> Path | None:
    """The file where the client's cache has it; None elsewhere. Asks nobody."""
    found = _client().try_to_load_from_cache(file.repo, file.file, revision=file.revision)
    return Path(found) if isinstance(found, str) else None


def published_sha256(path: Path) -> str | None:
    """The SHA-256 by which the Hub knows a file of the client's cache; None where it does not tell one."""
    blob = path.resolve().name
    return blob if _SHA256.fullmatch(blob) else None


def _client() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError(f"A model by its {SCHEME} name", "hub") from None
    return huggingface_hub


def _called(file: HubFile, call: Callable[[], T], what: str = "policy.model") -> T:
    from huggingface_hub import errors

    try:
        return call()
    except errors.GatedRepoError:
        raise ConfigError(
            f"{what}: {file.repo} is gated. Accept its terms on its page on the Hub, and log in with "
            "`hf auth login` or put a token into HF_TOKEN"
        ) from None
    except errors.RevisionNotFoundError:
        raise ConfigError(f"{what}: {file.repo} has no revision {one_line(file.revision)!r}") from None
    except errors.RepositoryNotFoundError:
        raise ConfigError(
            f"{what}: there is no model {file.repo} on the Hub, or none that you may see; where it is private, "
            "log in with `hf auth login` or put a token into HF_TOKEN"
        ) from None
    except errors.EntryNotFoundError as error:
        if isinstance(error, errors.LocalEntryNotFoundError):  # what a download says where the Hub does not answer
            raise _out_of_reach(file, error.__cause__ or error) from error
        raise ConfigError(
            f"{what}: {file.repo} has no file {one_line(file.file)!r} at the revision {one_line(file.revision)}"
        ) from None
    except errors.HfHubHTTPError as error:
        status = error.response.status_code
        if status in (401, 403):
            raise ConfigError(
                f"{what}: the Hub does not accept the token for {file.repo} (HTTP {status}); "
                "`hf auth login` sets another"
            ) from None
        raise _out_of_reach(file, error) from error
    except OSError as error:
        if error.errno is None or isinstance(error, ConnectionError | TimeoutError):
            raise _out_of_reach(file, error) from error
        raise StorageError(f"{file.name} cannot be stored: {error.strerror or error}") from error
    except Exception as error:  # the HTTP library's own errors differ from version to version
        raise _out_of_reach(file, error) from error


def _out_of_reach(file: HubFile, error: BaseException) -> PolicyUnavailableError:
    from huggingface_hub.errors import OfflineModeIsEnabled

    if isinstance(error, OfflineModeIsEnabled):
        return PolicyUnavailableError(
            f"{file.name} is not in the cache, and HF_HUB_OFFLINE keeps the Hub out of reach; unset it"
        )
    said = one_line(" ".join(str(error).split()), 200) or type(error).__name__
    return PolicyUnavailableError(
        f"{file.name} cannot be downloaded, since the Hub cannot be reached ({said}). Try again with a network, or "
        f"give the path of a {'GGUF file' if file.file else 'folder'} that you have"
    )
