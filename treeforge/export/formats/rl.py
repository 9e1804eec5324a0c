"""`rl`: problems for reinforcement learning, as verl reads them.

`data_source` picks verl's reward function: name the set it knows by `export.data_source` (`openai/gsm8k`, …).
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, by_tree, fits
from treeforge.export.formats.chat import MESSAGES, user
from treeforge.export.schemas import Column
from treeforge.export.trees import ExportTree

_REWARD = pa.struct([pa.field("style", pa.string()), pa.field("ground_truth", pa.string())])
_EXTRA = pa.struct(
    [
        pa.field("split", pa.string()),
        pa.field("index", pa.int64()),
        pa.field("problem_id", pa.string()),
        pa.field("value", pa.float64()),
        pa.field("rollouts", pa.int64()),
    ]
)

_COLUMNS = (
    Column("data_source", pa.string(), "the problem set: `export.data_source`, or the file the problem came from"),
    Column("prompt", MESSAGES, "the question, as the user's turn"),
    Column("ability", pa.string(), "`math`"),
    Column("reward_model", _REWARD, "`rule`, and the right final answer"),
    Column(
        "extra_info",
        _EXTRA,
        "split, tree_id as `index`, problem_id, the policy's chance to solve it (`value`) and the outcomes behind that",
    ),
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    problem, values = tree.problem, tree.values
    if not fits(problem.question, [problem.gold_answer]):
        yield Rows({}, 0, {TOO_LARGE: 1})
        return
    value = float(values.value[0])
    extra = {
        "split": context.split,
        "index": tree.number,
        "problem_id": problem.problem_id,
        "value": None if value != value else value,
        "rollouts": int(values.rollouts[0]),
    }
    columns = {
        "data_source": [context.config.data_source or problem.source],
        "prompt": [[user(problem.question)]],
        "ability": ["math"],
        "reward_model": [{"style": "rule", "ground_truth": problem.gold_answer}],
        "extra_info": [extra],
    }
    yield Rows(columns, 1)


RL = Format(
    name="rl",
    about="Problems with their right answers, for reinforcement learning with a verifiable reward.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
)
