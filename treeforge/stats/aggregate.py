"""From a run folder to its `Summary`: a handful of streaming aggregations, then sums over their small results."""

from __future__ import annotations

from collections import Counter

import polars as pl

from treeforge.stats.advice import advise
from treeforge.stats.scan import RunScan, collect, scan_labels, scan_run
from treeforge.stats.sittings import Sittings, read_sittings
from treeforge.stats.summary import (
    HISTOGRAM_BINS,
    MAX_REASONS,
    Compression,
    Cost,
    LabelCounts,
    LabelsAtDepth,
    OutcomeCounts,
    ProblemCounts,
    Reason,
    StepLengths,
    Summary,
    TreeCounts,
)
from treeforge.stats.trees import endings, outcomes_by_tree, sizes
from treeforge.store.journal import Journal, JournalTotals
from treeforge.store.run import OPEN, RunFolder
from treeforge.store.views import view_state
from treeforge.tree import Finish
from treeforge.verdict import NO_VERDICT, Verdict


def summarise(run: RunFolder) -> Summary:
    """The statistics of a run, as it stands: growing, stopped, finished, labelled or not, or without any tree.

    Of the tables only columns of numbers are read, except in runs that keep duplicate siblings apart. Raises
    `StorageError` for damaged files.
    """
    scan = scan_run(run)
    merging = bool(run.manifest["recipe"]["search"]["merge_duplicates"])
    per_tree, ended, families, depths, lengths = collect(
        sizes(scan), endings(scan), _families(scan, merging), _depths(scan), _lengths(scan)
    )
    problems, outcomes = _problems(scan, ended), _outcomes(ended)
    time = read_sittings(run.path / "logs" / "run.jsonl")
    labels, compression = _labels(run, scan), _compression(run)
    lost = sum(outcome != OPEN for outcome in scan.statuses.values()) - len(per_tree)
    return Summary(
        run=str(run.path),
        problems=problems,
        trees=_trees(per_tree, families, depths),
        step_tokens=_step_lengths(lengths),
        outcomes=outcomes,
        labels=labels,
        compression=compression,
        checker=time.checker if time else None,
        cost=_cost(run, per_tree, labels, time),
        warnings=advise(problems, outcomes, labels, compression, lost=lost),
    )


# Queries: each gives a small frame, whatever the size of the run -----------------------------------------------------


def _families(scan: RunScan, merging: bool) -> pl.LazyFrame:
    """(children, distinct, depth, nodes): how many nodes at `depth` have this many children, and of different texts.

    Where the search merged duplicates, siblings are distinct as they stand.
    """
    distinct = pl.len() if merging else pl.col("text").n_unique()
    families = (
        scan.nodes.filter(pl.col("parent_id") >= 0)
        .group_by("tree_id", "parent_id")
        .agg(children=pl.len(), distinct=distinct, depth=pl.col("depth").first() - 1)
    )
    return families.group_by("children", "distinct", "depth").agg(nodes=pl.len())


def _depths(scan: RunScan) -> pl.LazyFrame:
    """(depth, nodes), ascending."""
    return scan.nodes.group_by("depth").agg(nodes=pl.len()).sort("depth")


def _lengths(scan: RunScan) -> pl.LazyFrame:
    """(token_count, steps), ascending."""
    steps = scan.nodes.filter(pl.col("node_id") > 0)
    return steps.group_by("token_count").agg(steps=pl.len()).sort("token_count")


def _label_counts(run: RunFolder, scan: RunScan) -> pl.LazyFrame:
    """(depth, hard, bin, edge, steps); `bin` is of the histogram, `edge` says whether the value is exactly 0 or 1."""
    node = pl.col("tree_id").cast(pl.Int64) * 2**32 + pl.col("node_id")  # one key joins faster than two
    value = pl.when(pl.col("value").is_nan()).then(None).otherwise(pl.col("value"))
    return (
        scan_labels(run)
        .filter(pl.col("node_id") > 0)
        .join(scan.nodes.select("depth", node=node), left_on=node, right_on="node")
        .with_columns(
            bin=(value * HISTOGRAM_BINS).floor().clip(0, HISTOGRAM_BINS - 1).cast(pl.Int8), edge=value.is_in([0.0, 1.0])
        )
        .group_by("depth", "hard", "bin", "edge")
        .agg(steps=pl.len())
    )


# Sections ------------------------------------------------------------------------------------------------------------


def _problems(scan: RunScan, ended: pl.DataFrame) -> ProblemCounts:
    by_outcome = outcomes_by_tree(ended)
    correct, wrong = by_outcome["correct"] > 0, by_outcome["wrong"] > 0
    reasons = Counter(outcome for outcome in scan.statuses.values() if outcome != OPEN)
    return ProblemCounts(
        total=len(scan.statuses),
        by_status=dict(sorted(Counter(status for status, _ in scan.statuses.values()).items())),
        reasons=tuple(
            Reason(status=status, reason=reason, problems=count)
            for (status, reason), count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:MAX_REASONS]
        ),
        mixed=int((correct & wrong).sum()),
        all_correct=int((correct & ~wrong).sum()),
        all_wrong=int((wrong & ~correct).sum()),
    )


