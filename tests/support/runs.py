"""Small runs for tests: problems, a scripted recipe, a judge without a checker, and a way to compare run folders."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from treeforge.config import BudgetConfig, Machine, PolicyConfig, Recipe, RunConfig, SearchConfig
from treeforge.policy.scripted import SCRIPTED_STEPS
from treeforge.problem import Problem, make_problem
from treeforge.verdict import Judgement, Verdict


def problems(count: int) -> list[Problem]:
    return [make_problem(f"What is {i} + {i}?", str(2 * i), problem_id=f"sum-{i}") for i in range(count)]


def scripted_config(
    *,
    world: dict[str, Any] | None = None,
    block: int = 4,
    seed: int = 0,
    machine: Machine | None = None,
    budget: dict[str, Any] | None = None,
    **search: Any,
) -> RunConfig:
    recipe = Recipe(
        seed=seed,
        policy=PolicyConfig(backend="scripted", scripted=world or {}),
        steps=SCRIPTED_STEPS,
        search=SearchConfig(**search),
        budget=BudgetConfig(**(budget or {"simulations": 8})),
        block=block,
    )
    return RunConfig(recipe=recipe, machine=machine or Machine())


class EqualStringJudge:
    """Compares what follows "The answer is" with the gold answer, as a string."""

    def judge(self, problem: Problem, text: str) -> Judgement:
        _, marker, answer = text.rpartition("The answer is ")
        if not marker:
            return Judgement(Verdict.NO_ANSWER)
        answer = answer.strip().rstrip(".")
        verdict = Verdict.CORRECT if answer == problem.gold_answer else Verdict.INCORRECT
        return Judgement(verdict, answer, "string")


class NoLog:
    """A `SampleLog` that keeps nothing."""

    def rows(self, tree: int) -> dict[bytes, Any]:
        return {}

    def record(self, request: Any, samples: Any) -> None:
        pass

    def flush(self) -> None:
        pass

    def cutoff(self, tree: int) -> None:
        return None

    def record_cutoff(self, tree: int, wave: int, reason: str) -> None:
        pass


def table_bytes(run: Path) -> dict[str, bytes]:
    """Every table of a run folder by its relative path: what must be the same whatever happened on the way."""
    found = sorted([*run.rglob("*.parquet"), *run.glob("dataset/README.md")])
    return {str(file.relative_to(run)): file.read_bytes() for file in found}
