"""A recheck: the answers of a run judged again by another check policy, without the model. Part of the pipeline.

The search chose where to go by its own verdicts, and the trees are what the journal replays to; so they stay as they
are, and the new verdicts are a view (`verdicts/`) that holds what changed. Labels, compressed trees and shards are made
of the trees with these changes (`Verdicts.apply`). The policy and its digest stand in the manifest under `recheck`.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec
import numpy as np

from treeforge.config import Recipe
from treeforge.configuration import convert, to_dict
from treeforge.hashing import digest, digest_object
from treeforge.label import CheckPolicy
from treeforge.store.files import storage_error
from treeforge.store.run import RunFolder
from treeforge.store.verdicts import VERDICTS, NewVerdict, verdicts_from_table, verdicts_table
from treeforge.store.views import read_view, view_state, write_view
from treeforge.tree import Finish, Rollout, Tree, TreeRecord
from treeforge.verdict import NO_VERDICT, Verdict

if TYPE_CHECKING:
    from treeforge.label import AnswerChecker

SECTION = "recheck"
"""The manifest's section; absent where the run's own verdicts count."""
_FOLDER = _STEM = "verdicts"


class Ending(NamedTuple):
    """A completion whose end a judge was shown."""

    node: int
    rollout: int
    """As in `NewVerdict`."""
    text: str
    """What was judged: the last step."""
    verdict: int
    answer: str
    completions: int
    """How many samples ended so: a node's multiplicity."""


def endings(record: TreeRecord) -> Iterator[Ending]:
    """Every completion that ended by itself: truncated ones and engine errors were never judged.

    Nor are rollouts without a step listed. They are empty, or end with their node's own text, where the search found
    no answer; no check policy changes that.
    """
    tree = record.tree
    ended = (tree.finish == Finish.STOP) | (tree.finish == Finish.ANSWERED)
    for node in np.flatnonzero(ended & (tree.verdict != NO_VERDICT)).tolist():
        yield from endings_at(tree, node, ())
    yield from _own_endings(enumerate(record.rollouts))


def endings_at(tree: Tree, node: int, rollouts: Iterable[tuple[int, Rollout]]) -> Iterator[Ending]:
    """Those of one node; `rollouts` are its own, each with its place."""
    if tree.finish[node] in (Finish.STOP, Finish.ANSWERED) and tree.verdict[node] != NO_VERDICT:
        # 0 where an own rollout of a node above is the completion (`omega`); that is listed there.
        count = round(float(tree.multiplicity[node]))
        yield Ending(node, -1, tree.text[node], int(tree.verdict[node]), tree.answer[node], count)
    yield from _own_endings(rollouts)


def _own_endings(rollouts: Iterable[tuple[int, Rollout]]) -> Iterator[Ending]:
    for place, rollout in rollouts:
        if rollout.steps and rollout.finish in (Finish.STOP, Finish.ANSWERED):
            yield Ending(rollout.node, place, rollout.steps[-1], rollout.verdict, rollout.answer, 1)


def rejudged(record: TreeRecord, changes: list[NewVerdict]) -> TreeRecord:
    """The record with other verdicts and answers; counts of own rollouts follow. Search statistics stay."""
    if not changes:
        return record
    tree, rollouts = record.tree, list(record.rollouts)
    finish, verdict, answer = tree.finish.copy(), tree.verdict.copy(), list(tree.answer)
    correct, undecided = tree.rollouts_correct.copy(), tree.rollouts_undecided.copy()
    for new in changes:
        if new.rollout < 0:
            verdict[new.node], answer[new.node] = new.verdict, new.answer
            finish[new.node] = _finish(int(finish[new.node]), new)
            continue
        old = rollouts[new.rollout]
        for counts, which in ((correct, Verdict.CORRECT), (undecided, Verdict.UNDECIDED)):
            counts[new.node] += (new.verdict == which) - (old.verdict == which)
        rollouts[new.rollout] = msgspec.structs.replace(
            old, verdict=new.verdict, answer=new.answer, finish=_finish(old.finish, new)
        )
    tree = replace(
        tree,
        finish=finish,
        verdict=verdict,
        answer=tuple(answer),
        rollouts_correct=correct,
        rollouts_undecided=undecided,
    )
    return msgspec.structs.replace(record, tree=tree, rollouts=tuple[Rollout, ...](rollouts))


def _finish(finish: int, new: NewVerdict) -> int:
    """As the search does: a trajectory that stopped and gave an answer is ANSWERED."""
    stopped = finish == Finish.STOP and new.verdict != Verdict.NO_ANSWER
    return int(Finish.ANSWERED) if stopped else finish


def own_checker(run: RunFolder) -> AnswerChecker:
    """The answer checker that the run's recipe names."""
    return _checker(run, convert(run.manifest["recipe"], Recipe).judge.policy)


