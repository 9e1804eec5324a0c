"""What a format is: a name, columns, and a function from the trees of a block to rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import compress
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.config import ExportConfig
from treeforge.export.blocks import ExportBlock
from treeforge.export.schemas import Column, Columns, make_schema

MAX_ROW_BYTES = 2_000_000
"""UTF-8 bytes of a row's texts; a larger row is left out and counted (viewers and loaders refuse or choke on it)."""

TOO_LARGE = f"row over {MAX_ROW_BYTES // 1_000_000} MB"
NO_LABEL = "step without a label"
NOT_FRESH = "same as in the uncompressed tree"


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What a format may know beside the tree."""

    config: ExportConfig = ExportConfig()
    split: str = "train"
    generator: str = ""
    """The policy's name."""
    tokenizer: Callable[[str, bool], list[int]] | None = None
    """(text, whether it begins the sequence) -> token ids; None where `config.tokenizer` names none."""


class Rows(msgspec.Struct, frozen=True):
    """Some rows, as plain columns."""

    columns: Columns
    count: int
    """How many."""
    left_out: dict[str, int] = {}
    """Rows that are missing here, by reason."""
    labels: NDArray[np.int8] | None = None
    """int8[count]: what the report counts and `balance` evens out, 1 or 0; -1 for none. None: rows have no label."""
    first: NDArray[np.int8] | None = None
    """int8[count]: of rows with several steps, the hard label of the step before the last; -1 for none."""
    numbers: NDArray[np.int32] | None = None
    """int32[count]: the tree_id of each row; a tree's rows come together. None: all of one tree."""

    @property
    def pairs(self) -> dict[str, int]:
        """Of rows with several steps, the hard labels of the last two: `++`, `+-`, `-+`, `--`."""
        if self.first is None or self.labels is None:
            return {}
        both = (self.first >= 0) & (self.labels >= 0)
        counts = np.bincount(2 * self.first[both] + self.labels[both], minlength=4).tolist()
        return {"-+"[code // 2] + "-+"[code % 2]: counts[code] for code in (3, 2, 1, 0) if counts[code]}

    def keep(self, mask: NDArray[np.bool_]) -> Rows:
        """The rows where `mask`, bool[count], is true; what was left out before stays counted."""
        if mask.all():
            return self
        columns = {name: _kept(column, mask) for name, column in self.columns.items()}
        labels, first = (None if a is None else a[mask] for a in (self.labels, self.first))
        numbers = None if self.numbers is None else self.numbers[mask]
        return Rows(columns, int(np.count_nonzero(mask)), self.left_out, labels, first, numbers)


def _kept(column: Any, mask: NDArray[np.bool_]) -> Any:
    if isinstance(column, np.ndarray):
        return column[mask]
    return column.filter(pa.array(mask)) if isinstance(column, pa.Array) else list(compress(column, mask.tolist()))


class Format(msgspec.Struct, frozen=True, kw_only=True):
    """A format of training rows. Registered in `treeforge.export.formats`."""

    name: str
    about: str
    """One sentence for the dataset card."""
    columns: tuple[Column, ...]
    rows: Callable[[ExportBlock, Context], Iterator[Rows]]
    """The rows of a block's trees, tree by tree, in an order that depends on the tree only; in pieces, so that memory
    stays bounded."""
    compressed: bool = False
    """Whether it has rows of compressed trees, which are not loaded otherwise."""
    whole: bool = False
    """The rows of a tree belong together: neither balanced nor deduplicated."""
    rollouts: bool = False
    """Whether it reads the trees' rollouts, which are not loaded otherwise."""
    text: str = ""
    """The column that `dedupe` compares …"""
    same: tuple[str, ...] = ()
    """… among rows of one problem that agree in these columns."""
    empty: tuple[str, str] | None = None
    """What no row at all means, and what to run first. None: an export without rows of this format is fine."""
    survey: Callable[[ExportBlock], Mapping[str, int]] | None = None
    """Counts of a block, which add up, that say why it gave no row."""
    explain: Callable[[Mapping[str, int], ExportConfig], tuple[str, str] | None] | None = None
    """What no row at all means by those counts, in place of `empty`; None: nothing more than that."""

    @property
    def schema(self) -> pa.Schema:
        """The Arrow schema of every shard."""
        return make_schema(self.name, self.columns)


def utf8_size(text: str) -> int:
    """Bytes of `text` in UTF-8."""
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def within_limit(sizes: NDArray[np.integer[Any]]) -> NDArray[np.bool_]:
    """bool[k]: rows whose texts keep within `MAX_ROW_BYTES`; `sizes`, int[k]: their bytes in UTF-8."""
    return sizes <= MAX_ROW_BYTES
