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

from treeforge.annotating import PLAIN
from treeforge.config import Recipe, RunConfig
from treeforge.errors import RunError
from treeforge.manifest import check_growable
from treeforge.pilot import Estimate, choose, estimate
from treeforge.preparing import prepare_extend, prepare_resume, prepare_run, with_given
from treeforge.problem import Problem
from treeforge.replay import Replayed
from treeforge.replay import replay as replay_run
from treeforge.search.beam import Scorer
from treeforge.search.progress import Progress
from treeforge.sitting import OnProgress, Parts, open_judge, search_folder
from treeforge.store.run import RunFolder
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
from treeforge.written import Written

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
    folder, given = prepare_run(problems, Path(out), config or RunConfig(), source, Parts(**parts))
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
    settings = with_given(config)
    folder, given = prepare_run(problems, Path(out), settings, source, Parts(**parts), (solutions, format))
    return await asyncio.to_thread(_finish, folder, await search_folder(folder, given))


async def resume_async(
    path: Path | str, *, recipe: Recipe | None = None, retry_errors: bool = False, **parts: Any
) -> RunResult:
    """Go on with a run after any stop. `machine` may differ from before; a `recipe` is only compared.

    `retry_errors` takes the requests that were given up out of the journal and grows their trees again, and those that
    failed for another reason, from what the journal holds. `parts`: see `Parts`.
    """
    folder = prepare_resume(Path(path), recipe, retry_errors)
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
    folder, given = prepare_extend(Path(path), problems, solutions, budget or {}, Parts(**parts))
    return await asyncio.to_thread(_finish, folder, await search_folder(folder, given))


async def search_async(path: Path | str, **parts: Any) -> Progress:
    """Grow the trees of a run folder that have not ended yet. `parts`: see `Parts`."""
    return await search_folder(RunFolder.open(Path(path)), Parts(**parts))


def run(
    problems: Sequence[Problem], out: Path | str, config: RunConfig | None = None, *, source: str = "", **parts: Any
) -> RunResult:
    """`run_async` for callers without an event loop."""
    folder, given = prepare_run(problems, Path(out), config or RunConfig(), source, Parts(**parts))
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
    settings = with_given(config)
    folder, given = prepare_run(problems, Path(out), settings, source, Parts(**parts), (solutions, format))
    return _finish(folder, _sync(search_folder(folder, given)))


def resume(path: Path | str, *, recipe: Recipe | None = None, retry_errors: bool = False, **parts: Any) -> RunResult:
    """`resume_async` for callers without an event loop."""
    folder = prepare_resume(Path(path), recipe, retry_errors)
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
    folder, given = prepare_extend(Path(path), problems, solutions, budget or {}, Parts(**parts))
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
    settings = (config or RunConfig()) if solutions is None else with_given(config)
    written = None if solutions is None else (solutions, format)
    folder, given = prepare_run(problems, Path(out), settings, source, Parts(**parts), written)
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
