"""The stages that need no model: label, compress and export, each a view of a run's trees. Part of the pipeline."""

from __future__ import annotations

import asyncio
import logging
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from treeforge.compress import CompressReport
from treeforge.compressed import FOLDER, compress_block, read_block, read_passes
from treeforge.config import CompressConfig, Config, ExportConfig, LabelConfig
from treeforge.configuration import convert, to_dict
from treeforge.errors import ConfigError, RunError
from treeforge.export import CardInfo, ExportTree, choose_formats, loading_lines
from treeforge.export import export as export_trees
from treeforge.label import PRESETS, CheckPolicy
from treeforge.label.steps import label_nodes
from treeforge.recheck import Verdicts, end_recheck, start_recheck, verdicts_of
from treeforge.recheck_report import DifferenceCounter
from treeforge.store.imported import StepValues
from treeforge.store.opinions import Opinions, add_opinions
from treeforge.store.run import RunFolder
from treeforge.store.tables import (
    VALUES,
    values_from_table,
    values_table,
)
from treeforge.store.views import read_view, view_lock, view_state, write_view, write_view_blocks
from treeforge.tree import Finish, TreeRecord
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
        return _label(run, _settled(run, "label", config, LabelConfig))


def second_opinions(
    path: Path | str, file: Path | str, source: str | None = None, config: LabelConfig | None = None
) -> dict[str, Any]:
    """Take in other judgements of a run's steps (`treeforge.store.opinions.add_opinions`), then label."""
    run = RunFolder.open(Path(path))
    with view_lock(run):
        config = _settled(run, "label", config, LabelConfig)
        add_opinions(run, Path(file), source)
        return _label(run, config)


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
        return _label(run, config, start_recheck(run, policy))


def own_verdicts(path: Path | str, config: LabelConfig | None = None) -> dict[str, Any]:
    """Label by the run's own verdicts again, as if there had been no recheck."""
    run = RunFolder.open(Path(path))
    with view_lock(run):
        end_recheck(run)
        return _label(run, _settled(run, "label", config, LabelConfig))


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
        _label(run, labels)
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


def _label(run: RunFolder, config: LabelConfig, verdicts: Verdicts | None = None) -> dict[str, Any]:
    verdicts = verdicts or verdicts_of(run)
    source, opinions = StepValues(run, config), Opinions(run, config)
    difference = DifferenceCounter()
    counts = dict.fromkeys(("trees", "nodes", "positive", "negative", "unlabelled"), 0)
    truncated = outcomes = 0

    def make(number: int, record: TreeRecord) -> Any:
        nonlocal truncated, outcomes
        grown, changes = record, verdicts.changes(number)
        record = verdicts.apply(number, grown)
        values = source.of(number, record.tree, record.rollouts)
        labels = label_nodes(record.tree, values, config)
        if changes:
            before = source.of(number, grown.tree, grown.rollouts)
            difference.add_verdicts(run.problems[number], grown, changes)
            difference.add_labels(before, values, label_nodes(grown.tree, before, config).hard, labels.hard)
        hard = opinions.filter(number, labels.hard)
        counts["trees"] += 1
        counts["nodes"] += record.tree.size - 1
        for name, mark in (("positive", 1), ("negative", 0), ("unlabelled", -1)):
            counts[name] += int(np.count_nonzero(hard[1:] == mark))
        cut, ended = _truncation(record)
        truncated += cut
        outcomes += ended
        return values_table(number, values, hard, labels.soft)

    def report() -> dict[str, Any]:
        found: dict[str, Any] = counts | {"truncated_share": truncated / outcomes if outcomes else 0.0}
        if verdicts.about is not None:
            found["recheck"] = msgspec.to_builtins(difference.result(verdicts.about))
        if opinions.config:
            found |= {f"second_{name}": n for name, n in msgspec.to_builtins(opinions.agreement).items()}
        return found

    made_with = {"label": to_dict(config)} | verdicts.config | opinions.config
    write_view(run, "labels", "values", VALUES, made_with, make, report)
    result = report()
    if result["truncated_share"] > 0.05:
        _log.warning(
            "%.0f%% of the completions were truncated and count as %s; raise sampling.max_tokens or search.max_steps",
            100 * result["truncated_share"],
            "wrong" if config.truncated == "wrong" else "nothing",
        )
    return result


