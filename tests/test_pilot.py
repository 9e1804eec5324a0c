import json

import numpy as np
import pytest
from support.runs import problems, scripted_config, table_bytes
from typer.testing import CliRunner

import treeforge as tf
from treeforge import pipeline
from treeforge.cli.app import app
from treeforge.errors import PolicyUnavailableError
from treeforge.pilot import choose, estimate
from treeforge.policy.scripted import ScriptedPolicy, World
from treeforge.store.journal import TreeCost


def test_the_choice_is_a_share_and_eight_at_least():
    assert len(choose(problems(2000), 0.01, seed=0)) == 20
    assert len(choose(problems(100), 0.01, seed=0)) == 8
    assert choose(problems(5), 0.01, seed=0) == [0, 1, 2, 3, 4]
    assert choose(problems(100), 0.1, seed=0) != choose(problems(100), 0.1, seed=1)


def test_equal_trees_have_no_interval():
    found = estimate([TreeCost(4, 16, 1000)] * 8, 100, seconds=10.0, sampled=8000, price=2.0)
    assert (found.requests.value, found.requests.low, found.requests.high) == (400, 400, 400)
    assert found.tokens.value == 100_000
    assert found.seconds.value == pytest.approx(125)
    assert found.cost.value == pytest.approx(0.2)


def test_a_pilot_of_all_problems_knows():
    found = estimate([TreeCost(1, 1, tokens) for tokens in (5, 50, 500)], 3, seconds=1.0, sampled=555)
    assert (found.tokens.low, found.tokens.value, found.tokens.high) == (555, 555, 555)


def test_intervals_hold_the_truth_about_as_often_as_they_say():
    chance = np.random.default_rng(7)
    inside = 0
    for _ in range(300):
        tokens = chance.lognormal(6.0, 0.4, 1000).astype(int)
        pilot = [TreeCost(1, 1, int(count)) for count in tokens[:30]]
        found = estimate(pilot, 1000, seconds=1.0, sampled=1)
        inside += found.tokens.low <= tokens.sum() <= found.tokens.high
    assert 0.82 <= inside / 300 <= 0.95


def test_the_run_goes_on_from_the_pilot(tmp_path):
    config = scripted_config()
    policy = ScriptedPolicy(World())
    policy.asked = {}
    found = pipeline.dry_run(problems(20), tmp_path / "run", config, policy=policy)
    statuses = [status for status, _ in tf.RunFolder.open(tmp_path / "run").statuses().values()]
    assert (statuses.count("done"), statuses.count("open")) == (8, 12)
    assert found.completions.value == 20 * 8 * 4
    assert tf.run(problems(20), tmp_path / "run", config, policy=policy).statuses == {"done": 20}
    assert set(policy.asked.values()) == {1}
    tf.run(problems(20), tmp_path / "plain", config)
    assert table_bytes(tmp_path / "run") == table_bytes(tmp_path / "plain")


def test_a_pilot_without_a_tree_that_ended(tmp_path):
    class Gone(ScriptedPolicy):
        async def start(self):
            raise PolicyUnavailableError("nobody there")

    with pytest.raises(PolicyUnavailableError):
        pipeline.dry_run(problems(20), tmp_path / "run", scripted_config(), policy=Gone(World()))


def test_the_command(tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text("".join(json.dumps({"question": f"{i} + 1?", "answer": str(i + 1)}) + "\n" for i in range(40)))
    command = ["run", str(file), "--out", str(tmp_path / "run"), "--policy", "scripted", "--dry-run", "--price", "3"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 0, done.output
    assert "Pilot of 8 of 40 problems" in done.stdout
    assert "cost" in done.stdout
    done = CliRunner().invoke(app, [*command[:6], "--dry-run", "--json"])
    assert json.loads(done.stdout)["pilot_problems"] == 8
