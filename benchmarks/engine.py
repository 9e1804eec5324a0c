"""The engine without a model: what treeforge itself costs. Prints one table; figures and findings: docs/performance.md.

python benchmarks/engine.py [--repeats 5] [--only speed|latency|memory|startup]
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from operator import getitem
from pathlib import Path
from typing import Any

import numpy as np
from rich.console import Console
from rich.table import Table

from treeforge.config import BudgetConfig, Machine, PolicyConfig, Recipe, SearchConfig
from treeforge.label import AnswerChecker
from treeforge.policy import SCRIPTED_STEPS, ScriptedPolicy, World
from treeforge.problem import Problem, make_problem
from treeforge.sample import Request, Sample
from treeforge.search.growing import GrowingTree, request_base
from treeforge.search.scheduler import Forest
from treeforge.search.strategies import mcts
from treeforge.store.journal import Journal
from treeforge.tree import Rollout

WORLD: dict[str, Any] = {"depth": 8, "branching": 64, "duplicate_rate": 0.05}
"""Hardly a sample repeats another, as with a language model: nearly every one makes a node."""


class NoJournal:
    """Keeps nothing: the engine alone."""

    def rows(self, tree: int) -> dict[bytes, tuple[Sample, ...]]:
        return {}

    def record(self, request: Request, samples: tuple[Sample, ...]) -> None:
        pass

    def flush(self) -> None:
        pass

    def cutoff(self, tree: int) -> None:
        return None

    def record_cutoff(self, tree: int, wave: int, reason: str) -> None:
        pass


def problems(count: int) -> list[Problem]:
    return [make_problem(f"What is {i} + {i}?", str(2 * i)) for i in range(count)]


def recipe(simulations: int) -> Recipe:
    return Recipe(
        policy=PolicyConfig(backend="scripted"),
        steps=SCRIPTED_STEPS,
        search=SearchConfig(children=4, max_depth=8),
        budget=BudgetConfig(simulations=simulations),
    )


def checker() -> AnswerChecker:
    return AnswerChecker(markers=SCRIPTED_STEPS.answer_markers)


def grow(
    count: int, simulations: int, policy: ScriptedPolicy, machine: Machine | None = None, *, journal: bool
) -> float:
    """Seconds to grow `count` trees."""
    with tempfile.TemporaryDirectory() as folder:
        log = Journal.open(Path(folder) / "journal.sqlite") if journal else NoJournal()
        forest = Forest(
            recipe(simulations),
            machine or Machine(),
            policy,
            checker(),
            log,
            lambda number, record: None,
            clock=time.monotonic,
        )
        started = time.perf_counter()
        asyncio.run(forest.grow(iter(enumerate(problems(count)))))
        return time.perf_counter() - started


def speed(repeats: int, table: Table) -> None:
    def rate(count: int, simulations: int, *, journal: bool, world: dict[str, Any] = WORLD) -> float:
        rates = []
        for _ in range(repeats):
            policy = ScriptedPolicy(World(**world))
            seconds = grow(count, simulations, policy, journal=journal)
            rates.append(policy.requests / seconds)
        return statistics.median(rates)

    policy_alone = policy_rate()
    rate(32, 64, journal=True), rate(32, 64, journal=True, world={})  # makes the worlds' tables
    for name, world in (("default world", {}), ("64 ways a step", WORLD)):
        with_journal = rate(32, 64, journal=True, world=world)
        table.add_row(f"simulations/s, 32 x 64, journal on, {name}", f"{with_journal:,.0f}", ">= 15,000")
        without = rate(32, 64, journal=False, world=world)
        table.add_row("the same without a journal", f"{without:,.0f}", "")
    table.add_row("the scripted policy alone: requests/s from the root", f"{policy_alone:,.0f}", "")
    bare = statistics.median(bare_rate() for _ in range(repeats))
    table.add_row("the calls that no design leaves out, alone: simulations/s", f"{bare:,.0f}", "")
    table.add_row("reference: million additions/s of plain Python", f"{reference():.1f}", "")
    small, large = rate(1, 64, journal=True), rate(1, 8000, journal=True)
    table.add_row("one tree: seconds a simulation, 8,000 against 64", f"{small / large:.2f}", "<= 1")


def reference() -> float:
    """Million additions a second of plain Python: what this machine can do at this moment."""
    started = time.perf_counter()
    total = 0
    for number in range(2_000_000):
        total += number
    return 2.0 / (time.perf_counter() - started)


def policy_rate() -> float:
    policy, problem = ScriptedPolicy(World(**WORLD)), problems(1)[0]
    requests = [
        Request(problem=problem, prefix="", n=4, mode="rollout", seed=i, digest=b"", tree=0) for i in range(3000)
    ]
    started = time.perf_counter()
    for request in requests:
        policy.sample_now(request)
    return len(requests) / (time.perf_counter() - started)


def bare_rate() -> float:
    """Simulations/s of the calls that no design leaves out, in one loop without any search, tree or scheduler.

    Of a request three digests, of a sample its random texts and log-probabilities, the two structs, its steps and
    their answer, of a node one element in each of the tree's columns, at the end turned into arrays.
    """
    texts = [[f"Step {step}: going way {way} we get 17.\n" for way in range(256)] for step in range(5)]
    logprobs = [[-0.5] * 256 for _ in range(5)]
    problem, keyed = problems(1)[0], hashlib.blake2b(key=b"run", digest_size=16)
    columns: list[list[Any]] = [[] for _ in range(17)]
    rollouts: list[Rollout] = []
    known: dict[str, int] = {}
    simulations = 3000
    started = time.perf_counter()
    for number in range(simulations):
        digests = []
        for _ in range(3):
            hasher = keyed.copy()
            hasher.update(number.to_bytes(8, "little"))
            digests.append(hasher.digest())
        request = Request(problem, "".join(texts[0][:3]), 4, "rollout", number, digests[0], 0)
        stream = hashlib.shake_128(digests[1]).digest(20)
        for at in range(0, 20, 5):
            ways = stream[at : at + 5]
            written = tuple(map(getitem, logprobs, ways))
            sample = Sample("".join(map(getitem, texts, ways)), "stop", 40, sum(written), (8,) * 5, written)
            steps = sample.text.splitlines(True)
            if sample.text.find("The answer is") < 0 and min(steps) >= "!":
                known.get(steps[-1])
            rollouts.append(Rollout(request.n, tuple(steps[1:]), "1", 1, 2, sample.tokens, -1.0))
            for column in columns:
                column.append(1)
    for column in columns[:14]:
        np.array(column, dtype=np.int32)
    return simulations / (time.perf_counter() - started)


def peers(repeats: int, table: Table) -> None:
    """The same count of simulations by engines that are installed beside us (`pip install treequest`)."""
    try:
        from treequest import StandardMCTS
    except ImportError:
        table.add_row("treequest: simulations/s of 4 samples", "not installed", "")
        return

    def generate(state: int | None) -> tuple[int, float]:
        return (state or 0) + 1, random.random()

    rates = []
    for _ in range(repeats):
        started = time.perf_counter()
        for _ in range(32):
            search = StandardMCTS(samples_per_action=4)
            state = search.init_tree()
            for _ in range(64 * 4):
                state = search.step(state, {"expand": generate}, inplace=True)
        rates.append(32 * 64 / (time.perf_counter() - started))
    table.add_row("treequest: simulations/s of 4 samples, no journal", f"{statistics.median(rates):,.0f}", "")


def latency(repeats: int, table: Table) -> None:
    seconds, slots, count, simulations = 0.02, 64, 16, 16
    chain, requests = dependent_waves(count, simulations)
    bound = max(requests * seconds / slots, chain * seconds)
    world = World(**WORLD, latency=seconds)
    machine = Machine(concurrency=slots)
    walls = [grow(count, simulations, ScriptedPolicy(world), machine, journal=True) for _ in range(repeats + 1)][1:]
    table.add_row(
        f"20 ms a call, 16 x 16, 64 slots: wall / bound ({requests} requests, chain {chain})",
        f"{statistics.median(walls) / bound:.3f}",
        "<= 1.15",
    )
    bare = [asyncio.run(only_waiting(count, chain, requests // (count * chain), seconds)) for _ in range(repeats)]
    table.add_row("the same waits by a bare asyncio loop: wall / bound", f"{statistics.median(bare) / bound:.3f}", "")


async def only_waiting(trees: int, waves: int, calls: int, seconds: float) -> float:
    """Seconds that asyncio itself needs for as many sleeps: its timers are late by up to a millisecond."""

    async def tree() -> None:
        for _ in range(waves):
            await asyncio.gather(*(asyncio.create_task(asyncio.sleep(seconds)) for _ in range(calls)))

    started = time.perf_counter()
    await asyncio.gather(*(tree() for _ in range(trees)))
    return time.perf_counter() - started


def dependent_waves(count: int, simulations: int) -> tuple[int, int]:
    """(longest chain of waves in a tree, requests of all trees)."""
    policy, settings = ScriptedPolicy(World(**WORLD)), recipe(simulations)
    longest = requests = 0
    for number, problem in enumerate(problems(count)):
        tree = GrowingTree(number, problem, settings, checker(), request_base(settings, policy.identity))
        strategy, replies, waves = mcts(tree, settings.search, settings.budget), None, 0
        while True:
            try:
                wave = strategy.send(replies)
            except StopIteration:
                break
            waves += 1
            requests += len(wave)
            replies = [policy.sample_now(request) for request in wave]
        longest = max(longest, waves)
    return longest, requests


class Stuck(ScriptedPolicy):
    """Answers a tree until it has some nodes, and then never again."""

    def __init__(self, answers: int, trees: int) -> None:
        super().__init__(World(**WORLD))
        self.left = dict.fromkeys(range(trees), answers)
        self.waiting = 0
        self.all_wait = asyncio.Event()

    def sample_now(self, request: Request) -> tuple[Sample, ...] | None:
        return None

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        if self.left[request.tree] == 0:
            self.waiting += 1
            if self.waiting == len(self.left):
                self.all_wait.set()
            await asyncio.Event().wait()
        self.left[request.tree] -= 1
        return self._answer(request)


async def hold_open(trees: int) -> None:
    policy = Stuck(16, trees)
    settings = Recipe(
        steps=SCRIPTED_STEPS, search=SearchConfig(children=4, wave=1), budget=BudgetConfig(simulations=64)
    )
    machine = Machine(concurrency=trees, open_trees=trees, request_timeout=3600)
    forest = Forest(
        settings, machine, policy, checker(), NoJournal(), lambda number, record: None, clock=time.monotonic
    )
    task = asyncio.create_task(forest.grow(iter(enumerate(problems(trees)))))
    await policy.all_wait.wait()
    with open(f"/proc/{os.getpid()}/status", encoding="ascii") as status:
        print(next(line.split()[1] for line in status if line.startswith("VmRSS")))
    sys.stdout.flush()
    task.cancel()
    os._exit(0)


def memory(table: Table) -> None:
    found = subprocess.run(
        [sys.executable, __file__, "--hold-open", "10000"], capture_output=True, text=True, check=True
    )
    table.add_row("10,000 open trees of 64 nodes: resident memory", f"{int(found.stdout) / 1024**2:.2f} GiB", "< 1.5")


def startup(repeats: int, table: Table) -> None:
    command = [str(Path(sys.executable).parent / "treeforge"), "--help"]
    times = []
    for _ in range(repeats + 1):
        started = time.perf_counter()
        subprocess.run(command, capture_output=True, check=True)
        times.append(time.perf_counter() - started)
    table.add_row("treeforge --help: seconds", f"{statistics.median(times[1:]):.3f}", "< 0.3")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--only", choices=["speed", "peers", "latency", "memory", "startup"])
    parser.add_argument("--hold-open", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold_open:
        asyncio.run(hold_open(options.hold_open))
    table = Table("measure", "median", "goal", title=f"engine, {options.repeats} repeats, {os.cpu_count()} cores")
    parts = {
        "speed": lambda: speed(options.repeats, table),
        "peers": lambda: peers(options.repeats, table),
        "latency": lambda: latency(options.repeats, table),
        "memory": lambda: memory(table),
        "startup": lambda: startup(options.repeats, table),
    }
    for name, part in parts.items():
        if options.only in (None, name):
            part()
    Console().print(table)


if __name__ == "__main__":
    main()