def _compress(run: RunFolder, config: CompressConfig) -> dict[str, Any]:
    labels, verdicts = _fresh_labels(run)
    estimator = labels.estimator
    if estimator in NOT_COMPRESSED:
        raise ConfigError(
            f"label.estimator: {estimator} is not defined on compressed trees; label by "
            f"policy_mean or leaf_share first, as in `treeforge label {run.path} --set estimator=policy_mean`"
        )
    source = StepValues(run, labels)
    reports = CompressReport()

    def make(members: Sequence[int]) -> dict[str, Any]:
        nonlocal reports
        tables = {}
        for stem, table, report in compress_block(run, members, config, labels, verdicts, source):
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
    labels, verdicts = _fresh_labels(run)
    state = view_state(run, "compressed") if labels.estimator not in NOT_COMPRESSED else None
    if state is not None:
        made_with = {"compress": state["config"]["compress"], "label": to_dict(labels)} | verdicts.config
        if state["stale"] or state["config"] != made_with:
            _compress(run, convert(state["config"]["compress"], CompressConfig))
            state = view_state(run, "compressed")
    passes = state["config"]["compress"].get("passes", 1) if state is not None else 0
    trees = _export_trees(run, labels, verdicts, config, passes)
    report = export_trees(trees, out, config, _card(run, labels, verdicts, state, config))
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


def _export_trees(
    run: RunFolder, labels: LabelConfig, verdicts: Verdicts, config: ExportConfig, passes: int
) -> Iterator[ExportTree]:
    rollouts = any(format.rollouts for format in choose_formats(config.formats))
    for block in run.blocks:
        table = read_view(run, "labels", "values", VALUES, block)
        values = {n: (value, hard, soft) for n, value, hard, soft in values_from_table(table)}
        if not values:
            continue
        records = dict(read_block(run, sorted(values), verdicts, rollouts=rollouts))
        originals = {n: (record.tree, values[n][0]) for n, record in records.items()}
        compressed = read_passes(run, block, passes, originals, labels, config.spans)
        originals.clear()
        for number in list(records):
            value, hard, soft = values.pop(number)
            yield ExportTree(
                number=number,
                problem=run.problems[number],
                record=records.pop(number),
                values=value,
                hard=hard,
                soft=soft,
                compressed=tuple(compressed.pop(number)),
            )


def _fresh_labels(run: RunFolder) -> tuple[LabelConfig, Verdicts]:
    """The config and verdicts of the run's labels, which are made or made again where trees have ended since."""
    state = view_state(run, "labels")
    config = convert(state["config"]["label"] if state else run.manifest["label"], LabelConfig)
    if state is None or state["stale"]:
        _some_tree(run)
    verdicts = verdicts_of(run)
    made_with = {"label": to_dict(config)} | verdicts.config | Opinions(run, config).config
    if state is None or state["stale"] or state["config"] != made_with:
        _label(run, config, verdicts)
    return config, verdicts


def _some_tree(run: RunFolder) -> None:
    if all(status == "open" for status, _ in run.statuses().values()):
        raise RunError(f"{run.path} has no finished tree yet; grow some with `treeforge resume {run.path}`")


def _truncation(record: TreeRecord) -> tuple[int, int]:
    """(truncated completions, all completions that ended) of a tree."""
    tree = record.tree
    cut = int(tree.rollouts_truncated.sum()) + round(float(tree.multiplicity[tree.finish == Finish.TRUNCATED].sum()))
    ended = int(tree.rollouts.sum()) + round(float(tree.multiplicity[tree.verdict >= 0].sum()))
    return cut, ended


