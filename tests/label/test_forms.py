"""Equal answers in different forms, near misses, and rewritings made by rule."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treeforge.label import check
from treeforge.verdict import Verdict

HERE = Path(__file__).resolve().parent
EQUAL, DIFFERENT = (
    [tuple(line.strip().split(" ||| ")) for line in part.splitlines() if " ||| " in line and not line.startswith("#")]
    for part in (HERE / "forms.txt").read_text(encoding="utf-8").split("\n# DIFFERENT\n")
)
TEXTS = [json.loads(line) for line in (HERE / "texts.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize(("a", "b"), EQUAL)
def test_equal_forms(a: str, b: str) -> None:
    for prediction, gold in ((a, b), (b, a)):
        judgement = check(prediction, gold)
        assert judgement.verdict is Verdict.CORRECT, (prediction, gold, judgement)


@pytest.mark.parametrize(("a", "b"), DIFFERENT)
def test_different_answers(a: str, b: str) -> None:
    for prediction, gold in ((a, b), (b, a)):
        judgement = check(prediction, gold)
        assert judgement.verdict is not Verdict.CORRECT, (prediction, gold, judgement)


@pytest.mark.parametrize("row", TEXTS, ids=[row["text"][:40] for row in TEXTS])
def test_answers_in_texts(row: dict[str, object]) -> None:
    judgement = check(str(row["text"]), str(row["gold"]))
    assert (judgement.verdict is Verdict.CORRECT) == row["equal"], judgement


def kinds() -> dict[str, list[tuple[str, str, bool, bool]]]:
    """Heading of `pairs.txt` -> its pairs (A, B, equal, both ways)."""
    found: dict[str, list[tuple[str, str, bool, bool]]] = {}
    heading = ""
    for line in (HERE / "pairs.txt").read_text(encoding="utf-8").splitlines():
        if line.startswith("# "):
            heading = line[2:]
        elif heading and (mark := next((m for m in (" ||| ", " >>> ") if m in line), "")):
            a, b = line.split(mark)
            found.setdefault(heading, []).append((a, b, heading.startswith("EQUAL"), mark == " ||| "))
    return found


PAIRS = kinds()


@pytest.mark.parametrize("kind", PAIRS)
def test_pairs_by_kind(kind: str) -> None:
    wrong = []
    for a, b, equal, both_ways in PAIRS[kind]:
        for prediction, gold in ((a, b), (b, a)) if both_ways else ((a, b),):
            judgement = check(prediction, gold)
            if (judgement.verdict is Verdict.CORRECT) != equal:
                wrong.append((prediction, gold, judgement))
    assert not wrong


INTEGERS = st.integers(-(10**6), 10**6)
COEFFICIENTS = st.lists(st.integers(-9, 9), min_size=2, max_size=5).filter(any)


def fraction(p: int, q: int) -> str:
    return f"{'-' if p < 0 else ''}\\frac{{{abs(p)}}}{{{q}}}"


def polynomial(coefficients: list[int], order: list[int]) -> str:
    terms = [f"{coefficients[i]:+d}x^{{{i}}}" for i in order if coefficients[i]]
    return "".join(terms).lstrip("+")


@settings(max_examples=150, deadline=None)
@given(INTEGERS, st.integers(1, 999), st.integers(2, 9))
def test_fractions_are_equal_unreduced_as_quotients_and_with_their_sign_anywhere(p: int, q: int, k: int) -> None:
    gold = fraction(p, q)
    for prediction in (fraction(p * k, q * k), f"{p}/{q}", f"\\frac{{{-p}}}{{{-q}}}", f"-\\frac{{{-p}}}{{{q}}}"):
        assert check(prediction, gold).verdict is Verdict.CORRECT
    for prediction in (fraction(p + 1, q), f"{p + q}/{q}", fraction(p * k + 1, q * k)):
        assert check(prediction, gold).verdict is Verdict.INCORRECT


@settings(max_examples=150, deadline=None)
@given(INTEGERS)
def test_integers_with_separators_decimals_and_units(n: int) -> None:
    gold = str(n)
    for prediction in (
        f"{n:,}",
        f"{n}.0",
        f"${n}$",
        f"{n}.",
        f"x = {n}",
        f"{n}\\text{{ units}}",
        f"The answer is {n}.",
    ):
        assert check(prediction, gold).verdict is Verdict.CORRECT
    for prediction in (str(n + 1), str(n * 100 + 100), f"{n}.5", str(-n) if n else "1"):
        assert check(prediction, gold).verdict is Verdict.INCORRECT


@settings(max_examples=150, deadline=None)
@given(COEFFICIENTS, st.randoms(use_true_random=False), st.integers(0, 4))
def test_polynomials_in_any_order_and_off_by_one(coefficients: list[int], random: object, at: int) -> None:
    order = list(range(len(coefficients)))
    gold = polynomial(coefficients, order)
    random.shuffle(order)  # type: ignore[attr-defined]
    assert check(polynomial(coefficients, order), gold).verdict is Verdict.CORRECT
    wrong = list(coefficients)
    wrong[at % len(wrong)] += 1
    if any(wrong):
        assert check(polynomial(wrong, order), gold).verdict is Verdict.INCORRECT


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-20, 20), min_size=2, max_size=6, unique=True), st.randoms(use_true_random=False))
def test_lists_sets_and_tuples(numbers: list[int], random: object) -> None:
    shuffled = list(numbers)
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    plain, mixed = ", ".join(map(str, numbers)), ", ".join(map(str, shuffled))
    assert check(mixed, plain).verdict is Verdict.CORRECT
    assert check(f"\\{{{mixed}\\}}", plain).verdict is Verdict.CORRECT
    assert check(f"({plain})", f"({plain})").verdict is Verdict.CORRECT
    tuples = check(f"({mixed})", f"({plain})").verdict
    assert tuples is (Verdict.CORRECT if shuffled == numbers else Verdict.INCORRECT)
    assert check(", ".join(map(str, numbers[:-1])), plain).verdict is Verdict.INCORRECT


@settings(max_examples=100, deadline=None)
@given(st.integers(-50, 50), st.integers(1, 50), st.sampled_from("(["), st.sampled_from(")]"), st.integers(1, 9))
def test_intervals_and_inequalities(low: int, width: int, left: str, right: str, k: int) -> None:
    high = low + width
    gold = f"{left}{low}, {high}{right}"
    first, second = "<" if left == "(" else "\\le", "<" if right == ")" else "\\le"
    assert check(f"{low} {first} x {second} {high}", gold).verdict is Verdict.CORRECT
    assert check(f"{low * k} {first} {k}x {second} {high * k}", gold).verdict is Verdict.CORRECT
    assert check(f"x \\in {gold}", gold).verdict is Verdict.CORRECT
    flipped = f"{'[' if left == '(' else '('}{low}, {high}{right}"
    assert check(flipped, gold).verdict is Verdict.INCORRECT
    assert check(f"{left}{low}, {high + 1}{right}", gold).verdict is Verdict.INCORRECT


@settings(max_examples=80, deadline=None)
@given(st.integers(1, 60), st.integers(1, 60), st.integers(1, 12))
def test_square_roots(a: int, b: int, k: int) -> None:
    assert check(f"\\sqrt{{{a * k * k}}}", f"{k}\\sqrt{{{a}}}").verdict is Verdict.CORRECT
    assert check(f"\\sqrt{{{a}}}\\sqrt{{{b}}}", f"\\sqrt{{{a * b}}}").verdict is Verdict.CORRECT
    assert check(f"\\sqrt{{{a * k * k + 1}}}", f"{k}\\sqrt{{{a}}}").verdict is Verdict.INCORRECT


@settings(max_examples=80, deadline=None)
@given(st.integers(-9, 9), st.integers(-9, 9), st.integers(-20, 20), st.integers(-5, 5).filter(bool))
def test_equations_up_to_a_factor(a: int, b: int, c: int, k: int) -> None:
    if a == 0 or b == 0:
        return
    gold = f"{a}x {b:+d}y = {c}"
    assert check(f"{k * a}x {k * b:+d}y {-k * c:+d} = 0", gold).verdict is Verdict.CORRECT
    assert check(f"{k * a}x {k * b:+d}y {-k * c + 1:+d} = 0", gold).verdict is Verdict.INCORRECT
