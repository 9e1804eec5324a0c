"""The stages as functions, and the one place where policy, journal, judge and search are wired together.

    problems ─> search ─> trees ─> label ─> compress ─> export

`run` does all of it; `resume` goes on after any stop; `extend` adds problems or budget. Each has an async twin
(`run_async` …) for callers that have an event loop. `label`, `recheck`, `compress` and `export` make views, for which
no model is needed.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec

from treeforge.config import BudgetConfig, Machine, Recipe, RunConfig, convert, differences, to_dict
from treeforge.errors import ConfigError, RunError
from treeforge.export import choose_formats
from treeforge.label import AnswerChecker, CheckStatistics, gold_problem
from treeforge.manifest import check_identity, check_recipe, never_started, new_manifest
from treeforge.policy import Policy, open_policy
from treeforge.printable import one_line
from treeforge.problem import Problem
from treeforge.replay import Replayed
from treeforge.replay import replay as replay_run
from treeforge.search.scheduler import Forest, Progress
from treeforge.store.run import RunFolder, distinct
from treeforge.verdict import Judge
from treeforge.views import (
    ExportSummary,
    all_views,
    compress,
    compress_async,
    export,
    export_async,
    label,
    label_async,
    own_verdicts,
    recheck,
    recheck_async,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator

__all__ = [
    "RunResult",
    "compress",
    "compress_async",
    "export",
    "export_async",
    "extend",
    "extend_async",
    "label",
    "label_async",
    "own_verdicts",
    "recheck",
    "recheck_async",
    "replay",
    "replay_async",
    "resume",
    "resume_async",
    "run",
    "run_async",
    "search",
    "search_async",
]

_log = logging.getLogger("treeforge.pipeline")

OnProgress = Callable[[Progress], None]
T = TypeVar("T")


class RunResult(msgspec.Struct, frozen=True):
    """What a run came to."""

    path: Path
    """The run folder."""
    statuses: dict[str, int]
    """Problems by status."""
    progress: Progress
    """Counters of this sitting."""
    dataset: ExportSummary | None
    """Where the shards are; None where nothing could be exported."""


class Parts(msgspec.Struct, frozen=True, kw_only=True):
    """What a caller may put in the place of what recipe and manifest name."""

    machine: Machine | None = None
    """How and where; None takes the manifest's."""
    policy: Policy | None = None
    """A policy of your own counts in resume by its `identity`."""
    judge: Judge | None = None
    accept_engine: bool = False
    """Go on with another engine, or another version of it, than the run was started with."""
    lines: Mapping[str, int] = {}
    """Where each problem stands in its file (1-based), by its id; for messages."""
    on_progress: OnProgress | None = None
    """Called several times a second with the counters."""


async def run_async(
    problems: Sequence[Problem], out: Path | str, config: RunConfig | None = None, *, source: str = "", **parts: Any
) -> RunResult:
    """Grow, label, compress and export. The same call on a folder that was stopped goes on where it stopped.

    `parts`: see `Parts`. Raises `RecipeChangedError` where the folder was started with another recipe or problems.
    """
    folder, given = _prepare_run(problems, Path(out), config or RunConfig(), source, Parts(**parts))
    return await asyncio.to_thread(_finish, folder, await _search(folder, given))


async def resume_async(
    path: Path | str, *, recipe: Recipe | None = None, retry_errors: bool = False, **parts: Any
) -> RunResult:
    """Go on with a run after any stop. `machine` may differ from before; a `recipe` is only compared.

    `retry_errors` takes the requests that were given up out of the journal and grows their trees again. `parts`: see
    `Parts`.
    """
    folder = _prepare_resume(Path(path), recipe, retry_errors)
    return await asyncio.to_thread(_finish, folder, await _search(folder, Parts(**parts)))


async def extend_async(
    path: Path | str, *, problems: Sequence[Problem] = (), budget: dict[str, Any] | None = None, **parts: Any
) -> RunResult:
    """Add problems or budget to a run and go on. Nothing that is in the journal is paid for twice.

    `budget` maps keys of `BudgetConfig` to new values, which must not be lower than the old ones (0 is no limit).
    `parts`: see `Parts`.
    """
    folder, given = _prepare_extend(Path(path), problems, budget or {}, Parts(**parts))
    return await asyncio.to_thread(_finish, folder, await _search(folder, given))


