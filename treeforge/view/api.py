"""What the page asks for, as plain JSON data: pure functions of trees and rows. Texts are cut, and say so."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.config import StepsConfig
from treeforge.label.steps import NO_LABEL
from treeforge.policy.prompts import render, render_chat
from treeforge.printable import one_line, printable
from treeforge.problem import Problem
from treeforge.tree import Finish, Rollout
from treeforge.verdict import NO_VERDICT, Verdict
from treeforge.view.mathml import Parts, answer_parts, parts
from treeforge.view.reader import PageTree

LABEL_CHARS = 120
"""Of a step beside its node."""
LIST_CHARS = 240
"""Of a question in the list of problems."""
PANEL_CHARS = 4_000
"""Of a text that is read; the rest comes when it is asked for."""
MAX_PREFIX, MAX_ROLLOUTS, MAX_LABELS = 200, 60, 500
"""Steps above a node, own rollouts of it, and labels of nodes in one answer."""


def text_data(text: str, most: int = PANEL_CHARS) -> dict[str, Any]:
    """A text to read: its `parts` (`treeforge.view.mathml`) up to `most` characters, and its whole `length`."""
    return {"parts": parts(text[:most].strip("\n")), "length": len(text), "cut": len(text) > most}


def label_parts(text: str, most: int = LABEL_CHARS, *, answer: bool = False) -> Parts:
    """The beginning of a text, in one line; an `answer` may be a formula without delimiters."""
    line = one_line(text[: 4 * most])
    line = line[:most] + ("…" if len(line) > most or len(text) > 4 * most else "")
    return answer_parts(line) if answer else parts(line, flat=True)


def problem_row(row: dict[str, Any]) -> dict[str, Any]:
    """A row of the list, from one of the index."""
    texts = {
        "question": label_parts(row["question"], LIST_CHARS),
        "gold_answer": label_parts(row["gold_answer"], LIST_CHARS, answer=True),
    }
    return row | texts | {"problem_id": printable(row["problem_id"]), "reason": printable(row["reason"])}


def problem_data(number: int, problem: Problem, status: str, reason: str) -> dict[str, Any]:
    """A problem without its tree."""
    return {
        "number": number,
        "problem_id": printable(problem.problem_id),
        "question": text_data(problem.question),
        "gold_answer": label_parts(problem.gold_answer, PANEL_CHARS, answer=True),
        "source": printable(problem.source),
        "status": status,
        "reason": printable(reason),
    }


def tree_data(found: PageTree, compressed: int) -> dict[str, Any]:
    """A tree's shape and figures, one entry a node in each column; texts come when their nodes come into view.

    Codes are those of `Finish` and `Verdict`; `size` is what a node's circle shows: visits, or outcomes where there are
    none.
    """
    shown, best = found.shown, found.best
    tree, values = shown.record.tree, shown.values
    merged = [row for row, rows in enumerate(tree.merged_from) if rows]
    return {
        "compressed": compressed,
        "nodes": tree.size,
        "estimator": values.estimator,
        "confidence": shown.config.confidence,
        "threshold": shown.config.threshold,
        "saved": shown.saved,
        "parent": tree.parent.tolist(),
        "value": _rounded(values.value),
        "low": _rounded(values.low),
        "high": _rounded(values.high),
        "outcomes": values.rollouts.tolist(),
        "size": (tree.visits if tree.visits.any() else values.rollouts).tolist(),
        "sized_by": "visits" if tree.visits.any() else "outcomes",
        "verdict": tree.verdict.tolist(),
        "finish": tree.finish.tolist(),
        "hard": shown.hard.tolist(),
        "best": list(best.nodes) if best else [],
        "best_rollout": best is not None and best.rollout is not None,
        "first_errors": np.flatnonzero(found.first_error).tolist(),
        "merged": merged,
    }


def labels_data(found: PageTree, nodes: Iterable[int]) -> dict[str, Parts]:
    """The beginnings of some nodes' texts, by node; of nodes that the tree has, `MAX_LABELS` at most."""
    tree = found.shown.record.tree
    wanted = [node for node in nodes if 0 < node < tree.size][:MAX_LABELS]
    return {str(node): label_parts(tree.text[node]) for node in wanted}


def search_data(found: PageTree, text: str, most: int = 5_000) -> dict[str, Any]:
    """Nodes whose step, answer or observation has `text` in it, whatever the case."""
    wanted, tree = text.lower(), found.shown.record.tree
    nodes = [
        node
        for node, texts in enumerate(zip(tree.text, tree.answer, tree.observation, strict=True))
        if any(wanted in part.lower() for part in texts)
    ]
    return {"nodes": nodes[:most], "found": len(nodes)}


