"""The answer checker: extract, read, decide, remember."""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from functools import lru_cache

import msgspec

from treeforge.label.check_policy import CheckPolicy, check_policy
from treeforge.label.decide import Rules, same
from treeforge.label.extract import extract, last_option, option_letter
from treeforge.label.notation import notation
from treeforge.label.numeric import Answer
from treeforge.label.read import Reading, read
from treeforge.label.syntax import Seq
from treeforge.label.tokens import LimitError
from treeforge.label.workers import SymbolicWorker
from treeforge.problem import Problem
from treeforge.verdict import Judgement, Verdict

DEFAULT_MARKERS = ("The answer is", "\\boxed{")
_OPTION_GOLD = re.compile(
    r"(?:(?:[Oo]ption|[Cc]hoice)\s+)?\$?(?:\\(?:text|textbf|mathrm)\{)?(?:\(([A-H])\)|([A-H]))"
    r"(?:\}?\$?\.?|[).:]\s*.*|\s*\}\s*[^\s+*/^=<>-].*|\)?\s+[A-Z][\w\s]*)$"
)


_SLOWEST = 5
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
    answer = extract(prediction, markers)
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
    if option := _OPTION_GOLD.match(gold.strip()):
        judgement = _options(answer, prediction, option.group(1) or option.group(2))
        if judgement is not None:
            return judgement
    if prediction.strip() == gold.strip():
        return Judgement(Verdict.CORRECT, answer, "string")
    left, right = read(answer), _read_gold(gold)
    if left.key and left.key == right.key:
        return Judgement(Verdict.CORRECT, answer, "string")
    for reading, verdict in ((right, Verdict.UNDECIDED), (left, Verdict.UNPARSABLE)):
        if reading.node is None:
            if reading.limited:
                return Judgement(Verdict.UNDECIDED, answer, "limit", reading.reason)
            side = "the gold answer" if reading is right else "the answer"
            return Judgement(verdict, answer, "none", f"{side} cannot be read: {reading.reason}")
    result = _decide(left, right, Rules(policy, _WORKER.same if symbolic else None))
    verdict = Verdict.UNDECIDED if result.same is None else Verdict.CORRECT if result.same else Verdict.INCORRECT
    return Judgement(verdict, answer, result.route, result.reason)


def _decide(left: Reading, right: Reading, rules: Rules) -> Answer:
    """Compare the first readings, then the second reading of an ambiguous text where the other side supports it."""
    assert left.node is not None
    assert right.node is not None
    try:
        answer = same(left.node, right.node, rules)
        if answer.same:
            return answer
        if left.other is not None and (left.other_kind == "list") == isinstance(right.node, Seq):
            second = same(left.other, right.node, rules)
            answer = second if second.same else answer
        listed = right.other_kind == "list"
        if right.other is not None and right.other_kind != "short decimal" and listed == isinstance(left.node, Seq):
            second = same(left.node, right.other, rules)
            answer = second if second.same else answer
        return answer
    except LimitError as error:
        return Answer(None, "limit", str(error))
    except RecursionError:
        return Answer(None, "limit", "nested too deeply")


def _options(answer: str, prediction: str, gold_letter: str) -> Judgement | None:
    """A multiple-choice gold answer against a letter; None where the prediction gives none."""
    stripped = answer.strip().strip("$*. ")
    letter = option_letter(stripped)
    if not letter:
        bare = re.fullmatch(r"(?:\\(?:text|textbf|mathrm|mathbf)\{)?\(?([A-Ha-h])\)?\.?\}?", stripped)
        letter = bare.group(1).upper() if bare else ""
    if not letter and len(stripped) > 12:
        letter = last_option(prediction)
    if not letter:
        return None
    verdict = Verdict.CORRECT if letter == gold_letter else Verdict.INCORRECT
    return Judgement(verdict, answer, "string", f"option {letter}")


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
    slowest: list[tuple[float, str, str]] = msgspec.field(default_factory=list)
    """The slowest of the latter: (seconds, answer, gold answer), slowest first."""


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

    def start(self) -> None:
        """Start the symbolic worker now rather than at the first open answer; `TreeforgeError` where it cannot."""
        if self.symbolic:
            _WORKER.start()

    def judge(self, problem: Problem, text: str) -> Judgement:
        """Judge the last step(s) of a trajectory against the problem's gold answer."""
        key = (self._tail(text), problem.gold_answer)
        judgement = self._cache.get(key)
        if judgement is not None:
            self.statistics.hits += 1
            return judgement
        start = time.perf_counter()
        judgement = check(text, problem.gold_answer, self.policy, self.markers, symbolic=self.symbolic)
        self._record(time.perf_counter() - start, judgement, problem.gold_answer)
        if len(self._cache) >= self.cache_size:
            self._cache.clear()
        self._cache[key] = judgement
        return judgement

    def _record(self, seconds: float, judgement: Judgement, gold: str) -> None:
        found = self.statistics
        found.checks += 1
        found.routes[judgement.route] = found.routes.get(judgement.route, 0) + 1
        verdict = judgement.verdict.name.lower()
        found.verdicts[verdict] = found.verdicts.get(verdict, 0) + 1
        if len(found.slowest) < _SLOWEST or seconds > found.slowest[-1][0]:
            found.slowest = sorted([*found.slowest, (seconds, judgement.answer, gold)], reverse=True)[:_SLOWEST]

    def _tail(self, text: str) -> str:
        """The part of the text on which the verdict depends: all of it, unless one marker stands alone in it."""
        if "boxed" in text or "fbox" in text:
            at = text.find("\\boxed{")
            return text if at < 0 or text.find("box", at + 7) >= 0 or text.find("box") < at else text[at:]
        for marker in self._plain:
            at = text.rfind(marker)
            if at >= 0:
                return text[at:]
        return text
