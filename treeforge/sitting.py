"""One sitting of a run: policy, journal, judge and search wired together, with its logs. Part of the pipeline."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import Any

import msgspec

from treeforge.config import Machine, Recipe
from treeforge.configuration import convert, to_dict
from treeforge.label import AnswerChecker, CheckStatistics, gold_problem
from treeforge.manifest import check_identity
from treeforge.metrics import Metrics
from treeforge.policy import Policy, open_policy
from treeforge.policy.base import prompt_cache
from treeforge.printable import one_line
from treeforge.problem import Problem
from treeforge.search.beam import Scorer
from treeforge.search.progress import Progress
from treeforge.search.scheduler import Forest
from treeforge.store.given import open_given
from treeforge.store.run import RunFolder
from treeforge.verdict import Judge

_log = logging.getLogger("treeforge.pipeline")

OnProgress = Callable[[Progress], None]


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may put in the place of what recipe and manifest name."""

    machine: Machine | None = None
    """How and where; None takes the manifest's."""
    policy: Policy | None = None
    """A policy of your own counts in resume by its `identity`."""
    judge: Judge | None = None
    scorer: Scorer | None = None
    """What `beam` ranks partial solutions by, in place of what the recipe names. Resume and replay need the same."""
    accept_engine: bool = False
    """Go on with another engine, or another version of it, than the run was started with."""
    lines: Mapping[str, int] = {}
    """Where each problem stands in its file (1-based), by its id; for messages."""
    on_progress: OnProgress | None = None
    """Called several times a second with the counters."""


async def search_folder(folder: RunFolder, parts: Parts, only: Sequence[int] | None = None) -> Progress:
    """Grow the trees that have not ended, of `only` where given, under the folder's lock."""
    recipe = convert(folder.manifest["recipe"], Recipe)
    machine = parts.machine or convert(folder.manifest["machine"], Machine)
    with folder:
        folder.lock()
        assert folder.journal is not None
        unfinished = folder.unfinished()
        wanted = unfinished if only is None else sorted(set(unfinished) & set(only))
        totals = folder.journal.totals()
        progress = Progress(
            trees=len(folder.problems),
            finished=len(folder.problems) - len(unfinished),
            run_tokens=totals.tokens,
            run_completions=totals.completions,
            run_nodes=folder.journal.nodes(),
        )
        if wanted:
            judge = parts.judge or open_judge(recipe)
            with _sitting(folder, progress, judge):
                await _grow(folder, recipe, machine, parts, judge, progress, wanted)
        folder.write_problems()
        folder.tidy()
    return progress


async def _grow(
    folder: RunFolder,
    recipe: Recipe,
    machine: Machine,
    parts: Parts,
    judge: Judge,
    progress: Progress,
    numbers: Sequence[int],
) -> None:
    assert folder.journal is not None
    given = open_given(folder)
    if isinstance(judge, AnswerChecker):
        await asyncio.to_thread(judge.start, [folder.problems[number].gold_answer for number in numbers])
    async with _started(parts.policy or open_policy(recipe, machine, folder.path / "logs")) as model:
        check_identity(folder, model.identity, judge, scorer=parts.scorer, accept_engine=parts.accept_engine)
        # An `extend` that was killed between its two files left more problems than the manifest counts.
        folder.manifest["problems"] |= {"count": len(folder.problems), "digest": folder.problems_digest()}
        folder.manifest["machine"] = to_dict(machine)
        folder.write_manifest()
        forest = Forest(
            recipe,
            machine,
            model,
            judge,
            folder.journal,
            folder.finish,
            identity=folder.manifest["policy"],
            progress=progress,
            scorer=parts.scorer,
            given=given.of if given else None,
            clock=time.monotonic,
        )
        prometheus = Path(machine.prometheus) if machine.prometheus else None
        metrics = Metrics(folder.path / "logs" / "metrics.jsonl", machine.metrics_seconds, prometheus)
        async with _reported(progress, model, metrics, parts.on_progress):
            await forest.grow((number, folder.problems[number]) for number in numbers)


