"""What each tree that ended came to: its size and its outcomes, one small row a tree."""

from __future__ import annotations

import msgspec
import polars as pl

from treeforge.stats.scan import RunScan, collect, scan_run
from treeforge.store.run import RunFolder
from treeforge.tree import Finish
from treeforge.verdict import Verdict

_WRONG = (Verdict.INCORRECT, Verdict.NO_ANSWER, Verdict.UNPARSABLE)


def sizes(scan: RunScan) -> pl.LazyFrame:
    """(tree_id, nodes, depth, sampled, tokens) of every tree, the root counted as a node.

    `sampled` counts the samples that became nodes, duplicates included (Σ multiplicity of all nodes but the root), and
    `tokens` theirs.
    """
    step = pl.col("multiplicity").filter(pl.col("node_id") > 0)
    return scan.nodes.group_by("tree_id").agg(
        nodes=pl.len(),
        depth=pl.col("depth").max(),
        sampled=step.sum(),
        tokens=(pl.col("multiplicity") * pl.col("token_count")).sum(),
    )


def endings(scan: RunScan) -> pl.LazyFrame:
    """(tree_id, finish, verdict, completions, rollout_tokens): how many completions ended how, a row a combination.

    A node that ends a trajectory stands for as many completions as its multiplicity says (0: an own rollout above it is
    that completion); an own rollout is one.
    """
    key = ["tree_id", "finish", "verdict"]
    samples = pl.col("multiplicity")
    count = pl.when(samples > 0).then(samples.round().clip(lower_bound=1)).otherwise(0).sum().cast(pl.Int64)
    leaves = scan.nodes.filter(pl.col("finish") != Finish.OPEN).group_by(key).agg(count.alias("completions"))
    rollouts = scan.rollouts.group_by(key).agg(
        completions=pl.len().cast(pl.Int64), rollout_tokens=pl.col("tokens").cast(pl.Int64).sum()
    )
    both = pl.concat([leaves.with_columns(rollout_tokens=pl.lit(0, pl.Int64)), rollouts])
    return both.group_by(key).agg(pl.col("completions", "rollout_tokens").sum())


def outcomes_by_tree(ended: pl.DataFrame) -> pl.DataFrame:
    """(tree_id, correct, wrong), by tree, from the rows of `endings`; undecided completions and engine errors are
    neither."""
    completions, verdict = pl.col("completions"), pl.col("verdict")
    counts = ended.group_by("tree_id").agg(
        correct=completions.filter(verdict == Verdict.CORRECT).sum(),
        wrong=completions.filter(verdict.is_in([int(v) for v in _WRONG])).sum(),
    )
    return counts.sort("tree_id")


class ProblemRow(msgspec.Struct, frozen=True, kw_only=True):
    """One problem of a run at a glance."""

    number: int
    """Its tree's number in the run (tree_id)."""
    problem_id: str
    status: str
    """open, done, exhausted or failed."""
    reason: str
    """Which budget ended it, or why it failed; '' while open."""
    nodes: int
    """Of its tree, the root included; 0 while it is open."""
    completions: int
    """Decided outcomes: judged correct or wrong."""
    share_correct: float | None
    """Of these; None without any."""
    question: str


def problem_rows(run: RunFolder) -> list[ProblemRow]:
    """Every problem of the run, in order."""
    scan = scan_run(run)
    size, ended = collect(sizes(scan), endings(scan), files=scan.files)
    nodes = dict(size.select("tree_id", "nodes").iter_rows())
    outcomes = {tree: (correct, wrong) for tree, correct, wrong in outcomes_by_tree(ended).iter_rows()}
    rows: list[ProblemRow] = []
    for number, problem in enumerate(run.problems):
        status, reason = scan.statuses[number]
        correct, wrong = outcomes.get(number, (0, 0))
        decided = correct + wrong
        rows.append(
            ProblemRow(
                number=number,
                problem_id=problem.problem_id,
                status=status,
                reason=reason,
                nodes=nodes.get(number, 0),
                completions=decided,
                share_correct=correct / decided if decided else None,
                question=problem.question,
            )
        )
    return rows
