"""The statistics of a run: one frozen struct that is also the JSON of `treeforge stats --json`.

Shares are in [0, 1], and None where nothing was counted. Counts are of trees that have ended; a run may still grow.
"""

from __future__ import annotations

from typing import Any

import msgspec

MAX_REASONS = 20
"""Reasons listed in a summary; texts of errors can differ for every problem."""
HISTOGRAM_BINS = 10
"""Bins of equal width of the histogram of values."""


class Reason(msgspec.Struct, frozen=True, kw_only=True):
    """Why problems ended as they did."""

    status: str
    reason: str
    problems: int


class ProblemCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Problems by status, and by their outcomes."""

    total: int
    by_status: dict[str, int]
    """open, done, exhausted (a budget ended it), failed; those that occur."""
    reasons: tuple[Reason, ...]
    """The most frequent first, `MAX_REASONS` at most."""
    mixed: int
    """With both right and wrong outcomes: these have something to teach."""
    all_correct: int
    all_wrong: int


class TreeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Size and shape. Roots are nodes; a leaf is a node without children, whether its trajectory ended there or not."""

    trees: int
    nodes: int
    leaves: int
    nodes_per_tree: float | None
    leaf_depth: float | None
    """Mean depth of the leaves (steps from the root)."""
    max_depth: int
    nodes_by_depth: tuple[int, ...]
    """Nodes at depth 0, 1, 2, …"""
    branching: float | None
    """Mean number of children of the nodes that have some, duplicates merged."""
    max_branching: int
    duplicate_share: float | None
    """1 - distinct / sampled siblings: the share of samples that repeat a sibling's text."""


class StepLengths(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the steps that became nodes."""

    steps: int
    mean: float | None
    median: int | None
    p90: int | None
    max: int | None


class OutcomeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Completions to the end: leaves with their multiplicity, and own rollouts."""

    completions: int
    """Those with a verdict; engine errors are not among them."""
    correct: int
    share_correct: float | None
    """correct / (completions - undecided)."""
    by_verdict: dict[str, int]
    by_finish: dict[str, int]
    """How the texts ended; `error` counts the engine errors."""
    truncated_share: float | None
    undecided_share: float | None
    engine_errors: int


class LabelsAtDepth(msgspec.Struct, frozen=True, kw_only=True):
    """Labels of the steps at one depth."""

    depth: int
    positive: int
    negative: int
    unlabelled: int


class LabelCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Values and labels of all steps (all nodes but the roots), as they stand in `labels/`."""

    config: dict[str, Any]
    """Estimator, threshold, … that the labels were made with."""
    recheck: dict[str, Any] | None
    """The check policy of the recheck that they rest on, its digest, and how many answers it changed; None where they
    rest on the run's own verdicts. Outcomes are always by the latter."""
    stale: bool
    """Trees have ended since the labels were made."""
    positive: int
    negative: int
    unlabelled: int
    positive_share: float | None
    """positive / (positive + negative)."""
    by_depth: tuple[LabelsAtDepth, ...]
    value_histogram: tuple[int, ...]
    """Steps with a value in [0, 0.1), [0.1, 0.2), …, [0.9, 1]; `always_wrong` of these at 0, `always_right` at 1."""
    always_wrong: int
    always_right: int


class Cost(msgspec.Struct, frozen=True, kw_only=True):
    """What was paid, from the journal (all trees, open ones too) and the log; None where these are missing."""

    requests: int | None
    completions: int | None
    """Samples, single steps too."""
    tokens: int | None
    failed_requests: int | None
    """Given up after all retries; they stand as `error` samples."""
    journal_bytes: int | None
    tokens_per_node: float | None
    """Tokens paid for the trees that ended / their nodes, roots not counted."""
    tokens_per_label: float | None
    """The same / steps with a hard label."""
    sittings: int | None
    """Times the run was started or resumed."""
    seconds: float | None
    """Wall time of all sittings together."""
    tokens_per_second: float | None


class SlowCheck(msgspec.Struct, frozen=True, kw_only=True):
    """One of the slowest checks."""

    seconds: float
    answer: str
    """Its start, like the gold answer's."""
    gold_answer: str


class CheckerUse(msgspec.Struct, frozen=True, kw_only=True):
    """What the answer checker did while the trees grew, from the log of the sittings.

    A tree remembers its own endings and asks the checker about each once, so this counts fewer than `completions`; what
    a resumed run replays from the journal is judged again and counts again.
    """

    checks: int
    """Verdicts that were worked out."""
    hits: int
    """Verdicts that the checker remembered."""
    hit_share: float
    """hits / (hits + checks)."""
    seconds: float
    """Wall time of the checks."""
    routes: dict[str, int]
    """Checks by route, the most frequent first."""
    verdicts: dict[str, int]
    """Checks by verdict."""
    undecided_share: float | None
    slowest: tuple[SlowCheck, ...]
    """The slowest first."""


class Compression(msgspec.Struct, frozen=True, kw_only=True):
    """What HNC did, as it stands in `compressed/`."""

    config: dict[str, Any]
    stale: bool
    report: dict[str, Any]
    """`treeforge.compress.CompressReport`, with `mean_shift` and `noise`."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of one run; made by `treeforge.stats.summarise`."""

    run: str
    problems: ProblemCounts
    trees: TreeCounts
    step_tokens: StepLengths
    outcomes: OutcomeCounts
    labels: LabelCounts | None
    """None before `treeforge label`."""
    compression: Compression | None
    """None before `treeforge compress`."""
    checker: CheckerUse | None
    """None where the log names no check."""
    cost: Cost
    warnings: tuple[str, ...]
    """What to look at before training on this; one line each."""
