"""`hrm-pickle`: the trees that the HRM authors' code pickles (arXiv 2503.13551), one `{idx}.pkl` a problem.

The model was stopped at the next step's header, which stands at a step's end and is taken off. Values are not read:
they are computed from the leaves' outcomes, as of any tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from treeforge.errors import DataError
from treeforge.export.readers.base import At, ImportedRow, ImportedStep, Located, Reader, ReadOptions
from treeforge.export.readers.rows import in_order
from treeforge.export.readers.safe_pickle import Node, load_node
from treeforge.tree import Finish
from treeforge.verdict import Verdict

GAVE_UP = "IT SHOULD STOP!"
"""What stands in the place of a step that could not be sampled."""

MAX_TREE_CHARS = 2**28
MAX_HEADER_CHARS = 1000
"""How far from a step's end its next header, with what blanks stand around, is looked for."""
_NEXT_HEADER = re.compile(r"(?:\s*#+[ \t]*(?:Step[ \t]*\d+[ \t]*[:.]?|END!?)\s*)+\Z", re.IGNORECASE)


def _read(path: Path, options: ReadOptions) -> Iterator[Located]:
    files = in_order(path.iterdir(), ".pkl") if path.is_dir() else [path]
    if not files:
        raise DataError("holds no .pkl file", path=path, fix="Name the folder of the pickled trees, or one of them")
    for file in files:
        try:
            yield str(file), _tree(load_node(file), file)
        except DataError as error:
            yield str(file), error


def _tree(root: Node, path: Path) -> ImportedRow:
    try:
        fields = vars(root)
        question = At(fields)["question"].filled()
        steps: list[ImportedStep] = []
        seen = {id(root)}
        chars = 0
        below = _children(At(fields), -1)
        while below:
            at, parent = below.pop()
            node = at.value
            if not isinstance(node, Node):
                raise at.wrong("a node")
            if id(node) in seen:
                raise at.error("stands at two places of the tree", "The file is no tree; leave it out")
            seen.add(id(node))
            here = At(vars(node), at.path)
            children = _children(here, len(steps))
            steps.append(_step(here, parent, inner=bool(children)))
            chars += len(steps[-1].text)
            if chars > MAX_TREE_CHARS:
                raise at.error(f"the tree has more than {MAX_TREE_CHARS} characters", "Leave the file out")
            below += children
    except DataError as error:
        raise DataError(error.problem, path=path, field=error.field, fix=error.fix) from None
    return ImportedRow(question, "", steps)


def _children(node: At, place: int) -> list[tuple[At, int]]:
    # The path is the node's own name only: that of a deep node would be as long as the tree.
    listed = node["children"].items()
    return [(At(child.value, f"node {place + 1}, children[{n}]"), place) for n, child in reversed([*enumerate(listed)])]


def _step(node: At, parent: int, *, inner: bool) -> ImportedStep:
    answers = node["previous_answer"].items()
    if not answers:
        raise node["previous_answer"].error("is empty: a node without its own step", "Leave the file out")
    text = answers[-1].text()
    text = text[:-MAX_HEADER_CHARS] + _NEXT_HEADER.sub("", text[-MAX_HEADER_CHARS:])
    if inner:
        return ImportedStep(parent, text)
    if _flag(node, "should_stop") or text.strip() == GAVE_UP:
        return ImportedStep(parent, text, None, Finish.ERROR)
    if _flag(node, "contain_answer"):
        verdict = Verdict.CORRECT if _flag(node, "is_correct") else Verdict.INCORRECT
        return ImportedStep(parent, text, None, Finish.ANSWERED, verdict)
    return ImportedStep(parent, text, None, Finish.TRUNCATED, Verdict.NO_ANSWER)


def _flag(node: At, name: str) -> bool:
    value: Any = node[name].value
    if not isinstance(value, bool):
        raise node[name].wrong("true or false")
    return value


HRM_PICKLE = Reader(
    name="hrm-pickle",
    about="Trees pickled by the HRM authors' code, a file or a folder of them: values come from the leaves' outcomes.",
    estimator="",
    delimiter="\n",
    read=_read,
)
