"""What to look at before training on a run: one line a warning, each with the option or command that helps."""

from __future__ import annotations

from treeforge.stats.summary import Compression, LabelCounts, OutcomeCounts, ProblemCounts

TRUNCATED_LIMIT = 0.05
"""A run warns above this share of truncated completions."""
UNDECIDED_LIMIT = 0.05
"""The same for undecided ones."""
WIDE_LIMIT = 0.5
"""Mean width of the intervals of `policy_mean` from which most steps of `mcts` have hardly more than one completion."""


def advise(
    problems: ProblemCounts,
    outcomes: OutcomeCounts,
    labels: LabelCounts | None,
    compression: Compression | None,
    *,
    strategy: str = "",
    lost: int = 0,
) -> tuple[str, ...]:
    """The warnings of a run, the gravest first.

    `strategy` grew the trees; `lost` counts trees that ended and are in no table.
    """
    found: list[str] = []
    if lost:
        found.append(f"{lost:,} finished trees are not on disk; `treeforge resume` makes them again from the journal")
    if failed := problems.by_status.get("failed"):
        found.append(
            f"{failed:,} of {problems.total:,} problems failed; the reasons are above, and "
            "`treeforge resume --retry-errors` grows their trees again"
        )
    if outcomes.engine_errors:
        found.append(
            f"{outcomes.engine_errors:,} completions failed in the engine; they count nowhere, and "
            "`treeforge resume --retry-errors` asks for them again"
        )
    if (outcomes.truncated_share or 0) > TRUNCATED_LIMIT:
        found.append(
            f"{outcomes.truncated_share:.1%} of the completions were truncated (more than {TRUNCATED_LIMIT:.0%}): "
            "raise sampling.max_tokens or search.max_steps, or label with truncated=skip"
        )
    if (outcomes.undecided_share or 0) > UNDECIDED_LIMIT:
        found.append(
            f"{outcomes.undecided_share:.1%} of the completions are undecided: their answers could not be compared"
        )
    if outcomes.completions and not problems.mixed:
        found.append(
            "no problem has both right and wrong outcomes: its steps teach nothing; try other problems or a model"
        )
    by_policy_mean = labels is not None and labels.config.get("estimator") == "policy_mean"
    if strategy == "mcts" and labels is not None and by_policy_mean and (labels.interval_width or 0) > WIDE_LIMIT:
        found.append(
            f"most steps have hardly any completions (mean interval {labels.interval_width:.2f} wide): without HNC, "
            "`treeforge label --set estimator=smoothed --set prior=fitted` mostly gives truer labels (docs/labels.md)"
        )
    for name, view in (("labels", labels), ("compressed trees", compression)):
        if view is not None and view.stale:
            command = "label" if name == "labels" else "compress"
            found.append(f"the {name} are older than the trees: run `treeforge {command}` again")
    return tuple(found)