def _trees(per_tree: pl.DataFrame, families: pl.DataFrame, depths: pl.DataFrame) -> TreeCounts:
    trees, nodes = len(per_tree), int(depths["nodes"].sum())
    expanded = int(families["nodes"].sum())
    leaves = nodes - expanded
    leaf_depths = int((depths["depth"].cast(pl.Int64) * depths["nodes"]).sum()) - int(
        (families["depth"].cast(pl.Int64) * families["nodes"]).sum()
    )
    by_depth = dict(depths.iter_rows())
    deepest = max(by_depth, default=0)
    sampled = float(per_tree["sampled"].sum())
    distinct = int((families["distinct"] * families["nodes"]).sum())
    return TreeCounts(
        trees=trees,
        nodes=nodes,
        leaves=leaves,
        nodes_per_tree=_share(nodes, trees),
        leaf_depth=_share(leaf_depths, leaves),
        max_depth=deepest,
        nodes_by_depth=tuple(by_depth.get(depth, 0) for depth in range(deepest + 1)) if trees else (),
        branching=_share(nodes - trees, expanded),
        max_branching=_largest(families["children"]),
        duplicate_share=None if not sampled else 1 - distinct / sampled,
    )


def _step_lengths(lengths: pl.DataFrame) -> StepLengths:
    """Exact quantiles from counts a length: the smallest length that at least this share of the steps do not exceed."""
    steps = int(lengths["steps"].sum())
    tokens = int((lengths["token_count"].cast(pl.Int64) * lengths["steps"]).sum())
    below = lengths["steps"].cum_sum()

    def quantile(share: float) -> int | None:
        return int(lengths["token_count"].filter(below >= share * steps)[0]) if steps else None

    return StepLengths(
        steps=steps, mean=_share(tokens, steps), median=quantile(0.5), p90=quantile(0.9), max=quantile(1.0)
    )


def _outcomes(ended: pl.DataFrame) -> OutcomeCounts:
    by_finish, by_verdict = Counter[int](), Counter[int]()
    for finish, verdict, completions in ended.select("finish", "verdict", "completions").iter_rows():
        by_finish[finish] += completions
        if verdict != NO_VERDICT:
            by_verdict[verdict] += completions
    completions = by_verdict.total()
    undecided, correct = by_verdict[Verdict.UNDECIDED], by_verdict[Verdict.CORRECT]
    return OutcomeCounts(
        completions=completions,
        correct=correct,
        share_correct=_share(correct, completions - undecided),
        by_verdict={verdict.name.lower(): by_verdict[verdict] for verdict in Verdict},
        by_finish={finish.name.lower(): by_finish[finish] for finish in Finish if finish is not Finish.OPEN},
        truncated_share=_share(by_finish[Finish.TRUNCATED], completions),
        undecided_share=_share(undecided, completions),
        engine_errors=by_finish[Finish.ERROR],
    )


def _labels(run: RunFolder, scan: RunScan) -> LabelCounts | None:
    state = view_state(run, "labels")
    if state is None:
        return None
    (counts,) = collect(_label_counts(run, scan))
    by_depth: dict[int, Counter[bool | None]] = {}
    histogram, edges = [0] * HISTOGRAM_BINS, [0, 0]
    for depth, hard, bin_, edge, steps in counts.iter_rows():
        by_depth.setdefault(depth, Counter())[hard] += steps
        if bin_ is not None:
            histogram[bin_] += steps
            if edge:
                edges[bin_ > 0] += steps
    total = sum(by_depth.values(), Counter[bool | None]())
    return LabelCounts(
        config=state["config"]["label"],
        recheck=state["config"].get("recheck"),
        stale=state["stale"],
        positive=total[True],
        negative=total[False],
        unlabelled=total[None],
        positive_share=_share(total[True], total[True] + total[False]),
        by_depth=tuple(
            LabelsAtDepth(depth=depth, positive=found[True], negative=found[False], unlabelled=found[None])
            for depth, found in sorted(by_depth.items())
        ),
        value_histogram=tuple(histogram),
        always_wrong=edges[0],
        always_right=edges[1],
    )


def _compression(run: RunFolder) -> Compression | None:
    state = view_state(run, "compressed")
    if state is None:
        return None
    return Compression(config=state["config"]["compress"], stale=state["stale"], report=state["report"])


def _cost(run: RunFolder, per_tree: pl.DataFrame, labels: LabelCounts | None, time: Sittings | None) -> Cost:
    totals: JournalTotals | None = None
    paid: int | None = None
    if (run.path / "journal.sqlite").exists():
        journal = Journal.open(run.path / "journal.sqlite", read_only=True)
        try:
            totals, by_tree = journal.totals(), journal.tokens_by_tree()
        finally:
            journal.close()
        paid = sum(by_tree.get(tree, 0) for tree in per_tree["tree_id"])
    steps = int(per_tree["nodes"].sum()) - len(per_tree)
    labelled = labels.positive + labels.negative if labels else 0
    return Cost(
        requests=totals.requests if totals else None,
        completions=totals.completions if totals else None,
        tokens=totals.tokens if totals else None,
        failed_requests=totals.failed if totals else None,
        journal_bytes=totals.bytes if totals else None,
        tokens_per_node=None if paid is None else _share(paid, steps),
        tokens_per_label=None if paid is None else _share(paid, labelled),
        sittings=time.sittings if time else None,
        seconds=time.seconds if time else None,
        tokens_per_second=_share(time.tokens, time.seconds) if time else None,
    )


def _share(part: float, whole: float) -> float | None:
    return part / whole if whole else None


def _largest(column: pl.Series) -> int:
    return max(column, default=0)