async def search_async(path: Path | str, **parts: Any) -> Progress:
    """Grow the trees of a run folder that have not ended yet. `parts`: see `Parts`."""
    return await _search(RunFolder.open(Path(path)), Parts(**parts))


def run(
    problems: Sequence[Problem], out: Path | str, config: RunConfig | None = None, *, source: str = "", **parts: Any
) -> RunResult:
    """`run_async` for callers without an event loop."""
    folder, given = _prepare_run(problems, Path(out), config or RunConfig(), source, Parts(**parts))
    return _finish(folder, _sync(_search(folder, given)))


def resume(path: Path | str, *, recipe: Recipe | None = None, retry_errors: bool = False, **parts: Any) -> RunResult:
    """`resume_async` for callers without an event loop."""
    folder = _prepare_resume(Path(path), recipe, retry_errors)
    return _finish(folder, _sync(_search(folder, Parts(**parts))))


def extend(
    path: Path | str, *, problems: Sequence[Problem] = (), budget: dict[str, Any] | None = None, **parts: Any
) -> RunResult:
    """`extend_async` for callers without an event loop."""
    folder, given = _prepare_extend(Path(path), problems, budget or {}, Parts(**parts))
    return _finish(folder, _sync(_search(folder, given)))


def search(path: Path | str, **parts: Any) -> Progress:
    """`search_async` for callers without an event loop."""
    return _sync(search_async(path, **parts))


async def replay_async(path: Path | str, out: Path | str | None = None) -> Replayed:
    """The tables of a run again from its manifest and journal alone, without the model, compared with those that stand.

    `out` keeps them as a new run folder. Raises `RunError` where the journal lacks something.
    """
    return await replay_run(Path(path), open_judge, None if out is None else Path(out))


def replay(path: Path | str, out: Path | str | None = None) -> Replayed:
    """`replay_async` for callers without an event loop."""
    return _sync(replay_async(path, out))


def _prepare_run(
    problems: Sequence[Problem], path: Path, config: RunConfig, source: str, parts: Parts
) -> tuple[RunFolder, Parts]:
    if not problems:
        raise ConfigError("there are no problems to run")
    problems = distinct(problems)
    machine = parts.machine or config.machine
    # A policy that cannot be made is an error before there is a folder.
    policy = parts.policy or open_policy(config.recipe, machine)
    judge = parts.judge or open_judge(config.recipe)
    choose_formats(config.export.formats)
    given = msgspec.structs.replace(parts, machine=machine, policy=policy, judge=judge)
    there = RunFolder.open(path) if (path / "manifest.json").exists() else None
    if there is not None and not never_started(there):
        folder = there
        check_recipe(folder, config.recipe, problems)
        with folder:
            folder.lock()
            views = {"label": config.label, "compress": config.compress, "export": config.export}
            folder.manifest |= {name: to_dict(view) for name, view in views.items()}
            folder.write_manifest()
    else:
        if parts.judge is None:
            _report_golds(problems, parts.lines)
        folder = RunFolder.create(path, new_manifest(config, source), problems, replace=there is not None)
    return folder, given


def _prepare_resume(path: Path, recipe: Recipe | None, retry_errors: bool) -> RunFolder:
    folder = RunFolder.open(path)
    if recipe is not None:
        check_recipe(folder, recipe, None)
    if retry_errors:
        with folder:
            folder.lock()
            assert folder.journal is not None
            folder.reopen(folder.journal.forget_errors())
    return folder


