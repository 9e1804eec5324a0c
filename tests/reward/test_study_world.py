"""The world of benchmarks/reward_study.py: what its solutions are said to be is what the answer checker finds."""

import importlib.util
import json
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from treeforge.config import Recipe, RunConfig, SearchConfig
from treeforge.pipeline import run
from treeforge.store.run import RunFolder
from treeforge.verdict import NO_VERDICT

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "reward_world.py"


@pytest.fixture(scope="module")
def world():
    if not SCRIPT.exists():
        pytest.skip("benchmarks/ is not here")
    spec = importlib.util.spec_from_file_location(SCRIPT.stem, SCRIPT)
    module = sys.modules[SCRIPT.stem] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules[SCRIPT.stem]


def solutions(world, folder, **knobs):
    """(problem, steps, whether the checker says that the answer is right) of solutions of a few problems."""
    settings = world.SumsWorld(**knobs)
    recipe = Recipe(steps=world.STEPS, search=SearchConfig(strategy="best-of-n", solutions=32))
    run(world.sums(6, settings.terms, seed=0), folder, RunConfig(recipe=recipe), policy=world.SumsPolicy(settings))
    found = RunFolder.open(folder)
    for number, record in found.records():
        tree = record.tree
        for row in range(tree.size):
            if tree.verdict[row] != NO_VERDICT:
                steps = [tree.text[place] for place in tree.path(row)]
                yield found.problems[number], steps, tree.verdict[row] == 1


def test_a_solution_is_right_where_every_wrong_step_was_corrected(world, tmp_path):
    """But for luck: two wrong steps may cancel out."""
    kinds = Counter()
    for problem, steps, right in solutions(world, tmp_path / "run", bluff=0.1, misreading=0.1):
        kind = world.kind_of(problem, steps, right)
        kinds[kind] += 1
        assert kind.startswith("right") == right, (problem.question, steps)
        assert (kind == "right, corrected") <= any(step.startswith("wait") for step in steps)
        assert len(steps) == world.SumsWorld().terms + 1
    assert all(kinds[kind] for kind in world.KINDS if kind != "right by luck")


def test_without_corrections_no_wrong_step_is_made_good(world, tmp_path):
    for problem, steps, right in solutions(world, tmp_path / "run", correction=0.0, slip=0.3):
        assert not any(step.startswith("wait") for step in steps)
        assert world.kind_of(problem, steps, right) != "right, corrected"


def test_a_bluff_goes_on_in_its_tone_and_takes_nothing_back(world, tmp_path):
    bluffs = 0
    for problem, steps, right in solutions(world, tmp_path / "run", bluff=0.3, slip=0.0, misreading=0.0, sure=0.0):
        if world.kind_of(problem, steps, right) == "wrong by a bluff":
            first = next(place for place, step in enumerate(steps) if step.startswith("obviously"))
            assert all(step.startswith("obviously") for step in steps[first:-1])
            assert steps[-1].startswith("The answer is")
            bluffs += 1
    assert bluffs


@pytest.mark.slow
@pytest.mark.train
def test_the_study_runs(tmp_path):
    """From trees to the tables, with models that are too small to say anything."""
    for name in ("torch", "transformers", "peft"):
        pytest.importorskip(name, reason="pip install 'treeforge[train]'")
    command = [sys.executable, str(SCRIPT.with_name("reward_study.py")), "world", "--quick", "--worlds", "base"]
    places = ["--out", str(tmp_path / "out"), "--json", str(tmp_path / "figures.json")]
    done = subprocess.run([*command, *places, "--jobs", "1"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "base: above the PRM, points" in done.stdout
    (found,) = json.loads((tmp_path / "figures.json").read_bytes())
    assert [curve["name"] for curve in found["curves"]][2:] == ["ORM", "PRM", "HRM", "HRM + HNC", "oracle"]
    for curve in found["curves"]:
        shares = [figure["value"] for figure in curve["accuracy"]]
        assert len(shares) == len(found["sizes"])
        assert all(0 <= share <= 1 for share in shares)
        assert curve["name"] == "majority vote" or shares[0] == pytest.approx(
            found["curves"][0]["accuracy"][0]["value"]
        )
    assert sum(found["kinds"].values()) == pytest.approx(1)
