import json

from support.runs import problems, scripted_config

import treeforge as tf
from treeforge.config import Machine
from treeforge.metrics import Metrics, prometheus_text
from treeforge.search.scheduler import Progress


def test_a_run_writes_its_counters(tmp_path):
    machine = Machine(metrics_seconds=0.01, prometheus=str(tmp_path / "node" / "treeforge.prom"))
    world = {"latency": 0.05}
    result = tf.run(problems(3), tmp_path / "run", scripted_config(world=world, machine=machine))
    rows = [json.loads(line) for line in (tmp_path / "run" / "logs" / "metrics.jsonl").read_text().splitlines()]
    assert len(rows) > 1
    assert rows[-1]["completions"] == result.progress.completions == 3 * 8 * 4
    assert rows[-1]["finished"] == 3
    assert any(row["tokens_per_second"] > 0 for row in rows)
    text = (tmp_path / "node" / "treeforge.prom").read_text()
    assert "treeforge_completions_total{" in text
    assert "# TYPE treeforge_in_flight gauge" in text


def test_a_place_that_cannot_be_written_costs_one_warning(tmp_path, caplog):
    metrics = Metrics(tmp_path / "no" / "metrics.jsonl", 0.0, None)
    for _ in range(3):
        metrics.update(Progress())
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_lines_are_apart_by_the_interval(tmp_path):
    metrics = Metrics(tmp_path / "metrics.jsonl", 3600.0, None)
    for _ in range(5):
        metrics.update(Progress())
    metrics.update(Progress(), final=True)
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 2


def test_prometheus_text():
    assert prometheus_text({"time": 1.0, "tokens": 5}).startswith(
        "# TYPE treeforge_tokens_total counter\ntreeforge_tokens_total{pid="
    )
