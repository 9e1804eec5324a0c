"""What the dataset card says of a run, from its manifest and views, and the commands that make the dataset again."""

from __future__ import annotations

import shlex
from collections import Counter
from functools import reduce
from pathlib import Path
from typing import Any

import msgspec

from treeforge.compress import DepthReport
from treeforge.config import CompressConfig, ExportConfig, LabelConfig
from treeforge.configuration import to_dict
from treeforge.export import CardInfo
from treeforge.label import PRESETS
from treeforge.recheck import Verdicts
from treeforge.store.given import SECTION as GIVEN
from treeforge.store.run import RunFolder

MAX_DEPTHS = 10
"""Depths that the card tells apart."""


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
        compression={} if compressed is None else _compression(compressed),
        problems=_plain(
            {"source": manifest["problems"]["source"], "digest": manifest["problems"].get("digest", "")} | statuses
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


def _compression(state: dict[str, Any]) -> dict[str, str]:
    """The settings and the report of HNC; by depth one line each, the deepest ones together."""
    report = dict(state["report"])
    depths = {int(depth): msgspec.convert(found, DepthReport) for depth, found in report.pop("by_depth").items()}
    shown = sorted(depths)[:MAX_DEPTHS]
    lines = {f"merges at depth {depth}": _depth_line(depths[depth]) for depth in shown}
    deeper = [found for depth, found in depths.items() if depth not in shown]
    if deeper:
        lines[f"merges at depth {shown[-1] + 1} and more"] = _depth_line(reduce(DepthReport.__add__, deeper))
    return _plain(state["config"]["compress"] | report) | lines


def _depth_line(found: DepthReport) -> str:
    return (
        f"{found.merges:,} of {found.eligible:,} nodes; {found.changed:,} values moved, by {found.mean_shift:.3g} in "
        f"the mean and {found.shift_max:.3g} at most; {found.hard_flips:,} hard labels flipped"
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
