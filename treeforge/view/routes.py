"""Every question that the page can ask, by its path: a function of the run's data and the request."""

from __future__ import annotations

import threading
from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.requests import Request

from treeforge.errors import ConfigError
from treeforge.manifest import ENGINE
from treeforge.printable import printable
from treeforge.recheck import saved_verdicts
from treeforge.stats import summarise
from treeforge.store.views import view_state
from treeforge.view import api
from treeforge.view.checks import Checks
from treeforge.view.growing import growing_data, journal_rows
from treeforge.view.index import Query, find
from treeforge.view.live import live_data
from treeforge.view.reader import PageTree, RunReader
from treeforge.view.shards import shard_rows, shard_splits

T = TypeVar("T")


class Data:
    """What all answers are made of, with what is made once and kept."""

    def __init__(self, reader: RunReader) -> None:
        self.reader = reader
        self._locks = defaultdict[str, threading.Lock](threading.Lock)
        self._kept: dict[str, tuple[object, Any]] = {}

    def kept(self, name: str, make: Callable[[], T], key: object = None) -> T:
        """What `make` gave for the run as it stands (and for `key`)."""
        with self._locks[name]:
            wanted = self.reader.version, key
            if name not in self._kept or self._kept[name][0] != wanted:
                self._kept[name] = wanted, make()
            found: T = self._kept[name][1]
            return found

    @property
    def checks(self) -> Checks:
        """The run's checker."""
        return self.kept("checks", lambda: Checks(self.reader.run))

    def tree(self, request: Request) -> PageTree:
        """The tree that the path and `pass` name, as far as it has grown. `ConfigError` where it has not begun."""
        number = request.path_params["number"]
        found = self.reader.tree(number, _whole(request, "pass", 0))
        found = found or self.reader.growing(number, journal_rows(self.reader.run, number))
        if found is None:
            raise ConfigError(f"the tree of problem {number} has not begun yet")
        return found

    def node(self, request: Request) -> tuple[PageTree, int]:
        """That tree, and the node that the path names."""
        found, node = self.tree(request), request.path_params["node"]
        if node >= found.shown.record.tree.size:
            raise ConfigError(f"the tree has the nodes 0 to {found.shown.record.tree.size - 1}, not {node}")
        return found, node


def overview(data: Data, request: Request) -> dict[str, Any]:
    """The run: what it is made with, how far it is, which views there are."""
    by_status = tuple(sorted(Counter(status for status, _ in data.reader.statuses.values()).items()))
    return data.kept("overview", lambda: overview_data(data.reader), by_status)


def overview_data(reader: RunReader) -> dict[str, Any]:
    """`overview` of a run."""
    manifest, recipe = reader.run.manifest, reader.recipe
    identity = manifest.get("policy") or {}
    name = identity.get("model") or identity.get("name") or identity.get("backend") or recipe.policy.backend
    labels, recheck = view_state(reader.run, "labels"), saved_verdicts(reader.run).about
    return {
        "name": printable(reader.path.resolve().name),
        "problems": len(reader.run.problems),
        "by_status": dict(Counter(status for status, _ in reader.statuses.values())),
        "strategy": reader.run.strategy,
        "policy": printable(str(name)),
        "engine": printable(str(identity.get(ENGINE, ""))),
        "preset": printable(recipe.steps.preset),
        "labels": None if labels is None else {"stale": labels["stale"]} | labels["config"]["label"],
        "passes": reader.passes,
        "recheck": None if recheck is None else printable(str(recheck["policy"]["name"])),
        "dataset": (reader.run.path / "dataset").is_dir(),
        "offline": False,
    }


def problems(data: Data, request: Request) -> dict[str, Any]:
    """A page of the list of problems."""
    try:
        query = msgspec.convert(dict(request.query_params), Query, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"the list cannot be asked for so: {error}") from error
    matching, rows = find(data.reader.index(), query)
    return {"matching": matching, "offset": query.offset, "rows": [api.problem_row(row) for row in rows]}


def problem(data: Data, request: Request) -> dict[str, Any]:
    """A problem with its tree's shape; `growing` says what there is of one that has not ended."""
    reader, number = data.reader, data.reader.number(request.path_params["number"])
    compressed = _whole(request, "pass", 0)
    found = reader.tree(number, compressed)
    about = api.problem_data(number, reader.run.problems[number], *reader.statuses[number])
    if found is not None:
        return about | {"tree": api.tree_data(found, compressed), "growing": None}
    rows = journal_rows(reader.run, number)
    growing = growing_data(rows)
    if _whole(request, "requests", -1) == growing["requests"]:
        return about | {"tree": None, "growing": growing | {"same": True}}
    found = reader.growing(number, rows)
    return about | {"tree": None if found is None else api.tree_data(found, 0), "growing": growing}


