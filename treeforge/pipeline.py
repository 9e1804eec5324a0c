"""The stages as functions, and the one place where policy, journal, judge and search are wired together.

    problems ─> search ─> trees ─> label ─> compress ─> export

`run` does all of it, `annotate` the same for solutions that are there already; `resume` goes on after any stop;
`extend` adds problems or budget. Each has an async twin (`run_async` …) for callers that have an event loop. `label`,
`recheck`, `compress` and `export` make views, for which no model is needed.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import msgspec
from msgspec.structs import replace

from treeforge.annotating import PLAIN
from treeforge.config import GIVEN_STRATEGIES, BudgetConfig, Recipe, RunConfig, SearchConfig
from treeforge.configuration import convert, differences, to_dict
from treeforge.errors import ConfigError, RunError
from treeforge.export import choose_formats
from treeforge.given import GivenSolution
from treeforge.manifest import check_growable, check_recipe, never_started, new_manifest
from treeforge.pilot import Estimate, choose, estimate
from treeforge.policy import open_policy
from treeforge.problem import Problem
from treeforge.recipes import load_config
from treeforge.replay import Replayed
from treeforge.replay import replay as replay_run
from treeforge.search.beam import Scorer
from treeforge.search.progress import Progress
from treeforge.sitting import OnProgress, Parts, open_judge, report_golds, search_folder
from treeforge.store.given import SECTION, GivenSolutions, add_given, given_section, given_table
from treeforge.store.run import RunFolder, distinct
from treeforge.value import FROM_ELSEWHERE
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
from treeforge.written import Written, given_solutions

__all__ = [
    "Estimate",
    "OnProgress",
    "Parts",
    "Replayed",
    "RunResult",
    "annotate",
    "annotate_async",
    "compress",
    "compress_async",
    "dry_run",
    "dry_run_async",
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


async def run_async(
    problems: Sequence[Problem], out: Path | str, config: RunConfig | None = None, *, source: str = "", **parts: Any
) -> RunResult:
    """Grow, label, compress and export. The same call on a folder that was stopped goes on where it stopped.

    `parts`: see `Parts`. Raises `RecipeChangedError` where the folder was started with another recipe or problems.
    """
    folder, given = _prepare_run(problems, Path(out), config or RunConfig(), source, Parts(**parts))
    return await asyncio.to_thread(_finish, folder, await search_folder(folder, given))


async def annotate_async(
    problems: Sequence[Problem],
    solutions: Mapping[str, Sequence[Written]],
    out: Path | str,
    config: RunConfig | None = None,
    *,
    source: str = "",
    format: str = PLAIN,
    **parts: Any,
) -> RunResult:
    """Label the steps of solutions that are there already, by completions of the config's policy; then as `run_async`.

    `solutions`: by problem id, each a text, the texts of its steps, or a `GivenSolution` (`read_solutions` reads files
    of them). They are part of the run from then on, so that `resume` and `replay` need no file. Without `config`, that
    of `load_config(given=True)`; `source` and `format` are noted in the manifest. `parts`: see `Parts`.
    Raises `DataError` for a solution that cannot be used, and `ConfigError` for a strategy that samples its own.
    """
    settings = _with_given(config)
    folder, given = _prepare_run(problems, Path(out), settings, source, Parts(**parts), (solutions, format))
    return await asyncio.to_thread(_finish, folder, await search_folder(folder, given))


async def resume_async(
    path: Path | str, *, recipe: Recipe | None = None, retry_errors: bool = False, **parts: Any
) -> RunResult:
    """Go on with a run after any stop. `machine` may differ from before; a `recipe` is only compared.

    `retry_errors` takes the requests that were given up out of the journal and grows their trees again, and those that
    failed for another reason, from what the journal holds. `parts`: see `Parts`.
    """
    folder = _prepare_resume(Path(path), recipe, retry_errors)
    return await asyncio.to_thread(_finish, folder, await search_folder(folder, Parts(**parts)))


async def extend_async(
    path: Path | str,
    *,
    problems: Sequence[Problem] = (),
    solutions: Mapping[str, Sequence[Written]] | None = None,
    budget: dict[str, Any] | None = None,
    **parts: Any,
) -> RunResult:
    """Add problems or budget to a run and go on. Nothing that is in the journal is paid for twice.

    `solutions`, as for `annotate`, are those of `problems` in a run that labels given ones. A problem that the run has
    may be among them, with the solutions that the run has. `budget` maps keys of `BudgetConfig` to new values, which
    must not be lower than the old ones (0 is no limit). `parts`: see `Parts`.
    """
    folder, given = _prepare_extend(Path(path), problems, solutions, budget or {}, Parts(**parts))
    return await asyncio.to_thread(_finish, folder, await search_folder(folder, given))


async def search_async(path: Path | str, **parts: Any) -> Progress:
    """Grow the trees of a run folder that have not ended yet. `parts`: see `Parts`."""
    return await search_folder(RunFolder.open(Path(path)), Parts(**parts))


def run(
    problems: Sequence[Problem], out: Path | str, config: RunConfig | None = None, *, source: str = "", **parts: Any
) -> RunResult:
    """`run_async` for callers without an event loop."""
    folder, given = _prepare_run(problems, Path(out), config or RunConfig(), source, Parts(**parts))
    return _finish(folder, _sync(search_folder(folder, given)))


def annotate(
    problems: Sequence[Problem],
    solutions: Mapping[str, Sequence[Written]],
    out: Path | str,
    config: RunConfig | None = None,
    *,
    source: str = "",
    format: str = PLAIN,
    **parts: Any,
) -> RunResult:
    """`annotate_async` for callers without an event loop."""
    settings = _with_given(config)
    folder, given = _prepare_run(problems, Path(out), settings, source, Parts(**parts), (solutions, format))
    return _finish(folder, _sync(search_folder(folder, given)))


def resume(path: Path | str, *, recipe: Recipe | None = None, retry_errors: bool = False, **parts: Any) -> RunResult:
    """`resume_async` for callers without an event loop."""
    folder = _prepare_resume(Path(path), recipe, retry_errors)
    return _finish(folder, _sync(search_folder(folder, Parts(**parts))))


def extend(
    path: Path | str,
    *,
    problems: Sequence[Problem] = (),
    solutions: Mapping[str, Sequence[Written]] | None = None,
    budget: dict[str, Any] | None = None,
    **parts: Any,
) -> RunResult:
    """`extend_async` for callers without an event loop."""
    folder, given = _prepare_extend(Path(path), problems, solutions, budget or {}, Parts(**parts))
    return _finish(folder, _sync(search_folder(folder, given)))


def search(path: Path | str, **parts: Any) -> Progress:
    """`search_async` for callers without an event loop."""
    return _sync(search_async(path, **parts))


async def dry_run_async(
    problems: Sequence[Problem],
    out: Path | str,
    config: RunConfig | None = None,
    *,
    pilot: float = 0.01,
    price: float | None = None,
    source: str = "",
    solutions: Mapping[str, Sequence[Written]] | None = None,
    format: str = PLAIN,
    **parts: Any,
) -> Estimate:
    """What `run` would ask for and cost, or `annotate` with `solutions`, from a pilot of that share of the problems.

    That is 8 problems at least. The pilot's trees are grown in `out` and stay there: `run` goes on from them, and
    nothing is paid for twice. `price` is that of a million sampled tokens. Raises `RunError` where no tree of the pilot
    ended.
    """
    settings = (config or RunConfig()) if solutions is None else _with_given(config)
    written = None if solutions is None else (solutions, format)
    folder, given = _prepare_run(problems, Path(out), settings, source, Parts(**parts), written)
    chosen = choose(folder.problems, pilot, folder.manifest["recipe"]["seed"])
    progress = await search_folder(folder, given, chosen)
    costs = RunFolder.open(folder.path).costs(chosen)
    if not costs:
        raise RunError(f"no tree of the pilot ended well; `treeforge show {folder.path}` says why")
    return estimate(costs, len(folder.problems), seconds=progress.search_seconds, sampled=progress.tokens, price=price)


def dry_run(problems: Sequence[Problem], out: Path | str, config: RunConfig | None = None, **options: Any) -> Estimate:
    """`dry_run_async` for callers without an event loop."""
    return _sync(dry_run_async(problems, out, config, **options))


async def replay_async(path: Path | str, out: Path | str | None = None, *, scorer: Scorer | None = None) -> Replayed:
    """The tables of a run again from its manifest and journal alone, without the model, compared with those that stand.

    `out` keeps them as a new run folder; `scorer` is that of the run, where it had one. Raises `RunError` where the
    journal lacks something.
    """
    check_growable(RunFolder.open(Path(path)))
    return await replay_run(Path(path), open_judge, None if out is None else Path(out), scorer)


def replay(path: Path | str, out: Path | str | None = None, *, scorer: Scorer | None = None) -> Replayed:
    """`replay_async` for callers without an event loop."""
    return _sync(replay_async(path, out, scorer=scorer))


def _with_given(config: RunConfig | None) -> RunConfig:
    """The config of a run that labels given solutions."""
    config = config or load_config(given=True)
    search = config.recipe.search
    if search.strategy not in GIVEN_STRATEGIES:
        raise ConfigError(
            f"search.strategy: {search.strategy} samples its own solutions; given ones are labelled by "
            + ", ".join(GIVEN_STRATEGIES)
        )
    try:
        search = replace(search, given=True)
    except ValueError as error:
        raise ConfigError(f"search: {error}") from None
    return replace(config, recipe=replace(config.recipe, search=search))


def _prepare_run(
    problems: Sequence[Problem],
    path: Path,
    config: RunConfig,
    source: str,
    parts: Parts,
    written: tuple[Mapping[str, Sequence[Written]], str] | None = None,
) -> tuple[RunFolder, Parts]:
    """A new run folder, or the one that is there. `written`: the solutions that it labels, and their file's format."""
    if config.recipe.search.given and written is None:
        raise ConfigError("search.given: a run samples its own solutions; given ones are for treeforge annotate")
    if not problems:
        raise ConfigError("there are no problems to run")
    if config.label.estimator in FROM_ELSEWHERE:
        raise ConfigError(f"label.estimator: {config.label.estimator} stands for labels that `treeforge import` read")
    problems = distinct(problems)
    table, section = None, None
    if written is not None:
        solutions = given_solutions(problems, written[0], config.recipe)
        table, section = given_table(solutions), given_section(solutions, source, written[1])
    if parts.scorer is not None and not callable(parts.scorer):
        raise ConfigError(f"scorer: {type(parts.scorer).__name__} is no function of (problem, steps)")
    if parts.scorer is not None and config.recipe.search.strategy != "beam":
        raise ConfigError(f"a scorer ranks the candidates of the strategy beam, not of {config.recipe.search.strategy}")
    machine = parts.machine or config.machine
    # A policy that cannot be made is an error before there is a folder.
    policy = parts.policy or open_policy(config.recipe, machine, path / "logs")
    judge = parts.judge or open_judge(config.recipe)
    choose_formats(config.export.formats)
    settled = replace(parts, machine=machine, policy=policy, judge=judge)
    there = RunFolder.open(path) if (path / "manifest.json").exists() else None
    if there is not None and not never_started(there):
        folder = there
        check_recipe(folder, config.recipe, problems, section)
        with folder:
            folder.lock()
            views = {"label": config.label, "compress": config.compress, "export": config.export}
            settings = {name: to_dict(view) for name, view in views.items()}
            stood = {name: to_dict(convert(folder.manifest[name], type(view))) for name, view in views.items()}
            for key, (before, now) in differences(stood, settings).items():
                _log.warning("%s: %r stood, this command has %r; `treeforge resume` keeps what stood", key, before, now)
            folder.manifest |= settings
            folder.write_manifest()
    else:
        if parts.judge is None:
            report_golds(problems, parts.lines)
        manifest = new_manifest(config, source) | ({} if section is None else {SECTION: section})
        folder = RunFolder.create(path, manifest, problems, given=table, replace=there is not None)
    return folder, settled


