"""Labels, compression and export of many trees: nodes/s, rows/s and peak memory. Prints one table.

python benchmarks/views.py [--nodes 1000000] [--run FOLDER] [--format hrm --format nodes]

The trees are grown by the scripted policy, 64 nodes each, in a run folder that is kept where `--run` names one. Beyond
200,000 nodes the tables of the blocks that were grown are written again under the numbers of further problems, so that
ten million nodes take a minute and not an hour. Each stage runs in a process of its own on one core. Rows a CPU second
stand beside rows a second of wall time, since other work may share the machine, and so does what plain Python does at
that moment (reference).
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from reference import reference
from rich.console import Console
from rich.table import Table

import treeforge as tf
from treeforge.config import BudgetConfig, CompressConfig, ExportConfig, PolicyConfig, Recipe, RunConfig, SearchConfig
from treeforge.policy import SCRIPTED_STEPS
from treeforge.store.parquet import read_table, write_table
from treeforge.store.run import RunFolder
from treeforge.store.tables import NODES, ROLLOUTS

NODES_A_TREE = 64
GROWN = 200_000
"""Nodes that the scripted policy grows at most."""
WORLD: dict[str, Any] = {"depth": 8, "branching": 64, "duplicate_rate": 0.05}


def make_run(run: Path, nodes: int) -> None:
    """A run folder with about so many nodes."""
    trees = max(nodes // NODES_A_TREE, 1)
    if nodes <= GROWN:
        grow(run, trees)
        return
    with tempfile.TemporaryDirectory(dir=run.parent) as folder:
        grow(Path(folder) / "run", GROWN // NODES_A_TREE)
        repeat(RunFolder.open(Path(folder) / "run"), run, trees)


def problem(number: int) -> tf.Problem:
    return tf.make_problem(f"What is {number} + {number}?", str(2 * number), problem_id=f"sum-{number}")


def grow(run: Path, trees: int) -> None:
    """A run folder with so many trees; goes on where it was stopped."""
    recipe = Recipe(
        policy=PolicyConfig(backend="scripted", scripted=WORLD),
        steps=SCRIPTED_STEPS,
        search=SearchConfig(children=4, max_depth=8),
        budget=BudgetConfig(simulations=NODES_A_TREE // 4),
    )
    tf.run(list(map(problem, range(trees))), run, RunConfig(recipe=recipe), source="sums.jsonl")


def repeat(grown: RunFolder, run: Path, trees: int) -> None:
    """A run folder whose blocks are those of `grown` in turn, as if further problems had given the same trees."""
    files = {kind: grown.table_files(kind) for kind in ("nodes", "rollouts")}
    whole = len(grown.problems) // grown.block
    with RunFolder.create(run, grown.manifest | {"policy": None}, list(map(problem, range(trees)))) as made:
        assert made.journal is not None
        made.manifest["policy"] = grown.manifest["policy"]
        made.write_manifest()
        for block in made.blocks:
            members, place = made.members(block), block % whole
            for kind, schema in (("nodes", NODES), ("rollouts", ROLLOUTS)):
                table = read_table(files[kind][place], schema)
                number = pc.add(table["tree_id"], pa.scalar(members.start - place * made.block, pa.int32()))
                table = table.set_column(0, schema.field("tree_id"), number)
                table = table.filter(pc.less(table["tree_id"], members.stop))
                write_table(table, run / "trees" / f"{kind}-{block:05d}.parquet")
                if kind == "nodes":
                    sizes = Counter(table["tree_id"].to_pylist())
            made.journal.record_outcomes([(member, "done", "repeated", sizes[member]) for member in members])


def stage(name: str, run: Path, formats: tuple[str, ...], passes: int) -> dict[str, Any]:
    """One stage, timed, in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    from treeforge import views

    if name == "label":
        done = views.label(run)["nodes"]
    elif name == "compress":
        done = views.compress(run, CompressConfig(passes=passes))["nodes"]
    else:
        summary = views.export(run, ExportConfig(formats=formats), out=run / "benchmark")
        done = sum(sum(splits.values()) for splits in summary.rows.values())
    return {
        "reference": reference(),
        "done": done,
        "wall": time.perf_counter() - wall,
        "cpu": time.process_time() - cpu,
        "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024**2,
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--run", type=Path, help="the run folder, made where it is not there")
    parser.add_argument("--format", action="append", help="of the export; hrm and nodes if none is given")
    parser.add_argument("--passes", type=int, default=1, help="HNC passes")
    parser.add_argument("--stage", help=argparse.SUPPRESS)
    options = parser.parse_args()
    formats = tuple(options.format or ("hrm", "nodes"))
    if options.stage:
        print(json.dumps(stage(options.stage, options.run, formats, options.passes)))
        return
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or Path(folder) / "run"
        if not (run / "manifest.json").exists():
            make_run(run, options.nodes)
        table = Table(
            "stage",
            "rows",
            "rows/s",
            "rows a CPU second",
            "reference",
            "peak GiB",
            "goal",
            title=f"views, {os.cpu_count()} cores",
        )
        goals = {"label": "", "compress": ">= 300,000", "export": ">= 200,000"}
        for name, goal in goals.items():
            command = [sys.executable, __file__, "--stage", name, "--run", str(run), "--passes", str(options.passes)]
            command += [part for format in formats for part in ("--format", format)]
            # Arrow's and polars' thread pools would use every core; the goals are for one.
            environment = {**os.environ, "OMP_NUM_THREADS": "1", "POLARS_MAX_THREADS": "1"}
            found = json.loads(
                subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout
            )
            table.add_row(
                name,
                f"{found['done']:,}",
                f"{found['done'] / found['wall']:,.0f}",
                f"{found['done'] / found['cpu']:,.0f}",
                f"{found['reference']:.0f}",
                f"{found['peak']:.2f}",
                goal,
            )
    Console().print(table)


if __name__ == "__main__":
    main()
