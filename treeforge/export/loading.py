"""Lines of Python that load an export."""

from __future__ import annotations

import glob
from pathlib import Path

import pyarrow.parquet as pq

from treeforge.errors import DataError
from treeforge.export.dataset import DEFAULT_FOLDER
from treeforge.export.schemas import FORMAT_KEY
from treeforge.export.split import SPLITS


def loading_lines(out: Path, format: str) -> tuple[str, str, str]:
    """Three lines that load one split of a format of the export `out`, each complete in itself.

    With polars (`frame`), `datasets` (`dataset`) and pyarrow (`table`). The split is `train`, or the first one that has
    rows. Raises `DataError` where the export has no rows of this format.
    """
    for folder in (out / format, out / DEFAULT_FOLDER):
        for split in SPLITS:
            shard = next(folder.glob(f"{split}-*.parquet"), None)
            if shard is None or (pq.read_schema(shard).metadata or {}).get(FORMAT_KEY) != format.encode():
                continue
            pattern = f"{glob.escape(str(folder))}/{split}-*.parquet"
            return (
                f"import polars; frame = polars.read_parquet({pattern!r})",
                f"import datasets; dataset = datasets.load_dataset({str(out)!r}, {format!r}, split={split!r})",
                "import glob, pyarrow.dataset; "
                f"table = pyarrow.dataset.dataset(sorted(glob.glob({pattern!r}))).to_table()",
            )
    raise DataError(f"there are no rows of the format {format!r}", path=out)
