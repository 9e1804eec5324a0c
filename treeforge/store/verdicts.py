"""`verdicts/verdicts-*.parquet`: the answers of a run that a recheck judges otherwise than the search did, a row each.

What is not listed stands as it is in `trees/`. So a recheck that changes nothing is an empty view, and the trees, which
the search grew by its own verdicts, are never written again.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import msgspec
import pyarrow as pa

from treeforge.store.parquet import SCHEMA_VERSION, TABLE_KEY, VERSION_KEY
from treeforge.store.tables import text_array

VERDICTS = pa.schema(
    [
        pa.field(name, kind, nullable=False)
        for name, kind in (
            ("tree_id", pa.int32()),
            ("node_id", pa.int32()),
            ("rollout", pa.int32()),
            ("verdict", pa.int8()),
            ("answer", pa.string()),
            ("route", pa.string()),
            ("reason", pa.string()),
        )
    ],
    metadata={TABLE_KEY: b"verdicts", VERSION_KEY: str(SCHEMA_VERSION)},
)


class NewVerdict(msgspec.Struct, frozen=True):
    """What a recheck says of one completion that ended with an answer."""

    node: int
    """The node that ends the trajectory, or that the rollout started from."""
    rollout: int
    """The rollout's place among its tree's rollouts, from 0; -1 where the node itself ends the trajectory."""
    verdict: int
    """A `Verdict`."""
    answer: str
    """The answer as it was extracted."""
    route: str
    reason: str


def verdicts_table(number: int, found: Sequence[NewVerdict]) -> pa.Table:
    """The rows of one tree; none gives an empty table."""
    return pa.Table.from_arrays(
        [
            pa.array([number] * len(found), pa.int32()),
            pa.array([new.node for new in found], pa.int32()),
            pa.array([new.rollout for new in found], pa.int32()),
            pa.array([new.verdict for new in found], pa.int8()),
            *(text_array(name, [getattr(new, name) for new in found]) for name in ("answer", "route", "reason")),
        ],
        schema=VERDICTS,
    )


def verdicts_from_table(table: pa.Table) -> Iterator[tuple[int, NewVerdict]]:
    """The rows as (tree_id, new verdict), in order."""
    columns = [table.column(name).to_pylist() for name in VERDICTS.names]
    for number, *row in zip(*columns, strict=True):
        yield number, NewVerdict(*row)
