"""Everything that goes into one format: rows through the filters into shards, and what is counted on the way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import msgspec
import numpy as np

from treeforge.errors import DataError
from treeforge.export.blocks import ExportBlock
from treeforge.export.filters import BalancedWriter, Condition, Duplicates
from treeforge.export.formats import Context, Format, Rows
from treeforge.export.report import FormatReport, SplitReport, Tally
from treeforge.export.shards import ShardWriter
from treeforge.export.split import SPLITS, Split

CONDITION, DUPLICATE, MAJORITY = "row that fails the condition", "duplicate row", "row of the more frequent label"


class Sink:
    """One format of an export, all its splits."""

    def __init__(self, folder: Path, format: Format, context: Context, condition: Condition | None) -> None:
        self._folder, self._format = folder, format
        self._schema = format.schema
        self._condition = condition if condition is not None and condition.applies(format) else None
        config = context.config
        near = config.similarity if config.dedupe == "near" else None
        unique = config.dedupe != "off" and not format.whole and format.text
        self._duplicates = Duplicates(format, near) if unique else None
        self._contexts = {split: msgspec.structs.replace(context, split=split) for split in SPLITS}
        balance = config.balance and not format.whole
        self._parts = {split: _Part(folder, split, format, config.rows_per_shard, balance) for split in SPLITS}
        self._left_out: Counter[str] = Counter()
        self._config = config
        self._survey: Counter[str] = Counter()

    def add(self, block: ExportBlock, split: Split) -> None:
        """The rows of some trees, as far as the filters let them through."""
        part = self._parts[split]
        if self._format.survey is not None and not any(other.tally_rows for other in self._parts.values()):
            self._survey.update(self._format.survey(block))
        for rows in self._format.rows(block, self._contexts[split]):
            for reason, count in rows.left_out.items():
                self._left_out[reason] += count
            if not rows.count:
                continue
            if self._condition is not None:
                rows = self._noted(rows, self._condition.keep(rows, self._schema), CONDITION)
            if self._duplicates is not None:
                rows = self._noted(rows, self._duplicates.keep(rows), DUPLICATE)
            if rows.count:
                part.add(rows, block)

    def close(self, weak: Mapping[str, int]) -> FormatReport:
        """Write what is left. `DataError` where there is no row and the format needs some, or filters took them all.

        `weak`: labels that were taken away of all formats, by reason.
        """
        splits: dict[Split, SplitReport] = {}
        for split, part in self._parts.items():
            before = part.tally_rows
            shards = part.close()
            if shards:
                splits[split] = part.tally.report(shards, *part.sizes)
            if before > part.tally.rows:
                self._left_out[MAJORITY] += before - part.tally.rows
        if not splits and (error := self._no_rows(weak)) is not None:
            raise error
        return FormatReport(
            name=self._format.name,
            folder=self._folder.name,
            splits=splits,
            left_out=dict(sorted(self._left_out.items())),
        )

    def abort(self) -> None:
        """Let go of open files; harmless after `close`."""
        for part in self._parts.values():
            part.abort()

    def _noted(self, before: Rows, after: Rows, reason: str) -> Rows:
        if after.count < before.count:
            self._left_out[reason] += before.count - after.count
        return after

    def _no_rows(self, weak: Mapping[str, int]) -> DataError | None:
        """The error that no row is; None where that is fine."""
        name = self._format.name
        taken = _listed({reason: self._left_out[reason] for reason in (CONDITION, DUPLICATE, MAJORITY)} | dict(weak))
        meant = self._format.explain(self._survey, self._config) if self._format.explain is not None else None
        meant = meant or self._format.empty
        if any(self._left_out[reason] for reason in (CONDITION, DUPLICATE, MAJORITY)) or (taken and meant is None):
            return DataError(f"the filters leave no row of the format {name!r}: {taken}")
        if meant is None:
            return None
        why, fix = meant
        return DataError(f"there is nothing to export as {name!r}: {why}" + (f" ({taken})" if taken else ""), fix=fix)


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} × {reason}" for reason, count in counts.items() if count)


class _Part:
    """One split of one format."""

    def __init__(self, folder: Path, split: Split, format: Format, rows_per_shard: int, balance: bool) -> None:
        self._writer = ShardWriter(folder, split, format.schema, rows_per_shard)
        path = folder / f".{split}.rows.arrow"
        self._balanced = BalancedWriter(self._writer, path, format.schema) if balance else None
        self._held: list[Rows] = []
        self.tally = Tally()
        self.tally_rows = 0
        """Rows added, before they are balanced."""

    def add(self, rows: Rows, block: ExportBlock) -> None:
        self.tally_rows += rows.count
        if self._balanced is None:
            self._writer.add(rows.columns, rows.count)
            self.tally.add(rows)
        else:
            self._balanced.add(rows, block)
            self._held.append(msgspec.structs.replace(rows, columns={}, left_out={}))

    def close(self) -> int:
        """Write what is left; how many shards there are."""
        if self._balanced is not None:
            keep = self._balanced.close()
            start = 0
            for rows in self._held:
                mask = keep[start : start + rows.count]
                start += rows.count
                self.tally.add(rows.keep(np.asarray(mask)))
            self._held.clear()
        return self._writer.close()

    @property
    def sizes(self) -> tuple[int, int]:
        """Bytes of the rows as Arrow tables, and of the files."""
        return self._writer.arrow_bytes, self._writer.file_bytes

    def abort(self) -> None:
        self._writer.abort()
        if self._balanced is not None:
            self._balanced.abort()
