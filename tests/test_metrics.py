import json

import pytest
from support.misbehaving import MisbehavingServer
from support.runs import problems, scripted_config

import treeforge as tf
from treeforge.cli import invoke
from treeforge.cli.progress import progress_text
from treeforge.config import Machine
from treeforge.metrics import Metrics, prometheus_text
from treeforge.search.progress import Progress


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


@pytest.mark.parametrize("told", ["usage", ""])
def test_what_the_servers_keep_of_prompts_is_told_wherever_tokens_are(told, tmp_path, capsys):
    """In the run's last words, its JSON, its metrics and `stats`; and nowhere where the server does not tell it."""
    (tmp_path / "problems.jsonl").write_text('{"question": "What is 1 + 2?", "answer": "3"}\n')
    folder, prometheus = tmp_path / "run", tmp_path / "treeforge.prom"
    with MisbehavingServer(cache=told) as server:
        command = ["run", str(tmp_path / "problems.jsonl"), "--out", str(folder), "--server", server.url]
        command += ["--model", "world", "--preset", "smollm", "--simulations", "6", "--quiet"]
        command += [f"--set=machine.prometheus={prometheus}"]
        assert invoke(command) == 0
        said = capsys.readouterr().out
        posts = server.posts[3:]  # without the probe
        prompt, cached = sum(post.prompt_tokens for post in posts), sum(post.cached_tokens for post in posts)
    last = json.loads((folder / "logs" / "metrics.jsonl").read_text().splitlines()[-1])
    stats = ["stats", str(folder)]
    assert invoke(stats) == 0
    shown = capsys.readouterr().out
    assert invoke([*stats, "--json"]) == 0
    cost = json.loads(capsys.readouterr().out)["cost"]
    if told:
        assert cached
        share = f"{cached / prompt:.1%}"
        assert f"{share} of {prompt:,} prompt tokens from the prefix cache" in said
        assert (last["prompt_tokens"], last["cached_tokens"]) == (prompt, cached)
        assert 'treeforge_cached_tokens_total{pid="' in prometheus.read_text()
        assert f"{share} from the prefix cache" in shown
        assert (cost["prompt_tokens"], cost["cached_share"]) == (prompt, cached / prompt)
    else:
        assert "cache" not in said + shown + prometheus.read_text()
        assert not {"prompt_tokens", "cached_tokens"} & last.keys()
        assert (cost["prompt_tokens"], cost["cached_share"]) == (None, None)


def test_the_progress_line_has_the_share_of_prompts_from_the_cache():
    progress = Progress(trees=4, finished=1, tokens=300, prompt_tokens=2000, cached_tokens=1500)
    assert "150 tokens/s · 75% of prompts from cache · " in progress_text(progress, 2.0, 0)
    assert "cache" not in progress_text(Progress(trees=4), 2.0, 0)
