"""The stages that need no model: label, compress and export, each a view of a run's trees. Part of the pipeline."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from treeforge.card_info import card_info
from treeforge.compress import CompressReport
from treeforge.compressed import FOLDER, compress_block, labelled_pass, read_passes
from treeforge.config import CompressConfig, Config, ExportConfig, LabelConfig
from treeforge.configuration import convert, to_dict
from treeforge.errors import ConfigError, RunError
from treeforge.export import ExportBlock, LabelledForest, choose_formats, loading_lines
from treeforge.export import export as export_blocks
from treeforge.grown import GrownTrees
from treeforge.label import CheckPolicy
from treeforge.labelling import label_run
from treeforge.recheck import Verdicts, end_recheck, start_recheck, verdicts_of
from treeforge.store.imported import StepValues
from treeforge.store.opinions import Opinions, add_opinions
from treeforge.store.run import OPEN, RunFolder
from treeforge.store.tables import ROLLOUTS, VALUES
from treeforge.store.value_table import ValueTable
from treeforge.store.views import check_sizes, check_whole, read_view, view_lock, view_state, write_view_blocks
from treeforge.value import NOT_COMPRESSED

_log = logging.getLogger("treeforge.views")
C = TypeVar("C", bound=Config)


class ExportSummary(msgspec.Struct, frozen=True):
    """Where an export's shards are."""

    path: Path
    """The dataset folder."""
    rows: dict[str, dict[str, int]]
    """Rows by format and split."""
    loading_lines: tuple[str, ...]
    """Python lines that load the first format that has rows with polars, `datasets` and pyarrow."""
    left_out: dict[str, dict[str, int]] = {}
    """Rows that were left out, by format and reason."""
    dropped: dict[str, int] = {}
    """Labels and problems that the filters took away of all formats, by reason."""
    contaminated: dict[str, tuple[str, ...]] = {}
    """Ids of problems that share an n-gram with a benchmark, by the benchmark file's name."""


def label(path: Path | str, config: LabelConfig | None = None) -> dict[str, Any]:
    """Values and step labels of all trees that have ended, into `labels/`; returns the counts.

    Without `config`, that of the run's manifest.
    """
    run = RunFolder.open(Path(path))
    with view_lock(run):
        return label_run(run, _settled(run, "label", config, LabelConfig), verdicts_of(run))


def second_opinions(
    path: Path | str, file: Path | str, source: str | None = None, config: LabelConfig | None = None
) -> dict[str, Any]:
    """Take in other judgements of a run's steps (`treeforge.store.opinions.add_opinions`), then label."""
    run = RunFolder.open(Path(path))
    with view_lock(run):
        config = _settled(run, "label", config, LabelConfig)
        add_opinions(run, Path(file), source)
        return label_run(run, config, verdicts_of(run))


def recheck(path: Path | str, policy: CheckPolicy | None = None, config: LabelConfig | None = None) -> dict[str, Any]:
    """Judge all answers of the trees that have ended with another check policy, and label by the new verdicts.

    They count from then on, also for trees that end later, until another `recheck` or `own_verdicts`. The trees stay as
    they are. Without `policy`, the run's own one. The report of `label`, with a `treeforge.recheck_report.Difference`
    from the run's own verdicts as `recheck`; without that where the run's own policy changes nothing.
    """
    run = RunFolder.open(Path(path))
    with view_lock(run):
        _some_tree(run)
        config = _settled(run, "label", config, LabelConfig)
        return label_run(run, config, start_recheck(run, policy))


def own_verdicts(path: Path | str, config: LabelConfig | None = None) -> dict[str, Any]:
    """Label by the run's own verdicts again, as if there had been no recheck."""
    run = RunFolder.open(Path(path))
    with view_lock(run):
        end_recheck(run)
        return label_run(run, _settled(run, "label", config, LabelConfig), verdicts_of(run))


