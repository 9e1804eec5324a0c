"""Strategies, screening and estimators through the pipeline and the command line: tables, statistics, shards."""

from __future__ import annotations

import json

import numpy as np
import polars as pl
import pytest
from support.runs import problems, scripted_config

from treeforge import pipeline, views
from treeforge.cli import invoke
from treeforge.config import LabelConfig
from treeforge.errors import ConfigError, RecipeChangedError, ScorerError
from treeforge.search.strategies import STRATEGIES
from treeforge.store.run import RunFolder


@pytest.mark.slow
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_run_is_labelled_exported_and_replayed(strategy, tmp_path):
    result = pipeline.run(problems(4), tmp_path / "run", scripted_config(strategy=strategy, levels=3))
    assert result.statuses == {"done": 4}
    assert sum(result.dataset.rows["hrm"].values()) > 0
    assert set(pipeline.replay(tmp_path / "run").files.values()) == {"same"}


def longest(problem, steps):
    """A scorer of one's own."""
    return sum(len(step) for step in steps)


def test_a_run_whose_beam_has_a_scorer_of_ones_own_goes_on_and_is_replayed_with_it(tmp_path):
    config = scripted_config(strategy="beam", levels=3)
    path = tmp_path / "run"
    result = pipeline.run(problems(4), path, config, scorer=longest)
    assert result.statuses == {"done": 4}
    usual = pipeline.run(problems(4), tmp_path / "usual", config)
    assert result.progress.run_nodes != usual.progress.run_nodes
    assert set(pipeline.replay(path, scorer=longest).files.values()) == {"same"}
    for call in (lambda: pipeline.replay(path), lambda: pipeline.extend(path, problems=problems(6))):
        with pytest.raises(RecipeChangedError, match=r"scorer: the run has '.*longest', this command has None"):
            call()
    assert pipeline.resume(path, scorer=longest).statuses == {"done": 6}
    with pytest.raises(ConfigError, match="a scorer ranks the candidates of the strategy beam, not of mcts"):
        pipeline.run(problems(2), tmp_path / "mcts", scripted_config(), scorer=longest)


class Failing:
    """A scorer that fails after some calls, or gives no number."""

    identity = "length"

    def __init__(self, calls, gives=longest):
        self.calls, self.gives = calls, gives

    def __call__(self, problem, steps):
        self.calls -= 1
        if self.calls < 0:
            raise MemoryError("no memory left")
        return self.gives(problem, steps)


def test_a_scorer_that_fails_stops_the_run_which_resumes_with_one_that_works(tmp_path):
    config, path = scripted_config(strategy="beam", levels=3), tmp_path / "run"
    with pytest.raises(ScorerError, match=r"Failing failed on problem sum-\d: MemoryError: no memory left\. Mend it"):
        pipeline.run(problems(4), path, config, scorer=Failing(20))
    with pytest.raises(ScorerError, match="ValueError: could not convert"):
        pipeline.resume(path, scorer=Failing(99, lambda problem, steps: "good"))
    assert {status for status, _ in RunFolder.open(path).statuses().values()} == {"open"}
    assert pipeline.resume(path, scorer=Failing(10_000)).statuses == {"done": 4}
    with pytest.raises(ConfigError, match="scorer: float is no function"):
        pipeline.run(problems(4), tmp_path / "other", config, scorer=0.5)


def test_omegas_prefixes_are_labelled_and_not_compressed(tmp_path):
    pipeline.run(problems(4), tmp_path / "run", scripted_config(strategy="omega", budget={"simulations": 30}))
    report = views.label(tmp_path / "run")
    assert 0 < report["unlabelled"] < report["nodes"], "steps between probes"
    assert views.compress(tmp_path / "run")["merges"] == 0


def test_screened_out_problems_show_in_stats(tmp_path, capsys):
    file = tmp_path / "problems.jsonl"
    file.write_text("".join(json.dumps({"question": p.question, "answer": p.gold_answer}) + "\n" for p in problems(12)))
    command = ["run", str(file), "--out", str(tmp_path / "run"), "--policy", "scripted", "--simulations", "4"]
    assert invoke([*command, "--screen", "4", "--keep", "0.3..0.7", "-q"]) == 0
    reasons = {reason for _, reason in RunFolder.open(tmp_path / "run").statuses().values()}
    assert any(reason.startswith("screened out: ") for reason in reasons)
    assert "4 simulations" in reasons
    capsys.readouterr()
    assert invoke(["stats", str(tmp_path / "run"), "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)["problems"]["reasons"]
    assert {row["reason"] for row in shown} == reasons
    assert invoke([*command, "--screen", "4", "--keep", "7..3", "-q"]) == 2


def test_visit_mean_labels_are_exported_and_never_compressed(tmp_path):
    path = tmp_path / "run"
    pipeline.run(problems(4), path, scripted_config())
    views.label(path, LabelConfig(estimator="visit_mean"))
    with pytest.raises(ConfigError, match=r"label\.estimator"):
        views.compress(path)
    dataset = views.export(path)
    shards = sorted((dataset.path / "nodes").glob("*.parquet"))
    rows = pl.concat([pl.read_parquet(shard) for shard in shards])
    assert rows.height == sum(dataset.rows["nodes"].values()) > 20
    assert set(rows["estimator"]) == {"visit_mean"}
    np.testing.assert_allclose(rows["value"], rows["value_sum"] / rows["visits"])
