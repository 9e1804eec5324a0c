"""A run folder made ready to grow: new, found again, or with more problems or budget."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from treeforge.config import GIVEN_STRATEGIES, BudgetConfig, Recipe, RunConfig, SearchConfig
from treeforge.configuration import convert, differences, to_dict
from treeforge.errors import ConfigError
from treeforge.export import choose_formats
from treeforge.given import GivenSolution
from treeforge.manifest import check_growable, check_recipe, never_started, new_manifest
from treeforge.policy import open_policy
from treeforge.problem import Problem
from treeforge.recipes import load_config
from treeforge.sitting import Parts, open_judge, report_golds
from treeforge.store.given import SECTION, GivenSolutions, add_given, given_section, given_table
from treeforge.store.run import RunFolder, distinct
from treeforge.value import FROM_ELSEWHERE
from treeforge.written import Written, given_solutions

_log = logging.getLogger("treeforge.pipeline")


def with_given(config: RunConfig | None) -> RunConfig:
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


def prepare_run(
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


def prepare_resume(path: Path, recipe: Recipe | None, retry_errors: bool) -> RunFolder:
    """The folder of a run that goes on. `retry_errors` opens trees that failed or have requests that were given up."""
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


def prepare_extend(
    path: Path,
    problems: Sequence[Problem],
    solutions: Mapping[str, Sequence[Written]] | None,
    budget: dict[str, Any],
    parts: Parts,
) -> tuple[RunFolder, Parts]:
    """A run's folder with further problems or a larger budget."""
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
