"""The formats of training rows, by name. A new one is a file here and an entry below."""

from __future__ import annotations

from collections.abc import Sequence

from treeforge.errors import ConfigError
from treeforge.export.formats.base import Format, Rows
from treeforge.export.formats.hrm import HRM
from treeforge.export.formats.nodes import NODES

__all__ = ["FORMATS", "Format", "Rows", "choose_formats"]

FORMATS: dict[str, Format] = {format.name: format for format in (NODES, HRM)}


def choose_formats(names: Sequence[str]) -> tuple[Format, ...]:
    """The formats of these names, in this order. Raises `ConfigError` for none, an unknown one or one named twice."""
    known = ", ".join(sorted(FORMATS))
    if not names:
        raise ConfigError(f"export.formats: name at least one of {known}")
    for name in names:
        if name not in FORMATS:
            raise ConfigError(f"export.formats: there is no format {name!r}; there are {known}")
    if len(set(names)) != len(names):
        raise ConfigError(f"export.formats: a format is named twice in {', '.join(names)}")
    return tuple(FORMATS[name] for name in names)