def compress(path: Path | str, config: CompressConfig | None = None) -> dict[str, Any]:
    """HNC of all trees that have ended, into `compressed/`; returns the report. Labels are brought up to date first."""
    run = RunFolder.open(Path(path))
    with view_lock(run):
        return _compress(run, _settled(run, "compress", config, CompressConfig))


def export(path: Path | str, config: ExportConfig | None = None, *, out: Path | str | None = None) -> ExportSummary:
    """Training shards of all trees that have ended, also while the run goes on; into `dataset/` or `out`.

    Labels, and the compressed trees where there are some, are brought up to date first. Settings of the run's own
    `dataset/` become the manifest's, so that resume and replay make the same again.
    """
    run = RunFolder.open(Path(path))
    with view_lock(run):
        wanted = config or convert(run.manifest["export"], ExportConfig)
        summary = _export(run, wanted, Path(out or run.path / "dataset"))
        if out is None:
            _settled(run, "export", config, ExportConfig)
        return summary


def all_views(path: Path) -> ExportSummary:
    """Label, compress and export as the manifest says, after another process's views where one is at it.

    Not compressed are trees that are labelled by an estimator for which compressed trees have no evidence.
    """
    run = RunFolder.open(path)
    with view_lock(run, wait=True):
        labels = convert(run.manifest["label"], LabelConfig)
        label_run(run, labels, verdicts_of(run))
        if labels.estimator not in NOT_COMPRESSED:
            _compress(run, convert(run.manifest["compress"], CompressConfig))
        return _export(run, convert(run.manifest["export"], ExportConfig), run.path / "dataset")


async def label_async(path: Path | str, config: LabelConfig | None = None) -> dict[str, Any]:
    """`label` in a thread, for callers with an event loop."""
    return await asyncio.to_thread(label, path, config)


async def recheck_async(
    path: Path | str, policy: CheckPolicy | None = None, config: LabelConfig | None = None
) -> dict[str, Any]:
    """`recheck` in a thread, for callers with an event loop."""
    return await asyncio.to_thread(recheck, path, policy, config)


async def compress_async(path: Path | str, config: CompressConfig | None = None) -> dict[str, Any]:
    """`compress` in a thread, for callers with an event loop."""
    return await asyncio.to_thread(compress, path, config)


async def export_async(
    path: Path | str, config: ExportConfig | None = None, *, out: Path | str | None = None
) -> ExportSummary:
    """`export` in a thread, for callers with an event loop."""
    return await asyncio.to_thread(export, path, config, out=out)


def _settled(run: RunFolder, section: str, config: C | None, kind: type[C]) -> C:
    """The manifest's settings of a view; settings that are given become the manifest's, so that resume keeps them."""
    if config is None:
        return convert(run.manifest[section], kind)
    if isinstance(config, LabelConfig):
        StepValues(run, config)  # Settings that this run cannot give are not kept.
    if run.manifest[section] != to_dict(config):
        run.manifest[section] = to_dict(config)
        run.write_manifest()
    return config


def _compress(run: RunFolder, config: CompressConfig) -> dict[str, Any]:
    labels, verdicts = _fresh_labels(run)
    estimator = labels.estimator
    if estimator in NOT_COMPRESSED:
        raise ConfigError(
            f"label.estimator: {estimator} is not defined on compressed trees; label by "
            f"policy_mean or leaf_share first, as in `treeforge label {run.path} --set estimator=policy_mean`"
        )
    source, grown = StepValues(run, labels), GrownTrees(run, verdicts)
    reports = CompressReport()

    def make(members: Sequence[int]) -> dict[str, Any]:
        nonlocal reports
        tables = {}
        for stem, table, report in compress_block(run, grown.nodes(members), config, labels, source):
            reports += report
            if table is not None:
                tables[stem] = table
        return tables

    def report() -> dict[str, Any]:
        found: dict[str, Any] = msgspec.to_builtins(reports)
        found["by_depth"] = {str(depth): values for depth, values in found["by_depth"].items()}
        return found | {
            "mean_shift": reports.mean_shift,
            "noise": reports.noise,
            "observed_noise": reports.observed_noise,
        }

    made_with = {"compress": to_dict(config), "label": to_dict(labels)} | verdicts.config
    write_view_blocks(run, FOLDER, made_with, make, report)
    return report()


