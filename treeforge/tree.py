"""The tree of reasoning steps: a frozen struct of arrays, its builder and its invariants."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from enum import IntEnum
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.errors import TreeError
from treeforge.verdict import NO_VERDICT

if TYPE_CHECKING:
    import networkx as nx


class Finish(IntEnum):
    """How a node's text ended."""

    OPEN = 0
    """The step ended at its delimiter; the trajectory goes on."""
    STOP = 1
    """The model ended the trajectory without giving an answer."""
    ANSWERED = 2
    """The trajectory ended with an answer."""
    TRUNCATED = 3
    """A token, step or size limit cut it off; counts as wrong unless left out by option."""
    ERROR = 4
    """The engine failed; counts nowhere."""


class Rollout(msgspec.Struct, frozen=True, gc=False):
    """A completion from a node to the end that did not become nodes itself. One row of the rollouts table."""

    node: int
    """The node whose prefix it continues."""
    steps: tuple[str, ...]
    """Its steps after that prefix, delimiters kept; empty for an empty completion or an engine error."""
    answer: str
    """The extracted final answer, or the error's text where `finish` is ERROR."""
    verdict: int
    """A `Verdict`, or -1 where `finish` is ERROR."""
    finish: int
    """A `Finish`; never OPEN."""
    tokens: int
    """Tokens sampled after the node's prefix."""
    logprob: float
    """Sum of their log-probabilities in nats; NaN unknown."""


def _array(dtype: type[np.generic]) -> Any:
    return field(metadata={"dtype": np.dtype(dtype)})


def _texts() -> Any:
    return field(metadata={"dtype": None})


