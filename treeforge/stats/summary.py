"""The statistics of a run: one frozen struct that is also the JSON of `treeforge stats --json`.

Shares are in [0, 1], and None where nothing was counted. Counts are of trees that have ended; a run may still grow.
"""

from __future__ import annotations

from typing import Any

import msgspec

from treeforge.stats.effort import CheckerUse, Cost, Load

MAX_NOTES = 5
"""Problems that stand out, of each kind."""
MAX_REASONS = 20
"""Reasons listed in a summary; texts of errors can differ for every problem."""
HISTOGRAM_BINS = 10
"""Bins of equal width of the histograms of values and of interval widths."""
EFFECTIVE_BINS = (0, 1, 2, 4, 8, 16, 32, 64, 128)
"""Where the bins of effective sample sizes begin; the last has no end."""


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
    screened_out: int
    """Done after the screening's samples alone: too easy or too hard to be searched."""
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
    median_nodes: int | None
    """Nodes of the median tree."""
    max_nodes: int
    """Nodes of the largest tree."""
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


class PassAt(msgspec.Struct, frozen=True):
    """How often one of k completions of a problem is right."""

    k: int
    share: float
    """Mean over the problems of 1 - C(n - c, k) / C(n, k), c of n completions right (arXiv 2107.03374, equation 1).

    Unbiased where completions are independent samples, as of `best-of-n`. A search that goes on where it found right
    answers has more of them.
    """
    problems: int
    """Those with k decided completions or more; the others are in no mean."""


class OutcomeCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Completions to the end: leaves with their multiplicity, and own rollouts."""

    recheck: str | None
    """The check policy of the recheck by which they are judged; None: they are as the search judged them."""
    completions: int
    """Those with a verdict; engine errors are not among them."""
    correct: int
    share_correct: float | None
    """correct / (completions - undecided)."""
    pass_at: tuple[PassAt, ...]
    """k = 1, 2, 4, …, as far as some problem has so many completions; k = 1 is the mean accuracy of a problem."""
    by_verdict: dict[str, int]
    by_finish: dict[str, int]
    """How the texts ended; `error` counts the engine errors."""
    truncated_share: float | None
    undecided_share: float | None
    engine_errors: int


class DisputedCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Answers that a person should look at, as far as tables and log tell; `treeforge label --disputed` lists them."""

    undecided: int
    """Completions whose answer could not be compared."""
    unparsable: int
    """Completions whose answer is nothing that can be read; they count as wrong."""
    problems: int
    """Problems with such completions."""
    rechecked: int | None
    """Answers that the run's recheck judged otherwise; None without one."""
    numeric: int | None
    """Checks that were settled by numbers that agree or differ; None where the log names no check."""
    symbolic: int | None
    """Checks that sympy settled."""


class ProblemNote(msgspec.Struct, frozen=True, kw_only=True):
    """A problem that stands out."""

    number: int
    problem_id: str
    completions: int
    """Decided ones."""
    share_correct: float | None
    tokens: int | None
    """Paid for its tree; None without a journal."""
    answer: str = ""
    """`suspicious`: the most frequent wrong answer, its start."""
    gold_answer: str = ""
    """`suspicious`: its start."""
    agreement: float | None = None
    """`suspicious`: the share of the completions that give `answer`."""


class StandOuts(msgspec.Struct, frozen=True, kw_only=True):
    """Problems to look at, `MAX_NOTES` of a kind at most."""

    costly: tuple[ProblemNote, ...]
    """Those that took more than twice the tokens of the mean problem, the most first. How long each took is written
    nowhere."""
    suspicious: tuple[ProblemNote, ...]
    """No right completion, and most wrong ones agree: the gold answer may be wrong, or the answer be read wrongly."""
    no_signal: tuple[ProblemNote, ...]
    """All completions right: nothing to learn; those that took the most tokens first."""


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
    rest on the run's own verdicts."""
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
    interval_histogram: tuple[int, ...]
    """Steps by the width of their value's interval, in [0, 0.1), …, [0.9, 1]. Steps that end a trajectory are known
    exactly and, like those without a value, in no bin."""
    interval_width: float | None
    """Mean width."""
    effective_histogram: tuple[int, ...]
    """The same steps by effective sample size (`EFFECTIVE_BINS`): the number of independent outcomes that would leave
    an interval as wide (Wilson's). Undecided outcomes make it smaller."""
    effective_size: float | None
    """Mean effective sample size."""
    first_errors: tuple[int, ...]
    """Wrong completions whose first negative step is the first, second, … of the solution."""
    first_error_later: int
    """Wrong own rollouts below steps that are all positive: their error comes after the labelled steps."""
    first_error_unknown: int
    """Wrong completions with a step without a label before a negative one."""
    pairs: dict[str, int]
    """Windows of two steps by the labels of the earlier and the later one, as in `negative_positive`: a wrong step that
    was corrected. The later label is the window's."""


class Compression(msgspec.Struct, frozen=True, kw_only=True):
    """What HNC did, as it stands in `compressed/`."""

    config: dict[str, Any]
    stale: bool
    report: dict[str, Any]
    """`treeforge.compress.CompressReport`, with `mean_shift` and `noise`."""


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """The statistics of one run; made by `treeforge.stats.summarise`."""

    run: str
    strategy: str
    """Of the search."""
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
    disputed: DisputedCounts
    stand_outs: StandOuts
    load: Load | None
    """None without `logs/metrics.jsonl`."""
    cost: Cost
    warnings: tuple[str, ...]
    """What to look at before training on this; one line each."""
