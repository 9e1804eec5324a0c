"""Statistics by depth, problem, strategy or level: what adds up over nodes, in groups of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from treeforge.evidence import Evidence, whole
from treeforge.printable import one_line
from treeforge.stats.blocks import BlockNodes, read_blocks
from treeforge.stats.cost import share
from treeforge.stats.scan import RunScan, collect, scan_run
from treeforge.store.run import RunFolder
from treeforge.tree import Finish
from treeforge.verdict import NO_VERDICT, Verdict

By = Literal["depth", "problem", "strategy", "level"]
NO_LEVEL = "none"
"""The group of problems without a level."""
_LEVEL_CELLS = 40
_REASON_CELLS = 200


class Group(msgspec.Struct, frozen=True, kw_only=True):
    """What the nodes of one group came to. Shares are None where nothing was counted.

    By depth a completion counts where it ended: a leaf at its own depth, an own rollout at that of its node.
    """

    run: str
    """The run folder; several runs of one strategy are one group, and then it is ''."""
    group: str
    """The depth, the problem's id, the strategy or the level."""
    problems: int
    """With a tree in the group; by depth, those whose tree is so deep."""
    nodes: int
    """The roots included."""
    tokens: int
    """Sampled for steps, duplicates included, and for own rollouts."""
    completions: int
    correct: int
    share_correct: float | None
    """correct / decided completions."""
    accuracy: float | None
    """The mean of that over problems (pass@1); None by depth."""
    truncated_share: float | None
    undecided_share: float | None
    positive: int
    negative: int
    unlabelled: int
    """Steps without a label; without a view `labels`, all of them."""
    positive_share: float | None
    mean_value: float | None
    mean_interval: float | None
    """Mean width of the intervals of the steps that end no trajectory."""
    status: str = ""
    """By problem: open, done, exhausted or failed."""
    reason: str = ""
    """By problem: which budget ended it, or why it failed."""


_SUMS = (
    "nodes",
    "tokens",
    "completions",
    "correct",
    "undecided",
    "truncated",
    "positive",
    "negative",
    "unlabelled",
    "value",
    "values",
    "width",
    "widths",
)
"""What is summed over the nodes of a group."""
_CORRECT = _SUMS.index("correct")
_Sums = NDArray[np.float64]
"""float64[groups, sums]."""


def groups(runs: Sequence[tuple[str, RunFolder]], by: By) -> list[Group]:
    """The groups of each run (its name beside it), in order; for `strategy` those of all runs together.

    Raises `StorageError` for damaged files.
    """
    if by == "strategy":
        return _by_strategy(runs)
    found: list[Group] = []
    for name, run in runs:
        scan = scan_run(run)
        if by == "depth":
            found += _by_depth(name, run, scan)
        else:
            found += _by_problem(name, run, scan, level=by == "level")
    return found


def _by_depth(name: str, run: RunFolder, scan: RunScan) -> list[Group]:
    sums, trees = np.zeros((0, len(_SUMS))), np.zeros(0)
    for nodes in read_blocks(run, scan):
        depth = nodes.evidence.depth.astype(np.int64)
        added = _added(nodes, _rollout_tokens(scan, nodes), depth, int(depth.max(initial=-1)) + 1)
        first = np.unique(nodes.tree, return_index=True)[1]
        deepest = np.maximum.reduceat(depth, first) if len(depth) else depth
        reaching = np.bincount(deepest, minlength=len(added))[::-1].cumsum()[::-1]
        size = max(len(sums), len(added))
        sums = _longer(sums, size) + _longer(added, size)
        trees = _longer(trees, size) + _longer(reaching.astype(np.float64), size)
    return [_group(name, str(depth), int(trees[depth]), row, accuracy=None) for depth, row in enumerate(sums)]


def _by_problem(name: str, run: RunFolder, scan: RunScan, *, level: bool) -> list[Group]:
    sums = _by_tree(run, scan)
    if not level:
        found: list[Group] = []
        for number, (problem, row) in enumerate(zip(run.problems, sums, strict=True)):
            accuracy = share(row[_CORRECT], _decided(row))
            group = _group(name, one_line(problem.problem_id), int(row[0] > 0), row, accuracy=accuracy)
            status, reason = scan.statuses[number]
            found.append(msgspec.structs.replace(group, status=status, reason=one_line(reason, _REASON_CELLS)))
        return found
    members: dict[str, list[int]] = {}
    for number, problem in enumerate(run.problems):
        members.setdefault(_level(problem.meta.get("level")), []).append(number)
    return [_several(name, group, sums[members[group]]) for group in sorted(members, key=_in_order)]


def _by_strategy(runs: Sequence[tuple[str, RunFolder]]) -> list[Group]:
    sums: dict[str, list[_Sums]] = {}
    names: dict[str, list[str]] = {}
    for name, run in runs:
        strategy = run.strategy
        sums.setdefault(strategy, []).append(_by_tree(run, scan_run(run)))
        names.setdefault(strategy, []).append(name)
    return [
        _several(names[strategy][0] if len(names[strategy]) == 1 else "", strategy, np.concatenate(rows))
        for strategy, rows in sums.items()
    ]


