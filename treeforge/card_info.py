"""What the dataset card says of a run, from its manifest and views, and the commands that make the dataset again."""

from __future__ import annotations

import shlex
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec

from treeforge.compress import CompressReport, DepthReport
from treeforge.config import CompressConfig, ExportConfig, LabelConfig, SearchConfig
from treeforge.configuration import convert, to_dict
from treeforge.export import CardInfo
from treeforge.label import PRESETS
from treeforge.printable import counted
from treeforge.recheck import Verdicts
from treeforge.store.given import SECTION as GIVEN
from treeforge.store.run import RunFolder
from treeforge.value import FROM_ELSEWHERE

MAX_DEPTHS = 10
"""Depths that the card tells apart."""

_COMMON_KEYS = ("children", "max_steps", "wave", "merge_duplicates")
_STRATEGY_KEYS = {
    "mcts": ("max_depth", "sample", "selection", "exploration", "prior"),
    "exhaustive": ("levels",),
    "omega": ("omega",),
    "step-rollouts": ("solutions",),
    "adaptive": ("solutions", "adaptive"),
    "best-of-n": ("solutions",),
    "beam": ("max_depth", "beam"),
}


def card_info(
    run: RunFolder,
    labels: LabelConfig,
    verdicts: Verdicts,
    compressed: dict[str, Any] | None,
    config: ExportConfig,
) -> CardInfo:
    """What the card says. `compressed` is the state of the view of compressed trees, None where there are none."""
    manifest = run.manifest
    recipe = manifest["recipe"]
    statuses = Counter(status for status, _ in run.statuses().values())
    imported = (manifest["policy"] or {}).get("backend") == "imported"
    return CardInfo(
        model=_plain(manifest["policy"] or {}),
        sampling={}
        if imported
        else _plain(recipe["sampling"] | {"step format": recipe["steps"]["preset"], "seed": recipe["seed"]}),
        search={} if imported else _search(recipe),
        checker=_plain(
            {
                "judge": manifest.get("judge", ""),
                "policy": recipe["judge"]["policy"],
                "treeforge": manifest["versions"].get("treeforge", "unknown"),
            }
            | _recheck_settings(verdicts)
        ),
        labels=_labels(labels),
        compression={}
        if compressed is None
        else _compression(compressed, moves=labels.estimator not in FROM_ELSEWHERE),
        problems=_plain(
            {"source": manifest["problems"].get("source", ""), "digest": manifest["problems"].get("digest", "")}
            | statuses
        ),
        solutions=_plain(manifest.get(GIVEN, {})),
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


def _search(recipe: dict[str, Any]) -> dict[str, str]:
    """The keys of the search that apply to its strategy, and the budgets."""
    search = convert(recipe["search"], SearchConfig)
    own = list(_STRATEGY_KEYS[search.strategy])
    if search.strategy == "mcts":
        own += ["prior_temperature"] if search.prior == "logprob" else []
        own += ["widening", "widening_power"] if search.widening else ["expansions"]
    if search.given:
        own = ["given", *(key for key in own if key != "solutions")]
    if search.screen:
        own += ["screen", "keep"]
    shown = {key: recipe["search"][key] for key in ("strategy", *_COMMON_KEYS, *own) if key in recipe["search"]}
    if search.strategy == "omega" and not search.given:
        unused = {"search_right", "further"}
    else:
        unused = {"rollouts"} if search.strategy == "beam" and search.beam.scorer != "rollouts" else set()
    shown = {key: _without(value, unused) if isinstance(value, dict) else value for key, value in shown.items()}
    budget = _without(recipe["budget"], set() if search.counts_simulations else {"simulations"})
    return _plain(shown | {f"budget {key}": value for key, value in budget.items() if value})


def _labels(labels: LabelConfig) -> dict[str, str]:
    """The keys of the labels that apply to their estimator."""
    unused = set() if labels.estimator == "smoothed" else {"prior"}
    if labels.estimator in FROM_ELSEWHERE:
        unused |= {"confidence", "truncated", "min_rollouts"}
    return _plain(_without(to_dict(labels), unused))


def _without(settings: dict[str, Any], unused: set[str]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key not in unused}


def _compression(state: dict[str, Any], moves: bool = True) -> dict[str, str]:
    """The settings and the report of HNC; by depth one line each, the deepest ones together.

    `moves`: whether values can move; those that come from elsewhere cannot.
    """
    config = convert(state["config"]["compress"], CompressConfig)
    report = msgspec.convert(state["report"] | {"by_depth": {}}, CompressReport)
    depths = {int(depth): msgspec.convert(found, DepthReport) for depth, found in state["report"]["by_depth"].items()}
    shown = sorted(depths)[:MAX_DEPTHS]
    lines = {f"merges at depth {depth}": _depth_line(depths[depth], moves) for depth in shown}
    deeper = [found for depth, found in depths.items() if depth not in shown]
    if deeper:
        lines[f"merges at depth {shown[-1] + 1} and more"] = _depth_line(reduce(DepthReport.__add__, deeper), moves)
    return _compression_settings(config) | _compression_counts(config, report, moves) | lines


def _compression_settings(config: CompressConfig) -> dict[str, str]:
    said = {
        "chance that a node that may merge does": f"{config.probability:g}",
        "fewest children of a node that may merge": str(config.min_children),
        "which child it merges with": "any of those with a value, with the same chance"
        if config.rule == "uniform"
        else "the paper's coin flip for one child after another, which favours the first ones",
        "seed": str(config.seed),
        "passes over each tree": str(config.passes),
    }
    if config.max_label_shift < 1:
        said["merges refused that move a value further than"] = f"{config.max_label_shift:g}"
    if config.target_noise:
        said["merged until the mean shift of all values reaches"] = f"{config.target_noise:g}"
    return said


def _compression_counts(config: CompressConfig, report: CompressReport, moves: bool) -> dict[str, str]:
    again = ", counted again in each pass" if config.passes > 1 else ""
    said = {
        f"trees{again}": f"{report.trees:,}",
        f"nodes of these trees before merging, the roots included{again}": f"{report.nodes:,}",
        "steps with a value": f"{report.evaluated:,}",
        "merges": f"{report.merges:,} of {counted(report.eligible, 'node')} that may merge",
    }
    if config.max_label_shift < 1:
        said["merges refused"] = f"{report.refused:,}"
    if moves:
        said |= {
            "values moved": f"{report.changed:,}, by {report.mean_shift:.3g} in the mean over all merges and "
            f"{report.shift_max:.3g} at most",
            "hard labels flipped": f"{report.hard_flips:,}",
            "mean shift over all steps with a value": f"{report.noise:.3g} as predicted; estimated again on the "
            f"compressed trees, {report.observed_noise:.3g} ({report.observed_max:.3g} at most)",
        }
    if config.target_noise:
        said["trees whose merges ran out before that"] = f"{report.target_missed:,}"
    if report.alike:
        said["trees of which a pass made no new one"] = f"{report.alike:,}"
    return said


def _depth_line(found: DepthReport, moves: bool) -> str:
    merges = f"{found.merges:,} of {counted(found.eligible, 'node')}"
    if not moves:
        return merges
    return (
        f"{merges}; {counted(found.changed, 'value')} moved, by {found.mean_shift:.3g} in the mean and "
        f"{found.shift_max:.3g} at most; {counted(found.hard_flips, 'hard label')} flipped"
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