def current_checker(run: RunFolder) -> AnswerChecker:
    """The answer checker by whose policy the run is labelled: the recheck's, else the recipe's."""
    section = run.manifest.get(SECTION)
    return _checker(run, convert(section["policy"], CheckPolicy)) if section else own_checker(run)


def _checker(run: RunFolder, policy: CheckPolicy | str) -> AnswerChecker:
    from treeforge.label import AnswerChecker  # Views that recheck nothing do without it.

    return AnswerChecker(policy, markers=convert(run.manifest["recipe"], Recipe).steps.answer_markers)


class Verdicts:
    """The verdicts that a run's labels rest on: its own, with the changes of a recheck where there was one."""

    def __init__(self, run: RunFolder, about: dict[str, Any] | None) -> None:
        self.run = run
        self.about = about
        """What the changes come from, for the `config` of views that are made of them; None: no recheck."""
        self._block, self._changes = -1, dict[int, list[NewVerdict]]()

    @property
    def config(self) -> dict[str, Any]:
        """The part of a view's `config` that says which verdicts it was made with; empty without a recheck."""
        return {} if self.about is None else {SECTION: self.about}

    def changes(self, number: int) -> list[NewVerdict]:
        """The new verdicts of a tree."""
        if self.about is None:
            return []
        block = number // self.run.block
        if block != self._block:
            found = defaultdict[int, list[NewVerdict]](list)
            for tree, new in verdicts_from_table(read_view(self.run, _FOLDER, _STEM, VERDICTS, block)):
                found[tree].append(new)
            self._block, self._changes = block, found
        return self._changes.get(number, [])

    def apply(self, number: int, record: TreeRecord) -> TreeRecord:
        """A tree as it was grown -> the tree with the verdicts that count."""
        return rejudged(record, self.changes(number))


def verdicts_of(run: RunFolder) -> Verdicts:
    """The verdicts that count; those of a recheck are made again where trees have ended since."""
    saved = saved_verdicts(run)
    return _judge_again(run) if saved.about is None and SECTION in run.manifest else saved


def saved_verdicts(run: RunFolder) -> Verdicts:
    """As `verdicts_of`, without making anything: a recheck that is not up to date is left out."""
    section, state = run.manifest.get(SECTION), view_state(run, _FOLDER)
    if section is None or state is None or state["stale"] or state["config"] != section:
        return Verdicts(run, None)
    return _verdicts(run, state["report"])


def start_recheck(run: RunFolder, policy: CheckPolicy | None) -> Verdicts:
    """Judge all answers of the trees that have ended with `policy`, from now on too; None is the run's own.

    Where the run's own policy changes nothing, no trace of a recheck is left.
    """
    own = own_checker(run).policy
    policy = policy or own
    run.manifest[SECTION] = {"policy": to_dict(policy), "digest": policy_digest(policy)}
    run.write_manifest()
    verdicts = _judge_again(run)
    if policy_digest(policy) == policy_digest(own) and verdicts.about is not None and not verdicts.about["changed"]:
        end_recheck(run)
        return Verdicts(run, None)
    return verdicts


def end_recheck(run: RunFolder) -> None:
    """Go back to the run's own verdicts."""
    if run.manifest.pop(SECTION, None) is not None:
        run.write_manifest()
    folder = run.path / _FOLDER
    try:
        shutil.rmtree(folder)
    except FileNotFoundError:
        pass
    except OSError as error:
        raise storage_error(error, folder, "removed") from error


def policy_digest(policy: CheckPolicy) -> str:
    """Twelve hexadecimal digits that stand for a policy's settings, whatever its name."""
    return digest_object({key: value for key, value in to_dict(policy).items() if key != "name"}).hex()[:12]


def _judge_again(run: RunFolder) -> Verdicts:
    checker = current_checker(run)
    judged = changed = 0
    content = b""

    def make(number: int, record: TreeRecord) -> Any:
        nonlocal judged, changed, content
        problem = run.problems[number]
        found: list[NewVerdict] = []
        for ending in endings(record):
            judged += ending.completions
            said = checker.judge(problem, ending.text)
            if (int(said.verdict), said.answer) != (ending.verdict, ending.answer):
                changed += ending.completions
                verdict = int(said.verdict)
                found.append(NewVerdict(ending.node, ending.rollout, verdict, said.answer, said.route, said.reason))
        if not found:
            return None
        content = digest(content, msgspec.json.encode([number, found]))
        return verdicts_table(number, found)

    def report() -> dict[str, Any]:
        return {"judged": judged, "changed": changed, "content": content.hex(), "treeforge": version("treeforge")}

    write_view(run, _FOLDER, _STEM, VERDICTS, run.manifest[SECTION], make, report)
    return _verdicts(run, report())


def _verdicts(run: RunFolder, report: dict[str, Any]) -> Verdicts:
    return Verdicts(run, run.manifest[SECTION] | report)
