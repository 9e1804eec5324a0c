"""The Hub's own client: its token, faults that pass, and what its errors mean."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from treeforge.errors import ConfigError, HubError, MissingExtraError, TreeforgeError
from treeforge.printable import one_line

if TYPE_CHECKING:
    from huggingface_hub import HfApi

_log = logging.getLogger("treeforge.hub")
T = TypeVar("T")

_REVISION = re.compile(r"\w[\w./-]*")
_PASSING = frozenset((409, 429, 500, 502, 503, 504))
"""HTTP statuses that may be gone a moment later; 409 is another commit at the same time."""
WAITS = (1.0, 4.0, 15.0)
"""Seconds before a failed call is made again. Most calls of the client have been tried several times by then."""


def check_name(repo: str) -> None:
    """Raise `ConfigError` unless `repo` is `OWNER/NAME`."""
    _client()
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(repo)
    except ValueError as error:
        raise ConfigError(f"{one_line(repo)!r} is no name on the Hub: {one_line(str(error))}") from None
    if repo.count("/") != 1:
        raise ConfigError(f"{one_line(repo)!r} is no name on the Hub; write OWNER/NAME")


def _client() -> Any:
    try:
        import huggingface_hub
    except ImportError:
        raise MissingExtraError("the Hub", "hub") from None
    return huggingface_hub


def check_revision(revision: str | None) -> None:
    """Raise `ConfigError` for what can be no branch, tag, commit or pull request."""
    if revision is not None and (not _REVISION.fullmatch(revision) or ".." in revision):
        raise ConfigError(f"--revision: {one_line(revision)!r} is no branch, tag, commit or refs/pr/N")


def hub_api(*, needs_token: bool = True) -> HfApi:
    """The client, with the user's token. Raises `HubError` where one is needed and there is none."""
    hub = _client()
    if needs_token and hub.get_token() is None:
        raise HubError("there is no Hub token. Put one into the variable HF_TOKEN, or log in with `hf auth login`")
    api: HfApi = hub.HfApi(library_name="treeforge")
    return api


def retried(repo: str, call: Callable[[], T], waits: tuple[float, ...] | None = None) -> T:
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
    if isinstance(error, errors.EntryNotFoundError):
        return f"{repo} lacks a file that it lists ({said})"
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
        case int():
            return f"the Hub refuses that (HTTP {status}: {said})"
        case None if _is_network(error):
            return f"the Hub cannot be reached ({said}); the same command goes on when it can"
        case _:
            return f"the Hub's client failed ({said})"
