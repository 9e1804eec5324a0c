"""From TOML and `KEY=VALUE` overrides to configs, and back: reading, validating, comparing."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from treeforge.config import Config, Recipe, RunConfig
from treeforge.config.base import INT64
from treeforge.errors import ConfigError, DataError

T = TypeVar("T")


def load(path: Path | None = None, overrides: Iterable[str] = (), base: Mapping[str, Any] | None = None) -> RunConfig:
    """Read a TOML file, apply `key.sub=value` overrides, and validate.

    Keys below `recipe` may be written without it (`search.wave=8`). Values are TOML; text needs no quotes.
    Raises `ConfigError` (key and allowed values) or `DataError` (file and position).
    """
    data: dict[str, Any] = _merge({}, base or {})
    if path is not None:
        data = _merge(data, read_toml(path))
    for key, value in parse_overrides(overrides).items():
        _set(data, key, value)
    return convert(data, RunConfig)


def read_toml(path: Path) -> dict[str, Any]:
    """The values of a TOML file. Raises `DataError` (file and position)."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DataError(f"cannot be read: {error.strerror}", path=path) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise DataError(f"is not valid TOML: {error}", path=path) from error


def parse_overrides(overrides: Iterable[str]) -> dict[str, Any]:
    """`KEY=VALUE` texts as a mapping. Values are TOML; text needs no quotes. Raises `ConfigError`."""
    found: dict[str, Any] = {}
    for item in overrides:
        key, sign, value = item.partition("=")
        if not sign or not key.strip():
            raise ConfigError(f"'{item}' is no override; write KEY=VALUE, as in search.wave=8")
        found[key.strip()] = _toml_value(value)
    return found


def convert(data: Mapping[str, Any], kind: type[T]) -> T:
    """Validate a mapping as a config; `ConfigError` names the key."""
    if too_large := next(_too_large(data, ""), None):
        raise ConfigError(f"{too_large}: must fit in 64 bits")
    try:
        return msgspec.convert(data, kind)
    except msgspec.ValidationError as error:
        message, _, where = str(error).partition(" - at `$.")
        where = where.rstrip("`")
        raise ConfigError(f"{where and where + ': '}{message}{_choices(kind, where, message)}") from None


def _too_large(value: Any, key: str) -> Iterator[str]:
    """The keys of whole numbers that nothing here counts to, and no file or database can hold."""
    if isinstance(value, Mapping):
        for name, below in value.items():
            yield from _too_large(below, f"{key}.{name}" if key else str(name))
    elif isinstance(value, int) and value not in INT64:
        yield key


def _choices(kind: Any, where: str, message: str) -> str:
    """The keys or values that are allowed where `message` complains of another."""
    for name in where.split(".") if where else ():
        kind = get_type_hints(kind).get(name) if hasattr(kind, "__struct_fields__") else None
    if "unknown field" in message and hasattr(kind, "__struct_fields__"):
        return f"; the keys are {', '.join(kind.__struct_fields__)}"
    if "Invalid enum value" in message and get_origin(kind) is Literal:
        return f"; the values are {', '.join(get_args(kind))}"
    return ""


def to_dict(config: Config) -> dict[str, Any]:
    """The config as plain JSON data, with every default written out."""
    result: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(config))
    return result


def differences(old: Mapping[str, Any], new: Mapping[str, Any], prefix: str = "") -> dict[str, tuple[object, object]]:
    """Dotted keys whose values differ: {key: (old, new)}."""
    out: dict[str, tuple[object, object]] = {}
    for key in sorted(old.keys() | new.keys()):
        a, b = old.get(key), new.get(key)
        if isinstance(a, Mapping) and isinstance(b, Mapping):
            out |= differences(a, b, f"{prefix}{key}.")
        elif a != b:
            out[prefix + key] = (a, b)
    return out


def _merge(base: dict[str, Any], extra: Mapping[str, Any]) -> dict[str, Any]:
    """`base` overlaid with `extra`, section by section, as new dictionaries."""
    out = dict(base)
    for key, value in extra.items():
        old = out.get(key)
        out[key] = _merge(old if isinstance(old, dict) else {}, value) if isinstance(value, Mapping) else value
    return out


def _set(data: dict[str, Any], key: str, value: Any) -> None:
    parts = key.split(".")
    if parts[0] not in RunConfig.__struct_fields__:
        if parts[0] not in Recipe.__struct_fields__:
            raise ConfigError(f"'{key}' is no key; the sections are {', '.join(_sections())}")
        parts.insert(0, "recipe")
    for part in parts[:-1]:
        below = data.setdefault(part, {})
        if not isinstance(below, dict):
            raise ConfigError(f"'{key}': '{part}' holds a value, not a section")
        data = below
    data[parts[-1]] = value


def _sections() -> list[str]:
    return sorted({*RunConfig.__struct_fields__, *Recipe.__struct_fields__} - {"recipe"})


def _toml_value(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
