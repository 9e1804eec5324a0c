"""A fleet of servers without a model: are the slots kept busy, and what does treeforge itself cost a completion?

1,000 problems, 256 slots, log-normal latency (median 200 ms, sigma 1), four replicas in processes of their own: one is
ten times slower, one dies when a third of the trees are done. Prints one table; findings: docs/performance.md.

So quick a fleet answers 3,100 completions a second. Where the processor cannot keep up with that (it has the servers to
run as well), `--latency 1` asks whether the slots are kept busy, and not what a completion costs.

python benchmarks/fleet.py [--problems 1000] [--slots 256] [--latency 0.2] [--only simulated|fleet|server|process]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import random
import re
import selectors
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.request import ProxyHandler, build_opener

import msgspec
from reference import reference
from rich.console import Console
from rich.table import Table

from treeforge.config import BudgetConfig, Machine, PolicyConfig, Recipe, SearchConfig
from treeforge.label import AnswerChecker
from treeforge.policy import SCRIPTED_STEPS, Policy, ScriptedPolicy, World
from treeforge.policy.http import UnreachableError
from treeforge.policy.server import ServerPolicy
from treeforge.problem import Problem, make_problem
from treeforge.sample import Request, Sample
from treeforge.search.progress import Progress
from treeforge.search.scheduler import Forest
from treeforge.store.journal import Journal
from treeforge.tree import TreeRecord

WORLD: dict[str, Any] = {"depth": 8, "branching": 64, "duplicate_rate": 0.05}
_PROBE = "List random numbers"


# The servers


class Replica(asyncio.Protocol):
    """A connection to a server of the scripted world, in the shape of OpenAI's completions."""

    world = ScriptedPolicy(World(**WORLD))
    chance = random.Random()
    latency = sigma = 0.0
    served: ClassVar[list[tuple[float, float, str]]] = []
    """(arrived, answered, the request) of every request but the probe's."""

    def __init__(self) -> None:
        self.data = b""
        self.transport: Any = None

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.data += data
        while (end := self.data.find(b"\r\n\r\n")) >= 0:
            head = self.data[:end]
            length = re.search(rb"(?i)content-length: *(\d+)", head)
            size = int(length.group(1)) if length else 0
            if len(self.data) < end + 4 + size:
                return
            body, self.data = self.data[end + 4 : end + 4 + size], self.data[end + 4 + size :]
            if head.startswith(b"GET"):
                stats = head.split(b" ", 2)[1].endswith(b"/stats")
                self.send(msgspec.json.encode(self.served if stats else {"data": [{"id": "world"}]}))
                continue
            arrived = time.monotonic()
            if _PROBE.encode() in body:  # a start is not what is measured
                self.answer(body, arrived)
            else:
                delay = self.latency * math.exp(self.chance.gauss(0.0, self.sigma))
                asyncio.get_running_loop().call_later(delay, self.answer, body, arrived)

    def answer(self, body: bytes, arrived: float) -> None:
        payload = msgspec.json.decode(body)
        if _PROBE not in payload["prompt"]:
            self.served.append((arrived, time.monotonic(), key_of(payload)))
        self.send(msgspec.json.encode(reply_to(self.world, payload)))

    def send(self, body: bytes) -> None:
        if not self.transport.is_closing():
            self.transport.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(body) + body)


def key_of(payload: dict[str, Any]) -> str:
    """What is asked, whoever is asked."""
    return f"{payload['prompt']}/{payload['seed']}/{payload.get('n', 1)}/{payload.get('stop', '')}"


def reply_to(world: ScriptedPolicy, payload: dict[str, Any]) -> dict[str, Any]:
    """A completions reply out of the scripted world."""
    question, _, prefix = payload["prompt"].partition("?")
    number = re.search(r"\d+", question)
    request = Request(
        problem=make_problem(f"{question}?", str(2 * int(number.group())) if number else "1"),
        prefix="" if question.startswith(_PROBE) else prefix,
        n=payload.get("n", 1),
        mode="step" if "\n" in payload.get("stop", ()) else "rollout",
        seed=payload["seed"],
        digest=b"",
        tree=0,
    )
    samples = world.sample_now(request) or ()
    usage = {"completion_tokens": sum(sample.tokens for sample in samples)}
    choices = [choice(i, sample) for i, sample in enumerate(samples)]
    return {"object": "text_completion", "choices": choices, "usage": usage}


