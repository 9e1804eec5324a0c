"""A run folder as the page reads it: opened again where it changed, trees kept for a while; for several threads."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import polars as pl
from numpy.typing import NDArray

from treeforge.config import Recipe
from treeforge.configuration import convert
from treeforge.errors import ConfigError
from treeforge.label.steps import first_errors
from treeforge.store.run import OPEN, RunFolder
from treeforge.store.views import view_state
from treeforge.tree import Rollout
from treeforge.view.best import BestPath, best_path
from treeforge.view.growing import Growing, Rows
from treeforge.view.index import problem_index
from treeforge.view.valued import ValuedTree, load_compressed, load_tree

CACHED_NODES = 400_000
"""Nodes of the trees kept in memory, together; the one that was asked for last is kept whatever its size."""
_LOOK_AGAIN = 1.0
"""Seconds in which a run is not looked at again for changes, at least."""
_PATIENCE = 10
"""What is made anew for a run that grows is kept for so many times as long as it took to make."""
_WATCHED = ("manifest.json", "problems.parquet", "labels/view.json", "verdicts/view.json", "compressed/view.json")

Version = tuple[tuple[int, int], ...]
"""Of every watched file its time of change and size; zeros where it is missing."""


@dataclass(frozen=True)
class PageTree:
    """A tree with what the page marks on it."""

    shown: ValuedTree
    best: BestPath | None

    @classmethod
    def of(cls, shown: ValuedTree) -> PageTree:
        """A tree and its best path."""
        return cls(shown, best_path(shown.record.tree, shown.values, shown.record.rollouts))

    @cached_property
    def rollouts(self) -> dict[int, list[tuple[int, Rollout]]]:
        """By node, each with its place among the tree's rollouts."""
        rollouts: dict[int, list[tuple[int, Rollout]]] = {}
        for place, rollout in enumerate(self.shown.record.rollouts):
            rollouts.setdefault(rollout.node, []).append((place, rollout))
        return rollouts

    @cached_property
    def first_error(self) -> NDArray[np.bool_]:
        """bool[n]: the node's step is the first one labelled 0 on its path."""
        tree = self.shown.record.tree
        first: NDArray[np.bool_] = (first_errors(tree, self.shown.hard) == tree.depth - 1) & (self.shown.hard == 0)
        return first


class RunReader:
    """Reads one run folder, which may be growing, being labelled or finished. Writes nothing into it."""

    def __init__(self, path: Path) -> None:
        """Raises `RunError` or `StorageError` for a folder that is no run, is damaged or has another schema."""
        self.path = path
        self._lock = threading.RLock()
        self._version: Version = ()
        self._fresh_until = 0.0
        self._statuses: dict[int, tuple[str, str]] = {}
        self._trees: OrderedDict[tuple[int, int], PageTree] = OrderedDict()
        self._index_lock = threading.Lock()
        self._index: tuple[object, float, pl.DataFrame] | None = None
        self._growing_lock = threading.Lock()
        self._growing: tuple[Version, Growing] | None = None
        self._grown: tuple[tuple[int, int], PageTree | None] | None = None
        self._run = RunFolder.open(path)
        self._look()

    @property
    def run(self) -> RunFolder:
        """The run, opened again where its manifest, problems or views changed."""
        with self._lock:
            self._look()
            return self._run

    @property
    def version(self) -> Version:
        """Changes whenever a label, verdict, problem or setting may have."""
        with self._lock:
            self._look()
            return self._version

    @property
    def statuses(self) -> dict[int, tuple[str, str]]:
        """(status, reason) of every problem, a second old as a rule."""
        with self._lock:
            self._look()
            return self._statuses

    @property
    def recipe(self) -> Recipe:
        """The run's recipe."""
        return convert(self.run.manifest["recipe"], Recipe)

    @property
    def passes(self) -> int:
        """How many HNC passes there are to look at; 0 where there are none, or they are older than the trees."""
        state = view_state(self.run, "compressed")
        return 0 if state is None or state["stale"] else int(state["config"]["compress"].get("passes", 1))

    def number(self, problem: int) -> int:
        """The same number; `ConfigError` where the run has no such problem."""
        if not 0 <= problem < len(self.run.problems):
            raise ConfigError(f"the run has no problem {problem}; it has {len(self.run.problems)}")
        return problem

    def index(self) -> pl.DataFrame:
        """One row a problem (`treeforge.view.index`), made again where trees ended or labels changed.

        Where making it takes long, it is left as it is for ten times as long.
        """
        with self._index_lock:
            run, version, statuses = self.run, self.version, self.statuses
            key = version, sum(outcome != OPEN for outcome in statuses.values())
            started = time.monotonic()
            if self._index is None or (self._index[0] != key and started > self._index[1]):
                frame = problem_index(run)
                took = time.monotonic() - started
                self._index = key, time.monotonic() + _PATIENCE * took, frame
            return self._index[2]

    def tree(self, number: int, compressed: int = 0) -> PageTree | None:
        """The tree of a problem as grown, or after an HNC pass; None while it has not ended.

        `ConfigError` for a pass or problem that there is not.
        """
        with self._lock:
            self._look()
            self.number(number)
            if self._statuses[number] == OPEN:
                return None
            key = number, compressed
            if (known := self._trees.get(key)) is not None:
                self._trees.move_to_end(key)
                return known
            if compressed > (self.passes if compressed else 0) or compressed < 0:
                raise ConfigError(f"there is no HNC pass {compressed} of these trees; `treeforge compress` makes them")
            shown = load_tree(self._run, number)
            if shown is not None and compressed:
                shown = load_compressed(self._run, shown, compressed)
            if shown is None:
                return None
            found = self._trees[key] = PageTree.of(shown)
            while len(self._trees) > 1 and sum(t.shown.record.tree.size for t in self._trees.values()) > CACHED_NODES:
                self._trees.popitem(last=False)
            return found

    def growing(self, number: int, rows: Rows) -> PageTree | None:
        """The tree that a problem's `rows` of the journal give so far (`treeforge.view.growing`)."""
        with self._growing_lock:
            run, version = self.run, self.version
            if self._growing is None or self._growing[0] != version:
                self._growing = version, Growing(run)
                self._grown = None
            key = number, len(rows)
            if self._grown is None or self._grown[0] != key:
                shown = self._growing[1].tree(number, rows)
                self._grown = key, None if shown is None else PageTree.of(shown)
            return self._grown[1]

    def _look(self) -> None:
        """See whether the run changed since; where that takes long, it is not done again for ten times as long."""
        started = time.monotonic()
        if self._version and started < self._fresh_until:
            return
        version = _version(self.path)
        if version != self._version:
            if self._version:
                self._run = RunFolder.open(self.path)
            self._version = version
            self._trees.clear()
        self._statuses = self._run.statuses()
        now = time.monotonic()
        self._fresh_until = now + max(_LOOK_AGAIN, _PATIENCE * (now - started))


def _version(path: Path) -> Version:
    found = []
    for name in _WATCHED:
        try:
            stat = (path / name).stat()
            found.append((stat.st_mtime_ns, stat.st_size))
        except OSError:
            found.append((0, 0))
    return tuple(found)
