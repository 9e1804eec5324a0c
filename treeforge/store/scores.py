"""`scores/MODEL/part-*.parquet`: what a reward model said of a run's solutions, a row each.

A row is found by a digest of the solution's text, so that it stands whatever else of the run changes.
"""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa

from treeforge.hashing import DIGEST_SIZE
from treeforge.store.parquet import SCHEMA_VERSION, TABLE_KEY, VERSION_KEY

SCORES_FOLDER = "scores"
"""In the run folder. It can be deleted and made again with the models."""

_NUMBERS = pa.list_(pa.field("element", pa.float64(), nullable=False))

SCORES = pa.schema(
    [
        pa.field("solution", pa.binary(DIGEST_SIZE), nullable=False),
        pa.field("single", _NUMBERS, nullable=False),
        pa.field("pairs", _NUMBERS, nullable=False),
    ],
    metadata={TABLE_KEY: b"scores", VERSION_KEY: str(SCHEMA_VERSION)},
)

Numbers = tuple[float, ...]


def scores_table(scores: Mapping[bytes, tuple[Numbers, Numbers]]) -> pa.Table:
    """The rows of some solutions, in the order of their digests: (scores of steps, scores of pairs) by digest."""
    keys = sorted(scores)
    return pa.Table.from_arrays(
        [
            pa.array(keys, SCORES.field("solution").type),
            *(pa.array([list(scores[key][part]) for key in keys], _NUMBERS) for part in (0, 1)),
        ],
        schema=SCORES,
    )


def scores_from_table(table: pa.Table) -> dict[bytes, tuple[Numbers, Numbers]]:
    """The inverse of `scores_table`."""
    columns = (table.column(name).to_pylist() for name in SCORES.names)
    return {key: (tuple(single), tuple(pairs)) for key, single, pairs in zip(*columns, strict=True)}
