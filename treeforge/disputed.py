"""Answers of a run that a person should look at: a wrong verdict is a wrong label on every step above it.

Listed is an answer whose verdict

- is `undecided`: the comparison did not end within its limits, or the gold answer cannot be read;
- is `unparsable`: it counts as wrong, and may be right in a notation that the checker does not read;
- is `correct` by numeric agreement only: evidence, not a proof (that two numbers differ *is* proven numerically);
- was found by sympy (`symbolic`), whose simplifications have faults of their own;
- is another one under another preset (`strict`, `math-verify-like` …): there reasonable people disagree, as on a unit
  left out or a rounded decimal;
- is another one than the search's: the checker, its policy or the judge was another one then.

That other routes would say something else is no dispute by itself: equal numbers are rarely equal strings.
"""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from treeforge.label import PRESETS, AnswerChecker
from treeforge.problem import Problem
from treeforge.recheck import current_checker, endings
from treeforge.store.run import RunFolder
from treeforge.verdict import Judgement, Verdict

Why = Literal["undecided", "unparsable", "numeric", "symbolic", "preset", "changed"]


class DisputedAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """One answer to one gold answer, wherever it was given."""

    completions: int
    """How many end so."""
    verdict: str
    """By the policy that the run is labelled by."""
    route: str
    reason: str
    why: tuple[Why, ...]
    """Why it is listed."""
    others: dict[str, str]
    """Another verdict than `verdict`, by who gave it: a preset, or `search`."""
    gold_answer: str
    answer: str
    problem_id: str
    """Of the first problem with it."""


class DisputedReport(msgspec.Struct, frozen=True, kw_only=True):
    """What is disputed in the trees that have ended."""

    policy: str
    """The name of the check policy that the run is labelled by."""
    judged: int
    """Completions that were judged."""
    disputed: int
    """Of these, with an answer that is listed."""
    by_why: dict[str, int]
    """Completions by why; one may have several."""
    answers: tuple[DisputedAnswer, ...]
    """The most frequent first."""


def disputed_answers(run: RunFolder) -> DisputedReport:
    """Judge every answer of the run again, without the model, and list the disputed ones."""
    checker = current_checker(run)
    others = other_checkers(checker)
    found: dict[tuple[object, ...], DisputedAnswer] = {}
    judged = 0
    by_why = Counter[str]()
    for number, record in run.records():
        problem = run.problems[number]
        counts = Counter[tuple[str, int]]()
        for ending in endings(record):
            counts[ending.text, ending.verdict] += ending.completions
        judged += counts.total()
        for (text, search), count in counts.items():
            said = checker.judge(problem, text)
            differing = differing_verdicts(said, search, problem, text, others)
            why = why_disputed(said, differing)
            if not why:
                continue
            by_why.update(dict.fromkeys(why, count))
            verdict = _name(said.verdict)
            key = (problem.gold_answer, said.answer, verdict, tuple(differing.items()))
            known = found.get(key)
            found[key] = (
                msgspec.structs.replace(known, completions=known.completions + count)
                if known
                else DisputedAnswer(
                    completions=count,
                    verdict=verdict,
                    route=said.route,
                    reason=said.reason,
                    why=why,
                    others=differing,
                    gold_answer=problem.gold_answer,
                    answer=said.answer,
                    problem_id=problem.problem_id,
                )
            )
    answers = sorted(found.values(), key=lambda a: (-a.completions, a.gold_answer, a.answer))
    return DisputedReport(
        policy=checker.policy.name,
        judged=judged,
        disputed=sum(answer.completions for answer in answers),
        by_why=dict(by_why.most_common()),
        answers=tuple(answers),
    )


def other_checkers(checker: AnswerChecker) -> dict[str, AnswerChecker]:
    """The presets by name whose policy is another one than the checker's."""
    return {
        name: AnswerChecker(policy, markers=checker.markers)
        for name, policy in PRESETS.items()
        if policy != checker.policy
    }


def differing_verdicts(
    said: Judgement, search: int, problem: Problem, text: str, others: dict[str, AnswerChecker]
) -> dict[str, str]:
    """Who gives another verdict than `said`, and which."""
    verdicts = {name: other.judge(problem, text).verdict for name, other in others.items()}
    verdicts["search"] = Verdict(search)
    return {name: _name(verdict) for name, verdict in verdicts.items() if verdict != said.verdict}


def why_disputed(said: Judgement, differing: dict[str, str]) -> tuple[Why, ...]:
    """Why an answer is listed; empty where it is not disputed."""
    rules: tuple[tuple[Why, bool], ...] = (
        ("undecided", said.verdict is Verdict.UNDECIDED),
        ("unparsable", said.verdict is Verdict.UNPARSABLE),
        ("numeric", said.verdict is Verdict.CORRECT and said.route == "numeric"),
        ("symbolic", said.route == "symbolic"),
        ("preset", bool(differing.keys() - {"search"})),
        ("changed", "search" in differing),
    )
    return tuple(why for why, holds in rules if holds)


def _name(verdict: Verdict) -> str:
    return verdict.name.lower()
