"""Second opinions on steps (an LLM judge's, a reward model's, a person's): `opinions/opinions.parquet` of a run, a row
for each step and source, beside the values that the run's own labels are made of.

They are no view: nothing could make them again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from treeforge.config import LabelConfig
from treeforge.errors import DataError
from treeforge.forest import Forest
from treeforge.hashing import file_sha256
from treeforge.store.parquet import SCHEMA_VERSION, TABLE_KEY, VERSION_KEY, read_table, write_table
from treeforge.store.rows import read_rows
from treeforge.store.run import RunFolder
from treeforge.store.tables import text_array

OPINIONS = pa.schema(
    [
        pa.field("tree_id", pa.int32(), nullable=False),
        pa.field("node_id", pa.int32(), nullable=False),
        pa.field("value", pa.float64(), nullable=False),
        pa.field("source", pa.string(), nullable=False),
    ],
    metadata={TABLE_KEY: b"opinions", VERSION_KEY: str(SCHEMA_VERSION)},
)

_PATH = Path("opinions", "opinions.parquet")
_MAX_SOURCE = 100


class Opinion(msgspec.Struct, frozen=True, order=True):
    """What one source says of one step."""

    source: str
    tree: int
    node: int
    value: float
    """In [0, 1], as a step's value."""


class Agreement(msgspec.Struct):
    """How second opinions stand to a run's hard labels. Steps on which either side says nothing are not counted."""

    agree: int = 0
    """Pairs of a labelled step and an opinion that say the same."""
    disagree: int = 0
    filtered: int = 0
    """Hard labels that were taken away for it (`label.second = "agree"`)."""


def add_opinions(run: RunFolder, file: Path, source: str | None = None) -> int:
    """Take in a file of opinions, JSONL, JSON, CSV or Parquet; the number of rows. A source's former ones are replaced.

    A row has `problem_id` or `tree_id`, `node_id`, `value` (a number in [0, 1], or true and false) and, unless it is
    given here or is to be the file's name, `source`. Raises `DataError` with file, line and field for the first row
    that fits no step of this run, and then nothing is taken in.
    """
    numbers = {problem.problem_id: number for number, problem in enumerate(run.problems)}
    found: dict[tuple[str, int, int], Opinion] = {}
    lines: dict[int, list[tuple[int, int]]] = {}
    with closing(read_rows(file)) as rows:
        for line, row in rows:
            try:
                if isinstance(row, DataError):
                    raise row
                opinion = _opinion(row, numbers, len(run.problems), source or file.name.partition(".")[0])
                key = (opinion.source, opinion.tree, opinion.node)
                if found.setdefault(key, opinion) != opinion:
                    raise DataError(
                        f"has another value of the same step by {opinion.source!r} before",
                        field="value",
                        fix="Keep one of them",
                    )
            except DataError as error:
                raise DataError(error.problem, path=file, line=line, field=error.field, fix=error.fix) from None
            lines.setdefault(opinion.tree, []).append((line, opinion.node))
    if not found:
        raise DataError("has no row", path=file, fix="Write one row a step: problem_id, node_id, value")
    _check_nodes(run, file, lines)
    sources = {opinion.source for opinion in found.values()}
    kept = [opinion for opinion in _read(run) if opinion.source not in sources]
    together = sorted(kept + list(found.values()))
    table = pa.Table.from_arrays(
        [
            pa.array([opinion.tree for opinion in together], pa.int32()),
            pa.array([opinion.node for opinion in together], pa.int32()),
            pa.array([opinion.value for opinion in together], pa.float64()),
            text_array("source", [opinion.source for opinion in together]),
        ],
        schema=OPINIONS,
    )
    write_table(table, _file(run))
    return len(found)


def copy_opinions(run: RunFolder, folder: Path) -> None:
    """Copy a run's opinions, where it has some, into another folder of the same trees."""
    if _file(run).exists():
        write_table(read_table(_file(run), OPINIONS), folder / _PATH)


