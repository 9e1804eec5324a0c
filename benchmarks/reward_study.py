"""Whether a hierarchical reward model chooses better solutions. Findings: docs/reward.md.

    python benchmarks/reward_study.py world [--quick] [--json FILE] [--plot FILE]
    python benchmarks/reward_study.py real  [--quick]

`world`: tiny transformers in a synthetic world (reward_world.py). `real`: SmolLM2-135M (reward_real.py). A second call
does only what is missing in DIR. Needs the extras `train` and, for plots, `bench`.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import reward_real
from reward_curves import WorldCurves, curves_of
from reward_tables import plot, report
from reward_world import STEPS, SumsPolicy, SumsWorld, sums, tiny_base
from rich.console import Console

import treeforge as tf
from treeforge.config import BudgetConfig, CompressConfig, ExportConfig, Recipe, RunConfig, SearchConfig
from treeforge.reward.base import Task
from treeforge.reward.data import read_data
from treeforge.reward.evaluate import grow_solutions
from treeforge.reward.score import load_reward_model
from treeforge.reward.settings import TrainConfig
from treeforge.reward.train import train

BASE = SumsWorld()
WORLDS = {
    "base": BASE,
    "no corrections": msgspec.structs.replace(BASE, correction=0.0),
    "frequent corrections": msgspec.structs.replace(BASE, correction=0.7),
    "wording tells nothing": msgspec.structs.replace(BASE, cue=0.0, sure=0.0, bluff=0.0),
}


class Kind(NamedTuple):
    """What a reward model learns from."""

    task: Task
    hnc: bool = False


KINDS = {"ORM": Kind("orm"), "PRM": Kind("prm"), "HRM": Kind("hrm"), "HRM + HNC": Kind("hrm", hnc=True)}


class Size(NamedTuple):
    """How much of everything."""

    problems: int
    """For training; one tree each."""
    held_out: int
    samples: int
    """Solutions of each held-out problem."""
    sizes: tuple[int, ...]
    """N."""
    steps: int
    """Of the optimiser, the same for every kind of model."""
    batch: int = 64


FULL = Size(problems=600, held_out=150, samples=32, sizes=(1, 2, 4, 8, 16, 24), steps=500)
QUICK = Size(problems=12, held_out=6, samples=8, sizes=(1, 2, 4, 8), steps=20)


def grow(place: Path, world: SumsWorld, size: Size) -> None:
    """The trees of a world with their labels, HNC and export, and solutions of other problems to choose among."""
    problems = sums(size.problems + size.held_out, world.terms, seed=1)
    levels = world.terms + 1
    config = RunConfig(
        recipe=Recipe(
            steps=STEPS,
            search=SearchConfig(strategy="exhaustive", children=3, levels=levels, max_depth=levels),
            budget=BudgetConfig(simulations=0),
        ),
        compress=CompressConfig(min_children=2),
        export=ExportConfig(formats=("hrm", "orm")),
    )
    tf.run(problems[: size.problems], place / "trees", config, policy=SumsPolicy(world))
    grow_solutions(
        problems[size.problems :], place / "samples", config, solutions=size.samples, policy=SumsPolicy(world)
    )


def train_one(place: Path, name: str, seed: int, size: Size) -> str:
    """One model; a line on how it came out."""
    import torch

    torch.set_num_threads(1)
    kind, out = KINDS[name], model_folder(place, name, seed)
    base = tiny_base(place.parent / f"base-{seed}", seed=seed)
    rows = len(read_data(place / "trees", kind.task, hnc=kind.hnc).train)
    start = time.monotonic()
    saved = train(
        place / "trees",
        out,
        TrainConfig(
            task=kind.task,
            hnc=kind.hnc,
            model=str(base),
            epochs=max(1, size.steps * size.batch / rows),
            limit=size.steps * size.batch,
            batch=size.batch,
            lr=3e-3,
            warmup=0.05,
            window=128,
            evals=2,
            eval_limit=800,
            patience=0,
            seed=seed,
        ),
    )
    auc = saved.measures.auc
    return (
        f"{place.name}, {name}, seed {seed}: {saved.train.rows:,} of {rows:,} rows, {saved.steps:,} steps, "
        f"AUC {'-' if auc is None else f'{auc:.3f}'}, {time.monotonic() - start:.0f} s"
    )


def model_folder(place: Path, name: str, seed: int) -> Path:
    return place / name.lower().replace(" + ", "-") / str(seed)


def evaluated(place: Path, name: str, seeds: int, size: Size) -> WorldCurves:
    """Best-of-N in one world by the models of every kind and seed."""
    import torch

    torch.set_num_threads(1)
    models = {
        kind: [load_reward_model(str(model_folder(place, kind, seed))) for seed in range(seeds)] for kind in KINDS
    }
    return curves_of(name, place / "samples", models, size.sizes)


def study_world(
    out: Path, names: Sequence[str], seeds: int, jobs: int, size: Size, say: Callable[[str], None]
) -> list[WorldCurves]:
    """Grow, train and evaluate what is missing in `out`."""
    places = {name: out / name.replace(" ", "-") for name in names}
    for seed in range(seeds):
        tiny_base(out / f"base-{seed}", seed=seed)
    with ProcessPoolExecutor(jobs) as pool:
        grown = [pool.submit(grow, place, WORLDS[name], size) for name, place in places.items()]
        for task in grown:
            task.result()
        say("trees are grown")
        trained = [
            pool.submit(train_one, place, kind, seed, size)
            for seed, place, kind in product(range(seeds), places.values(), KINDS)
        ]
        for line in trained:
            say(line.result())
        found = [pool.submit(evaluated, place, name, seeds, size) for name, place in places.items()]
        return [task.result() for task in found]


def world(options: argparse.Namespace) -> None:
    os.environ.setdefault("OMP_NUM_THREADS", "1")
    console, log = Console(width=140), Console(stderr=True)
    start = time.monotonic()
    size = QUICK if options.quick else FULL._replace(steps=options.steps)
    seeds = min(options.seeds, 1) if options.quick else options.seeds
    found = study_world(
        options.out,
        options.worlds or list(WORLDS),
        seeds,
        options.jobs,
        size,
        lambda line: log.print(f"{time.monotonic() - start:5.0f} s  {line}", markup=False),
    )
    report(found, console)
    if options.json:
        options.json.write_text(json.dumps(msgspec.to_builtins(found), indent=1) + "\n")
    if options.plot:
        plot(found, options.plot)


def real(options: argparse.Namespace) -> None:
    reward_real.study(options.out, quick=options.quick)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    more: dict[str, Any] = {"formatter_class": argparse.ArgumentDefaultsHelpFormatter}
    one = commands.add_parser("world", help="tiny transformers in a synthetic world", **more)
    one.add_argument("--out", type=Path, default=Path("runs/reward-world"), help="folder; goes on with what is there")
    one.add_argument("--worlds", nargs="+", choices=WORLDS, help="all, where none is named")
    one.add_argument("--steps", type=int, default=FULL.steps, help="optimiser steps of each model; another --out")
    one.add_argument("--seeds", type=int, default=3, help="models of each kind")
    one.add_argument("--jobs", type=int, default=2, help="processes")
    one.add_argument("--quick", action="store_true", help="a minute, to see that it works; says nothing")
    one.add_argument("--json", type=Path, help="write every figure there")
    one.add_argument("--plot", type=Path, help="write an SVG or PNG there")
    one.set_defaults(command=world)
    two = commands.add_parser("real", help="SmolLM2-135M as policy and as base", **more)
    two.add_argument("--out", type=Path, default=Path("runs/reward-real"), help="folder; goes on with what is there")
    two.add_argument("--quick", action="store_true", help="few rows, to see that it works; says nothing")
    two.set_defaults(command=real)
    options = parser.parse_args(arguments)
    options.command(options)


if __name__ == "__main__":
    main()
