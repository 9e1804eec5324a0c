"""Trees to a dataset folder: shards by format and split, the card that `load_dataset` reads, and its plots."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from treeforge.config import ExportConfig
from treeforge.errors import DataError
from treeforge.export.blocks import ExportBlock
from treeforge.export.card import CARD, CardInfo, render_card
from treeforge.export.filters import WEAK, Benchmarks, Condition, Questions, drop_weak_labels
from treeforge.export.folder import replaced_folder
from treeforge.export.formats import FORMATS, Context, Format, choose_formats
from treeforge.export.plots import FOLDER as PLOTS
from treeforge.export.plots import Tallies, write_plots
from treeforge.export.report import ExportReport
from treeforge.export.sink import Sink
from treeforge.export.split import SPLITS, split_of
from treeforge.export.tokenizer import load_tokenizer
from treeforge.problem import Problem
from treeforge.store.files import atomic_file

DEFAULT_FOLDER = "data"
"""Where the shards of the first format lie; the others have a folder of their name."""

_KNOWN = frozenset({CARD, DEFAULT_FOLDER, PLOTS, *FORMATS})


def export(blocks: Iterable[ExportBlock], out: Path, config: ExportConfig, card: CardInfo) -> ExportReport:
    """Write the trees of `blocks` as the dataset folder `out`, in the order given, and say what was written.

    One block at a time and one row group a format and split are in memory. `out` is replaced as a whole at the end:
    until then, and where anything fails, what was there before stays. The same trees give the same bytes.

    Raises `ConfigError` (formats, filters, or `out` holds files that no export wrote), `DataError` (no trees, a format
    that these trees cannot give, a text that is not Unicode), `MissingExtraError` (a tokenizer without its library),
    `RunLockedError` and `StorageError`.
    """
    formats = choose_formats(config.formats)
    context = Context(
        config=config,
        generator=card.solutions.get("source") or card.model.get("model", ""),
        tokenizer=load_tokenizer(config.tokenizer) if "tokens" in config.formats else None,
    )
    condition = _condition(config, formats)
    screen = _Screen(config)
    with replaced_folder(out, _KNOWN) as folder, ExitStack() as stack:
        sinks = [
            Sink(folder / name, format, context, condition)
            for name, format in zip([DEFAULT_FOLDER, *config.formats[1:]], formats, strict=True)
        ]
        for sink in sinks:
            stack.callback(sink.abort)
        problems = dict.fromkeys(SPLITS, 0)
        tallies = Tallies()
        for block in blocks:
            passed = screen.check(block)
            if passed is None:
                continue
            tallies.add(passed)
            where = np.array([split_of(problem.problem_id, config) for problem in passed.problems])
            for split in SPLITS:
                own = where == split
                if own.any():
                    part = passed.select(own)
                    for sink in sinks:
                        sink.add(part, split)
                    problems[split] += len(part.problems)
        if not any(problems.values()):
            raise screen.nothing_left()
        report = ExportReport(
            problems=problems,
            formats=tuple(sink.close(screen.weak) for sink in sinks),
            dropped=dict(sorted(screen.dropped.items())),
            contaminated={name: tuple(ids) for name, ids in sorted(screen.contaminated.items())},
        )
        plots = tuple(tallies.plots())
        write_plots(plots, folder)
        with atomic_file(folder / CARD) as stream:
            stream.write(render_card(card, config, report, plots).encode())
    return report


class _Screen:
    """The filters that see a whole tree: benchmarks, repeated questions, weak labels."""

    def __init__(self, config: ExportConfig) -> None:
        self._config = config
        self._benchmarks = Benchmarks(config.decontaminate, config.ngram) if config.decontaminate else None
        self._questions = Questions() if config.dedupe != "off" else None
        self.dropped: Counter[str] = Counter()
        self.contaminated: dict[str, list[str]] = {}

    def check(self, block: ExportBlock) -> ExportBlock | None:
        """The trees as the formats shall see them; None where none is left."""
        keep = np.array([self._passes(problem) for problem in block.problems])
        return drop_weak_labels(block.select(keep), self._config, self.dropped) if keep.any() else None

    @property
    def weak(self) -> dict[str, int]:
        """Labels that were taken away, by reason."""
        return {reason: count for reason, count in sorted(self.dropped.items()) if reason.startswith(WEAK)}

    def _passes(self, problem: Problem) -> bool:
        if self._benchmarks is not None:
            source = self._benchmarks.source(problem.question)
            if source is not None:
                self.contaminated.setdefault(source, []).append(problem.problem_id)
                return False
        if self._questions is not None and not self._questions.is_new(problem.question):
            self.dropped["problem: the question of an earlier one"] += 1
            return False
        return True

    def nothing_left(self) -> DataError:
        """The error where no tree came through."""
        if self.contaminated:
            names = ", ".join(sorted(self.contaminated))
            return DataError(f"every problem shares an n-gram with a benchmark ({names}), so nothing is left to export")
        return DataError(
            "there is no finished tree to export", fix="Grow some first: treeforge run, or treeforge search"
        )


def _condition(config: ExportConfig, formats: tuple[Format, ...]) -> Condition | None:
    if not config.where:
        return None
    condition = Condition(config.where)
    fitting = [format for format in formats if condition.applies(format)]
    if not fitting:
        raise condition.missing(formats)
    return condition
