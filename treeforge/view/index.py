"""The problems of a run as one polars frame, and pages of it: searched, filtered, sorted."""

from __future__ import annotations

from typing import Any, Literal, get_args

import msgspec
import polars as pl

from treeforge.errors import ConfigError
from treeforge.stats.scan import collect, scan_run
from treeforge.stats.trees import endings, sizes
from treeforge.store.run import RunFolder
from treeforge.verdict import Verdict

Sort = Literal["number", "accuracy", "nodes", "completions", "variance", "disputed", "status", "question"]
PAGE = 500
"""Rows of a page at most."""
HIGH_VARIANCE = 0.16
"""p (1 - p) of a problem's outcomes from which its variance counts as high: 20% to 80% of them are right."""
_COUNTED = {
    "correct": (Verdict.CORRECT,),
    "wrong": (Verdict.INCORRECT, Verdict.NO_ANSWER, Verdict.UNPARSABLE),
    "disputed": (Verdict.UNDECIDED, Verdict.UNPARSABLE),
}


class Query(msgspec.Struct, frozen=True, kw_only=True):
    """What of the problems is shown, and in which order."""

    text: str = ""
    """Stands in the question, the gold answer or the id, whatever the case."""
    status: str = ""
    """open, done, exhausted or failed; '' for all."""
    least: float = 0.0
    """Share of right outcomes at least; problems without an outcome only pass with 0."""
    most: float = 1.0
    """… and at most."""
    smallest: int = 0
    """Nodes of the tree at least."""
    disputed: bool = False
    """Only those with undecided or unparsable answers, or with verdicts that a recheck changed."""
    variance: bool = False
    """Only those of high variance (`HIGH_VARIANCE`)."""
    sort: Sort = "number"
    descending: bool = False
    offset: int = 0
    limit: int = 100

    def __post_init__(self) -> None:
        if self.sort not in get_args(Sort):
            raise ConfigError(f"sort must be one of {', '.join(get_args(Sort))}, not {self.sort!r}")
        if not 0 <= self.limit <= PAGE or self.offset < 0:
            raise ConfigError(f"limit must be 0 to {PAGE}, offset not negative")


def problem_index(run: RunFolder) -> pl.DataFrame:
    """One row a problem, in order: number, texts, status, size, outcomes by the verdicts that count, `disputed`.

    `accuracy` and `variance` are null where no outcome is decided.
    """
    scan = scan_run(run)
    size, ended = collect(sizes(scan), endings(scan), files=scan.files)
    verdict, completions = pl.col("verdict"), pl.col("completions")
    counts = ended.group_by("tree_id").agg(
        completions.filter(verdict.is_in([int(v) for v in verdicts])).sum().alias(name)
        for name, verdicts in _COUNTED.items()
    )
    changes = scan.recheck.changes if scan.recheck else pl.DataFrame(schema={"tree_id": pl.Int32})
    changed = changes.group_by("tree_id").agg(changed=pl.len().cast(pl.Int64))
    share = pl.col("correct") / pl.col("completions")
    outcomes = (scan.statuses[number] for number in range(len(run.problems)))
    status, reason = zip(*outcomes, strict=True) if run.problems else ((), ())
    frame = pl.DataFrame(
        {
            "number": range(len(run.problems)),
            "problem_id": run.column("problem_id"),
            "question": run.column("question"),
            "gold_answer": run.column("gold_answer"),
            "status": list(status),
            "reason": list(reason),
        },
        schema={"number": pl.Int32, **dict.fromkeys(("problem_id", "question", "gold_answer"), pl.String)}
        | dict.fromkeys(("status", "reason"), pl.String),
    )
    return (
        frame.join(size.select("tree_id", "nodes", "depth"), left_on="number", right_on="tree_id", how="left")
        .join(counts, left_on="number", right_on="tree_id", how="left")
        .join(changed, left_on="number", right_on="tree_id", how="left")
        .sort("number")
        .with_columns(pl.col("nodes", "depth", *_COUNTED, "changed").fill_null(0).cast(pl.Int64))
        .with_columns(completions=pl.col("correct") + pl.col("wrong"), disputed=pl.col("disputed") + pl.col("changed"))
        .with_columns(accuracy=pl.when(pl.col("completions") > 0).then(share))
        .with_columns(
            variance=pl.col("accuracy") * (1 - pl.col("accuracy")),
            searched=pl.concat_str("question", "gold_answer", "problem_id", separator="\n").str.to_lowercase(),
        )
        .drop("correct", "wrong", "changed")
    )


def find(frame: pl.DataFrame, query: Query) -> tuple[int, list[dict[str, Any]]]:
    """(how many problems match, the rows of the page). Equal ones stand in the run's order."""
    keep: list[pl.Expr] = []
    if query.text.strip():
        keep.append(pl.col("searched").str.contains(query.text.strip().lower(), literal=True))
    if query.status:
        keep.append(pl.col("status") == query.status)
    if query.least > 0:
        keep.append(pl.col("accuracy") >= query.least)
    if query.most < 1:
        keep.append(pl.col("accuracy") <= query.most)
    if query.smallest:
        keep.append(pl.col("nodes") >= query.smallest)
    if query.disputed:
        keep.append(pl.col("disputed") > 0)
    if query.variance:
        keep.append(pl.col("variance") >= HIGH_VARIANCE)
    found = frame.filter(*keep) if keep else frame
    if query.sort != "number" or query.descending:
        found = found.sort(query.sort, descending=query.descending, nulls_last=True, maintain_order=True)
    page = found.slice(query.offset, query.limit).drop("searched")
    return len(found), page.to_dicts()
