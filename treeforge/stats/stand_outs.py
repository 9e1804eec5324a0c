"""Problems to look at: what took the most, where the gold answer may be wrong, and what teaches nothing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import polars as pl

from treeforge.printable import one_line
from treeforge.stats.scan import RunScan, collect
from treeforge.stats.summary import MAX_NOTES, ProblemNote, StandOuts
from treeforge.store.run import RunFolder
from treeforge.tree import Finish
from treeforge.verdict import Verdict

AGREEMENT = 0.5
"""From this share of a problem's completions on, a wrong answer that they share is suspicious."""
LEAST_COMPLETIONS = 4
"""Fewer completions do not agree, whatever they say."""
COSTLY = 2
"""Problems that took so many times the tokens of the mean one stand out."""
_CELLS = 60


def stand_outs(run: RunFolder, scan: RunScan, by_tree: pl.DataFrame, tokens: Mapping[int, int] | None) -> StandOuts:
    """`by_tree`: the rows of `outcomes_by_tree`. `tokens`: what each tree took; None where nothing tells it."""
    known = tokens or {}
    table = by_tree.with_columns(
        tokens=pl.col("tree_id").replace_strict(known, default=0, return_dtype=pl.Int64) if known else pl.lit(0)
    )
    by_cost = table.sort(["tokens", "tree_id"], descending=[True, False])
    right = by_cost.filter((pl.col("wrong") == 0) & (pl.col("correct") > 0))

    def notes(frame: pl.DataFrame) -> tuple[ProblemNote, ...]:
        return tuple(_note(run, row, tokens) for row in frame.head(MAX_NOTES).to_dicts())

    return StandOuts(
        costly=notes(by_cost.filter(pl.col("tokens") > COSTLY * pl.col("tokens").mean())),
        suspicious=notes(_agreeing(scan, table)),
        no_signal=notes(right),
    )


def _agreeing(scan: RunScan, table: pl.DataFrame) -> pl.DataFrame:
    """Problems that nobody solved with the answer that most completions share; the most agreement first.

    Answers are one where they are the same but for spaces.
    """
    unsolved = table.filter((pl.col("correct") == 0) & (pl.col("wrong") >= LEAST_COMPLETIONS))
    if not len(unsolved):
        return unsolved
    chosen = pl.col("tree_id").is_in(unsolved["tree_id"].implode())
    wrong = chosen & (pl.col("verdict") == Verdict.INCORRECT) & (pl.col("finish") == Finish.ANSWERED)
    answer = pl.col("answer").str.replace_all(r"\s+", "")
    leaves = scan.nodes.filter(wrong).select("tree_id", answer, completions=pl.col("multiplicity").round())
    rollouts = scan.rollouts.filter(wrong).select("tree_id", answer, completions=pl.lit(1.0))
    (counts,) = collect(
        pl.concat([leaves, rollouts]).group_by("tree_id", "answer").agg(pl.col("completions").sum().alias("agreeing")),
        files=scan.files,
    )
    most = counts.sort(["agreeing", "answer"], descending=[True, False]).group_by("tree_id").first()
    return (
        unsolved.join(most, on="tree_id")
        .with_columns(agreement=pl.col("agreeing") / pl.col("wrong"))
        .filter(pl.col("agreement") >= AGREEMENT)
        .sort(["agreement", "wrong", "tree_id"], descending=[True, True, False])
    )


def _note(run: RunFolder, row: dict[str, Any], tokens: Mapping[int, int] | None) -> ProblemNote:
    number, correct, wrong = row["tree_id"], row["correct"], row["wrong"]
    problem = run.problems[number]
    agreeing = "agreement" in row
    return ProblemNote(
        number=number,
        problem_id=problem.problem_id,
        completions=correct + wrong,
        share_correct=correct / (correct + wrong) if correct + wrong else None,
        tokens=None if tokens is None else tokens.get(number, 0),
        answer=one_line(row["answer"], _CELLS) if agreeing else "",
        gold_answer=one_line(problem.gold_answer, _CELLS) if agreeing else "",
        agreement=row["agreement"] if agreeing else None,
    )
