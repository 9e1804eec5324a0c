"""Trees to a dataset folder: shards by format and split, and the card that `load_dataset` reads."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

from treeforge.config import ExportConfig
from treeforge.errors import DataError
from treeforge.export.card import CARD, CardInfo, render_card
from treeforge.export.folder import replaced_folder
from treeforge.export.formats import FORMATS, Format, choose_formats
from treeforge.export.report import ExportReport, FormatReport, SplitReport, Tally
from treeforge.export.shards import ShardWriter
from treeforge.export.split import SPLITS, Split, split_of
from treeforge.export.trees import ExportTree
from treeforge.store.files import atomic_file

DEFAULT_FOLDER = "data"
"""Where the shards of the first format lie; the others have a folder of their name."""

_KNOWN = frozenset({CARD, DEFAULT_FOLDER, *FORMATS})


def export(trees: Iterable[ExportTree], out: Path, config: ExportConfig, card: CardInfo) -> ExportReport:
    """Write `trees` as the dataset folder `out`, in the order given, and say what was written.

    One tree at a time and one row group a format and split are in memory. `out` is replaced as a whole at the end:
    until then, and where anything fails, what was there before stays. The same trees give the same bytes.

    Raises `ConfigError` (formats, or `out` holds files that no export wrote), `DataError` (no trees, a text that is not
    Unicode), `RunLockedError` and `StorageError`.
    """
    formats = choose_formats(config.formats)
    with replaced_folder(out, _KNOWN) as folder, ExitStack() as stack:
        sinks = [
            _Sink(folder / name, format, config)
            for name, format in zip([DEFAULT_FOLDER, *config.formats[1:]], formats, strict=True)
        ]
        for sink in sinks:
            stack.callback(sink.abort)
        problems = dict.fromkeys(SPLITS, 0)
        for tree in trees:
            split = split_of(tree.problem.problem_id, config)
            for sink in sinks:
                sink.add(tree, split)
            problems[split] += 1
        if not any(problems.values()):
            raise DataError(
                "there is no finished tree to export", fix="Grow some first: treeforge run, or treeforge search"
            )
        report = ExportReport(problems=problems, formats=tuple(sink.close() for sink in sinks))
        with atomic_file(folder / CARD) as stream:
            stream.write(render_card(card, config, report).encode())
    return report


class _Sink:
    """Everything that goes into one format."""

    def __init__(self, folder: Path, format: Format, config: ExportConfig) -> None:
        self._folder, self._format = folder, format
        schema = format.schema
        self._writers = {split: ShardWriter(folder, split, schema, config.rows_per_shard) for split in SPLITS}
        self._tallies = {split: Tally() for split in SPLITS}
        self._left_out: Counter[str] = Counter()

    def add(self, tree: ExportTree, split: Split) -> None:
        writer, tally = self._writers[split], self._tallies[split]
        before = tally.rows
        for rows in self._format.rows(tree):
            writer.add(rows.columns, rows.count)
            tally.add(rows)
            self._left_out.update(rows.left_out)
        tally.problems += tally.rows > before

    def close(self) -> FormatReport:
        splits: dict[Split, SplitReport] = {}
        for split, writer in self._writers.items():
            shards = writer.close()
            if shards:
                splits[split] = self._tallies[split].report(shards)
        return FormatReport(
            name=self._format.name,
            folder=self._folder.name,
            splits=splits,
            left_out=dict(sorted(self._left_out.items())),
        )

    def abort(self) -> None:
        for writer in self._writers.values():
            writer.abort()
