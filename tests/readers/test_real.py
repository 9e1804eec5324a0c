"""Real files of other projects, whole: every rating and value arrives. Skipped where they are absent."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from treeforge import views
from treeforge.config import LabelConfig
from treeforge.export.readers import ReadOptions
from treeforge.importing import import_file
from treeforge.store.imported import StepValues
from treeforge.store.run import RunFolder

DATA = Path(__file__).resolve().parents[2].parent / "shared" / "data"


def real(name: str) -> tuple[Path, list[Any]]:
    path = DATA / name
    if not path.exists():
        pytest.skip(f"the public data set {name} is not beside this checkout (../shared/data)")
    return path, [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def ratings(rows: list[Any], first_step: int) -> Counter[int]:
    """Rated completions, from a step (0 is the first) of each solution on."""
    return Counter(
        completion["rating"]
        for row in rows
        for step in row["label"]["steps"][first_step:]
        for completion in step["completions"] or ()
    )


def labels_from_depth(run: RunFolder, depth: int) -> Counter[float]:
    """Steps with a label at this depth or below: rows of single steps from 1, of two consecutive ones from 2."""
    source = StepValues(run, LabelConfig(estimator=run.manifest["label"]["estimator"]))
    found: Counter[float] = Counter()
    for number, record in run.records():
        value = source.of(number, record.tree).value[record.tree.depth >= depth]
        found.update(value[~np.isnan(value)].tolist())
    return found


@pytest.mark.parametrize("finished_only", [False, True])
def test_prm800k(tmp_path: Path, finished_only: bool) -> None:
    path, rows = real("prm800k_phase1_test.jsonl")
    report = import_file(path, "prm800k", tmp_path / "run", options=ReadOptions(finished_only=finished_only))
    if finished_only:
        rows = [row for row in rows if row["label"]["finish_reason"] == "solution"]
    run = RunFolder.open(tmp_path / "run")
    assert len(rows) == (90 if finished_only else 106)
    assert (report.rows, report.problems) == (len(rows), len({row["question"]["problem"] for row in rows}))
    assert report.skipped == report.without_steps == 0
    for span in (1, 2):
        expected = ratings(rows, span - 1)
        assert labels_from_depth(run, span) == {1.0: expected[1], 0.0: expected[-1]}
    # Every solution that was rated right ends with the gold answer, but for one that is written 58,500 and is 585000.
    source = StepValues(run, LabelConfig(estimator="human"))
    rated = Counter[tuple[float, int]]()
    for number, record in run.records():
        values = source.of(number, record.tree).value
        ended = record.tree.verdict >= 0
        rated.update(zip(values[ended].tolist(), record.tree.verdict[ended].tolist(), strict=True))
    assert rated[1.0, 0] == 1
    assert rated[1.0, 1] > 150


def test_prm800k_with_neutral_ratings_as_positive(tmp_path: Path) -> None:
    path, rows = real("prm800k_phase1_test.jsonl")
    report = import_file(path, "prm800k", tmp_path / "run", options=ReadOptions(neutral="positive"))
    expected = ratings(rows, 0)
    assert (report.positive, report.negative) == (expected[1] + expected[0], expected[-1])


def test_openr_flat(tmp_path: Path) -> None:
    path, (row,) = real("openr_math_aps.jsonl")
    import_file(path, "openr", tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    ((_, record),) = run.records()
    values = StepValues(run, LabelConfig(estimator="imported")).of(0, record.tree).value
    expected = Counter(step["mc_value"] for step in row["reasoning_steps"])
    assert Counter(values.tolist()) == expected
    prefixes = {record.tree.prefix(node) for node in range(record.tree.size)}
    question = row["question"]
    assert prefixes == {step["solution_prefix"][len(question) :].lstrip() for step in row["reasoning_steps"]}


def test_openr_nested(tmp_path: Path) -> None:
    path, (row,) = real("openr_math_aps_tree.jsonl")
    import_file(path, "openr", tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    ((_, record),) = run.records()
    expected: list[tuple[int, str, float]] = []

    def walk(node: Any, depth: int) -> None:
        expected.append((depth, node["text"].strip() if depth else "", node["mc_value"]))
        for child in node["children"]:
            walk(child, depth + 1)

    walk(row["reasoning_steps"], 0)
    values = StepValues(run, LabelConfig(estimator="imported")).of(0, record.tree).value
    texts = [text.strip() for text in record.tree.text]
    assert list(zip(record.tree.depth.tolist(), texts, values.tolist(), strict=True)) == expected


def test_what_was_read_goes_through_the_other_stages(tmp_path: Path) -> None:
    path, _ = real("prm800k_phase1_test.jsonl")
    import_file(path, "prm800k", tmp_path / "run", limit=20)
    report = views.compress(tmp_path / "run")
    assert report["merges"] > 0
    assert report["shift_max"] == 0
    summary = views.export(tmp_path / "run")
    run = RunFolder.open(tmp_path / "run")
    single, pairs = (labels_from_depth(run, depth).total() for depth in (1, 2))
    assert sum(summary.rows["hrm"].values()) >= single + pairs
