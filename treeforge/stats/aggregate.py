"""From a run folder to its `Summary`: a handful of streaming aggregations, then sums over their small results."""

from __future__ import annotations

from collections import Counter

import polars as pl

from treeforge.search.screening import SCREENED_OUT
from treeforge.stats.accuracy import pass_at
from treeforge.stats.advice import advise
from treeforge.stats.blocks import read_blocks
from treeforge.stats.cost import Prices, cost, share, spending
from treeforge.stats.load import read_load
from treeforge.stats.scan import RunScan, collect, scan_run
from treeforge.stats.sittings import Sittings, read_sittings
from treeforge.stats.stand_outs import stand_outs
from treeforge.stats.steps import Labels, Shape
from treeforge.stats.summary import (
    MAX_REASONS,
    Compression,
    DisputedCounts,
    LabelCounts,
    OutcomeCounts,
    ProblemCounts,
    Reason,
    StepLengths,
    Summary,
    TreeCounts,
)
from treeforge.stats.trees import endings, outcomes_by_tree, sizes
from treeforge.store.run import OPEN, RunFolder
from treeforge.store.views import view_state
from treeforge.tree import Finish
from treeforge.verdict import NO_VERDICT, Verdict


def summarise(run: RunFolder, prices: Prices | None = None) -> Summary:
    """The statistics of a run, as it stands: growing, stopped, finished, labelled or not, or without any tree.

    Of the tables only columns of numbers are read, except in runs that keep duplicate siblings apart, and the answers
    of problems that nobody solved. Raises `StorageError` for damaged files.
    """
    scan = scan_run(run)
    search = run.manifest["recipe"]["search"]
    per_tree, ended, lengths = collect(sizes(scan), endings(scan), _lengths(scan), files=scan.files)
    shape, labels = _blocks(run, scan, merging=bool(search["merge_duplicates"]))
    by_tree = outcomes_by_tree(ended)
    spent = spending(run)
    outcomes, problems = _outcomes(scan, ended, by_tree), _problems(scan, by_tree)
    time = read_sittings(run.path / "logs" / "run.jsonl")
    compression = _compression(run)
    lost = sum(outcome != OPEN for outcome in scan.statuses.values()) - len(per_tree)
    return Summary(
        run=str(run.path),
        strategy=run.strategy,
        problems=problems,
        trees=_trees(per_tree, shape, lengths),
        step_tokens=_step_lengths(lengths),
        outcomes=outcomes,
        labels=labels,
        compression=compression,
        checker=time.checker if time else None,
        disputed=_disputed(run, ended, time),
        stand_outs=stand_outs(run, scan, by_tree, spent.by_tree if spent else None),
        load=read_load(run.path / "logs" / "metrics.jsonl"),
        cost=cost(
            spent,
            per_tree,
            labelled=labels.positive + labels.negative if labels else 0,
            correct=outcomes.correct,
            time=time,
            prices=prices or Prices(),
        ),
        warnings=advise(problems, outcomes, labels, compression, strategy=run.strategy, lost=lost),
    )


def _lengths(scan: RunScan) -> pl.LazyFrame:
    """(depth, token_count, nodes), ascending: small, whatever the size of the run."""
    return scan.nodes.group_by("depth", "token_count").agg(nodes=pl.len()).sort("depth", "token_count")


def _blocks(run: RunFolder, scan: RunScan, *, merging: bool) -> tuple[Shape, LabelCounts | None]:
    """What needs every node and its parent. Where the search merged duplicates, siblings are distinct as they stand."""
    state = view_state(run, "labels")
    shape, labels = Shape(), None if state is None else Labels(state)
    for nodes in read_blocks(run, scan, texts=not merging):
        shape.add(nodes)
        if labels is not None:
            labels.add(nodes)
    return shape, None if labels is None else labels.counts()


# Sections ------------------------------------------------------------------------------------------------------------


def _problems(scan: RunScan, by_tree: pl.DataFrame) -> ProblemCounts:
    correct, wrong = by_tree["correct"] > 0, by_tree["wrong"] > 0
    reasons = Counter(outcome for outcome in scan.statuses.values() if outcome != OPEN)
    return ProblemCounts(
        total=len(scan.statuses),
        by_status=dict(sorted(Counter(status for status, _ in scan.statuses.values()).items())),
        reasons=tuple(
            Reason(status=status, reason=reason, problems=count)
            for (status, reason), count in sorted(reasons.items(), key=lambda item: (-item[1], item[0]))[:MAX_REASONS]
        ),
        screened_out=sum(reason.startswith(SCREENED_OUT) for _, reason in scan.statuses.values()),
        mixed=int((correct & wrong).sum()),
        all_correct=int((correct & ~wrong).sum()),
        all_wrong=int((wrong & ~correct).sum()),
    )