def open_judge(recipe: Recipe) -> Judge:
    """The answer checker that `recipe.judge` names."""
    return AnswerChecker(policy=recipe.judge.policy, markers=recipe.steps.answer_markers)


def report_golds(problems: Sequence[Problem], lines: Mapping[str, int]) -> None:
    """Say before any model call which gold answers the checker cannot read, and which questions have several."""
    golds: dict[str, set[str]] = {}
    for problem in problems:
        golds.setdefault(problem.question, set()).add(problem.gold_answer)
    if several := [question for question, answers in golds.items() if len(answers) > 1]:
        _log.warning("%d questions have several gold answers, as: %s", len(several), one_line(several[0], 80))
    unread = [(p, why) for p in problems if (why := gold_problem(p.gold_answer))]
    if unread:
        named = "; ".join(f"{_where(p, lines)}: {one_line(why)}" for p, why in unread[:5])
        _log.warning(
            "%d of %d gold answers cannot be read, so that an answer is right where it is the same text and undecided "
            "otherwise: %s%s",
            len(unread),
            len(problems),
            named,
            " …" if len(unread) > 5 else "",
        )


def _where(problem: Problem, lines: Mapping[str, int]) -> str:
    name = f"problem {one_line(problem.problem_id)}"
    if not problem.source:
        return name
    line = lines.get(problem.problem_id)
    return f"{one_line(problem.source)}{'' if line is None else f':{line}'}, {name}"


@asynccontextmanager
async def _started(policy: Policy) -> AsyncIterator[Policy]:
    try:
        await policy.start()
        yield policy
    finally:
        await policy.close()


@contextmanager
def _sitting(folder: RunFolder, progress: Progress, judge: Judge) -> Iterator[None]:
    """Log to `logs/run.log` and note the sitting in `logs/run.jsonl`: times go to logs, never into tables.

    The note has the answer checker's statistics, where the judge keeps such.
    """
    handler = logging.FileHandler(folder.path / "logs" / "run.log", encoding="utf-8", delay=True)
    handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    logger = logging.getLogger("treeforge")
    logger.addHandler(handler)
    started = time.monotonic()
    checked = deepcopy(_statistics(judge))
    try:
        yield
    finally:
        logger.removeHandler(handler)
        handler.close()
        statistics = _statistics(judge)
        note: dict[str, Any] = {
            "event": "sitting",
            "seconds": round(time.monotonic() - started, 3),
            "requests": progress.requests,
            "completions": progress.completions,
            "tokens": progress.tokens,
            "trees": progress.finished,
        }
        if progress.prompt_tokens is not None:
            note |= {"prompt_tokens": progress.prompt_tokens, "cached_tokens": progress.cached_tokens}
        if statistics is not None and checked is not None:
            note["checker"] = msgspec.to_builtins(statistics.since(checked))
        with suppress(OSError), (folder.path / "logs" / "run.jsonl").open("ab") as stream:
            # Not msgspec: a judge of one's own may let lone surrogates into answers, which only escapes can carry.
            stream.write(json.dumps(note).encode() + b"\n")


def _statistics(judge: Judge) -> CheckStatistics | None:
    found = getattr(judge, "statistics", None)
    return found if isinstance(found, CheckStatistics) else None


@asynccontextmanager
async def _reported(
    progress: Progress, model: Policy, metrics: Metrics, on_progress: OnProgress | None
) -> AsyncIterator[None]:
    def report(*, final: bool = False) -> None:
        if (cache := prompt_cache(model)) is not None:
            progress.prompt_tokens, progress.cached_tokens = cache.prompt, cache.cached
        metrics.update(progress, final=final)
        if on_progress is not None:
            on_progress(progress)

    async def tick() -> None:
        while True:
            report()
            await asyncio.sleep(0.2)

    ticker = asyncio.create_task(tick())
    try:
        yield
    finally:
        ticker.cancel()
        report(final=True)
