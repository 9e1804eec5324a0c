"""A file of (prediction, gold answer) pairs, judged one by one: what `treeforge check --pairs` counts and writes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import msgspec

from treeforge.errors import DataError
from treeforge.label import CheckPolicy, check
from treeforge.store.files import atomic_file
from treeforge.store.rows import read_rows
from treeforge.verdict import Judgement, Verdict

_YES_NO = {"true": True, "false": False, "1": True, "0": False, "yes": True, "no": False}
_SKIP = "or leave such rows out with --skip-bad-rows"


class AnswerPair(msgspec.Struct, frozen=True, kw_only=True):
    """One row of a file of pairs."""

    line: int
    """1-based line (JSONL, CSV) or row (JSON, Parquet)."""
    prediction: str
    gold: str
    equal: bool | None
    """What is expected; None where the row does not say."""


class JudgedPair(msgspec.Struct, frozen=True, kw_only=True):
    """A pair and what the checker says of it."""

    line: int
    prediction: str
    gold: str
    equal: bool | None
    verdict: str
    answer: str
    """What was extracted from the prediction."""
    route: str
    reason: str


class PairsReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a file of pairs came to."""

    pairs: int
    verdicts: dict[str, dict[str, int]]
    """Pairs by verdict and route, the most frequent first."""
    expected: int
    """Pairs with an expectation (`equal`)."""
    wrongly_correct: int
    """Of these, `correct` where another answer was expected."""
    wrongly_different: int
    """Of these, anything but `correct` where the same answer was expected."""
    disagreements: tuple[JudgedPair, ...]
    """The first of both, as many as were asked for."""
    skipped: tuple[str, ...]
    """Bad rows that were left out: line, field, why and fix."""


def read_pairs(
    path: Path,
    *,
    prediction_field: str = "prediction",
    gold_field: str = "gold",
    equal_field: str = "equal",
) -> Iterator[AnswerPair | DataError]:
    """The pairs of a JSONL, JSON, CSV (all also `.gz`) or Parquet file, in order; a bad row is an error in its place.

    `equal_field` may be missing or null. A missing (null) prediction is an empty one. Raises `DataError` where the file
    as a whole cannot be read.
    """
    with closing(read_rows(path)) as rows:
        for line, row in rows:
            try:
                if isinstance(row, DataError):
                    raise row
                prediction = _text(row, prediction_field, "prediction")
                gold = _text(row, gold_field, "gold")
                if gold is None:
                    raise DataError("is missing (null)", field=gold_field, fix="Fill it in or remove the row")
                equal = _expected(row, equal_field)
                yield AnswerPair(line=line, prediction=prediction or "", gold=gold, equal=equal)
            except DataError as error:
                yield DataError(error.problem, path=path, line=line, field=error.field, fix=error.fix)


def _text(row: dict[str, Any], field: str, option: str) -> str | None:
    if field not in row:
        there = ", ".join(repr(name[:40]) for name in list(row)[:12]) or "no fields"
        fix = f"Name the field of the {option} with --{option}-field ({option}_field=)"
        raise DataError(f"there is no field {field!r}; the row has {there}", fix=fix)
    value = row[field]
    if isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return str(value)
        except ValueError:  # more than 4,300 digits
            raise DataError("is too long a number", field=field, fix="Write it as text in a shorter form") from None
    if value is not None and not isinstance(value, str):
        kind = "a list" if isinstance(value, list) else "an object" if isinstance(value, dict) else "a bool"
        raise DataError(f"is {kind} where text is expected", field=field, fix="Write text, or name another field")
    return value


def _expected(row: dict[str, Any], field: str) -> bool | None:
    value = row.get(field)
    if value is None or isinstance(value, bool):
        return value
    found = _YES_NO.get(str(value).strip().lower())
    if found is None:
        raise DataError("says neither yes nor no", field=field, fix=f"Write one of {', '.join(_YES_NO)}, or nothing")
    return found


def check_pairs(
    path: Path,
    policy: CheckPolicy | str = "default",
    *,
    limit: int = 20,
    out: Path | None = None,
    skip_bad_rows: bool = False,
    markers: Sequence[str] = (),
    **fields: str,
) -> PairsReport:
    """Judge every pair of a file. `fields`: see `read_pairs`. `limit`: disagreements kept in the report.

    With `out`, every pair and its judgement is written there, a JSON line each, when all are judged. Raises `DataError`
    for the first bad row (file, line, field, fix) unless `skip_bad_rows`.
    """
    counts = Counter[tuple[str, str]]()
    wrong = Counter[bool]()
    expected = 0
    kept: list[JudgedPair] = []
    skipped: list[str] = []
    with ExitStack() as stack:
        stream = stack.enter_context(atomic_file(out)) if out is not None else None
        for pair in read_pairs(path, **fields):
            if isinstance(pair, DataError):
                if not skip_bad_rows:
                    fix = f"{pair.fix}, {_SKIP}" if pair.fix else _SKIP[0].upper() + _SKIP[1:]
                    raise DataError(pair.problem, path=path, line=pair.line, field=pair.field, fix=fix)
                skipped.append(str(pair))
                continue
            said = check(pair.prediction, pair.gold, policy, markers)
            judged = _judged(pair, said)
            counts[judged.verdict, judged.route] += 1
            if stream is not None:
                stream.write(msgspec.json.encode(judged) + b"\n")
            if pair.equal is None:
                continue
            expected += 1
            if (said.verdict is Verdict.CORRECT) != pair.equal:
                wrong[pair.equal] += 1
                if len(kept) < limit:
                    kept.append(judged)
    if not counts:
        what = f"none of its {len(skipped)} rows can be used; the first: {skipped[0]}" if skipped else "has no rows"
        raise DataError(what, path=path, fix="Write one pair a row, with a prediction and a gold answer")
    verdicts: dict[str, dict[str, int]] = {}
    for (verdict, route), count in counts.most_common():
        verdicts.setdefault(verdict, {})[route] = count
    return PairsReport(
        pairs=counts.total(),
        verdicts=verdicts,
        expected=expected,
        wrongly_correct=wrong[False],
        wrongly_different=wrong[True],
        disagreements=tuple(kept),
        skipped=tuple(skipped),
    )


def _judged(pair: AnswerPair, said: Judgement) -> JudgedPair:
    return JudgedPair(
        line=pair.line,
        prediction=pair.prediction,
        gold=pair.gold,
        equal=pair.equal,
        verdict=said.verdict.name.lower(),
        answer=said.answer,
        route=said.route,
        reason=said.reason,
    )
