"""Rows that a tiny model learns in seconds, and that model."""

import json

import pytest


def _row(problem, place, right):
    """A first step that says `yes` where it is right."""
    return {
        "prompt": f"question {problem}",
        "previous": "",
        "current": f"{'yes' if right else 'no '} {place}\n",
        "span": 1,
        "hard": right,
        "soft": 0.9 if right else 0.2,
        "problem_id": f"p{problem}",
        "compressed": 0,
    }


def _write_rows(path):
    rows = [_row(problem, place, (problem + place) % 2 == 0) for problem in range(20) for place in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def hrm_file(tmp_path):
    """160 rows of 20 problems in the shape of an `hrm` export."""
    return _write_rows(tmp_path / "rows.jsonl")


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """The folder of a tiny random model."""
    pytest.importorskip("torch", reason="pip install 'treeforge[train]'")
    pytest.importorskip("transformers", reason="pip install 'treeforge[train]'")
    from support.tiny_base import tiny_base

    return tiny_base(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="session")
def trained(base, tmp_path_factory):
    """Folders of tiny HRMs by their heads, trained on these rows."""
    from treeforge.reward.heads import HEADS
    from treeforge.reward.settings import TrainConfig
    from treeforge.reward.train import train

    folder = tmp_path_factory.mktemp("trained")
    rows = _write_rows(folder / "rows.jsonl")
    found = {}
    for head in HEADS:
        found[head] = folder / head
        train(rows, found[head], TrainConfig(model=str(base), head=head, epochs=8, lr=5e-3, window=128, evals=1))
    return found