def _prepare_resume(path: Path, recipe: Recipe | None, retry_errors: bool) -> RunFolder:
    folder = RunFolder.open(path)
    if recipe is not None:
        check_recipe(folder, recipe, None)
    if retry_errors:
        with folder:
            folder.lock()
            assert folder.journal is not None
            failed = [number for number, (status, _) in folder.statuses().items() if status == "failed"]
            folder.reopen(sorted({*folder.journal.forget_errors(), *failed}))
    return folder


def _prepare_extend(
    path: Path,
    problems: Sequence[Problem],
    solutions: Mapping[str, Sequence[Written]] | None,
    budget: dict[str, Any],
    parts: Parts,
) -> tuple[RunFolder, Parts]:
    folder = RunFolder.open(path)
    check_growable(folder)
    labels_given = SECTION in folder.manifest
    if problems and labels_given and solutions is None:
        raise ConfigError(
            f"{path} labels solutions that were given, and problems without any cannot be added; add problems with "
            f"their solutions with `treeforge annotate SOLUTIONS --out {path} --extend`"
        )
    if solutions is not None and not labels_given:
        raise ConfigError(f"{path} samples its own solutions; add problems with `treeforge extend {path} --problems`")
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
        search = convert(folder.manifest["recipe"]["search"], SearchConfig)
        if new.simulations != old.simulations and not search.counts_simulations:
            raise ConfigError(
                f"budget.simulations: {search.strategy} counts none here, so that more of them change nothing; what "
                "can have ended its trees is budget.nodes, budget.rollouts or budget.tokens"
            )
        if parts.judge is None:
            report_golds(problems, parts.lines)
        given = None if solutions is None else _new_given(folder, problems, solutions)
        more, before = problems if given is None else [problem for problem, _ in given], len(folder.problems)
        added = folder.add_problems(more)
        if not added and new == old:
            raise ConfigError(
                "nothing to add: name problems that the run does not have yet, or a larger budget. An extend that was "
                f"stopped goes on with `treeforge resume {path}`"
            )
        if new != old:
            folder.reopen([n for n, (status, _) in folder.statuses().items() if status != "open"])
            if new.journaled != old.journaled:
                folder.journal.clear_cutoffs()
        if given:
            add_given(folder, before, [own for _, own in given])
        folder.write_problems()
        folder.manifest["recipe"]["budget"] = to_dict(new)
        folder.manifest["extended"] = [*folder.manifest.get("extended", []), {"problems": added, "budget": budget}]
        folder.manifest["problems"] |= {"count": len(folder.problems), "digest": folder.problems_digest()}
        folder.write_manifest()
    return folder, parts


