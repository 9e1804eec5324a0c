"""A file with the addresses of servers, one a line, which may change while a run goes on."""

from __future__ import annotations

import logging
from pathlib import Path

from treeforge.errors import ConfigError
from treeforge.policy.http import base_url

logger = logging.getLogger("treeforge.policy.server")

_MOST_BYTES = 1 << 20


def read_servers(path: Path) -> tuple[str, ...]:
    """The base URLs of a file. A line is an address or blank; `#` begins a comment.

    Raises `ConfigError` naming file and line.
    """
    try:
        with path.open("rb") as stream:
            text = stream.read(_MOST_BYTES).decode("utf-8-sig")
    except OSError as error:
        raise ConfigError(f"machine.servers_file: {path} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"machine.servers_file: {path} is no UTF-8 text") from None
    urls: dict[str, None] = {}
    for number, line in enumerate(text.splitlines(), 1):
        address = line.split("#", 1)[0].strip()
        if not address:
            continue
        try:
            urls[base_url(address)] = None
        except ConfigError as error:
            raise ConfigError(f"{path}:{number}: {str(error).removeprefix('machine.servers: ')}") from None
    if not urls:
        raise ConfigError(
            f"machine.servers_file: {path} names no server; write one address a line, http://HOST:PORT/v1"
        )
    return tuple(urls)


class ServersFile:
    """Watches such a file. The first reading must succeed; later a bad file is a warning, and the last list stays."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._seen = self._state()
        self.urls = read_servers(path)

    def changed(self) -> bool:
        """Look whether the file changed; True where it was read and names other servers."""
        state = self._state()
        if state == self._seen:
            return False
        self._seen = state
        try:
            urls = read_servers(self.path)
        except ConfigError as error:
            logger.warning("the list of servers stays as it was: %s", error)
            return False
        before, self.urls = self.urls, urls
        return urls != before

    def _state(self) -> tuple[int, ...]:
        try:
            status = self.path.stat()
        except OSError:
            return ()
        return status.st_mtime_ns, status.st_size, status.st_ino