def choice(index: int, sample: Sample) -> dict[str, Any]:
    tokens = re.findall(r"\S+|\s", sample.text)
    return {
        "index": index,
        "text": sample.text,
        "finish_reason": "stop",
        "stop_reason": "\n" if sample.finish == "delimiter" else None,
        "logprobs": {"tokens": tokens, "token_logprobs": [-0.25] * len(tokens)},
    }


async def serve(latency: float, sigma: float, seed: int, stats: Path) -> None:
    Replica.latency, Replica.sigma, Replica.chance = latency, sigma, random.Random(seed)
    loop = asyncio.get_running_loop()

    def die(*_: object) -> None:
        stats.write_bytes(msgspec.json.encode(Replica.served))
        os._exit(1)

    loop.add_signal_handler(signal.SIGTERM, die)
    server = await loop.create_server(Replica, "127.0.0.1", 0, backlog=1024)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


class Server(NamedTuple):
    url: str
    process: subprocess.Popen[str]
    stats: Path

    def kill(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def served(self) -> list[tuple[float, float, str]]:
        if self.stats.exists():
            return json.loads(self.stats.read_bytes())
        with build_opener(ProxyHandler({})).open(f"{self.url}/stats") as reply:
            return json.loads(reply.read())


@contextmanager
def server(latency: float, sigma: float, seed: int, folder: str) -> Iterator[Server]:
    stats = Path(folder) / f"{seed}.json"
    command = [sys.executable, __file__, "--serve", str(latency), str(sigma), str(seed), str(stats)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        yield Server(f"http://127.0.0.1:{process.stdout.readline().strip()}/v1", process, stats)
    finally:
        process.kill()
        process.wait()


# The run


class Run(NamedTuple):
    began: float
    all_open: float
    """When the last problem was opened; from then on there is less and less to do."""
    ended: float
    cpu: float
    """Seconds of processor time of this process."""
    progress: Progress
    journaled: int
    """Completions in the journal."""


def problems(count: int) -> list[Problem]:
    return [make_problem(f"What is {i} + {i}?", str(2 * i)) for i in range(count)]


def grow(
    policy: Policy,
    count: int,
    simulations: int,
    slots: int,
    finished: Callable[[int], None],
    loop: Callable[[], asyncio.AbstractEventLoop] | None = None,
) -> Run:
    recipe = Recipe(
        policy=PolicyConfig(backend="scripted"),
        steps=SCRIPTED_STEPS,
        search=SearchConfig(children=4, max_depth=8),
        budget=BudgetConfig(simulations=simulations),
    )
    all_open = 0.0
    progress = Progress()
    checker = AnswerChecker(markers=SCRIPTED_STEPS.answer_markers)
    checker.judge(problems(1)[0], "The answer is 1.")  # loads what it needs

    def feed() -> Iterator[tuple[int, Problem]]:
        nonlocal all_open
        yield from enumerate(problems(count))
        all_open = time.monotonic()

    def done(_: int, __: TreeRecord) -> None:
        finished(progress.finished)

    async def run() -> tuple[float, float, float]:
        await policy.start()
        try:
            with (
                tempfile.TemporaryDirectory() as folder,
                closing(Journal.open(Path(folder) / "journal.sqlite")) as journal,
            ):
                forest = Forest(
                    recipe,
                    Machine(concurrency=slots),
                    policy,
                    checker,
                    journal,
                    done,
                    progress=progress,
                    clock=time.monotonic,
                )
                began, cpu = time.monotonic(), time.process_time()
                await forest.grow(feed())
                return began, time.process_time() - cpu, journal.totals().completions
        finally:
            await policy.close()

    with asyncio.Runner(loop_factory=loop) as runner:
        began, cpu, journaled = runner.run(run())
    return Run(began, all_open, time.monotonic(), cpu, progress, journaled)


def busy(spans: Sequence[tuple[float, float]], begin: float, end: float, slots: int) -> float:
    """Share of the slots' time in which a server worked on a request that it then answered."""
    return sum(max(0.0, min(b, end) - max(a, begin)) for a, b in spans) / ((end - begin) * slots)


def policy_of(servers: Sequence[Server], slots: int) -> ServerPolicy:
    recipe = Recipe(steps=SCRIPTED_STEPS)
    urls = tuple(server.url for server in servers)
    return ServerPolicy(
        "world", recipe.steps, recipe.sampling, servers=urls, api_key=None, timeout=600.0, concurrency=slots
    )


def fleet(options: argparse.Namespace, table: Table) -> None:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        servers = [
            stack.enter_context(server(latency, options.sigma, seed, folder))
            for seed, latency in enumerate(latencies(options))
        ]

        def finished(trees: int) -> None:
            if trees == options.problems // 3:
                servers[-1].kill()

        run = grow(policy_of(servers, options.slots), options.problems, options.simulations, options.slots, finished)
        report(options, table, "HTTP", run, [server.served() for server in servers])
    table.add_row("  share of one core that this process took", f"{run.cpu / (run.ended - run.began):.0%}", "")
    table.add_row("  our processor time a completion, µs", f"{run.cpu / run.progress.completions * 1e6:.0f}", "<= 150")


def latencies(options: argparse.Namespace) -> list[float]:
    return [options.latency, 10.0 * options.latency, options.latency, options.latency]


def report(
    options: argparse.Namespace, table: Table, how: str, run: Run, served: list[list[tuple[float, float, str]]]
) -> None:
    spans = [(a, b) for rows in served for a, b, _ in rows]
    asked = Counter(key for rows in served for _, _, key in rows)
    requests = run.progress.requests
    mean = options.latency * math.exp(options.sigma**2 / 2)
    table.add_row(
        f"{how}: {options.problems:,} problems x {options.simulations}, {options.slots} slots, {options.latency:g} s, "
        "4 replicas (1 dies, 1 ten times slower): slots busy until the last problem is opened",
        f"{busy(spans, run.began, run.all_open, options.slots):.1%}",
        ">= 95%",
    )
    table.add_row("  until the last tree ends", f"{busy(spans, run.began, run.ended, options.slots):.1%}", "")
    table.add_row("  seconds until the last problem is opened", f"{run.all_open - run.began:.1f}", "")
    table.add_row("  seconds until the last tree ends", f"{run.ended - run.began:.1f}", "")
    table.add_row(
        "  the same if every request took a quick replica's mean and no slot rested",
        f"{requests * mean / options.slots:.1f}",
        "",
    )
    twice = sum(count - 1 for count in asked.values())
    table.add_row(f"  answered twice, of {requests:,} requests", str(twice), "0")
    table.add_row("  answered by: quick, slow, quick, dead", ", ".join(str(len(rows)) for rows in served), "")
    table.add_row("  journaled completions, of all", f"{run.journaled:,} of {4 * len(asked):,}", "all")


# The same on a clock of its own, where the processor's speed does not count


class Skipping(selectors.DefaultSelector):
    """Never waits: a clock that is only read here goes on instead."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0

    def select(self, timeout: float | None = None) -> list[Any]:
        ready = super().select(0)
        if not ready and timeout:
            self.now += timeout
        return ready

    def monotonic(self) -> float:
        return self.now


class Network:
    """What stands in the place of the HTTP client: replicas that are slow, or die."""

    def __init__(self, options: argparse.Namespace, clock: Skipping) -> None:
        self.clock, self.sigma = clock, options.sigma
        self.world, self.chance = ScriptedPolicy(World(**WORLD)), random.Random(0)
        self.latency = {f"http://replica-{i}/v1": latency for i, latency in enumerate(latencies(options))}
        self.served: dict[str, list[tuple[float, float, str]]] = {url: [] for url in self.latency}
        self.dead = ""

    async def post(self, url: str, payload: dict[str, Any]) -> dict[str, Any]:
        base, arrived = url.removesuffix("/completions"), self.clock.now
        await self.get(f"{base}/models")
        if _PROBE not in payload["prompt"]:
            await asyncio.sleep(self.latency[base] * math.exp(self.chance.gauss(0.0, self.sigma)))
            await self.get(f"{base}/models")
            self.served[base].append((arrived, self.clock.now, key_of(payload)))
        return reply_to(self.world, payload)

    async def get(self, url: str) -> dict[str, Any]:
        if self.dead and url.startswith(self.dead):
            raise UnreachableError(f"{url}: died")
        return {"data": [{"id": "world"}]}

    async def close(self) -> None:
        pass


def simulated(options: argparse.Namespace, table: Table) -> None:
    clock = Skipping()
    network = Network(options, clock)
    recipe = Recipe(steps=SCRIPTED_STEPS)
    policy = ServerPolicy(
        "world",
        recipe.steps,
        recipe.sampling,
        servers=tuple(network.latency),
        api_key=None,
        timeout=600.0,
        concurrency=options.slots,
    )
    policy._client = network
    for replica in policy._balancer.members:
        replica._client = network

    def finished(trees: int) -> None:
        if trees == options.problems // 3:
            network.dead = list(network.latency)[-1]

    def loop() -> asyncio.AbstractEventLoop:
        made = asyncio.SelectorEventLoop(clock)
        made.time = clock.monotonic  # type: ignore[method-assign]
        return made

    real, time.monotonic = time.monotonic, clock.monotonic
    try:
        run = grow(policy, options.problems, options.simulations, options.slots, finished, loop)
    finally:
        time.monotonic = real
    report(options, table, "simulated clock, no HTTP", run, list(network.served.values()))


def own_time(options: argparse.Namespace, table: Table, *, through_server: bool) -> None:
    """Processor time of this process for each completion; with a server, that runs elsewhere."""
    count = max(options.problems // 4, 1)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        if through_server:
            servers = [stack.enter_context(server(options.latency, options.sigma, 0, folder))]
            policy: Policy = policy_of(servers, options.slots)
        else:
            policy = ScriptedPolicy(World(**WORLD, latency=options.latency, latency_sigma=options.sigma))
        run = grow(policy, count, options.simulations, options.slots, lambda trees: None)
    where, goal = ("through one server", "<= 150") if through_server else ("in process", "<= 60")
    table.add_row(
        f"{where}, {run.progress.completions:,} completions: our processor time each, µs",
        f"{run.cpu / run.progress.completions * 1e6:.0f}",
        goal,
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--problems", type=int, default=1000)
    parser.add_argument("--simulations", type=int, default=16)
    parser.add_argument("--slots", type=int, default=256)
    parser.add_argument("--latency", type=float, default=0.2, help="median seconds a request")
    parser.add_argument("--sigma", type=float, default=1.0)
    parser.add_argument("--only", choices=["simulated", "fleet", "server", "process"])
    parser.add_argument("--serve", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        latency, sigma, seed, stats = options.serve
        asyncio.run(serve(float(latency), float(sigma), int(seed), Path(stats)))
        return
    logging.basicConfig(level=logging.WARNING, format="%(relativeCreated)6d ms %(message)s")
    table = Table("measure", "value", "goal", title=f"fleet, {os.cpu_count()} cores")
    table.add_row("reference: million additions/s of plain Python", f"{reference():.1f}", "")
    if options.only in (None, "process"):
        own_time(options, table, through_server=False)
    if options.only in (None, "server"):
        own_time(options, table, through_server=True)
    if options.only in (None, "simulated"):
        simulated(options, table)
    if options.only in (None, "fleet"):
        fleet(options, table)
    Console().print(table)


if __name__ == "__main__":
    main()
