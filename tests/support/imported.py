"""Rows of other projects' formats, imported: their trees and the labels of each node."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

from treeforge.config import LabelConfig
from treeforge.export.readers import ReadOptions
from treeforge.importing import ImportReport, import_file
from treeforge.store.imported import StepValues
from treeforge.store.run import RunFolder
from treeforge.tree import Tree


def read(
    tmp_path: Path, format: str, *rows: Any, options: ReadOptions | None = None
) -> tuple[list[Tree], list[list[float]], ImportReport, RunFolder]:
    file = tmp_path / "file.jsonl"
    file.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return imported(import_file(file, format, tmp_path / "run", options=options), tmp_path / "run")


def imported(report: ImportReport, path: Path) -> tuple[list[Tree], list[list[float]], ImportReport, RunFolder]:
    run = RunFolder.open(path)
    trees = [record.tree for _, record in run.records()]
    source = StepValues(run, LabelConfig(estimator=run.manifest["label"]["estimator"]))
    return trees, [source.of(n, tree).value.tolist() for n, tree in enumerate(trees)], report, run


def same(found: list[float], expected: list[float | None]) -> bool:
    return len(found) == len(expected) and all(
        math.isnan(a) if b is None else a == b for a, b in zip(found, expected, strict=True)
    )
