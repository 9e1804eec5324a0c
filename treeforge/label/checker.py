"""The answer checker: extract, read, decide, remember."""

from __future__ import annotations

import logging
import re
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from treeforge.label.check_policy import EXTRACTION, CheckPolicy, check_policy
from treeforge.label.decide import same
from treeforge.label.extract import extract
from treeforge.label.names import EQUALITIES, last_exact
from treeforge.label.notation import notation
from treeforge.label.numeric import Answer, is_constant
from treeforge.label.options import judge_option, option_text
from treeforge.label.read import Reading, read
from treeforge.label.rules import Rules
from treeforge.label.syntax import Div, Mul, Neg, Node, Num, Quantity, Relation, Seq
from treeforge.label.tokens import LimitError
from treeforge.label.workers import SymbolicWorker
from treeforge.problem import Problem
from treeforge.verdict import Judgement, Verdict

_log = logging.getLogger("treeforge.label")

DEFAULT_MARKERS = ("The answer is", "\\boxed{")


_PLAIN_NUMBER = re.compile(r"\s*[-+]?[\d,]+(?:\.\d+)?\s*")
_SLOWEST = 5
_SHOWN = 200
"""Characters kept of a slow answer."""
_LONGEST_REMEMBERED = 1_000
"""Longer endings are judged anew, so that what is remembered stays small."""
_WORKER = SymbolicWorker()


def check(
    prediction: str,
    gold: str,
    policy: CheckPolicy | str = "default",
    markers: Sequence[str] = (),
    *,
    symbolic: bool = True,
) -> Judgement:
    """Whether `prediction`, a whole solution or a bare answer, gives the gold answer.

    `markers` are the final-answer markers of the step format, tried after boxes. `symbolic` asks sympy, in a worker
    process that starts when it is first needed, what stays open otherwise. Never raises on any text.
    """
    policy = check_policy(policy)
    answer = extract(prediction, markers, places=policy.extraction)
    if not answer:
        return Judgement(Verdict.NO_ANSWER, reason="no final answer was found")
    return _compare(answer, prediction, gold, policy, symbolic)


def check_many(
    pairs: Iterable[tuple[str, str]],
    policy: CheckPolicy | str = "default",
    markers: Sequence[str] = (),
    *,
    symbolic: bool = True,
) -> list[Judgement]:
    """`check` of each (prediction, gold), in order."""
    policy = check_policy(policy)
    return [check(prediction, gold, policy, markers, symbolic=symbolic) for prediction, gold in pairs]


def explain(prediction: str, gold: str, policy: CheckPolicy | str = "default", markers: Sequence[str] = ()) -> str:
    """How `check` came to its verdict, in a few lines: what was extracted, how both sides were read, route, reason."""
    judgement = check(prediction, gold, policy, markers)
    lines = [f"answer   {judgement.answer!r}", f"read as  {_description(read(judgement.answer))}"]
    lines += [f"gold     {gold!r}", f"read as  {_description(_read_gold(gold))}"]
    lines.append(f"verdict  {judgement.verdict.name.lower()}, route {judgement.route}")
    return "\n".join([*lines, f"reason   {judgement.reason}"] if judgement.reason else lines)


def _description(reading: Reading) -> str:
    if reading.node is None:
        return f"nothing: {reading.reason}"
    second = f"; or {notation(reading.other)}" if reading.other is not None else ""
    return notation(reading.node) + second


def gold_problem(gold: str) -> str | None:
    """Why a gold answer cannot be read, in one line; None where it can."""
    reading = _read_gold(gold)
    return None if reading.node is not None else f"gold answer {gold[:60]!r} cannot be read: {reading.reason}"


@lru_cache(maxsize=8192)
def _read_gold(gold: str) -> Reading:
    """A gold answer's reading; the same one is met at every trajectory of its problem."""
    return read(extract(gold, gold=True))


