"""`beam` with its scorers."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
import threading
import time

import pytest
from support.driving import TextPolicy, drive
from support.runs import EqualStringJudge, NoLog, problems, scripted_config

from treeforge.config import BudgetConfig, Machine
from treeforge.policy import ScriptedPolicy, World
from treeforge.search.progress import Progress
from treeforge.search.scheduler import Forest
from treeforge.tree import Finish


def letters(request, i):
    """Steps a, b, c, d; the third one answers by the letters so far."""
    depth = request.prefix.count("\n")
    right = request.prefix.startswith("d\nc")
    return f"{'abcd'[i]}\n" if depth < 2 else f"The answer is {0 if right else 1}."


def later_letter(problem, steps):
    """Prefers d, then c, …; ended solutions by their number of steps."""
    return float("abcd".find(steps[-1][0])) if steps[-1][1:] == "\n" else 9.0


def test_the_best_are_kept_at_every_depth():
    tree, waves, ended = drive(
        policy=TextPolicy(letters), strategy="beam", children=4, beam={"width": 2}, scorer=later_letter
    )
    assert [[request.prefix for request in wave] for wave in waves[:2]] == [[""], ["d\n", "c\n"]]
    assert [request.prefix for request in waves[2]] == ["d\nd\n", "c\nd\n"], "equal scores: the first found"
    assert ended == ("done", "2 of 2 beams ended at depth 3")
    assert tree.builder.size == 1 + 4 + 8 + 2, "what was not kept stays in the tree"


def test_an_ended_solution_competes_with_those_that_go_on():
    policy = TextPolicy(lambda request, i: "The answer is 0." if i == 0 else f"{request.prefix.count(chr(10))}{i}\n")
    tree, waves, ended = drive(
        policy=policy,
        strategy="beam",
        children=2,
        max_depth=3,
        beam={"width": 2},
        scorer=lambda p, steps: 1.0 / len(steps),
    )
    assert ended == ("done", "2 of 2 beams ended at depth 2")
    assert [len(wave) for wave in waves] == [1, 1], "the answer of depth 1, and both siblings below the other step"
    assert tree.builder.finish[1] == Finish.ANSWERED


def test_log_probabilities_are_a_mean_over_tokens():
    tree, waves, _ = drive(world=World(depth=4, branching=4), strategy="beam", beam={"width": 1})
    builder = tree.builder
    expanded = [row for row in range(builder.size) if builder.children[row]]
    assert [builder.depth[row] for row in expanded] == [0, 1, 2, 3]
    for row in expanded[1:]:
        siblings = builder.children[builder.parent[row]]
        assert builder.logprob[row] == max(builder.logprob[other] for other in siblings)
    assert all(len(wave) == 1 for wave in waves)


def test_rollouts_as_the_scorer_find_the_right_track():
    world = World(depth=6, error_rate=0.4, error_spread=0, recovery_rate=0)
    found = {"logprob": 0, "rollouts": 0}
    for scorer in found:
        for number in range(12):
            tree, _, _ = drive(
                world=world, problem=number, strategy="beam", beam={"width": 1, "scorer": scorer, "rollouts": 24}
            )
            found[scorer] += any(verdict == 1 for verdict in tree.builder.verdict)
            if scorer == "rollouts":
                assert tree.builder.freeze().rollouts.sum() > 0
    assert found["rollouts"] >= 2 * found["logprob"], found


@pytest.mark.parametrize("scorer", ["logprob", "rollouts"])
def test_budgets_end_it_between_waves(scorer):
    tree, _, ended = drive(
        BudgetConfig(rollouts=20), world=World(depth=30), strategy="beam", max_depth=30, beam={"scorer": scorer}
    )
    assert ended == ("exhausted", "budget: 20 rollouts")
    assert 20 <= tree.samples < 80


def test_a_scorer_that_knows_nothing_is_no_crash():
    _, _, ended = drive(world=World(depth=3), strategy="beam", scorer=lambda problem, steps: float("nan"))
    assert ended[0] == "done"


def scored_forest(scorer, policy, records, progress=None, **machine):
    settings = scripted_config(strategy="beam", machine=Machine(**machine))
    return Forest(
        settings.recipe, settings.machine, policy, EqualStringJudge(), NoLog(),
        records.__setitem__, progress=progress, scorer=scorer, clock=time.monotonic,
    )  # fmt: skip


def test_a_scorer_goes_through_the_scheduler():
    asked: list[tuple[str, ...]] = []

    def scorer(problem, steps):
        asked.append((problem.problem_id, *steps))
        return 0.0

    records = {}
    forest = scored_forest(scorer, ScriptedPolicy(World(depth=3)), records)
    asyncio.run(forest.grow(iter(enumerate(problems(2)))))
    assert [records[n].status for n in (0, 1)] == ["done", "done"]
    assert {row[0] for row in asked} == {"sum-0", "sum-1"}


def test_the_policy_is_asked_for_other_trees_while_a_scorer_works():
    other_asked = threading.Event()

    class Watched(ScriptedPolicy):
        async def sample(self, request):
            if request.tree == 1:
                other_asked.set()
            return await super().sample(request)

    def scorer(problem, steps):
        if problem.problem_id == "sum-0":
            assert other_asked.wait(30), "nobody asked for the other tree meanwhile"
        return 0.0

    records = {}
    forest = scored_forest(scorer, Watched(World(depth=3, latency=0.001)), records, concurrency=1, open_trees=2)
    asyncio.run(forest.grow(iter(enumerate(problems(2)))))
    assert [records[n].status for n in (0, 1)] == ["done", "done"]


def test_the_oldest_tree_is_scored_first_and_none_is_opened_while_some_wait():
    """Else a run with a budget would begin all trees and end none."""
    scored, most = [], 0
    progress = Progress()

    def scorer(problem, steps):
        nonlocal most
        scored.append(int(problem.problem_id.removeprefix("sum-")))
        most = max(most, progress.open)
        time.sleep(0.0005)
        return 0.0

    for latency in (0.0, 0.0002):
        scored.clear()
        records = {}
        world = World(depth=3, latency=latency)
        forest = scored_forest(scorer, ScriptedPolicy(world), records, progress, concurrency=4)
        asyncio.run(forest.grow(iter(enumerate(problems(40)))))
        assert len(records) == 40
        last = {number: place for place, number in enumerate(scored)}
        first = {number: scored.index(number) for number in last}
        # So few trees are open at once that each is done before the one a dozen later begins.
        assert all(last[number] < first[number + 12] for number in range(28))
    assert most <= 12


@pytest.mark.slow
def test_a_scorer_that_hangs_keeps_no_program_from_ending(tmp_path):
    script = tmp_path / "hangs.py"
    script.write_text(
        "import sys, time\n"
        "import treeforge as tf\n"
        "config = tf.load_config(overrides=['search.strategy=beam'], backend='scripted')\n"
        "def hangs(problem, steps):\n"
        "    print('scoring', flush=True)\n"
        "    time.sleep(600)\n"
        "tf.run([tf.make_problem('1 + 1?', '2')], sys.argv[1], config, scorer=hangs)\n"
    )
    command = [sys.executable, str(script), str(tmp_path / "run")]
    running = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        assert running.stdout.readline() == "scoring\n"
        running.send_signal(signal.SIGINT)
        assert running.wait(60) != 0
    finally:
        running.kill()
        running.communicate()


def test_a_run_stops_while_a_scorer_works():
    working, go_on = threading.Event(), threading.Event()

    def scorer(problem, steps):
        working.set()
        assert go_on.wait(30), "the run did not stop"
        return 0.0

    async def stopped():
        growing = asyncio.create_task(forest.grow(iter(enumerate(problems(2)))))
        await asyncio.to_thread(working.wait)
        growing.cancel()
        await asyncio.wait([growing])
        go_on.set()
        return growing.cancelled()

    records = {}
    forest = scored_forest(scorer, ScriptedPolicy(World(depth=3)), records)
    assert asyncio.run(stopped())
    assert not records
