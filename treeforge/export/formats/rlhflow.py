"""`rlhflow`: a chat in which the user gives one step a turn and the assistant answers `+` or `-`.

The shape of RLHFlow's PRM data (`type: sharegpt` or `chat_template` in axolotl, column `conversations`); the first turn
is the question and the first step.
"""

from __future__ import annotations

from collections.abc import Iterator

from treeforge.export.formats.base import Context, Format, Rows, by_tree
from treeforge.export.formats.chat import MESSAGES, assistant, user
from treeforge.export.formats.stepwise import NOTHING_LABELLED, PROVENANCE, SOFT, chain_rows, make_rows, provenance
from treeforge.export.schemas import Column
from treeforge.export.solutions import Chain
from treeforge.export.trees import ExportTree

_COLUMNS = (
    Column("conversations", MESSAGES, "turns: a step of the user's (the first after the question), `+` or `-`, …"),
    Column("values", SOFT, "a step each: its soft label"),
    *PROVENANCE,
)


def _rows(tree: ExportTree, context: Context) -> Iterator[Rows]:
    for number, labelled, chains, left_out in chain_rows(tree):
        columns = {
            "conversations": [_turns(tree.problem.question, chain) for chain in chains],
            "values": [list(chain.soft) for chain in chains],
        }
        yield make_rows(columns | provenance(tree, number, labelled, chains), chains, left_out)


def _turns(question: str, chain: Chain) -> list[dict[str, str]]:
    turns = []
    for number, (step, label) in enumerate(zip(chain.steps, chain.labels, strict=True)):
        text = step.strip()
        turns += [user(text if number else f"{question.strip()} {text}"), assistant("+" if label else "-")]
    return turns


RLHFLOW = Format(
    name="rlhflow",
    about="One row a chain of labelled steps as a chat: each step a turn of the user, answered `+` or `-`.",
    columns=_COLUMNS,
    rows=by_tree(_rows),
    text="conversations",
    empty=NOTHING_LABELLED,
)