def _trees(per_tree: pl.DataFrame, shape: Shape, lengths: pl.DataFrame) -> TreeCounts:
    trees, nodes = len(per_tree), int(per_tree["nodes"].sum())
    leaves = nodes - shape.expanded
    by_depth = dict(lengths.group_by("depth").agg(pl.col("nodes").sum()).iter_rows())
    deepest = max(by_depth, default=0)
    sampled = float(per_tree["sampled"].sum())
    half = per_tree["nodes"].quantile(0.5, interpolation="lower")
    return TreeCounts(
        trees=trees,
        nodes=nodes,
        leaves=leaves,
        nodes_per_tree=share(nodes, trees),
        median_nodes=None if half is None else int(half),
        max_nodes=max(per_tree["nodes"], default=0),
        leaf_depth=share(shape.leaf_depth, leaves),
        max_depth=deepest,
        nodes_by_depth=tuple(by_depth.get(depth, 0) for depth in range(deepest + 1)) if trees else (),
        branching=share(nodes - trees, shape.expanded),
        max_branching=shape.max_branching,
        duplicate_share=None if not sampled else 1 - shape.distinct / sampled,
    )


def _step_lengths(lengths: pl.DataFrame) -> StepLengths:
    """Exact quantiles from counts a length: the smallest length that at least this share of the steps do not exceed."""
    counts = lengths.filter(pl.col("depth") > 0).group_by("token_count").agg(pl.col("nodes").sum()).sort("token_count")
    steps = int(counts["nodes"].sum())
    tokens = int((counts["token_count"].cast(pl.Int64) * counts["nodes"]).sum())
    below = counts["nodes"].cum_sum()

    def quantile(part: float) -> int | None:
        return int(counts["token_count"].filter(below >= part * steps)[0]) if steps else None

    return StepLengths(
        steps=steps, mean=share(tokens, steps), median=quantile(0.5), p90=quantile(0.9), max=quantile(1.0)
    )


def _outcomes(scan: RunScan, ended: pl.DataFrame, by_tree: pl.DataFrame) -> OutcomeCounts:
    by_finish, by_verdict = Counter[int](), Counter[int]()
    for finish, verdict, completions in (
        ended.group_by("finish", "verdict").agg(pl.col("completions").sum()).iter_rows()
    ):
        by_finish[finish] += completions
        if verdict != NO_VERDICT:
            by_verdict[verdict] += completions
    completions = by_verdict.total()
    undecided, correct = by_verdict[Verdict.UNDECIDED], by_verdict[Verdict.CORRECT]
    return OutcomeCounts(
        recheck=scan.recheck.policy if scan.recheck else None,
        completions=completions,
        correct=correct,
        share_correct=share(correct, completions - undecided),
        pass_at=pass_at(by_tree["correct"].to_numpy(), by_tree["wrong"].to_numpy()),
        by_verdict={verdict.name.lower(): by_verdict[verdict] for verdict in Verdict},
        by_finish={finish.name.lower(): by_finish[finish] for finish in Finish if finish is not Finish.OPEN},
        truncated_share=share(by_finish[Finish.TRUNCATED], completions),
        undecided_share=share(undecided, completions),
        engine_errors=by_finish[Finish.ERROR],
    )


def _disputed(run: RunFolder, ended: pl.DataFrame, time: Sittings | None) -> DisputedCounts:
    counts = {
        verdict: ended.filter(pl.col("verdict") == verdict) for verdict in (Verdict.UNDECIDED, Verdict.UNPARSABLE)
    }
    routes = time.checker.routes if time and time.checker else None
    state = view_state(run, "verdicts")
    return DisputedCounts(
        undecided=int(counts[Verdict.UNDECIDED]["completions"].sum()),
        unparsable=int(counts[Verdict.UNPARSABLE]["completions"].sum()),
        problems=pl.concat([frame["tree_id"] for frame in counts.values()]).n_unique(),
        rechecked=None if state is None else int(state["report"]["changed"]),
        numeric=None if routes is None else routes.get("numeric", 0),
        symbolic=None if routes is None else routes.get("symbolic", 0),
    )


def _compression(run: RunFolder) -> Compression | None:
    state = view_state(run, "compressed")
    if state is None:
        return None
    return Compression(config=state["config"]["compress"], stale=state["stale"], report=state["report"])
