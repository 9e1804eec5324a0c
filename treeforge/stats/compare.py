"""Runs side by side: the figures of their summaries in one list, and the settings in which they differ."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec

from treeforge.errors import ConfigError
from treeforge.printable import one_line
from treeforge.stats.summary import Summary
from treeforge.store.run import RunFolder

Kind = Literal["count", "number", "share", "seconds", "bytes"]
Value = float | int | None
_SECTIONS = ("recipe", "label", "compress")
"""Of the manifest: what makes a run's trees and labels."""
_OF_A_SEARCH = ("recipe.policy", "recipe.search", "recipe.sampling", "recipe.budget", "recipe.seed")
"""What of the recipe is unused where trees were imported."""
_ORIGIN = ("recipe.policy.backend", "recipe.search.strategy")


class Figure(msgspec.Struct, frozen=True, kw_only=True):
    """One figure of every run."""

    section: str
    key: str
    """Where it stands in the summary, as in `outcomes.share_correct`."""
    name: str
    kind: Kind
    values: tuple[Value, ...]
    """A value a run; None where the run has none."""

    @property
    def differs(self) -> bool:
        """Not all runs have the same value, but for rounding."""
        return not all(_same(self.values[0], value) for value in self.values)


class Setting(msgspec.Struct, frozen=True, kw_only=True):
    """A key of the configuration that differs between runs."""

    key: str
    values: tuple[str, ...]
    """As JSON, one a run; '' where the run has no such key."""


class Comparison(msgspec.Struct, frozen=True, kw_only=True):
    """Runs side by side. One run alone has figures, and no settings that differ."""

    runs: tuple[str, ...]
    """Their names: the last part of the path where that is enough to tell them apart."""
    figures: tuple[Figure, ...]
    settings: tuple[Setting, ...]


def run_names(paths: Sequence[Path]) -> tuple[str, ...]:
    """The last part of each path, or the whole path where two end alike. `ConfigError` for one folder given twice."""
    resolved = [path.resolve() for path in paths]
    for path, whole in zip(paths, resolved, strict=True):
        if resolved.count(whole) > 1:
            raise ConfigError(f"{path} is given twice; name each run once")
    short = [path.name for path in resolved]
    return tuple(
        one_line(name if short.count(name) == 1 else str(path)) for name, path in zip(short, paths, strict=True)
    )


def compare(names: Sequence[str], summaries: Sequence[Summary], runs: Sequence[RunFolder]) -> Comparison:
    """The runs' figures, in the order of the summary's sections."""
    listed = [
        {(section, key): (name, kind, value) for section, key, name, kind, value in _figures(s)} for s in summaries
    ]
    figures: list[Figure] = []
    for section, key in sorted(dict.fromkeys(k for found in listed for k in found), key=lambda k: _place(k[0])):
        name, kind, _ = next(found[section, key] for found in listed if (section, key) in found)
        values = tuple(
            found[section, key][2] if (section, key) in found else _absent(key, summary)
            for found, summary in zip(listed, summaries, strict=True)
        )
        figures.append(Figure(section=section, key=key, name=name, kind=kind, values=values))
    return Comparison(runs=tuple(names), figures=tuple(figures), settings=_settings(runs))


def _absent(key: str, summary: Summary) -> Value:
    """What a figure is in a run that does not list it: of counts by name, none, where the run has them at all."""
    counted = {
        "problems.by_status.": summary.problems,
        "labels.pairs.": summary.labels,
        "checker.routes.": summary.checker,
    }
    return 0 if any(key.startswith(prefix) and part is not None for prefix, part in counted.items()) else None


def _same(a: Value, b: Value) -> bool:
    return a == b if a is None or b is None else math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-12)


def _settings(runs: Sequence[RunFolder]) -> tuple[Setting, ...]:
    """Imported runs have no settings of a search: they are only told apart from the others, who compare theirs."""
    configs = [_config(run) for run in runs]
    grown = [config for config, run in zip(configs, runs, strict=True) if not run.imported_from]
    keys = _differing(grown) | {
        key for key in _differing(configs) if key in _ORIGIN or not key.startswith(_OF_A_SEARCH)
    }
    return tuple(
        Setting(key=key.removeprefix("recipe."), values=tuple(_setting(config, key) for config in configs))
        for key in sorted(keys)
    )


