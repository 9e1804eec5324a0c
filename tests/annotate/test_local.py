"""The real local model completes solutions of our own making."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import treeforge as tf
from treeforge.cli import invoke
from treeforge.policy import models
from treeforge.tree import Finish
from treeforge.value import estimate

pytestmark = pytest.mark.slow

WRITTEN = {
    "word-001": [
        "30 / 5 = 6 stamps for each friend.\nThe answer is 6.",
        "30 - 5 = 25 stamps are left.\nThe answer is 25.",
    ],
    "word-002": [
        "18 - 8 = 10 passengers after some get off.\n10 + 7 = 17 passengers now.\nThe answer is 17.",
        "18 + 8 = 26 passengers.\n26 + 7 = 33 passengers now.\nThe answer is 33.",
    ],
}


def test_solutions_of_word_problems(tmp_path: Path, capsys: Any) -> None:
    models.pull("smollm2-135m")
    problems = Path(__file__).parents[2] / "datasets" / "word_problems.jsonl"
    known = {problem.problem_id: problem for problem in tf.read_problems(problems, limit=2).problems}
    file = tmp_path / "given.jsonl"
    rows = [{"question": known[name].question, "solutions": texts} for name, texts in WRITTEN.items()]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    out = tmp_path / "run"
    command = ["annotate", str(file), "--problems", str(problems), "--out", str(out), "--policy", "local", "--quiet"]
    assert invoke([*command, "--children", "4", "--set", "sampling.max_tokens=64"]) == 0
    run = tf.RunFolder.open(out)
    assert [problem.problem_id for problem in run.problems] == list(WRITTEN)
    for _, record in run.records():
        tree, values = record.tree, estimate(record.tree)
        inner = (tree.finish == Finish.OPEN) & (tree.parent >= 0)
        assert (tree.rollouts[inner] == 4).all()
        assert (values.rollouts[inner] == 4).all()
        ends = np.flatnonzero(tree.finish == Finish.ANSWERED)
        assert sorted(values.value[ends].tolist()) == [0, 1], "one of the two is right"
    file.unlink()
    assert invoke(["replay", str(out)]) == 0
    assert invoke(["resume", str(out), "--quiet", "--json"]) == 0
    assert '"requests": 0' in capsys.readouterr().out
