"""Random labelled trees for export: a function of the seed only."""

import math
import random

import numpy as np

from treeforge.export import ExportBlock, ExportTree, LabelledTree
from treeforge.problem import make_problem
from treeforge.tree import Finish, TreeBuilder, TreeRecord
from treeforge.value import Values
from treeforge.verdict import Verdict


def make_values(rng, n, unknown=0.1):
    value = np.array([math.nan if rng.random() < unknown else rng.random() for _ in range(n)])
    spread = np.where(np.isnan(value), math.nan, 0.1)
    return Values(
        value=value,
        rollouts=np.array([0 if math.isnan(v) else rng.randrange(1, 9) for v in value], np.int64),
        undecided=np.zeros(n, np.int64),
        stderr=spread,
        low=np.where(np.isnan(value), 0.0, np.maximum(value - spread, 0)),
        high=np.where(np.isnan(value), 1.0, np.minimum(value + spread, 1)),
        estimator="policy_mean",
    )


def make_labels(values, threshold=0.5):
    known = ~np.isnan(values.value)
    return np.where(known, values.value > threshold, -1).astype(np.int8), values.value.copy()


def grow(seed, size=12, text="Step {0}: 6 × {0} = {1}.\n"):
    rng = random.Random(seed)
    builder = TreeBuilder()
    for row in range(1, size):
        parent = rng.randrange(max(0, row - 5), row)
        builder.add(parent, text.format(row, 6 * row), token_count=9, logprob=-rng.random(), prior=0.25)
    for row, children in enumerate(builder.children):
        if children is None and row:
            builder.finish[row] = Finish.ANSWERED
            builder.answer[row] = str(rng.randrange(9))
            builder.verdict[row] = rng.choice([Verdict.CORRECT, Verdict.INCORRECT])
    return builder.freeze()


def export_tree(number, size=12, question=None, tree=None, values=None, compressed=()):
    rng = random.Random(f"labels {number}")
    tree = tree or grow(number, size)
    problem = make_problem(question or f"How many are 6 × {number}?", str(6 * number))
    values = values or make_values(rng, tree.size)
    hard, soft = make_labels(values)
    record = TreeRecord(problem.problem_id, tree, (), "done", "")
    return ExportTree(
        number=number, problem=problem, record=record, values=values, hard=hard, soft=soft, compressed=tuple(compressed)
    )


def forest(count, size=12):
    return [export_tree(number, size) for number in range(count)]


def labelled(tree, values, row_of=None, fresh=None):
    hard, soft = make_labels(values)
    rows = np.arange(tree.size, dtype=np.int32) if row_of is None else np.asarray(row_of, np.int32)
    return LabelledTree(tree=tree, values=values, hard=hard, soft=soft, row_of=rows, fresh=fresh or {})


def block_of(*trees):
    return ExportBlock.of(trees)


def blocks(trees, size=4):
    """The trees as an export gets them, `size` a block."""
    return [ExportBlock.of(trees[start : start + size]) for start in range(0, len(trees), size)]
