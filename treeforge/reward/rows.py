"""Labelled windows in a table."""

from __future__ import annotations

import msgspec
import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeforge.hashing import digest, encode_text
from treeforge.reward.base import Window
from treeforge.reward.measures import paths_of

SCHEMA = {
    "question": pl.String,
    "previous": pl.String,
    "current": pl.String,
    "hard": pl.Int8,
    "soft": pl.Float64,
    "problem_id": pl.String,
    "single": pl.Boolean,
}


class Rows:
    """n labelled windows."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = frame
        self.hard: NDArray[np.int8] = frame["hard"].to_numpy()
        """int8[n]: 1 right, 0 wrong; -1 where there is a soft label only."""
        self.soft: NDArray[np.float64] = frame["soft"].to_numpy()
        """float64[n]: the soft label, which is the hard one where a file holds no other."""

    def __len__(self) -> int:
        return len(self.hard)

    def windows(self, places: list[int] | slice) -> list[Window]:
        """The windows in some places."""
        part = self._frame[places]
        return [Window(*texts) for texts in part.select("question", "previous", "current").iter_rows()]

    def sizes(self) -> NDArray[np.int64]:
        """int64[n]: UTF-8 bytes of each row's text."""
        total = sum((pl.col(name).str.len_bytes() for name in ("question", "previous", "current")), pl.lit(0))
        return self._frame.select(total.cast(pl.Int64)).to_series().to_numpy()

    def draw(self, limit: int, seed: int) -> Rows:
        """At most `limit` of the rows, at random, in their order; all where it is 0."""
        if not 0 < limit < len(self):
            return self
        mask = np.zeros(len(self), dtype=np.bool_)
        mask[np.random.default_rng(seed).permutation(len(self))[:limit]] = True
        return self.keep(mask)

    def first_problems(self, limit: int) -> Rows:
        """The rows of problems, in the order of their ids' digests, until there are `limit`; all where it is 0."""
        if not 0 < limit < len(self):
            return self
        count, chosen = 0, set()
        sizes = dict(self._frame["problem_id"].value_counts().iter_rows())
        for problem in sorted(sizes, key=lambda name: digest(encode_text(name))):
            if count >= limit:
                break
            count += sizes[problem]
            chosen.add(problem)
        return self.of_problems(chosen)[1]

    def problems(self) -> set[str]:
        """Their problems' ids."""
        return set(self._frame["problem_id"].unique())

    def paths(self) -> list[list[int]]:
        """The rows of each whole path of single steps with a hard label, for first-error measures."""
        part = self._frame.with_row_index("row").filter(pl.col("single") & (pl.col("hard") >= 0))
        rows = part["row"].to_list()
        found = paths_of(part["previous"].to_list(), part["current"].to_list(), part["problem_id"].to_list())
        return [[rows[place] for place in path] for path in found]

    def keep(self, mask: NDArray[np.bool_]) -> Rows:
        """Some of the rows."""
        return Rows(self._frame.filter(pl.Series(mask)))

    def of_problems(self, problems: set[str]) -> tuple[Rows, Rows]:
        """The rows of other problems, and those of these."""
        mask = self._frame["problem_id"].is_in(list(problems)).to_numpy()
        return self.keep(~mask), self.keep(mask)


class Counts(msgspec.Struct, frozen=True):
    """Rows and problems of a split, for the card."""

    rows: int
    right: int
    problems: int

    @classmethod
    def of(cls, rows: Rows) -> Counts:
        """Count `rows`."""
        return cls(len(rows), int((rows.hard == 1).sum()), len(rows.problems()))