def step_data(found: PageTree, node: int, most: int = PANEL_CHARS) -> dict[str, Any]:
    """One node's step: its text and what stands beside it."""
    shown = found.shown
    tree, values = shown.record.tree, shown.values
    hard = int(shown.hard[node])
    return {
        "node": node,
        "depth": int(tree.depth[node]),
        "text": text_data(tree.text[node], most),
        "observation": text_data(tree.observation[node], most) if tree.observation[node] else None,
        "value": _known(values.value[node]),
        "low": _known(values.low[node]),
        "high": _known(values.high[node]),
        "outcomes": int(values.rollouts[node]),
        "hard": None if hard == NO_LABEL else hard,
        **_ending(int(tree.finish[node]), int(tree.verdict[node]), tree.answer[node]),
    }


def node_data(found: PageTree, node: int) -> dict[str, Any]:
    """One node whole: every field, and its own rollouts. Steps above it: `prefix_data`."""
    shown = found.shown
    tree, values = shown.record.tree, shown.values
    own = found.rollouts.get(node, [])
    return {
        "step": step_data(found, node),
        "parent": int(tree.parent[node]),
        "stderr": _known(values.stderr[node]),
        "undecided": int(values.undecided[node]),
        "multiplicity": float(tree.multiplicity[node]),
        "tokens": int(tree.token_count[node]),
        "logprob": _known(tree.logprob[node]),
        "visits": int(tree.visits[node]),
        "value_sum": float(tree.value_sum[node]),
        "prior": _known(tree.prior[node]),
        "own": {
            "all": int(tree.rollouts[node]),
            "correct": int(tree.rollouts_correct[node]),
            "undecided": int(tree.rollouts_undecided[node]),
            "truncated": int(tree.rollouts_truncated[node]),
        },
        "merged_from": list(tree.merged_from[node]),
        "first_error": bool(found.first_error[node]),
        "rollouts": [_rollout(place, rollout) for place, rollout in own[:MAX_ROLLOUTS]],
        "more_rollouts": max(len(own) - MAX_ROLLOUTS, 0),
    }


def prefix_data(found: PageTree, node: int) -> dict[str, Any]:
    """The steps above a node, from the root's child down; the last `MAX_PREFIX` of them, each cut shorter."""
    above = found.shown.record.tree.path(node)[:-1]
    steps = [step_data(found, row, PANEL_CHARS // 2) for row in above[-MAX_PREFIX:]]
    return {"steps": steps, "omitted": max(len(above) - MAX_PREFIX, 0)}


def prompt_data(steps: StepsConfig, problem: Problem, prefix: str, most: int | None = PANEL_CHARS) -> dict[str, Any]:
    """What the policy is asked to continue at `prefix`: one text, or the messages of a chat; `most` of each."""
    if steps.template == "chat":
        messages = render_chat(steps, problem.question, prefix)
    else:
        messages = [{"role": "text", "content": render(steps, problem.question, prefix)}]
    return {
        "template": steps.template,
        "messages": [
            {
                "role": message["role"],
                # The end is what a step was sampled after; a long beginning is few-shot examples.
                "text": printable(message["content"] if most is None else message["content"][-most:]),
                "omitted": 0 if most is None else max(len(message["content"]) - most, 0),
            }
            for message in messages
        ],
    }


def whole_text(found: PageTree, node: int, part: str, place: int) -> str | None:
    """A text that was cut, whole: the node's `text`, `observation`, or own `rollout` at `place`; None: no such."""
    tree = found.shown.record.tree
    if part in ("text", "observation"):
        return printable(getattr(tree, part)[node])
    steps = next((rollout.steps for at, rollout in found.rollouts.get(node, []) if at == place), None)
    return None if part != "rollout" or steps is None else printable("".join(steps))


def _rollout(place: int, rollout: Rollout) -> dict[str, Any]:
    return {
        "place": place,
        "text": text_data("".join(rollout.steps)),
        "steps": len(rollout.steps),
        "tokens": rollout.tokens,
        "logprob": _known(rollout.logprob),
        **_ending(rollout.finish, rollout.verdict, rollout.answer),
    }


def _ending(finish: int, verdict: int, answer: str) -> dict[str, Any]:
    return {
        "finish": Finish(finish).name.lower(),
        "verdict": None if verdict == NO_VERDICT else Verdict(verdict).name.lower(),
        "answer": label_parts(answer, LIST_CHARS, answer=True),
    }


def _known(value: np.generic | float) -> float | None:
    number = float(value)
    return None if math.isnan(number) else number


def _rounded(column: NDArray[np.float64]) -> list[float | None]:
    return [None if value != value else value for value in np.round(column, 4).tolist()]


def encoded(data: Any) -> bytes:
    """JSON in UTF-8."""
    return msgspec.json.encode(data)
