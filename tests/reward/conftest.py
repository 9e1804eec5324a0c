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


@pytest.fixture
def hrm_file(tmp_path):
    """160 rows of 20 problems in the shape of an `hrm` export."""
    path = tmp_path / "rows.jsonl"
    rows = [_row(problem, place, (problem + place) % 2 == 0) for problem in range(20) for place in range(8)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture(scope="session")
def base(tmp_path_factory):
    """The folder of a tiny random model."""
    pytest.importorskip("torch", reason="pip install 'treeforge[train]'")
    pytest.importorskip("transformers", reason="pip install 'treeforge[train]'")
    from support.tiny_base import tiny_base

    return tiny_base(tmp_path_factory.mktemp("base"))
