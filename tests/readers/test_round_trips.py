"""What is written in a format of other projects is read back: the same steps with the same labels."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from treeforge import views
from treeforge.config import ExportConfig, LabelConfig
from treeforge.importing import import_file
from treeforge.store.imported import StepValues
from treeforge.store.run import RunFolder


def labelled_paths(run: RunFolder) -> set[tuple[str, tuple[tuple[str, bool], ...]]]:
    """Every path to a leaf, with the labels of its steps."""
    source = StepValues(run, LabelConfig(estimator=run.manifest["label"]["estimator"]))
    found = set()
    for number, record in run.records():
        value = source.of(number, record.tree).value
        for leaf in np.flatnonzero(record.tree.is_leaf).tolist():
            steps = tuple((record.tree.text[row].strip(), bool(value[row] > 0.5)) for row in record.tree.path(leaf))
            found.add((run.problems[number].question, steps))
    return found


@pytest.mark.parametrize("format", ["prm", "math-shepherd", "prm800k", "processbench"])
def test_written_and_read_again(tmp_path: Path, format: str) -> None:
    file = tmp_path / "file.jsonl"
    with file.open("w") as stream:
        for number in range(6):
            steps = [f"Step 1: {number} is given.", "Step 2: we add 1.", f"Step 3: The answer is {number + 1}"]
            # `processbench` says nothing of the steps after the first wrong one, so it stands last.
            row = {"prompt": f"What is {number} + 1?", "completions": steps, "labels": [True, True, number % 2 == 0]}
            stream.write(json.dumps(row | {"answer": number + 1 if number % 2 == 0 else 99}) + "\n")
    import_file(file, "prm", tmp_path / "first")
    summary = views.export(tmp_path / "first", ExportConfig(formats=(format,), validation_share=0.0))
    (shard,) = summary.path.rglob("*.parquet")
    import_file(shard, format, tmp_path / "second")
    first, second = (RunFolder.open(tmp_path / name) for name in ("first", "second"))
    assert labelled_paths(second) == labelled_paths(first)
    assert len(labelled_paths(first)) == 6