def labels(data: Data, request: Request) -> dict[str, Any]:
    """The beginnings of some nodes' texts."""
    asked = request.query_params.get("nodes", "")
    return api.labels_data(data.tree(request), (int(part) for part in asked.split(",") if _is_whole(part)))


def search(data: Data, request: Request) -> dict[str, Any]:
    """The nodes of a tree that a text stands in."""
    text = request.query_params.get("text", "")
    if not text.strip():
        raise ConfigError("there is no text to look for")
    return api.search_data(data.tree(request), text.strip())


def node(data: Data, request: Request) -> dict[str, Any]:
    """One node, with the steps above it."""
    found, at = data.node(request)
    return api.node_data(found, at) | {"prefix": api.prefix_data(found, at)}


def prompt(data: Data, request: Request) -> dict[str, Any]:
    """The exact prompt: `at=node` what is asked for after this node, else what its step was sampled after."""
    found, at = data.node(request)
    tree = found.shown.record.tree
    if request.query_params.get("at") != "node":
        at = max(int(tree.parent[at]), 0)
    most = None if request.query_params.get("whole") else api.PANEL_CHARS
    return {"at": at} | api.prompt_data(data.reader.recipe.steps, found.shown.problem, tree.prefix(at), most)


def checks(data: Data, request: Request) -> dict[str, Any]:
    """How the answers at a node are judged."""
    found, at = data.node(request)
    checker = data.checks
    return {"policy": checker.policy, "answers": checker.of(found, at)}


def text(data: Data, request: Request) -> dict[str, Any]:
    """A text that was cut, whole."""
    found, at = data.node(request)
    whole = api.whole_text(found, at, request.query_params.get("part", "text"), _whole(request, "place", -1))
    if whole is None:
        raise ConfigError("the node has no such text")
    return {"text": whole}


def question(data: Data, request: Request) -> dict[str, Any]:
    """A question that was cut, whole."""
    number = data.reader.number(request.path_params["number"])
    return {"text": printable(data.reader.run.problems[number].question)}


def dataset(data: Data, request: Request) -> dict[str, Any]:
    """The labels by depth, the histogram of values, the warnings, and which training rows there are."""
    reader = data.reader
    ended = sum(status != "open" for status, _ in reader.statuses.values())
    summary = data.kept("summary", lambda: summarise(reader.run), ended)
    return {
        "labels": msgspec.to_builtins(summary.labels),
        "outcomes": msgspec.to_builtins(summary.outcomes),
        "compression": msgspec.to_builtins(summary.compression),
        "warnings": [printable(warning) for warning in summary.warnings],
        "splits": shard_splits(reader.run.path / "dataset"),
    }


def rows(data: Data, request: Request) -> dict[str, Any]:
    """Some training rows."""
    asked = request.query_params
    found = shard_rows(
        data.reader.run.path / "dataset",
        asked.get("format", ""),
        asked.get("split", ""),
        _whole(request, "offset", 0),
        _whole(request, "limit", 20),
    )
    return {"rows": found}


def live(data: Data, request: Request) -> dict[str, Any]:
    """How the run goes."""
    return live_data(data.reader)


def _whole(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name)
    if value is None:
        return default
    if not _is_whole(value):
        raise ConfigError(f"{name} must be a whole number, not {value[:40]!r}")
    return int(value)


def _is_whole(text: str) -> bool:
    """Whether it is a whole number that may count something."""
    return text.isascii() and text.isdecimal() and len(text) <= 12


run_data: dict[str, Callable[[Data, Request], Any]] = {
    "/api/run": overview,
    "/api/problems": problems,
    "/api/problems/{number:int}": problem,
    "/api/problems/{number:int}/question": question,
    "/api/problems/{number:int}/labels": labels,
    "/api/problems/{number:int}/search": search,
    "/api/problems/{number:int}/nodes/{node:int}": node,
    "/api/problems/{number:int}/nodes/{node:int}/prompt": prompt,
    "/api/problems/{number:int}/nodes/{node:int}/checks": checks,
    "/api/problems/{number:int}/nodes/{node:int}/text": text,
    "/api/dataset": dataset,
    "/api/dataset/rows": rows,
    "/api/live": live,
}
"""Paths and what answers them."""