def _compare(answer: str, prediction: str, gold: str, policy: CheckPolicy, symbolic: bool) -> Judgement:
    """Judge an extracted answer."""
    if prediction.strip() == gold.strip():
        return Judgement(Verdict.CORRECT, answer, "string")
    if "boxed" in gold:
        gold = extract(gold, gold=True)
    judgement = judge_option(answer, prediction, gold)
    if judgement is not None:
        return judgement
    left, right = read(answer), _read_gold(option_text(gold) or gold)
    if left.node is None and (chosen := option_text(answer)):
        left = read(chosen)
    if left.key and left.key == right.key:
        return Judgement(Verdict.CORRECT, answer, "string")
    for reading, verdict in ((right, Verdict.UNDECIDED), (left, Verdict.UNPARSABLE)):
        if reading.node is None:
            if reading.limited:
                return Judgement(Verdict.UNDECIDED, answer, "limit", reading.reason)
            side = "the gold answer" if reading is right else "the answer"
            return Judgement(verdict, answer, "none", f"{side} cannot be read: {reading.reason}")
    rules = Rules(policy, same, _WORKER.same if symbolic else None)
    result = _decide(left, right, rules)
    if result.same is False and _states_a_value(left.node, answer, prediction) and not isinstance(right.node, Relation):
        assert isinstance(left.node, Relation)
        stated = _decide(Reading("", last_exact(left.node)), right, rules)
        result = stated if stated.same else result
    if result.same is False and (chosen := option_text(answer)):
        stated = _decide(read(chosen), right, rules) if read(chosen).node is not None else result
        result = stated if stated.same else result
    verdict = Verdict.UNDECIDED if result.same is None else Verdict.CORRECT if result.same else Verdict.INCORRECT
    return Judgement(verdict, answer, result.route, result.reason)


def _states_a_value(node: Node | None, answer: str, prediction: str) -> bool:
    """A chain of equations out of prose, `… so $2n+1 = 2 \\cdot 8 + 1 = 17$.`: its last part is what it states."""
    out_of_prose = answer.startswith(("$", "\\(", "\\[")) and answer != prediction.strip() and "boxed" not in prediction
    return out_of_prose and isinstance(node, Relation) and set(node.ops) <= EQUALITIES


def _decide(left: Reading, right: Reading, rules: Rules) -> Answer:
    """Compare the first readings, then the second reading of an ambiguous text where the other side supports it."""
    assert left.node is not None
    assert right.node is not None
    try:
        answer = same(left.node, right.node, rules)
        if answer.same:
            return answer
        if left.other is not None and _supports(right.node, left.other_kind):
            second = same(left.other, right.node, rules)
            answer = second if second.same else answer
        if right.other is not None and right.other_kind != "short decimal" and _supports(left.node, right.other_kind):
            second = same(left.node, right.other, rules)
            answer = second if second.same else answer
        return answer
    except LimitError as error:
        return Answer(None, "limit", str(error))
    except RecursionError:
        return Answer(None, "limit", "nested too deeply")


def _supports(node: Node, kind: str) -> bool:
    """Whether the other side's form speaks for the second reading of an ambiguous text."""
    if kind == "unit":
        return isinstance(node, Num | Quantity | Mul | Div | Neg) and is_constant(node)
    return (kind == "list") == isinstance(node, Seq)


class CheckStatistics(msgspec.Struct):
    """What an `AnswerChecker` did so far."""

    hits: int = 0
    """Verdicts that were remembered."""
    checks: int = 0
    """Verdicts that were worked out."""
    routes: dict[str, int] = msgspec.field(default_factory=dict)
    """Of the latter, by route."""
    verdicts: dict[str, int] = msgspec.field(default_factory=dict)
    """Of the latter, by verdict."""
    seconds: float = 0.0
    """Wall time that the latter took."""
    slowest: list[tuple[float, str, str]] = msgspec.field(default_factory=list)
    """The slowest of the latter: (seconds, answer, gold answer; the start of long ones), slowest first."""

    def since(self, before: CheckStatistics) -> CheckStatistics:
        """What was counted after `before` (a deep copy taken then) of the same checker."""
        return CheckStatistics(
            hits=self.hits - before.hits,
            checks=self.checks - before.checks,
            routes=dict(Counter(self.routes) - Counter(before.routes)),
            verdicts=dict(Counter(self.verdicts) - Counter(before.verdicts)),
            seconds=self.seconds - before.seconds,
            slowest=[check for check in self.slowest if check not in before.slowest],
        )


