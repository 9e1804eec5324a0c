"""vLLM under treeforge against vLLM alone: throughput and prefix cache. Needs vLLM; figures: docs/performance.md.

python benchmarks/vllm_engine.py [--trees 64] [--simulations 4] [--max-tokens 32] [--model smollm2-135m]

A run grows trees with `mcts`. Then the same engine, its cache emptied, gets all these requests again at once (the same
token ids, seeds and limits), as vLLM's own offline batch does. Both are counted until 95% are through: trees of the
run, requests of the batch. An infinite cache is one that forgets no block; it is worked out from the token ids.
"""

from __future__ import annotations

import argparse
import asyncio
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from treeforge.config import BudgetConfig, Machine, PolicyConfig, Recipe, SamplingConfig, SearchConfig
from treeforge.label import AnswerChecker
from treeforge.policy.prompts import PRESETS
from treeforge.policy.vllm import VllmPolicy
from treeforge.search.scheduler import Forest
from treeforge.store.journal import Journal
from treeforge.store.problems import read_problems
from treeforge.tree import TreeRecord

PROBLEMS = Path(__file__).parent.parent / "datasets" / "word_problems.jsonl"
SHARE = 0.95


class Asked:
    """One request as the engine got it, and what came of it."""

    def __init__(self, prompt: Any, parameters: Any) -> None:
        self.prompt, self.parameters = prompt, parameters
        self.started = time.perf_counter()
        self.ended = 0.0
        self.outputs: list[list[int]] = []

    @property
    def tokens(self) -> int:
        return sum(map(len, self.outputs))


class Recorder:
    """Stands in the engine's place and notes what passes."""

    def __init__(self, engine: Any) -> None:
        self._engine = engine
        self.asked: list[Asked] = []

    async def generate(self, prompt: Any, parameters: Any, *rest: Any, **options: Any) -> AsyncIterator[Any]:
        asked = Asked(prompt, parameters)
        self.asked.append(asked)
        async for output in self._engine.generate(prompt, parameters, *rest, **options):
            yield output
        asked.ended = time.perf_counter()
        asked.outputs = [list(one.token_ids) for one in output.outputs]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._engine, name)


async def grow(recipe: Recipe, machine: Machine, policy: VllmPolicy, trees: int) -> float:
    """When 95% of the trees were finished."""
    ends: list[float] = []

    def finished(number: int, record: TreeRecord) -> None:
        ends.append(time.perf_counter())

    problems = read_problems(str(PROBLEMS), limit=trees).problems
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal.open(Path(folder) / "journal.sqlite")
        judge = AnswerChecker(markers=recipe.steps.answer_markers)
        forest = Forest(recipe, machine, policy, judge, journal, finished, clock=time.monotonic)
        await forest.grow(iter(enumerate(problems)))
        journal.close()
    return sorted(ends)[int(SHARE * (len(ends) - 1))]


async def batch(recorder: Recorder, asked: list[Asked]) -> float:
    """When 95% of the requests were answered, all being there from the start."""

    async def one(number: int, again: Asked) -> None:
        async for _ in recorder.generate(again.prompt, again.parameters, f"batch-{number}"):
            pass

    await asyncio.gather(*(one(number, again) for number, again in enumerate(asked)))
    ends = sorted(one.ended for one in recorder.asked)
    return ends[int(SHARE * (len(ends) - 1))]


def infinite_hits(asked: list[Asked], block: int) -> tuple[int, int]:
    """Prompt tokens that a cache that forgets nothing would have had, and all of them; whole blocks only, as in vLLM.

    Blocks are there from when a sequence is started, and those of its answer when it has ended.
    """
    known: set[tuple[int, ...]] = set()
    hits = queries = 0

    def blocks(ids: list[int]) -> Iterator[tuple[int, ...]]:
        return (tuple(ids[:end]) for end in range(block, len(ids) + 1, block))

    events = sorted(
        [(one.started, 0, i) for i, one in enumerate(asked)] + [(one.ended, 1, i) for i, one in enumerate(asked)]
    )
    for _, ended, i in events:
        one = asked[i]
        prompt = list(one.prompt["prompt_token_ids"])
        if ended:
            for output in one.outputs:
                known.update(blocks(prompt + output[:-1]))
            continue
        for _ in range(one.parameters.n):
            queries += len(prompt)
            found = 0
            for piece in blocks(prompt[:-1]):  # the last token is always computed: what follows it is wanted
                if piece not in known:
                    break
                found = len(piece)
            hits += found
            known.update(blocks(prompt))
    return hits, queries


def rate(asked: list[Asked], end: float) -> tuple[int, float]:
    """Tokens answered until `end`, and seconds."""
    return sum(one.tokens for one in asked if one.ended <= end), end - min(one.started for one in asked)


async def measure(options: argparse.Namespace) -> None:
    preset = PRESETS["smollm"]
    arguments = {"dtype": "float32", "max_model_len": 2048}
    recipe = Recipe(
        policy=PolicyConfig(backend="vllm", model=options.model, engine=arguments),
        steps=preset.steps,
        sampling=SamplingConfig(temperature=0.7, max_tokens=options.max_tokens),
        search=SearchConfig(children=4),
        budget=BudgetConfig(simulations=options.simulations),
    )
    # Twice as many sequences in flight as the engine runs, so that it never waits for us.
    machine = Machine(
        concurrency=options.sequences // 2,
        engine={"enforce_eager": True, "max_num_seqs": options.sequences, "block_size": options.block},
    )
    policy = VllmPolicy(recipe.policy, recipe.steps, recipe.sampling, machine, logs=Path(tempfile.gettempdir()))
    await policy.start()
    try:
        engine = policy._engine
        assert engine is not None
        real, cache = engine.llm, engine.cache
        runs: dict[str, tuple[list[Asked], float, int, int]] = {}
        engine.llm = recorder = Recorder(real)
        end = await grow(recipe, machine, policy, options.trees)
        runs["treeforge, mcts"] = (recorder.asked, end, cache.cached, cache.prompt)
        await real.reset_prefix_cache()
        before = cache.cached, cache.prompt
        again = Recorder(real)
        end = await batch(again, recorder.asked)
        hits, queries = cache.cached - before[0], cache.prompt - before[1]
        runs["vLLM's offline batch"] = (again.asked, end, hits, queries)
        engine.llm = real
    finally:
        await policy.close()

    table = Table(
        "", "requests", "tokens", "seconds", "tokens/s", "cache hits", "infinite cache", box=None, pad_edge=False
    )
    speeds = []
    for name, (asked, end, hits, queries) in runs.items():
        tokens, seconds = rate(asked, end)
        best, all_queries = infinite_hits(asked, options.block)
        speeds.append(tokens / seconds)
        share, most = hits / max(1, queries), best / max(1, all_queries)
        cells = [f"{len(asked):,}", f"{tokens:,}", f"{seconds:.1f}", f"{tokens / seconds:.1f}"]
        table.add_row(name, *cells, f"{share:.1%}", f"{most:.1%} (reached: {share / max(most, 1e-9):.1%})")
    Console(width=120).print(table)
    print(f"throughput against the batch: {speeds[0] / speeds[1]:.1%}")


def main() -> None:
    parser = argparse.ArgumentParser(description="vLLM under treeforge against vLLM alone")
    parser.add_argument("--trees", type=int, default=64)
    parser.add_argument("--simulations", type=int, default=4)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--sequences", type=int, default=64, help="sequences that the engine runs at once")
    parser.add_argument("--block", type=int, default=32, help="tokens in a block of the prefix cache")
    parser.add_argument("--model", default="smollm2-135m")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
