"""Trees as JSON data for a script: every field, unknown numbers as null, codes by their names."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from treeforge.label.steps import NO_LABEL
from treeforge.tree import TREE_FIELDS, Finish, Rollout
from treeforge.verdict import NO_VERDICT, Verdict
from treeforge.view.best import BestPath, WorstPath
from treeforge.view.valued import ValuedTree

_VALUE_FIELDS = ("value", "stderr", "low", "high")


def tree_data(shown: ValuedTree, best: BestPath | None, worst: WorstPath | None) -> dict[str, Any]:
    """The tree with `nodes`, `rollouts`, `best_path` and `worst_path` (node_ids, and the rollout that ends it)."""
    return {
        **_about(shown),
        "nodes": [_node(shown, row) for row in range(shown.record.tree.size)],
        "rollouts": [_rollout(rollout) for rollout in shown.record.rollouts],
        "best_path": _path(best),
        "worst_path": _path(worst),
    }


def node_data(shown: ValuedTree, node: int) -> dict[str, Any]:
    """One node with its `prefix` and its own `rollouts`."""
    return {
        **_about(shown),
        "node": _node(shown, node),
        "prefix": shown.record.tree.prefix(node),
        "rollouts": [_rollout(rollout) for rollout in shown.record.rollouts if rollout.node == node],
    }


def _path(path: BestPath | WorstPath | None) -> dict[str, Any] | None:
    return None if path is None else {"nodes": path.nodes, "rollout": path.rollout and _rollout(path.rollout)}


def _about(shown: ValuedTree) -> dict[str, Any]:
    return {
        "number": shown.number,
        "problem": shown.problem,
        "status": shown.record.status,
        "reason": shown.record.reason,
        "estimator": shown.values.estimator,
        "saved_values": shown.saved,
    }


def _node(shown: ValuedTree, row: int) -> dict[str, Any]:
    tree, values, hard = shown.record.tree, shown.values, int(shown.hard[row])
    columns = {name: getattr(tree, name)[row] for name in TREE_FIELDS if name != "parent"}
    columns |= {name: getattr(values, name)[row] for name in _VALUE_FIELDS}
    return {
        "node_id": row,
        "parent_id": int(tree.parent[row]),
        **{name: _plain(value) for name, value in columns.items()},
        "finish": Finish(tree.finish[row]).name.lower(),
        "verdict": _verdict(int(tree.verdict[row])),
        "value_rollouts": int(values.rollouts[row]),
        "value_undecided": int(values.undecided[row]),
        "hard": None if hard == NO_LABEL else bool(hard),
    }


def _rollout(rollout: Rollout) -> dict[str, Any]:
    return {
        "node_id": rollout.node,
        "steps": rollout.steps,
        "answer": rollout.answer,
        "verdict": _verdict(rollout.verdict),
        "finish": Finish(rollout.finish).name.lower(),
        "tokens": rollout.tokens,
        "logprob": _plain(rollout.logprob),
    }


def _verdict(code: int) -> str | None:
    return None if code == NO_VERDICT else Verdict(code).name.lower()


def _plain(value: Any) -> Any:
    value = value.item() if isinstance(value, np.generic) else value
    return None if isinstance(value, float) and math.isnan(value) else value
