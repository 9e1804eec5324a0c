"""What a format is: a name, columns, and a function from one problem's tree to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import msgspec
import pyarrow as pa

from treeforge.export.schemas import Column, Columns, make_schema
from treeforge.export.trees import ExportTree

MAX_ROW_BYTES = 2_000_000
"""UTF-8 bytes of a row's texts; a larger row is left out and counted (viewers and loaders refuse or choke on it)."""

MAX_UTF8 = 4
"""Bytes of a character in UTF-8, at most: lets most texts be found small without encoding them."""

TOO_LARGE = f"row over {MAX_ROW_BYTES // 1_000_000} MB"
NO_LABEL = "step without a label"
NOT_FRESH = "same as in the uncompressed tree"


class Rows(msgspec.Struct, frozen=True):
    """Some rows of one problem, as plain columns."""

    columns: Columns
    count: int
    """How many."""
    left_out: dict[str, int] = {}
    """Rows that are missing here, by reason."""
    pairs: dict[str, int] = {}
    """Of rows with two steps, the hard labels of the first and of the second: `++`, `+-`, `-+`, `--`."""


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A format of training rows. Registered in `treeforge.export.formats`."""

    name: str
    about: str
    """One sentence for the dataset card."""
    columns: tuple[Column, ...]
    rows: Callable[[ExportTree], Iterator[Rows]]
    """The rows of one problem, in an order that depends on the tree only; in pieces, so that memory stays bounded."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of every shard."""
        return make_schema(self.name, self.columns)


def utf8_size(text: str) -> int:
    """Bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