def _config(run: RunFolder) -> dict[str, Any]:
    config = {section: run.manifest[section] for section in _SECTIONS}
    if run.imported_from:
        recipe = {key: value for key, value in config["recipe"].items() if not f"recipe.{key}".startswith(_OF_A_SEARCH)}
        origin = {"policy": {"backend": f"imported from {run.imported_from}"}, "search": {"strategy": run.strategy}}
        config["recipe"] = recipe | origin
    return config


def _differing(configs: Sequence[dict[str, Any]]) -> set[str]:
    flat = [_flat(config) for config in configs]
    return {key for key in set().union(*flat) if any(found.get(key) != flat[0].get(key) for found in flat)}


def _flat(config: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    """Dotted keys and their values."""
    found: dict[str, Any] = {}
    for key, value in config.items():
        found |= _flat(value, f"{prefix}{key}.") if isinstance(value, dict) else {prefix + key: value}
    return found


def _setting(config: dict[str, Any], key: str) -> str:
    found: Any = config
    for part in key.split("."):
        if not isinstance(found, dict) or part not in found:
            return ""
        found = found[part]
    return one_line(msgspec.json.encode(found).decode(), 60)


_ORDER = ("problems", "trees", "steps", "completions", "labels", "pairs", "HNC", "answers", "cost")


def _place(section: str) -> int:
    return _ORDER.index(section)


def _figures(summary: Summary) -> Iterator[tuple[str, str, str, Kind, Value]]:
    """(section, key, name, kind, value)."""
    problems, trees, steps, outcomes = summary.problems, summary.trees, summary.step_tokens, summary.outcomes
    yield "problems", "problems.total", "problems", "count", problems.total
    for status, count in problems.by_status.items():
        yield "problems", f"problems.by_status.{status}", status, "count", count
    yield "problems", "problems.screened_out", "screened out", "count", problems.screened_out
    yield "problems", "problems.mixed", "right and wrong outcomes", "count", problems.mixed
    yield "problems", "problems.all_correct", "all right", "count", problems.all_correct
    yield "problems", "problems.all_wrong", "all wrong", "count", problems.all_wrong
    yield "trees", "trees.trees", "trees that ended", "count", trees.trees
    yield "trees", "trees.nodes", "nodes", "count", trees.nodes
    yield "trees", "trees.nodes_per_tree", "nodes a tree", "number", trees.nodes_per_tree
    yield "trees", "trees.median_nodes", "nodes of the median tree", "count", trees.median_nodes
    yield "trees", "trees.max_nodes", "nodes of the largest tree", "count", trees.max_nodes
    yield "trees", "trees.max_depth", "deepest node", "count", trees.max_depth
    yield "trees", "trees.leaf_depth", "mean depth of a leaf", "number", trees.leaf_depth
    yield "trees", "trees.branching", "children of an expanded node", "number", trees.branching
    yield "trees", "trees.duplicate_share", "samples that repeat a sibling", "share", trees.duplicate_share
    yield "steps", "step_tokens.mean", "tokens of a step", "number", steps.mean
    yield "steps", "step_tokens.median", "median", "count", steps.median
    yield "steps", "step_tokens.p90", "90% up to", "count", steps.p90
    yield "steps", "step_tokens.max", "longest", "count", steps.max
    yield "completions", "outcomes.completions", "completions", "count", outcomes.completions
    yield "completions", "outcomes.share_correct", "correct, of the decided", "share", outcomes.share_correct
    for found in outcomes.pass_at:
        yield "completions", f"outcomes.pass_at.{found.k}", f"pass@{found.k}", "share", found.share
    for verdict, count in outcomes.by_verdict.items():
        yield "completions", f"outcomes.by_verdict.{verdict}", verdict.replace("_", " "), "count", count
    for finish, count in outcomes.by_finish.items():
        yield "completions", f"outcomes.by_finish.{finish}", f"ended by: {finish}", "count", count
    yield "completions", "outcomes.truncated_share", "truncated", "share", outcomes.truncated_share
    yield from _label_figures(summary)
    yield from _cost_figures(summary)


def _label_figures(summary: Summary) -> Iterator[tuple[str, str, str, Kind, Value]]:
    labels, hnc = summary.labels, summary.compression
    if labels is not None:
        yield "labels", "labels.positive", "positive", "count", labels.positive
        yield "labels", "labels.negative", "negative", "count", labels.negative
        yield "labels", "labels.unlabelled", "steps without", "count", labels.unlabelled
        yield "labels", "labels.positive_share", "positive, of both", "share", labels.positive_share
        yield "labels", "labels.interval_width", "mean width of an interval", "number", labels.interval_width
        yield "labels", "labels.effective_size", "mean effective sample size", "number", labels.effective_size
        yield (
            "labels",
            "labels.first_errors.0",
            "first errors at the first step",
            "count",
            next(iter(labels.first_errors), 0),
        )
        yield "labels", "labels.first_errors", "at a later one", "count", sum(labels.first_errors[1:])
        yield "labels", "labels.first_error_later", "after the labelled steps", "count", labels.first_error_later
        for pair, count in labels.pairs.items():
            yield "pairs", f"labels.pairs.{pair}", pair.replace("_", ", then "), "count", count
    if hnc is not None:
        yield "HNC", "compression.report.merges", "merges", "count", hnc.report.get("merges")
        yield "HNC", "compression.report.noise", "label noise, predicted", "number", hnc.report.get("noise")
        yield (
            "HNC",
            "compression.report.observed_noise",
            "label noise, observed",
            "number",
            hnc.report.get("observed_noise"),
        )
        yield "HNC", "compression.report.hard_flips", "flips of the hard label", "count", hnc.report.get("hard_flips")


def _cost_figures(summary: Summary) -> Iterator[tuple[str, str, str, Kind, Value]]:
    disputed, cost, load = summary.disputed, summary.cost, summary.load
    yield "answers", "disputed.undecided", "undecided completions", "count", disputed.undecided
    yield "answers", "disputed.unparsable", "unparsable completions", "count", disputed.unparsable
    yield "answers", "disputed.rechecked", "changed by the recheck", "count", disputed.rechecked
    if summary.checker is not None:
        for route, count in summary.checker.routes.items():
            yield "answers", f"checker.routes.{route}", f"checks by route: {route}", "count", count
    yield "cost", "cost.tokens", "tokens sampled", "count", cost.tokens
    yield "cost", "cost.tokens_per_node", "tokens a node", "number", cost.tokens_per_node
    yield "cost", "cost.tokens_per_label", "tokens a label", "number", cost.tokens_per_label
    yield "cost", "cost.tokens_per_correct", "tokens a correct completion", "number", cost.tokens_per_correct
    yield "cost", "cost.requests", "requests", "count", cost.requests
    yield "cost", "cost.prompt_tokens", "prompt tokens", "count", cost.prompt_tokens
    yield "cost", "cost.cached_share", "prompts from the prefix cache", "share", cost.cached_share
    yield "cost", "cost.seconds", "working time", "seconds", cost.seconds
    yield "cost", "cost.tokens_per_second", "tokens a second", "number", cost.tokens_per_second
    yield "cost", "load.in_flight", "requests in flight, mean", "number", load.in_flight if load else None
    yield "cost", "load.max_in_flight", "requests in flight, most", "count", load.max_in_flight if load else None
    yield "cost", "cost.journal_bytes", "journal", "bytes", cost.journal_bytes
    if cost.price is not None:
        yield "cost", "cost.price", "price", "number", cost.price
        yield "cost", "cost.price_per_label", "price of a label", "number", cost.price_per_label
        yield "cost", "cost.price_per_correct", "price of a correct completion", "number", cost.price_per_correct
