"""The formats of training rows, by name. A new one is a file here and an entry below."""

from __future__ import annotations

from collections.abc import Sequence

from treeforge.errors import ConfigError
from treeforge.export.formats.base import Context, Format, Rows
from treeforge.export.formats.hrm import HRM
from treeforge.export.formats.math_shepherd import MATH_SHEPHERD
from treeforge.export.formats.nodes import NODES
from treeforge.export.formats.orm import KTO, ORM
from treeforge.export.formats.preference import PREFERENCE
from treeforge.export.formats.prm import PRM
from treeforge.export.formats.prm800k import PRM800K
from treeforge.export.formats.processbench import PROCESSBENCH
from treeforge.export.formats.rl import RL
from treeforge.export.formats.rlhflow import RLHFLOW
from treeforge.export.formats.sft import SFT
from treeforge.export.formats.tokens import TOKENS

__all__ = ["FORMATS", "Context", "Format", "Rows", "choose_formats"]

FORMATS: dict[str, Format] = {
    format.name: format
    for format in (
        NODES,
        HRM,
        PRM,
        MATH_SHEPHERD,
        PRM800K,
        RLHFLOW,
        TOKENS,
        PREFERENCE,
        KTO,
        ORM,
        SFT,
        RL,
        PROCESSBENCH,
    )
}


def choose_formats(names: Sequence[str]) -> tuple[Format, ...]:
    """The formats of these names, in this order. Raises `ConfigError` for none, an unknown one or one named twice."""
    known = ", ".join(sorted(FORMATS))
    option = "--format (export.formats)"
    if not names:
        raise ConfigError(f"{option}: name at least one of {known}")
    for name in names:
        if name not in FORMATS:
            raise ConfigError(
                f"{option}: there is no format {name!r}; there are {known}; and, alone, graphml, dot and mermaid "
                "with a file a tree"
            )
    if len(set(names)) != len(names):
        raise ConfigError(f"{option}: a format is named twice in {', '.join(names)}")
    return tuple(FORMATS[name] for name in names)
