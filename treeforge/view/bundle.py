"""A run as one HTML file: the page, its scripts and its data, to be opened without a server, a network or a trace.

Scripts and styles are allowed by their digests alone. Data stands in an inert element as JSON without any `<`, so that
no text can end it.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from treeforge.errors import ConfigError
from treeforge.printable import printable
from treeforge.stats import summarise
from treeforge.store.files import atomic_file
from treeforge.store.run import OPEN
from treeforge.view import api
from treeforge.view.checks import Checks
from treeforge.view.reader import PageTree, RunReader
from treeforge.view.routes import overview_data
from treeforge.view.shards import PAGE, shard_rows, shard_splits
from treeforge.view.web import WEB

MAX_NODES = 60_000
"""Nodes of all trees in a file, each HNC pass counted: some 100 MB, which browsers still read with patience."""
_IMPORT = re.compile(r'^import \{ ([\w, ]+) \} from "\./([a-z]+)\.js";$', re.MULTILINE)
_EXPORT = re.compile(r"^export (?:async )?(?:function|class|const) (\w+)", re.MULTILINE)


class Bundle(msgspec.Struct, frozen=True):
    """What was written."""

    trees: int
    left_out: int
    """Trees that ended and are not in the file."""
    size: int
    """Bytes."""


def write_bundle(reader: RunReader, path: Path, problems: Sequence[str] = (), limit: int = 50) -> Bundle:
    """Write the page of a run, with `limit` of its trees at most (those of `problems`, where given), to `path`.

    No more trees are taken than have `MAX_NODES` together. `RunError` for a problem that there is not, `ConfigError`
    where no tree has ended or the first one alone is too large.
    """
    ended = [number for number, outcome in reader.statuses.items() if outcome != OPEN]
    wanted = [reader.run.number_of(problem) for problem in problems] or ended
    chosen = [number for number in dict.fromkeys(wanted) if reader.statuses[number] != OPEN][:limit]
    if not chosen:
        raise ConfigError("there is no tree to put into the bundle: none of these problems' trees has ended")
    sizes = reader.index()["nodes"].to_numpy()[chosen].cumsum() * (1 + reader.passes)
    fitting = chosen[: int((sizes <= MAX_NODES).sum())]
    if not fitting:
        raise ConfigError(
            f"the tree of problem {chosen[0]} has {sizes[0]:,} nodes, HNC passes counted, and a bundle holds "
            f"{MAX_NODES:,}; choose another with --problem, or look at it without --bundle"
        )
    page = bundle_page(bundle_data(reader, fitting)).encode()
    with atomic_file(path) as stream:
        stream.write(page)
    return Bundle(len(fitting), len(ended) - len(fitting), len(page))


def bundle_data(reader: RunReader, numbers: Sequence[int]) -> dict[str, Any]:
    """All that the page would ask the server for, about these trees. Long texts are cut, and say so."""
    run = reader.run
    rows = reader.index()[list(numbers)].drop("searched").to_dicts()
    checks = Checks(run)
    splits = shard_splits(run.path / "dataset")
    summary = summarise(run)
    return {
        "run": overview_data(reader) | {"offline": True},
        "rows": [api.problem_row(row) for row in rows],
        "problems": {str(number): _problem(reader, number, checks) for number in numbers},
        "dataset": {
            "labels": msgspec.to_builtins(summary.labels),
            "warnings": [printable(warning) for warning in summary.warnings],
            "splits": splits,
        },
        "rowsBySplit": {
            f"{each['format']}/{each['split']}": shard_rows(
                run.path / "dataset", each["format"], each["split"], 0, PAGE
            )
            for each in splits
        },
    }


def _problem(reader: RunReader, number: int, checks: Checks) -> dict[str, Any]:
    run = reader.run
    problem = run.problems[number]
    found = reader.tree(number)
    assert found is not None
    tree = found.shown.record.tree
    prompt = api.prompt_data(reader.recipe.steps, problem, "", None)
    passes = {"0": _tree(found, 0, checks)}
    for compressed in range(1, reader.passes + 1):
        after = reader.tree(number, compressed)
        assert after is not None
        passes[str(compressed)] = _tree(after, compressed, checks)
    return {
        "about": api.problem_data(number, problem, *reader.statuses[number]),
        "passes": passes,
        "policy": checks.policy,
        "prompt": prompt,
        "raw": [printable((tree.text[row] + tree.observation[row])[: api.PANEL_CHARS]) for row in range(tree.size)],
    }


def _tree(found: PageTree, compressed: int, checks: Checks) -> dict[str, Any]:
    shown = found.shown
    judged = {str(node): answers for node in range(shown.record.tree.size) if (answers := checks.of(found, node))}
    nodes = range(shown.record.tree.size)
    return {
        "tree": api.tree_data(found, compressed),
        "labels": {str(node): api.label_parts(shown.record.tree.text[node]) for node in nodes if node},
        "nodes": [api.node_data(found, node) for node in nodes],
        "checks": judged,
    }


def bundle_page(data: dict[str, Any]) -> str:
    """The page with everything inside."""
    style, script = (WEB / "style.css").read_text("utf-8"), joined_modules()
    policy = (
        f"default-src 'none'; script-src '{_digest(script)}'; style-src '{_digest(style)}'; base-uri 'none'; "
        "form-action 'none'; require-trusted-types-for 'script'; trusted-types 'none'"
    )
    page = (WEB / "index.html").read_text("utf-8")
    replaced = {
        '<meta charset="utf-8">': f'<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">\n<meta name="referrer" content="no-referrer">',
        '<link rel="icon" href="web/icon.svg" type="image/svg+xml">\n': "",
        '<link rel="stylesheet" href="web/style.css">': f"<style>{style}</style>",
        '<script type="module" src="web/main.js"></script>\n': "",
        "</body>": f'<script type="application/json" id="bundle">{inert_json(data)}</script>\n'
        f'<script type="module">{script}</script>\n</body>',
    }
    for old, new in replaced.items():
        before, found, after = page.partition(old)
        assert found, old
        page = before + new + after
    return page


def inert_json(data: Any) -> str:
    """JSON that no HTML parser sees anything in: `<`, `>` and `&` are escaped."""
    text = api.encoded(data).decode()
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")


def joined_modules() -> str:
    """The page's modules as one, each in a scope of its own, what they import before them."""
    done: dict[str, str] = {}

    def add(name: str) -> None:
        if name in done:
            return
        done[name] = ""  # Now, so that a circle ends.
        source = (WEB / f"{name}.js").read_text("utf-8")
        for match in _IMPORT.finditer(source):
            add(match[2])
        names = ", ".join(_EXPORT.findall(source))
        body = _IMPORT.sub(r"const { \1 } = module_\2;", source)
        body = re.sub(r"^export ", "", body, flags=re.MULTILINE)
        del done[name]
        done[name] = f"const module_{name} = (() => {{\n{body}\nreturn {{ {names} }};\n}})();\n"

    add("main")
    return "\n".join(done.values())


def _digest(text: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