@dataclass(frozen=True, kw_only=True, eq=False, slots=True)
class Tree:
    """A tree of n nodes. Row 0 is the root (the empty prefix); a parent always stands before its children.

    Arrays are read-only. Prefixes are derived from the tree (`prefix`), never stored.
    """

    parent: NDArray[np.int32] = _array(np.int32)
    """int32[n]: the parent's row; -1 at the root."""
    depth: NDArray[np.int16] = _array(np.int16)
    """int16[n]: steps from the root; 0 at the root."""
    text: tuple[str, ...] = _texts()
    """n step texts, delimiter kept, so that a prefix is plain concatenation; '' at the root."""
    observation: tuple[str, ...] = _texts()
    """n texts: what an environment answered to the step; '' in mathematics."""
    token_count: NDArray[np.int32] = _array(np.int32)
    """int32[n]: tokens of the step's text (not of the observation); 0 at the root."""
    logprob: NDArray[np.float32] = _array(np.float32)
    """float32[n]: sum of the log-probabilities of the step's tokens, in nats; NaN unknown."""
    multiplicity: NDArray[np.float64] = _array(np.float64)
    """float64[n]: how many of the policy's samples from the parent this node stands for; 1 at the root.

    Whole until HNC splits it. 0 where the sample is counted elsewhere: a prefix of a rollout that is an own rollout of
    a node above (`omega`).
    """
    finish: NDArray[np.int8] = _array(np.int8)
    """int8[n]: a `Finish`; OPEN for every node with children."""
    answer: tuple[str, ...] = _texts()
    """n texts: the final answer extracted at a leaf; '' elsewhere."""
    verdict: NDArray[np.int8] = _array(np.int8)
    """int8[n]: a `Verdict` at nodes that end a trajectory; -1 elsewhere and at engine errors."""
    rollouts: NDArray[np.int32] = _array(np.int32)
    """int32[n]: the node's own rollouts: started at its prefix, not turned into nodes; errors not counted."""
    rollouts_correct: NDArray[np.int32] = _array(np.int32)
    """int32[n]: of these, judged correct."""
    rollouts_undecided: NDArray[np.int32] = _array(np.int32)
    """int32[n]: of these, judged undecided."""
    rollouts_truncated: NDArray[np.int32] = _array(np.int32)
    """int32[n]: of these, truncated (and not correct)."""
    visits: NDArray[np.int32] = _array(np.int32)
    """int32[n]: N, judged completions that the search backed up through this node; 0 after compression."""
    value_sum: NDArray[np.float64] = _array(np.float64)
    """float64[n]: W, sum of their outcomes (1 correct, 0 not); 0 after compression."""
    prior: NDArray[np.float32] = _array(np.float32)
    """float32[n]: P, the search's prior among siblings; NaN unknown, and after compression."""
    merged_from: tuple[tuple[int, ...], ...] = _texts()
    """n tuples: for a node merged by HNC the rows of the *uncompressed* tree whose texts it joins; () elsewhere."""

    def __post_init__(self) -> None:
        for name, dtype in _KINDS:
            value = getattr(self, name)
            if dtype is None:
                object.__setattr__(self, name, tuple(value))
                continue
            array = np.ascontiguousarray(value, dtype=dtype)
            if array.flags.writeable and array.base is None and array is value:
                array = array.copy()
            array.flags.writeable = False
            object.__setattr__(self, name, array)

    @property
    def size(self) -> int:
        """n, the number of nodes, the root included."""
        return len(self.parent)

    @property
    def is_leaf(self) -> NDArray[np.bool_]:
        """bool[n]: nodes without children."""
        leaf = np.ones(self.size, dtype=np.bool_)
        leaf[self.parent[1:]] = False
        return leaf

    def children(self) -> list[list[int]]:
        """Child rows of every node, in row order."""
        out: list[list[int]] = [[] for _ in range(self.size)]
        for child, parent in enumerate(self.parent.tolist()):
            if parent >= 0:
                out[parent].append(child)
        return out

    def path(self, node: int) -> list[int]:
        """Rows from the root's child down to `node`; empty for the root."""
        rows: list[int] = []
        while node > 0:
            rows.append(node)
            node = int(self.parent[node])
        return rows[::-1]

    def prefix(self, node: int) -> str:
        """The text of all steps (and observations) from the root down to and including `node`."""
        return "".join(self.text[row] + self.observation[row] for row in self.path(node))

    def check(self) -> None:
        """Raise `TreeError` unless every invariant holds; the message names field and row."""
        n = self.size
        if n == 0:
            raise TreeError("a tree has at least its root")
        for spec in fields(self):
            if len(getattr(self, spec.name)) != n:
                raise TreeError(f"{spec.name} has {len(getattr(self, spec.name))} rows, parent has {n}")
        if self.parent[0] != -1 or self.depth[0] != 0 or self.text[0] != "":
            raise TreeError("row 0 must be the root: parent -1, depth 0, empty text")
        rows = np.arange(n)
        _require(self.parent[1:] >= 0, "parent", "only row 0 may be a root", offset=1)
        _require(self.parent < rows, "parent", "a parent stands before its children")
        _require(self.depth[1:] == self.depth[self.parent[1:]] + 1, "depth", "one more than the parent's", offset=1)
        _require(np.isfinite(self.multiplicity) & (self.multiplicity >= 0), "multiplicity", "finite, not negative")
        _require(self.token_count >= 0, "token_count", "not negative")
        counted = self.rollouts_correct.astype(np.int64) + self.rollouts_undecided + self.rollouts_truncated
        _require(
            (counted <= self.rollouts)
            & (self.rollouts_correct >= 0)
            & (self.rollouts_undecided >= 0)
            & (self.rollouts_truncated >= 0),
            "rollouts",
            "correct, undecided and truncated are disjoint parts of rollouts",
        )
        inner = ~self.is_leaf
        _require(~inner | (self.finish == Finish.OPEN), "finish", "a node with children is OPEN")
        _require((self.finish != Finish.OPEN) | (self.verdict == NO_VERDICT), "verdict", "an open node has none")
        _require((self.finish != Finish.ERROR) | (self.verdict == NO_VERDICT), "verdict", "an engine error has none")

    def to_networkx(self) -> nx.DiGraph[int]:
        """A `networkx.DiGraph`, one node a row with every field as an attribute, edges from parent to child."""
        import networkx as nx

        graph: nx.DiGraph[int] = nx.DiGraph()
        columns = {s.name: _plain(getattr(self, s.name)) for s in fields(self) if s.name != "parent"}
        for row in range(self.size):
            graph.add_node(row, **{name: column[row] for name, column in columns.items()})
        graph.add_edges_from((int(p), row) for row, p in enumerate(self.parent.tolist()) if p >= 0)
        return graph

    @classmethod
    def from_networkx(cls, graph: nx.DiGraph[int]) -> Tree:
        """The inverse of `to_networkx`. Raises `TreeError` where the graph is no tree of rows 0 … n-1."""
        n = graph.number_of_nodes()
        if sorted(graph.nodes) != list(range(n)):
            raise TreeError(f"the graph's nodes must be the rows 0 … {n - 1}")
        parent = [-1] * n
        for source, target in graph.edges:
            if parent[target] != -1:
                raise TreeError(f"row {target} has two parents, {parent[target]} and {source}")
            parent[target] = source
        names = [s.name for s in fields(cls) if s.name != "parent"]
        try:
            columns: dict[str, Any] = {name: [graph.nodes[row][name] for row in range(n)] for name in names}
        except KeyError as error:
            raise TreeError(f"a node of the graph lacks the attribute {error}") from None
        tree = cls(parent=np.asarray(parent, dtype=np.int32), **columns)
        tree.check()
        return tree


