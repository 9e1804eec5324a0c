"""Every format of a scripted run: written, written again, loaded."""

import json

import polars as pl
import pytest
from support.offline import run_offline
from support.runs import problems, scripted_config

import treeforge as tf
from treeforge.export import FORMATS

NAMES = tuple(name for name in FORMATS if name != "tokens")
"""`tokens` needs a tokenizer and its library; see `test_training.py`."""


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    out = tmp_path_factory.mktemp("formats") / "run"
    tf.run(problems(12), out, scripted_config(world={"depth": 3}, strategy="exhaustive", levels=4, children=3))
    return out


def test_the_same_run_gives_the_same_bytes(run, tmp_path):
    config = tf.ExportConfig(formats=NAMES)
    for name in ("a", "b"):
        tf.pipeline.export(run, config, out=tmp_path / name)
    a, b = (
        {str(file.relative_to(tmp_path / name)): file.read_bytes() for file in (tmp_path / name).rglob("*.*")}
        for name in ("a", "b")
    )
    assert a == b
    assert len(a) > len(NAMES)


def test_every_format_has_rows_of_every_problem_in_its_split(run, tmp_path):
    summary = tf.pipeline.export(run, tf.ExportConfig(formats=NAMES, validation_share=0.3), out=tmp_path / "out")
    assert all(splits["train"] > 0 for splits in summary.rows.values())
    where = {}
    for name in NAMES:
        folder = tmp_path / "out" / ("data" if name == NAMES[0] else name)
        for file in folder.glob("*.parquet"):
            frame = pl.read_parquet(file)
            ids = frame["extra_info"].struct.field("problem_id") if name == "rl" else frame["problem_id"]
            for problem in ids.unique():
                assert where.setdefault(problem, file.name.split("-")[0]) == file.name.split("-")[0]
    assert len(where) == 12


def test_a_completion_of_omega_counts_once(tmp_path):
    """The search cuts prefixes out of rollouts, up to their ends, and makes nodes of them: no further completions."""
    world = {"depth": 4, "branching": 6, "duplicate_rate": 0.2}
    config = scripted_config(world=world, strategy="omega", children=4, budget={"simulations": 24})
    tf.run(problems(12), tmp_path / "run", config)
    tf.pipeline.export(tmp_path / "run", tf.ExportConfig(formats=("orm",)), out=tmp_path / "out")
    nodes, rollouts = (pl.read_parquet(tmp_path / f"run/trees/{kind}-*.parquet") for kind in ("nodes", "rollouts"))
    assert (nodes["verdict"] >= 0).any(), "else there is nothing to count twice"
    assert pl.read_parquet(tmp_path / "out/data/*.parquet")["count"].sum() == (rollouts["verdict"] >= 0).sum()


@pytest.mark.slow
def test_every_format_loads_offline(run, tmp_path):
    summary = tf.pipeline.export(run, tf.ExportConfig(formats=NAMES), out=tmp_path / "out")
    code = f"""
import datasets, json
found = {{}}
for name in {NAMES!r}:
    loaded = datasets.load_dataset("./out", name)
    found[name] = {{split: len(rows) for split, rows in loaded.items()}}
    row = loaded["train"][0]
print(json.dumps(found))
"""
    assert json.loads(run_offline(code, tmp_path)) == summary.rows