def _export(run: RunFolder, config: ExportConfig, out: Path) -> ExportSummary:
    ended = {number for number, status in run.statuses().items() if status != OPEN}
    labels, verdicts = _fresh_labels(run)
    state = view_state(run, "compressed") if labels.estimator not in NOT_COMPRESSED else None
    if state is not None:
        made_with = {"compress": state["config"]["compress"], "label": to_dict(labels)} | verdicts.config
        if state["stale"] or state["config"] != made_with:
            _compress(run, convert(state["config"]["compress"], CompressConfig))
            state = view_state(run, "compressed")
    passes = state["config"]["compress"].get("passes", 1) if state is not None else 0
    blocks = _export_blocks(run, labels, verdicts, config, passes, ended)
    report = export_blocks(blocks, out, config, card_info(run, labels, verdicts, state, config))
    rows = {f.name: {str(split): part.rows for split, part in f.splits.items()} for f in report.formats}
    filled = next((name for name, splits in rows.items() if splits), None)
    return ExportSummary(
        path=out,
        rows=rows,
        loading_lines=loading_lines(out, filled) if filled else (),
        left_out={f.name: f.left_out for f in report.formats if f.left_out},
        dropped=report.dropped,
        contaminated=report.contaminated,
    )


def _export_blocks(
    run: RunFolder,
    labels: LabelConfig,
    verdicts: Verdicts,
    config: ExportConfig,
    passes: int,
    ended: AbstractSet[int],
) -> Iterator[ExportBlock]:
    """The run's labelled trees. `ended`: those that had ended before labels and passes were brought up to date."""
    formats = choose_formats(config.formats)
    wants_rollouts = any(format.rollouts for format in formats)
    passes = passes if any(format.compressed for format in formats) else 0
    grown = GrownTrees(run, verdicts)
    for block in run.blocks:
        table = read_view(run, "labels", "values", VALUES, block)
        members = table["tree_id"].unique().to_pylist()
        check_whole(run, "labels", "values", block, members, ended)
        if not members:
            continue
        known = ValueTable.read(table)
        nodes, rollouts = (
            grown.with_rollouts(members) if wants_rollouts else (grown.nodes(members), ROLLOUTS.empty_table())
        )
        check_sizes(run, "labels", "values", block, np.diff(known.starts), nodes.forest.sizes)
        original = LabelledForest(
            number=0,
            places=np.arange(len(members)),
            nodes=nodes,
            values=known.values,
            hard=known.hard,
            soft=known.soft,
            row_of=(np.arange(nodes.forest.size) - nodes.forest.offset).astype(np.int32),
            fresh={},
        )
        compressed = (
            labelled_pass(number, merged, original, labels, config.spans)
            for number, merged in read_passes(run, block, passes, nodes, ended)
        )
        whole = ExportBlock(
            problems=[run.problems[number] for number in members],
            passes=(original, *(forest for forest in compressed if forest is not None)),
            rollouts=rollouts,
        )
        yield from whole.pieces()


def _fresh_labels(run: RunFolder) -> tuple[LabelConfig, Verdicts]:
    """The config and verdicts of the run's labels, which are made or made again where trees have ended since."""
    state = view_state(run, "labels")
    config = convert(state["config"]["label"] if state else run.manifest["label"], LabelConfig)
    if state is None or state["stale"]:
        _some_tree(run)
    verdicts = verdicts_of(run)
    made_with = {"label": to_dict(config)} | verdicts.config | Opinions(run, config).config
    if state is None or state["stale"] or state["config"] != made_with:
        label_run(run, config, verdicts)
    return config, verdicts


def _some_tree(run: RunFolder) -> None:
    if all(status == "open" for status, _ in run.statuses().values()):
        raise RunError(f"{run.path} has no finished tree yet; grow some with `treeforge resume {run.path}`")