def _plain(column: Any) -> Any:
    return column.tolist() if isinstance(column, np.ndarray) else column


def _require(holds: NDArray[np.bool_], name: str, rule: str, offset: int = 0) -> None:
    if not holds.all():
        raise TreeError(f"{name} at row {int(np.flatnonzero(~holds)[0]) + offset}: {rule}")


_KINDS: tuple[tuple[str, Any], ...] = tuple((s.name, s.metadata["dtype"]) for s in fields(Tree))
"""Name and dtype (None: a tuple) of every field of `Tree`, in order."""

TREE_FIELDS: tuple[str, ...] = tuple(name for name, _ in _KINDS)
"""Every field of `Tree`, in order."""


class TreeBuilder:
    """A tree that grows: one Python list a field, appended to by `add`, frozen by `freeze`.

    The lists are public: search updates counts in place. Identical siblings are found through `child_of`.
    """

    __slots__ = (
        *(name for name in TREE_FIELDS if name not in ("observation", "merged_from")),
        "observations",
        "children",
        "child_of",
    )

    def __init__(self) -> None:
        self.parent: list[int] = [-1]
        self.depth: list[int] = [0]
        self.text: list[str] = [""]
        self.observations: dict[int, str] = {}
        self.token_count: list[int] = [0]
        self.logprob: list[float] = [0.0]
        self.multiplicity: list[float] = [1.0]
        self.finish: list[int] = [0]
        self.answer: list[str] = [""]
        self.verdict: list[int] = [NO_VERDICT]
        self.rollouts: list[int] = [0]
        self.rollouts_correct: list[int] = [0]
        self.rollouts_undecided: list[int] = [0]
        self.rollouts_truncated: list[int] = [0]
        self.visits: list[int] = [0]
        self.value_sum: list[float] = [0.0]
        self.prior: list[float] = [1.0]
        self.children: list[list[int] | None] = [None]
        self.child_of: dict[int, dict[str, int]] = {}
        """The first child with a text, by parent."""

    @property
    def size(self) -> int:
        """Nodes so far, the root included."""
        return len(self.parent)

    def add(
        self,
        parent: int,
        text: str,
        *,
        observation: str = "",
        token_count: int = 0,
        logprob: float = float("nan"),
        finish: int = 0,
        answer: str = "",
        verdict: int = NO_VERDICT,
        prior: float = float("nan"),
    ) -> int:
        """Append a child of `parent` with multiplicity 1 and no rollouts; return its row."""
        row = len(self.parent)
        self.parent.append(parent)
        self.depth.append(self.depth[parent] + 1)
        self.text.append(text)
        if observation:
            self.observations[row] = observation
        self.token_count.append(token_count)
        self.logprob.append(logprob)
        self.multiplicity.append(1.0)
        self.finish.append(finish)
        self.answer.append(answer)
        self.verdict.append(verdict)
        self.rollouts.append(0)
        self.rollouts_correct.append(0)
        self.rollouts_undecided.append(0)
        self.rollouts_truncated.append(0)
        self.visits.append(0)
        self.value_sum.append(0.0)
        self.prior.append(prior)
        self.children.append(None)
        siblings = self.children[parent]
        if siblings is None:
            self.children[parent] = [row]
        else:
            siblings.append(row)
        known = self.child_of.get(parent)
        if known is None:
            self.child_of[parent] = {text: row}
        else:
            known.setdefault(text, row)
        return row

    def prefix(self, node: int) -> str:
        """The text of all steps (and observations) down to and including `node`."""
        parts: list[str] = []
        parent, text, observations = self.parent, self.text, self.observations
        while node > 0:
            if observations and node in observations:
                parts.append(observations[node])
            parts.append(text[node])
            node = parent[node]
        parts.reverse()
        return "".join(parts)

    def freeze(self) -> Tree:
        """The tree so far, as a checked `Tree`."""
        n = self.size
        columns: dict[str, Any] = {
            name: getattr(self, name) for name in TREE_FIELDS if name not in ("observation", "merged_from")
        }
        tree = Tree(
            **columns,
            observation=tuple(self.observations.get(row, "") for row in range(n)) if self.observations else ("",) * n,
            merged_from=((),) * n,
        )
        tree.check()
        return tree


class TreeRecord(msgspec.Struct, frozen=True):
    """What growing one problem's tree gave: the tree, the rollouts beside it, and how it ended."""

    problem_id: str
    tree: Tree
    rollouts: tuple[Rollout, ...]
    status: str
    """`done`, `exhausted` (a budget ended it) or `failed`."""
    reason: str
    """One line: which budget, or why it failed; the strategy's own reason when done."""
