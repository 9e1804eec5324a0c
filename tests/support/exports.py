"""A dataset folder as an export leaves it, made by hand."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from treeforge.export.folder import CARD_MARK

CARD = f"""---
license: "mit"
configs:
- config_name: hrm
  default: true
  data_files:
  - split: train
    path: data/train-*.parquet
---
# Trees, {CARD_MARK}
"""


def write_dataset(folder: Path, *, shards: int, rows: int = 50) -> None:
    """A dataset folder as an export leaves it."""
    (folder / "data").mkdir(parents=True, exist_ok=True)
    for old in (folder / "data").glob("*.parquet"):
        old.unlink()
    for number in range(shards):
        table = pa.table({"prompt": [f"question {number} {row}" for row in range(rows)], "hard": [True] * rows})
        pq.write_table(table, folder / "data" / f"train-{number:05d}-of-{shards:05d}.parquet")
    (folder / "README.md").write_text(CARD)