class Opinions:
    """The second opinions of a run, and what they do to its hard labels."""

    def __init__(self, run: RunFolder, config: LabelConfig) -> None:
        self._config = config
        self.agreement = Agreement()
        """Counted by `filter`."""
        self.config: dict[str, Any] = {}
        """The part of a view's `config` that says which opinions it was made with; empty without any."""
        self._trees, self._nodes, self._values = np.zeros(0, np.int32), np.zeros(0, np.int32), np.zeros(0)
        if _file(run).exists():
            table = read_table(_file(run), OPINIONS, columns=["tree_id", "node_id", "value"]).sort_by("tree_id")
            self._trees, self._nodes, self._values = (table.column(name).to_numpy() for name in table.column_names)
            self.config = {"second": file_sha256(_file(run))}

    def filter(self, tree: int, hard: NDArray[np.int8]) -> NDArray[np.int8]:
        """The hard labels of a tree's nodes (int8[n], -1 for none) without those that an opinion contradicts.

        With `label.second = "beside"` all stay, and agreement is counted only. An opinion becomes a label by the same
        threshold and band as a value.
        """
        start, end = np.searchsorted(self._trees, [tree, tree + 1])
        if start == end:
            return hard
        nodes, values, config = self._nodes[start:end], self._values[start:end], self._config
        said = np.where(values > config.threshold + config.band, 1, 0)
        known = (hard[nodes] >= 0) & ((said == 1) | (values <= config.threshold - config.band))
        differs = known & (hard[nodes] != said)
        self.agreement.agree += int(np.count_nonzero(known & ~differs))
        self.agreement.disagree += int(np.count_nonzero(differs))
        if config.second == "beside" or not differs.any():
            return hard
        filtered = hard.copy()
        filtered[nodes[differs]] = -1
        self.agreement.filtered += int(np.count_nonzero(filtered != hard))
        return filtered

    def filter_forest(self, numbers: NDArray[np.int32], forest: Forest, hard: NDArray[np.int8]) -> NDArray[np.int8]:
        """`filter` of several trees at once. `numbers`, int32[trees]: their tree_ids; `hard`, int8[n]: of all nodes."""
        with_some = np.isin(numbers, self._trees)
        if not with_some.any():
            return hard
        filtered = hard.copy()
        for number, rows, some in zip(numbers.tolist(), forest.rows(), with_some.tolist(), strict=True):
            if some:
                filtered[rows] = self.filter(number, hard[rows])
        return filtered


def _opinion(row: dict[str, Any], numbers: dict[str, int], trees: int, source: str) -> Opinion:
    tree = row.get("tree_id")
    if tree is None:
        name = row.get("problem_id")
        if name not in numbers:
            raise DataError(
                "is missing" if name is None else f"{str(name)[:60]!r} is no problem of this run",
                field="problem_id",
                fix="Name the problem by its id, or its tree by tree_id, as `treeforge show RUN` lists them",
            )
        tree = numbers[name]
    elif not isinstance(tree, int) or isinstance(tree, bool) or not 0 <= tree < trees:
        raise DataError(f"{str(tree)[:60]} is no tree of this run", field="tree_id", fix=f"They are 0 … {trees - 1}")
    node = row.get("node_id")
    if not isinstance(node, int) or isinstance(node, bool) or not 0 < node < 2**31:
        raise DataError(f"{str(node)[:60]} is no step", field="node_id", fix="Steps are counted from 1; 0 is the root")
    value = row.get("value")
    if not isinstance(value, int | float) or not 0 <= value <= 1:
        raise DataError(
            f"{str(value)[:60]} is no value", field="value", fix="Write a number from 0 to 1, true or false"
        )
    named = row.get("source", source)
    if not isinstance(named, str) or not 0 < len(named) <= _MAX_SOURCE:
        raise DataError("is no name", field="source", fix=f"Write a text of 1 to {_MAX_SOURCE} characters")
    return Opinion(named, tree, node, float(value))


def _check_nodes(run: RunFolder, file: Path, lines: dict[int, list[tuple[int, int]]]) -> None:
    """Every node must be there."""
    statuses = run.statuses()
    ended = [tree for tree in sorted(lines) if statuses[tree][0] != "open"]
    sizes = {tree: record.tree.size for tree, record in run.records(ended)}
    for tree, rows in sorted(lines.items(), key=lambda item: item[1][0]):
        for line, node in rows:
            if node >= sizes.get(tree, 0):
                what = f"has {sizes[tree]} nodes" if tree in sizes else "has not ended yet"
                raise DataError(
                    f"there is no node {node}: tree {tree} {what}",
                    path=file,
                    line=line,
                    field="node_id",
                    fix="Opinions are of steps of this very run; take node_id from its format `nodes`",
                )


def _read(run: RunFolder) -> Iterator[Opinion]:
    if not _file(run).exists():
        return
    table = read_table(_file(run), OPINIONS)
    columns = [table.column(name).to_pylist() for name in OPINIONS.names]
    for tree, node, value, source in zip(*columns, strict=True):
        yield Opinion(source, tree, node, value)


def _file(run: RunFolder) -> Path:
    return run.path / _PATH