def _prepare_extend(
    path: Path, problems: Sequence[Problem], budget: dict[str, Any], parts: Parts
) -> tuple[RunFolder, Parts]:
    folder = RunFolder.open(path)
    with folder:
        folder.lock()
        assert folder.journal is not None
        old = convert(folder.manifest["recipe"]["budget"], BudgetConfig)
        new = convert({**to_dict(old), **budget}, BudgetConfig)
        for key, (before, after) in differences(to_dict(old), to_dict(new)).items():
            if after != 0 and (before == 0 or after < before):  # type: ignore[operator]
                raise ConfigError(
                    f"budget.{key}: a run's budget can only grow; it is {before or 'unlimited'}, not {after}"
                )
        if parts.judge is None:
            _report_golds(problems, parts.lines)
        added = folder.add_problems(problems)
        if not added and new == old:
            raise ConfigError(
                "nothing to add: name problems that the run does not have yet, or a larger budget. An extend that was "
                f"stopped goes on with `treeforge resume {path}`"
            )
        if new != old:
            folder.reopen([n for n, (status, _) in folder.statuses().items() if status != "open"])
            if new.journaled != old.journaled:
                folder.journal.clear_cutoffs()
        folder.write_problems()
        folder.manifest["recipe"]["budget"] = to_dict(new)
        folder.manifest["extended"] = [*folder.manifest.get("extended", []), {"problems": added, "budget": budget}]
        folder.manifest["problems"] |= {"count": len(folder.problems), "digest": folder.problems_digest()}
        folder.write_manifest()
    return folder, parts


def _finish(folder: RunFolder, progress: Progress) -> RunResult:
    """The stages after the search, and what the run came to."""
    statuses = Counter(status for status, _ in folder.statuses().values())
    dataset = None
    if statuses.keys() - {"open", "failed"}:
        dataset = all_views(folder.path)
    return RunResult(folder.path, dict(statuses), progress, dataset)


async def _search(folder: RunFolder, parts: Parts) -> Progress:
    recipe = convert(folder.manifest["recipe"], Recipe)
    machine = parts.machine or convert(folder.manifest["machine"], Machine)
    with folder:
        folder.lock()
        assert folder.journal is not None
        unfinished = folder.unfinished()
        totals = folder.journal.totals()
        progress = Progress(
            trees=len(folder.problems),
            finished=len(folder.problems) - len(unfinished),
            run_tokens=totals.tokens,
            run_completions=totals.completions,
            run_nodes=folder.journal.nodes(),
        )
        if unfinished:
            judge = parts.judge or open_judge(recipe)
            with _sitting(folder, progress, judge):
                await _grow(folder, recipe, machine, parts, judge, progress, unfinished)
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
    if isinstance(judge, AnswerChecker):
        await asyncio.to_thread(judge.start, [folder.problems[number].gold_answer for number in numbers])
    async with _started(parts.policy or open_policy(recipe, machine)) as model:
        check_identity(folder, model.identity, judge, accept_engine=parts.accept_engine)
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
            clock=time.monotonic,
        )
        async with _reported(progress, parts.on_progress):
            await forest.grow((number, folder.problems[number]) for number in numbers)


def open_judge(recipe: Recipe) -> Judge:
    """The answer checker that `recipe.judge` names."""
    return AnswerChecker(policy=recipe.judge.policy, markers=recipe.steps.answer_markers)


def _report_golds(problems: Sequence[Problem], lines: Mapping[str, int]) -> None:
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
        if statistics is not None and checked is not None:
            note["checker"] = msgspec.to_builtins(statistics.since(checked))
        with suppress(OSError), (folder.path / "logs" / "run.jsonl").open("ab") as stream:
            # Not msgspec: a judge of one's own may let lone surrogates into answers, which only escapes can carry.
            stream.write(json.dumps(note).encode() + b"\n")


def _statistics(judge: Judge) -> CheckStatistics | None:
    found = getattr(judge, "statistics", None)
    return found if isinstance(found, CheckStatistics) else None


@asynccontextmanager
async def _reported(progress: Progress, on_progress: OnProgress | None) -> AsyncIterator[None]:
    async def tick(report: OnProgress) -> None:
        while True:
            report(progress)
            await asyncio.sleep(0.2)

    ticker = asyncio.create_task(tick(on_progress)) if on_progress else None
    try:
        yield
    finally:
        if ticker is not None and on_progress is not None:
            ticker.cancel()
            on_progress(progress)


def _sync(call: Coroutine[Any, Any, T]) -> T:
    running = None
    with suppress(RuntimeError):
        running = asyncio.get_running_loop()
    if running is None:
        return asyncio.run(call)
    call.close()
    raise RunError(
        "an event loop is running here (a notebook?): await run_async, resume_async, extend_async or search_async"
    )
