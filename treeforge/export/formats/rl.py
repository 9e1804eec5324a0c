"""`rl`: problems for reinforcement learning, as verl reads them.

`data_source` picks verl's reward function: name the set it knows by `export.data_source` (`openai/gsm8k`, …).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from treeforge.export.blocks import ExportBlock
from treeforge.export.formats.base import TOO_LARGE, Context, Format, Rows, within_limit
from treeforge.export.formats.chat import MESSAGES, user
from treeforge.export.schemas import Column
from treeforge.store.forests import text_sizes
from treeforge.store.tables import text_array

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


def _rows(block: ExportBlock, context: Context) -> Iterator[Rows]:
    problems, forest = block.problems, block.passes[0].nodes.forest
    values, roots = block.passes[0].values, forest.starts[:-1]
    answers = text_array("ground_truth", [problem.gold_answer for problem in problems])
    fits = within_limit(block.question_sizes + text_sizes(answers))
    if not fits.all():
        yield Rows({}, 0, {TOO_LARGE: int((~fits).sum())})
    rows = np.flatnonzero(fits)
    if not len(rows):
        return
    place, numbers = pa.array(rows), block.numbers[rows]
    source = context.config.data_source
    value = values.value[roots][rows]
    columns = {
        "data_source": text_array("data_source", [source or problem.source for problem in problems]).take(place),
        "prompt": user(block.questions.take(place)),
        "ability": pa.repeat(pa.scalar("math"), len(rows)),
        "reward_model": pa.StructArray.from_arrays(
            [pa.repeat(pa.scalar("rule"), len(rows)), answers.take(place)], fields=list(_REWARD)
        ),
        "extra_info": pa.StructArray.from_arrays(
            [
                pa.repeat(pa.scalar(context.split), len(rows)),
                pa.array(numbers.astype(np.int64)),
                block.problem_ids.take(place),
                pa.array(value, from_pandas=True),
                pa.array(values.rollouts[roots][rows]),
            ],
            fields=list(_EXTRA),
        ),
    }
    yield Rows(columns, len(rows), numbers=numbers)


RL = Format(
    name="rl",
    about="Problems with their right answers, for reinforcement learning with a verifiable reward.",
    columns=_COLUMNS,
    rows=_rows,
)
