"""Tokenizers for the format `tokens`: the library `tokenizers` alone, no model and no torch."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile
from pathlib import Path
from typing import Any

from treeforge.errors import ConfigError, MissingExtraError

OPTION = "--tokenizer (export.tokenizer)"

Tokenizer = Callable[[str, bool], list[int]]
"""(text, whether it begins the sequence) -> token ids. At the beginning stand the tokenizer's own special tokens."""


def load_tokenizer(name: str) -> Tokenizer:
    """A `tokenizer.json`, a folder with one (as `save_pretrained` writes it), or a name on the Hub.

    Raises `ConfigError` where there is none, `MissingExtraError` without the library.
    """
    if not name:
        raise ConfigError(
            f"{OPTION}: the format tokens needs a tokenizer; give --tokenizer with a tokenizer.json, a folder with "
            "one, or a model's name on the Hub"
        )
    try:
        import tokenizers
    except ImportError:
        raise MissingExtraError("the export format tokens", "tokens") from None
    path = Path(name)
    file = path / "tokenizer.json" if path.is_dir() else path
    try:
        if file.is_file():
            tokenizer = tokenizers.Tokenizer.from_file(str(file))
        elif path.exists():
            raise ConfigError(f"{OPTION}: {name} is no tokenizer.json and no folder with one")
        elif (
            name.count("/") > 1
            or "\\" in name
            or ("/" in name and path.parent.exists())
            or name.startswith((".", "/", "~"))
            or name.endswith(("/", ".json"))
        ):
            raise ConfigError(f"{OPTION}: there is no such file or folder: {name}")
        else:
            tokenizer = tokenizers.Tokenizer.from_pretrained(name)
    except ConfigError:
        raise
    except Exception as error:  # the library raises bare Exceptions
        where = "" if path.exists() else ", which is no file here and was looked for on the Hub,"
        why = " ".join(str(error).split())[:200]
        raise ConfigError(f"{OPTION}: {name}{where} cannot be loaded: {why}") from error
    tokenizer.no_truncation()
    tokenizer.no_padding()

    def encode(text: str, first: bool) -> list[int]:
        ids: list[int] = tokenizer.encode(text, add_special_tokens=False).ids
        return _opening(tokenizer) + ids if first else ids

    return encode


def _opening(tokenizer: Any) -> list[int]:
    """The special tokens that the tokenizer puts before a text; those that it puts after one are left out."""
    encoding = tokenizer.encode("a", add_special_tokens=True)
    marked = zip(encoding.ids, encoding.special_tokens_mask, strict=True)
    return [token for token, _ in takewhile(lambda pair: pair[1] == 1, marked)]
