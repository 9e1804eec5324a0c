"""`manifest.json` of a run folder: read with what every manifest must have, and written atomically."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from treeforge.errors import RunError, StorageError
from treeforge.store.files import atomic_file
from treeforge.store.parquet import SCHEMA_VERSION

_SECTIONS = {
    **dict.fromkeys(("recipe", "machine", "label", "compress", "export", "problems", "versions"), dict),
    "policy": dict | None,
}
"""What every manifest has, and its kind."""


def read_manifest(path: Path) -> dict[str, Any]:
    """The manifest of the run folder `path`.

    `RunError` for a folder that is no run or has another schema, `StorageError` for a damaged manifest.
    """
    file = path / "manifest.json"
    try:
        manifest = json.loads(file.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise RunError(
            f"{path} is no run folder: it has no manifest.json. Make one with `treeforge run … --out {path}`."
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise StorageError(f"{file} cannot be read: {error}. Restore it from a copy of the run folder.") from error
    if not isinstance(manifest, dict):
        raise StorageError(f"{file} is no manifest: it holds no object; restore it from a copy of the run folder")
    if manifest.get("schema") != SCHEMA_VERSION:
        raise RunError(
            f"{path} was written with schema {manifest.get('schema')!r}, and this treeforge reads "
            f"{SCHEMA_VERSION}; use the version that wrote it"
        )
    if missing := _SECTIONS.keys() - manifest.keys():
        raise StorageError(f"{file} lacks {', '.join(sorted(missing))}; restore it from a copy of the run folder")
    if strange := [name for name, kind in _SECTIONS.items() if not isinstance(manifest[name], kind)]:
        raise StorageError(f"{file}: {strange[0]} is no object; restore it from a copy of the run folder")
    recipe = manifest["recipe"]
    if not isinstance(recipe.get("search"), dict) or not isinstance(recipe.get("block"), int) or recipe["block"] < 1:
        raise StorageError(f"{file}: recipe has no search or block; restore it from a copy of the run folder")
    return manifest


def write_manifest(path: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of the run folder `path`, atomically."""
    with atomic_file(path / "manifest.json") as stream:
        stream.write(json.dumps(manifest, indent=2, sort_keys=True, ensure_ascii=False).encode() + b"\n")
