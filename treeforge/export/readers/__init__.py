"""Labelled reasoning of other projects, read: one file a format. A new one is a file here and an entry below."""

from __future__ import annotations

from treeforge.errors import ConfigError
from treeforge.export.readers.base import ImportedRow, ImportedStep, Reader, ReadOptions
from treeforge.export.readers.hrm_pickle import HRM_PICKLE
from treeforge.export.readers.math_shepherd import MATH_SHEPHERD
from treeforge.export.readers.openr import OPENR
from treeforge.export.readers.prm import PRM
from treeforge.export.readers.prm800k import PRM800K
from treeforge.export.readers.processbench import PROCESSBENCH
from treeforge.export.readers.rest_mcts import REST_MCTS

__all__ = ["READERS", "ImportedRow", "ImportedStep", "ReadOptions", "Reader", "choose_reader"]

READERS: dict[str, Reader] = {
    reader.name: reader for reader in (PRM800K, MATH_SHEPHERD, PRM, PROCESSBENCH, OPENR, REST_MCTS, HRM_PICKLE)
}


def choose_reader(name: str) -> Reader:
    """The reader of a format. Raises `ConfigError` for an unknown one."""
    if name not in READERS:
        raise ConfigError(f"--format: there is no format {name!r} to import; there are {', '.join(READERS)}")
    return READERS[name]