def _new_given(
    folder: RunFolder, problems: Sequence[Problem], solutions: Mapping[str, Sequence[Written]]
) -> list[tuple[Problem, tuple[GivenSolution, ...]]]:
    """The problems that a run of given solutions does not have yet, with theirs.

    Raises `ConfigError` for other solutions of one that it has: its tree has grown from those that were given.
    """
    problems = distinct(problems)
    trees = given_solutions(problems, solutions, convert(folder.manifest["recipe"], Recipe))
    stands = {(p.question, p.gold_answer): number for number, p in enumerate(folder.problems)}
    known, found = GivenSolutions(folder), []
    for problem, own in zip(problems, trees, strict=True):
        number = stands.get((problem.question, problem.gold_answer))
        if number is None:
            found.append((problem, own))
        elif [replace(s, row=0) for s in own] != [replace(s, row=0) for s in known.of(number)]:
            raise ConfigError(
                f"problem {problem.problem_id!r} has other solutions in {folder.path}, which its tree has grown from; "
                "label further solutions of a problem in a run folder of their own"
            )
    return found


def _finish(folder: RunFolder, progress: Progress) -> RunResult:
    """The stages after the search, and what the run came to."""
    statuses = Counter(status for status, _ in folder.statuses().values())
    dataset = None
    if statuses.keys() - {"open", "failed"}:
        dataset = all_views(folder.path)
    return RunResult(folder.path, dict(statuses), progress, dataset)


def _sync(call: Coroutine[Any, Any, T]) -> T:
    running = None
    with suppress(RuntimeError):
        running = asyncio.get_running_loop()
    if running is None:
        return asyncio.run(call)
    call.close()
    raise RunError(
        "an event loop is running here (a notebook?): await run_async, annotate_async, resume_async, extend_async or "
        "search_async"
    )
