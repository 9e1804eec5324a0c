"""The page of a large run: every question it asks, the opening of a large tree, frames while one scrolls. One table.

python benchmarks/view.py [--problems 100000] [--nodes 100000] [--run FOLDER] [--turns 7]

`--run` keeps the two run folders (`FOLDER` and `FOLDER-tree`) for another time. Questions go to a real server on
loopback; the first of a kind, which reads files and is kept, has a line of its own, the others are medians. The
browser's part needs playwright and a Chromium on the PATH and is left out where there is none.
"""

from __future__ import annotations

import argparse
import http.client
import json
import random
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from reference import reference
from rich.console import Console
from rich.table import Table
from views import NODES_A_TREE, make_run, problem

from treeforge.config import Recipe, RunConfig
from treeforge.manifest import new_manifest
from treeforge.policy import SCRIPTED_STEPS
from treeforge.store.run import RunFolder
from treeforge.tree import Finish, Rollout, TreeBuilder, TreeRecord
from treeforge.verdict import Verdict
from treeforge.view.reader import RunReader
from treeforge.view.server import listen, make_server

Took = tuple[float, float | None]
"""Milliseconds, and those of our processor time; None where a browser did the work."""
Row = tuple[str, Took, str]
"""What was done, what it took, and what is to be known about it."""
BROWSER = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1",
]


def make_tree_run(run: Path, nodes: int) -> None:
    """A run of one problem, whose tree has so many nodes: half of the steps hold a formula, a fifth of them end."""
    rng = random.Random(7)
    builder, rollouts, inner = TreeBuilder(), [], [0]
    while builder.size < nodes:
        parent = inner[int(len(inner) * rng.random() ** 0.3)]
        maths = f" so $x_{{{builder.size}}} = \\frac{{{rng.randrange(99)}}}{{7}}$" if rng.random() < 0.5 else ""
        text = f"Step {builder.depth[parent] + 1}: we add {rng.randrange(10_000)} to what we have{maths} and go on.\n"
        if rng.random() < 0.2 and parent:
            right = rng.random() < 0.4
            verdict = Verdict.CORRECT if right else Verdict.INCORRECT
            builder.add(parent, text, finish=Finish.ANSWERED, answer="7" if right else "8", verdict=verdict)
            continue
        node = builder.add(parent, text, token_count=20)
        inner.append(node)
        right = rng.random() < 0.4
        builder.rollouts[node], builder.rollouts_correct[node] = 1, int(right)
        verdict = Verdict.CORRECT if right else Verdict.INCORRECT
        rollouts.append(Rollout(node, ("And so on.\n", "It is 7."), "7", int(verdict), int(Finish.ANSWERED), 9, -1.0))
    manifest = new_manifest(RunConfig(recipe=Recipe(steps=SCRIPTED_STEPS)), "benchmark")
    with RunFolder.create(run, manifest, [problem(0)]) as folder:
        folder.finish(0, TreeRecord("sum-0", builder.freeze(), tuple(rollouts), "done", "benchmark"))


@contextmanager
def served(run: Path) -> Iterator[Callable[[str], bytes]]:
    """A function that asks the run's server for a path; its `port` is an attribute."""
    listening = listen("127.0.0.1", 0)
    port = listening.getsockname()[1]
    server = make_server(RunReader(run))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listening]})
    thread.start()
    while not server.started:
        time.sleep(0.01)

    def ask(path: str) -> bytes:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=600)
        connection.request("GET", path)
        reply = connection.getresponse()
        body = reply.read()
        connection.close()
        assert reply.status == 200, body[:500]
        return body

    ask.port = port  # type: ignore[attr-defined]
    try:
        yield ask
    finally:
        server.should_exit = True
        thread.join()
        listening.close()


