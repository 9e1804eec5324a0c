"""A problem with a checkable answer."""

from __future__ import annotations

from typing import Any

import msgspec

from treeforge.hashing import digest, encode_text


class Problem(msgspec.Struct, frozen=True, kw_only=True):
    """A question and its gold answer. Build one with `make_problem`, which fills in the id."""

    problem_id: str
    """Unique in a run; a digest of question and gold answer where the file has none."""
    question: str
    """The question as the policy sees it, before the prompt template."""
    gold_answer: str
    """The right final answer, as text (`72`, `\\frac{1}{2}`); what a judge compares with."""
    source: str = ""
    """Where it came from: file name or Hub dataset."""
    meta: dict[str, Any] = msgspec.field(default_factory=dict)
    """The other columns of the file (level, subject, a worked solution …); never shown to the policy."""


def make_problem(
    question: str,
    gold_answer: str,
    *,
    problem_id: str | None = None,
    source: str = "",
    meta: dict[str, Any] | None = None,
) -> Problem:
    """Make a problem; without an id, a digest of the text becomes the id."""
    if problem_id is None:
        problem_id = digest(encode_text(question), encode_text(gold_answer)).hex()[:12]
    return Problem(problem_id=problem_id, question=question, gold_answer=gold_answer, source=source, meta=meta or {})
