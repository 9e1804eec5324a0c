"""GGUF models as folders in Hugging Face's format, which vLLM and transformers read: `treeforge models convert`."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from treeforge.errors import ConfigError, MissingExtraError, StorageError
from treeforge.policy.hub import hub_file
from treeforge.policy.models import MODELS, cache_dir, find_model, model_digest

_NOTE = "conversion.json"


def converted_dir(name_or_path: str) -> Path:
    """Where a converted model lies: in the cache for a registry name, beside the GGUF file for a path."""
    if hub_file(name_or_path):
        raise ConfigError("say by --out where to write the folder: a file on the Hub has no place of its own here")
    if name_or_path in MODELS:
        return cache_dir() / "converted" / name_or_path
    return Path(name_or_path).expanduser().with_suffix("")


def convert(name_or_path: str, out: Path | None = None, progress: Callable[[str], None] | None = None) -> Path:
    """Write a GGUF model's weights (dequantised to float32), tokenizer and chat template into a folder; return it.

    Takes about 1.2 times the memory and disk of the float32 weights. A folder that this wrote from the same file is
    returned as it is. Raises `ConfigError` (no such model; another folder stands there; a kind of model that
    transformers cannot read from GGUF), `MissingExtraError` or `StorageError`. Nothing partial stays behind.
    """
    report = progress or (lambda line: None)
    path = find_model(name_or_path)
    folder = (out or converted_dir(name_or_path)).expanduser()
    note = {"file": path.name, "sha256": model_digest(path)}
    if folder.exists() and any(folder.iterdir()):
        if _read_note(folder) != note:
            raise ConfigError(f"{folder} is there already and was not made from this {path.name}; name another --out")
        report(f"{folder} is up to date")
        return folder
    partial = folder.with_name(f".{folder.name}.{os.getpid()}")
    try:
        partial.mkdir(parents=True)
        _write(path, partial, report)
        (partial / _NOTE).write_text(json.dumps(note) + "\n", encoding="utf-8")
        partial.replace(folder)
    except OSError as error:
        if _read_note(folder) == note:  # another process was quicker
            return folder
        raise StorageError(f"the model cannot be stored in {folder}: {error.strerror or error}") from error
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


def _write(path: Path, folder: Path, report: Callable[[str], None]) -> None:
    try:
        import accelerate  # noqa: F401 - what loads the tensors one by one
        import gguf  # noqa: F401 - transformers reads the file with it
        import torch
        import transformers
    except ImportError:
        raise MissingExtraError("`treeforge models convert`", "vllm") from None
    transformers.utils.logging.disable_progress_bar()
    place, file = str(path.parent), path.name
    report(f"reading {file}")
    try:
        tokenizer: Any = transformers.AutoTokenizer.from_pretrained(place, gguf_file=file, local_files_only=True)
        model: Any = transformers.AutoModelForCausalLM.from_pretrained(
            place,
            gguf_file=file,
            quantization_config=transformers.GgufConfig(dequantize=True),
            dtype=torch.float32,
            local_files_only=True,
        )
    except (ValueError, KeyError, NotImplementedError, RuntimeError) as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"transformers cannot read {file}: {reason[:300]}") from error
    report(f"writing {model.num_parameters() / 1e6:,.0f} million weights as float32")
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def _read_note(folder: Path) -> object:
    try:
        return json.loads((folder / _NOTE).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