class AnswerChecker:
    """A `Judge` of final answers. Deterministic; remembers the verdicts of answers that it has seen."""

    def __init__(
        self,
        policy: CheckPolicy | str = "default",
        markers: Sequence[str] = DEFAULT_MARKERS,
        cache_size: int = 65_536,
        *,
        symbolic: bool = True,
    ) -> None:
        self.policy = check_policy(policy)
        self.markers = tuple(markers)
        self.cache_size = cache_size
        self.symbolic = symbolic
        self.statistics = CheckStatistics()
        self._cache: dict[tuple[str, str], Judgement] = {}
        self._plain = tuple(marker for marker in self.markers if "boxed" not in marker)

    def start(self, golds: Iterable[str] | None = None) -> None:
        """Start the symbolic worker now rather than at the first open answer; `TreeforgeError` where it cannot.

        Where all `golds` are plain numbers hardly an answer stays open, and it is left to that.
        """
        if self.symbolic and (golds is None or not all(map(_PLAIN_NUMBER.fullmatch, golds))):
            _WORKER.start()

    def judge(self, problem: Problem, text: str) -> Judgement:
        """Judge the last step(s) of a trajectory against the problem's gold answer.

        What stands before the only box, or before the last marker where there is no box, plays no part.
        """
        tail = self._tail(text)
        key = (tail, problem.gold_answer)
        judgement = self._cache.get(key)
        if judgement is not None:
            self.statistics.hits += 1
            return judgement
        start = time.perf_counter()
        try:
            judgement = check(tail, problem.gold_answer, self.policy, self.markers, symbolic=self.symbolic)
        except Exception:  # noqa: BLE001 - a fault of ours in one answer must not cost its whole tree
            _log.exception("problem %s: an answer could not be checked", problem.problem_id)
            judgement = Judgement(Verdict.UNDECIDED, "", "limit", "the checker failed; see the log")
        self._record(time.perf_counter() - start, judgement, problem.gold_answer)
        if len(tail) <= _LONGEST_REMEMBERED:
            if len(self._cache) >= self.cache_size:
                self._cache.clear()
            self._cache[key] = judgement
        return judgement

    def _record(self, seconds: float, judgement: Judgement, gold: str) -> None:
        found = self.statistics
        found.checks += 1
        found.seconds += seconds
        found.routes[judgement.route] = found.routes.get(judgement.route, 0) + 1
        verdict = judgement.verdict.name.lower()
        found.verdicts[verdict] = found.verdicts.get(verdict, 0) + 1
        if len(found.slowest) < _SLOWEST or seconds > found.slowest[-1][0]:
            check = seconds, judgement.answer[:_SHOWN], gold[:_SHOWN]
            found.slowest = sorted([*found.slowest, check], reverse=True)[:_SLOWEST]

    def _tail(self, text: str) -> str:
        """The part of the text that is judged: from its only box, or from its last marker, on; else all of it."""
        if self.policy.extraction is not EXTRACTION and self.policy.extraction != EXTRACTION:
            return text
        if "boxed" in text or "fbox" in text:
            at = text.find("\\boxed{")
            return text if at < 0 or text.find("box", at + 7) >= 0 or text.find("box") < at else text[at:]
        for marker in self._plain:
            at = text.rfind(marker)
            if at >= 0:
                return text[at:]
        return text