def timed(call: Callable[[], Any]) -> tuple[Took, Any]:
    """(what it took, what it gave); the server is in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    found = call()
    return (1000 * (time.perf_counter() - wall), 1000 * (time.process_time() - cpu)), found


def median(call: Callable[[], Any], turns: int) -> Took:
    walls, cpus = zip(*(timed(call)[0] for _ in range(turns)), strict=True)
    return statistics.median(walls), statistics.median(cpus)


def list_rows(run: Path, turns: int) -> Iterator[Row]:
    """The questions about a run of many problems."""
    yield "open the run folder", median(lambda: RunFolder.open(run), turns), ""
    with served(run) as ask:
        yield "problems: the first page, with the index", timed(lambda: ask("/api/problems"))[0], "first"
        last = json.loads(ask("/api/problems?limit=0"))["matching"] - 1
        for name, query in (
            ("problems: a page", f"offset={last - 100}"),
            ("problems: sorted by accuracy", "sort=accuracy&descending=true"),
            ("problems: searched", "text=sum-77"),
            ("problems: filtered by accuracy, variance, status", "least=0.2&most=0.8&variance=true&status=done"),
        ):
            yield name, median(lambda q=query: ask(f"/api/problems?{q}"), turns), ""
        yield (
            "a tree, opened",
            median(lambda: ask(f"/api/problems/{random.randrange(last)}"), turns),
            "another each time",
        )
        yield "one of its nodes", median(lambda: ask(f"/api/problems/{last}/nodes/5"), turns), ""
        yield "run", median(lambda: ask("/api/run"), turns), ""
        yield "live", median(lambda: ask("/api/live"), turns), ""
        yield "dataset: labels, warnings", timed(lambda: ask("/api/dataset"))[0], "first"


def tree_rows(run: Path, nodes: int, turns: int) -> Iterator[Row]:
    """The questions about one large tree."""
    with served(run) as ask:
        took, body = timed(lambda: ask("/api/problems/0"))
        yield "the tree, opened", took, f"first; {len(body) / 1e6:.1f} MB"
        yield "the tree, again", median(lambda: ask("/api/problems/0"), turns), ""
        some = ",".join(map(str, range(5_000, 5_400)))
        yield "400 labels", timed(lambda: ask(f"/api/problems/0/labels?nodes={some}"))[0], "first"
        yield "a node", median(lambda: ask(f"/api/problems/0/nodes/{random.randrange(nodes)}"), turns), ""
        yield "its verdicts", median(lambda: ask(f"/api/problems/0/nodes/{random.randrange(nodes)}/checks"), turns), ""
        yield "text searched", median(lambda: ask("/api/problems/0/search?text=add+777"), turns), ""
        yield from browser_rows(ask.port)  # type: ignore[attr-defined]


FRAMES = """async () => {
  const canvas = document.querySelector('.canvas'), taken = [];
  let before = performance.now();
  for (let i = 0; i < 120; i += 1) {
    canvas.scrollTop += 400;
    await new Promise(requestAnimationFrame);
    const now = performance.now();
    taken.push(now - before);
    before = now;
  }
  return taken.sort((a, b) => a - b);
}"""


def browser_rows(port: int) -> Iterator[Row]:
    """The same tree in a browser: until it is drawn, unfolded, and while one scrolls."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    try:
        from playwright.sync_api import sync_playwright
    except ModuleNotFoundError:
        chromium = None
    if chromium is None:
        return
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=BROWSER)
        page = browser.new_page(viewport={"width": 1280, "height": 860})
        shows = "() => document.querySelectorAll('.pill .step').length > 5"

        def opened() -> None:
            page.goto(f"http://127.0.0.1:{port}/#/problem/0")
            page.wait_for_function(shows)

        yield "browser: until the tree is drawn", (timed(opened)[0][0], None), "the server has it already"
        took, _ = timed(lambda: (page.get_by_role("button", name="Unfold all").click(), page.evaluate(_FRAME)))
        yield "browser: all nodes unfolded", (took[0], None), ""
        frames = page.evaluate(FRAMES)
        yield "browser: a frame while scrolling, median", (statistics.median(frames), None), "all nodes unfolded"
        yield "browser: the slowest of 20 frames", (frames[int(0.95 * len(frames))], None), ""
        browser.close()


_FRAME = "() => new Promise(requestAnimationFrame)"


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=100_000)
    parser.add_argument("--nodes", type=int, default=100_000, help="of the one large tree")
    parser.add_argument("--run", type=Path, help="the run folder, made where it is not there")
    parser.add_argument("--turns", type=int, default=7)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        run = options.run or Path(folder) / "run"
        large = run.with_name(f"{run.name}-tree")
        if not (run / "manifest.json").exists():
            make_run(run, options.problems * NODES_A_TREE)
        if not (large / "manifest.json").exists():
            make_tree_run(large, options.nodes)
        table = Table("what", "ms", "processor ms", "", title=f"view, reference {reference():.0f}")
        for title, rows in (
            (f"{options.problems:,} problems of {NODES_A_TREE} nodes", list_rows(run, options.turns)),
            (f"one tree of {options.nodes:,} nodes", tree_rows(large, options.nodes, options.turns)),
        ):
            table.add_row(f"[bold]{title}[/]", "", "", "")
            for name, (wall, cpu), note in rows:
                table.add_row(f"  {name}", f"{wall:,.1f}", "" if cpu is None else f"{cpu:,.1f}", note)
        Console().print(table)


if __name__ == "__main__":
    main()