def _card(
    run: RunFolder,
    labels: LabelConfig,
    verdicts: Verdicts,
    compressed: dict[str, Any] | None,
    config: ExportConfig,
) -> CardInfo:
    """What the dataset card says of this run, from its manifest and views."""
    manifest = run.manifest
    recipe = manifest["recipe"]
    statuses = Counter(status for status, _ in run.statuses().values())
    imported = (manifest["policy"] or {}).get("backend") == "imported"
    return CardInfo(
        model=_plain(manifest["policy"] or {}),
        sampling={}
        if imported
        else _plain(recipe["sampling"] | {"step format": recipe["steps"]["preset"], "seed": recipe["seed"]}),
        search={}
        if imported
        else _plain(recipe["search"] | {f"budget {key}": value for key, value in recipe["budget"].items() if value}),
        checker=_plain(
            {
                "judge": manifest.get("judge", ""),
                "policy": recipe["judge"]["policy"],
                "treeforge": manifest["versions"]["treeforge"],
            }
            | _recheck_settings(verdicts)
        ),
        labels=_plain(to_dict(labels)),
        compression={} if compressed is None else _plain(compressed["config"]["compress"] | compressed["report"]),
        problems=_plain(
            {"source": manifest["problems"]["source"], "digest": manifest["problems"].get("digest", "")} | statuses
        ),
        commands=(
            *((f"treeforge import FILE --format {manifest['policy']['format']} --out RUN",) if imported else ()),
            _command("label", to_dict(labels), to_dict(LabelConfig())) + _recheck_options(verdicts),
            *(
                ()
                if compressed is None
                else (_command("compress", compressed["config"]["compress"], to_dict(CompressConfig())),)
            ),
            _export_command(config),
        ),
    )


def _recheck_settings(verdicts: Verdicts) -> dict[str, Any]:
    """What the card says of a recheck: by which policy the labels were made, and how much it changed."""
    about = verdicts.about
    if about is None:
        return {}
    return {
        "rechecked by policy": f"{about['policy']['name']} (digest {about['digest']})",
        "answers rechecked": about["judged"],
        "of these changed": about["changed"],
    }


def _recheck_options(verdicts: Verdicts) -> str:
    """The options of `treeforge label` that make the recheck again."""
    if verdicts.about is None:
        return ""
    policy = verdicts.about["policy"]
    preset = policy["name"] if policy["name"] in PRESETS else "default"
    changed = _changed(
        {f"check.{key}": value for key, value in policy.items() if key != "name"},
        {f"check.{key}": value for key, value in to_dict(PRESETS[preset]).items()},
    )
    return f" --recheck --preset {preset}{changed}"


def _plain(settings: dict[str, Any]) -> dict[str, str]:
    flat: dict[str, str] = {}
    for name, value in settings.items():
        if isinstance(value, dict):
            flat |= {f"{name} {key}": text for key, text in _plain(value).items()}
        else:
            flat[name.replace("_", " ")] = f"{value:.4g}" if isinstance(value, float) else str(value)
    return flat


def _command(stage: str, config: dict[str, Any], default: dict[str, Any]) -> str:
    """The command that makes a view again, with what differs from the defaults."""
    return f"treeforge {stage} RUN{_changed(config, default)}"


def _export_command(config: ExportConfig) -> str:
    """The command that exports again; of files only their names, since no path of this machine is anyone's business."""
    settings = to_dict(config) | {"decontaminate": [Path(file).name for file in config.decontaminate]}
    if "/" in config.tokenizer and Path(config.tokenizer).exists():
        settings["tokenizer"] = Path(config.tokenizer).name
    default = to_dict(ExportConfig())
    changed = (
        shlex.quote(f"{key}={msgspec.json.encode(value).decode()}")
        for key, value in settings.items()
        if value != default[key]
    )
    return "treeforge export RUN" + "".join(f" --set {item}" for item in changed)


def _changed(config: dict[str, Any], default: dict[str, Any]) -> str:
    return "".join(
        f" --set {key}={msgspec.json.encode(value).decode()}" for key, value in config.items() if value != default[key]
    )
