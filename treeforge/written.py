"""Solutions as callers write them, texts or lists of steps, become given solutions that a recipe allows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from treeforge.config import Recipe, StepsConfig
from treeforge.errors import ConfigError, DataError
from treeforge.given import GivenSolution, make_given
from treeforge.policy.steps import split_text, thinks_until
from treeforge.problem import Problem

_MAX_STEPS = 10_000
"""`search.max_steps` is this at most."""

Written = GivenSolution | str | Sequence[str]
"""A solution as a caller writes it: one text, which the step format splits, or the texts of its steps."""


def given_solutions(
    problems: Sequence[Problem], solutions: Mapping[str, Sequence[Written]], recipe: Recipe
) -> list[tuple[GivenSolution, ...]]:
    """The solutions of each problem, in the problems' order, checked. Texts are split by the recipe's step format.

    Raises `DataError` for a solution that cannot be used, `ConfigError` for a problem without one and vice versa.
    """
    ids = {problem.problem_id for problem in problems}
    if strange := sorted(solutions.keys() - ids):
        raise ConfigError(f"there are solutions of {len(strange)} problems that are not given, as {strange[0]!r}")
    out = []
    for problem in problems:
        written = solutions.get(problem.problem_id, ())
        if not written:
            raise ConfigError(f"problem {problem.problem_id!r} has no solution to label")
        if isinstance(written, str):
            what = f"the solutions of problem {problem.problem_id!r} are one text where a list of solutions is expected"
            raise DataError(what, fix="Put it into a list")
        found = []
        for number, solution in enumerate(written, start=1):
            try:
                found.append(checked(_as_given(solution, recipe.steps), recipe))
            except DataError as error:
                what = f"solution {number} of problem {problem.problem_id!r}: {error.problem}"
                raise DataError(what, field=error.field, fix=error.fix) from None
        out.append(tuple(found))
    return out


def checked(solution: GivenSolution, recipe: Recipe) -> GivenSolution:
    """The solution, unless it is larger than the recipe allows (`DataError`): given text is never cut."""
    limit = recipe.steps.max_step_chars
    for place, text in enumerate(solution.steps):
        if len(text) > limit:
            fix = f"Split it, or raise --set steps.max_step_chars={len(text)}"
            raise DataError(f"is longer than {limit:,} characters", field=f"steps[{place}]", fix=fix)
    depth, most = solution.depth, recipe.search.max_steps
    if depth > _MAX_STEPS:
        fix = "Join some or leave the row out"
        raise DataError(f"has {depth:,} steps, more than {_MAX_STEPS:,}", field="steps", fix=fix)
    if depth > most:
        fix = f"Raise --set search.max_steps={depth}"
        raise DataError(f"has {depth:,} steps, more than {most}", field="steps", fix=fix)
    return solution


def split_solution(text: str, steps: StepsConfig, line: int = 0) -> GivenSolution:
    """A text as the search would split it. It ends with its last step that holds an answer marker, where one does."""
    found = split_text(text, steps)
    thought = thinks_until(text, steps, thinking=False) if steps.think_close else 0
    end, last = len(text), len(found)
    while last and end > thought:
        if any(marker in found[last - 1] for marker in steps.answer_markers):
            return make_given(found[:last], row=line)
        last -= 1
        end -= len(found[last])
    return make_given(found, row=line)


def _as_given(solution: object, steps: StepsConfig) -> GivenSolution:
    if isinstance(solution, GivenSolution):  # anybody may have made it
        return make_given(solution.steps, parents=solution.parents, ends=solution.ends, row=solution.row)
    if isinstance(solution, str):
        return split_solution(solution.strip(), steps)
    if isinstance(solution, Sequence) and not isinstance(solution, bytes):
        return make_given(solution)
    what = f"is {repr(solution)[:40]} where a text or a list of steps is expected"
    raise DataError(what, fix="Give one text, or the texts of its steps")
