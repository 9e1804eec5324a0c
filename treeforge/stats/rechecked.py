"""The trees of a scan with the verdicts of the run's recheck: what `treeforge.recheck.rejudged` does to one, to all."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from treeforge.printable import one_line
from treeforge.recheck import saved_verdicts
from treeforge.store.run import RunFolder
from treeforge.tree import Finish
from treeforge.verdict import Verdict

_KEY = ["tree_id", "node_id"]
_NAME_CELLS = 40


@dataclass(frozen=True, slots=True)
class Rechecked:
    """What a recheck that is up to date changed."""

    policy: str
    """The name of the check policy."""
    changes: pl.DataFrame
    """One row a changed completion, as in `treeforge.store.verdicts`: `verdict` and `answer` are the new ones."""

    def nodes(self, nodes: pl.LazyFrame, rollouts: pl.LazyFrame) -> pl.LazyFrame:
        """Nodes with the verdicts that count, in the same order; `rollouts` are theirs as the search judged them."""
        own = self.changes.lazy().filter(pl.col("rollout") < 0).select(*_KEY, *_new("verdict", "answer"))
        old, new = pl.col("verdict"), pl.col("new_verdict")
        moved = self._numbered(rollouts).filter(new.is_not_null())
        counts = moved.group_by(_KEY).agg(
            ((new == which).cast(pl.Int32) - (old == which).cast(pl.Int32)).sum().alias(f"more_{name}")
            for name, which in (("correct", Verdict.CORRECT), ("undecided", Verdict.UNDECIDED))
        )
        joined = nodes.join(own, on=_KEY, how="left", maintain_order="left").join(
            counts, on=_KEY, how="left", maintain_order="left"
        )
        return joined.with_columns(
            *_replaced(),
            *(
                (pl.col(f"rollouts_{name}") + pl.col(f"more_{name}").fill_null(0)).cast(pl.Int32)
                for name in ("correct", "undecided")
            ),
        ).drop("new_verdict", "new_answer", "more_correct", "more_undecided")

    def rollouts(self, rollouts: pl.LazyFrame) -> pl.LazyFrame:
        """Rollouts with the verdicts that count; those of trees with changes come last."""
        numbered = self._numbered(rollouts).with_columns(*_replaced()).drop("rollout", "new_verdict", "new_answer")
        return pl.concat([rollouts.filter(~self._has_changes()), numbered])

    def _numbered(self, rollouts: pl.LazyFrame) -> pl.LazyFrame:
        """Those of trees with changes, each with its place in its tree, and what is new of it."""
        place = pl.int_range(pl.len(), dtype=pl.Int32).over("tree_id").alias("rollout")
        new = self.changes.lazy().select(*_KEY, "rollout", *_new("verdict", "answer"))
        theirs = rollouts.filter(self._has_changes()).with_columns(place)
        return theirs.join(new, on=[*_KEY, "rollout"], how="left", maintain_order="left")

    def _has_changes(self) -> pl.Expr:
        trees = self.changes.filter(pl.col("rollout") >= 0)["tree_id"].unique()
        return pl.col("tree_id").is_in(trees.implode())


def rechecked(run: RunFolder) -> Rechecked | None:
    """The run's recheck; None where there is none, or trees have ended since it was made."""
    about = saved_verdicts(run).about
    if about is None:
        return None
    files: list[Path] = sorted((run.path / "verdicts").glob("verdicts-*.parquet"))
    columns = {"tree_id": pl.Int32, "node_id": pl.Int32, "rollout": pl.Int32, "verdict": pl.Int8, "answer": pl.String}
    frame = pl.scan_parquet(files, glob=False).select(columns.keys()) if files else pl.LazyFrame(schema=columns)
    return Rechecked(one_line(str(about["policy"]["name"]), _NAME_CELLS), frame.collect())


def _new(*names: str) -> list[pl.Expr]:
    return [pl.col(name).alias(f"new_{name}") for name in names]


def _replaced() -> list[pl.Expr]:
    """As in `rejudged`: a trajectory that stopped, and gave an answer, is answered."""
    new = pl.col("new_verdict")
    answered = new.is_not_null() & (new != Verdict.NO_ANSWER) & (pl.col("finish") == Finish.STOP)
    finish = pl.when(answered).then(pl.lit(int(Finish.ANSWERED), pl.Int8)).otherwise(pl.col("finish"))
    return [
        pl.coalesce("new_verdict", "verdict").alias("verdict"),
        pl.coalesce("new_answer", "answer").alias("answer"),
        finish.alias("finish"),
    ]