def _by_tree(run: RunFolder, scan: RunScan) -> _Sums:
    """A row a problem; zeros where its tree has not ended."""
    sums = np.zeros((len(run.problems), len(_SUMS)))
    for nodes in read_blocks(run, scan):
        first = nodes.block * run.block
        added = _added(nodes, _rollout_tokens(scan, nodes), nodes.tree - first, run.block)
        sums[first : first + run.block] += added[: len(sums) - first]
    return sums


def _added(nodes: BlockNodes, rollout_tokens: NDArray[np.int64], key: NDArray[Any], size: int) -> _Sums:
    """float64[size, sums]: the sums of a block's nodes by `key` (int[n])."""
    evidence, step, hard = nodes.evidence, nodes.is_step, nodes.hard
    known = step & ~np.isnan(nodes.value)
    with np.errstate(invalid="ignore"):
        open_ = known & (nodes.high > nodes.low)
    columns: dict[str, NDArray[Any]] = {
        "nodes": np.ones(len(key)),
        "tokens": evidence.multiplicity * nodes.token_count + rollout_tokens,
        **_completions(evidence),
        "positive": hard == 1,
        "negative": hard == 0,
        "unlabelled": step & (hard < 0),
        "value": np.where(known, nodes.value, 0.0),
        "values": known,
        "width": np.where(open_, nodes.high - nodes.low, 0.0),
        "widths": open_,
    }
    return np.stack([np.bincount(key, columns[name], size) for name in _SUMS], axis=1)


def _completions(evidence: Evidence) -> dict[str, NDArray[Any]]:
    """The completions that ended at each node, and own rollouts, by their outcome; engine errors are not among them."""
    ended = np.where(evidence.verdict == NO_VERDICT, 0.0, whole(evidence.multiplicity))
    return {
        "completions": ended + evidence.rollouts,
        "correct": ended * (evidence.verdict == Verdict.CORRECT) + evidence.rollouts_correct,
        "undecided": ended * (evidence.verdict == Verdict.UNDECIDED) + evidence.rollouts_undecided,
        "truncated": ended * (evidence.finish == Finish.TRUNCATED) + evidence.rollouts_truncated,
    }


def _rollout_tokens(scan: RunScan, nodes: BlockNodes) -> NDArray[np.int64]:
    """int64[n]: tokens of each node's own rollouts."""
    frame = scan.block("rollouts", nodes.block).select("tree_id", "node_id", "tokens")
    (rows,) = collect(frame, files=scan.files, streaming=False)
    root = np.flatnonzero(nodes.node == 0)
    order = np.argsort(nodes.tree[root])  # spilled trees come last, whatever their number
    place = np.searchsorted(nodes.tree[root], rows["tree_id"].to_numpy(), sorter=order)
    start = root[order][place]
    tokens = np.bincount(start + rows["node_id"].to_numpy(), rows["tokens"].to_numpy(), len(nodes.tree))
    return tokens.astype(np.int64)


def _several(run: str, group: str, rows: _Sums) -> Group:
    return _group(run, group, int(np.count_nonzero(rows[:, 0])), rows.sum(axis=0), accuracy=_accuracy(rows))


def _accuracy(rows: _Sums) -> float | None:
    decided = _decided(rows)
    some = decided > 0
    return float((rows[some, _CORRECT] / decided[some]).mean()) if some.any() else None


def _decided(rows: _Sums) -> Any:
    return rows[..., _SUMS.index("completions")] - rows[..., _SUMS.index("undecided")]


def _group(run: str, group: str, problems: int, row: NDArray[np.float64], *, accuracy: float | None) -> Group:
    sums = dict(zip(_SUMS, row.tolist(), strict=True))
    return Group(
        run=run,
        group=group,
        problems=problems,
        **{name: round(sums[name]) for name in _SUMS[:4]},
        **{name: round(sums[name]) for name in ("positive", "negative", "unlabelled")},
        share_correct=share(sums["correct"], sums["completions"] - sums["undecided"]),
        accuracy=accuracy,
        truncated_share=share(sums["truncated"], sums["completions"]),
        undecided_share=share(sums["undecided"], sums["completions"]),
        positive_share=share(sums["positive"], sums["positive"] + sums["negative"]),
        mean_value=share(sums["value"], sums["values"]),
        mean_interval=share(sums["width"], sums["widths"]),
    )


def _longer(rows: NDArray[np.float64], size: int) -> NDArray[np.float64]:
    return np.concatenate([rows, np.zeros((size - len(rows), *rows.shape[1:]))])


def _level(value: object) -> str:
    """A level as it is shown: `Level 3` and 3 are one."""
    if value is None or isinstance(value, list | dict):
        return NO_LEVEL
    return one_line(str(value), _LEVEL_CELLS).removeprefix("Level ").strip() or NO_LEVEL


def _in_order(level: str) -> tuple[int, int, str]:
    """Numbers by size, then words, then none."""
    if level == NO_LEVEL:
        return 2, 0, ""
    return (0, int(level), "") if level.isdecimal() and len(level) < 10 else (1, 0, level)
