"""Answers of every kind made by rule: rewritten, they are `correct`; as near misses, never; and equal to themselves."""

from __future__ import annotations

import os
from collections.abc import Callable
from fractions import Fraction

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from treeforge.label import check
from treeforge.verdict import Verdict

Made = tuple[str, list[str], list[str]]
"""(gold answer, rewritings, near misses)."""


def latex(x: Fraction) -> str:
    sign = "-" if x < 0 else ""
    return f"{sign}\\frac{{{abs(x.numerator)}}}{{{x.denominator}}}" if x.denominator > 1 else str(x.numerator)


RATIONALS = st.fractions(min_value=-99, max_value=99, max_denominator=60)
WHOLE = st.integers(1, 999)


@st.composite
def numbers(draw: st.DrawFn) -> Made:
    n = draw(st.integers(-(10**7), 10**7))
    equal = [f"{n:,}", f"{n}.0", f"${n}$", f"\\boxed{{{n}}}", f"**{n}**", f"x = {n}", f"{n}\\text{{ cm}}", f"{n} units"]
    equal += [f"{n:,}".replace(",", "{,}"), f"{n:,}".replace(",", "\\,"), f"\\text{{{n}}}", f"<answer>{n}</answer>"]
    return str(n), equal, [str(n + 1), str(n * 10 or 1), f"{n}.5", str(-n or 2), str(n * 100 or 3), f"{n}, {n + 1}"]


@st.composite
def fractions(draw: st.DrawFn) -> Made:
    x = draw(RATIONALS.filter(lambda x: x.denominator > 1))
    k, p, q = draw(st.integers(2, 9)), x.numerator, x.denominator
    equal = [
        f"{p}/{q}",
        f"\\dfrac{{{p}}}{{{q}}}",
        f"\\frac{{{p * k}}}{{{q * k}}}",
        f"{{{p} \\over {q}}}",
        f"({p})/({q})",
    ]
    equal += [f"\\nicefrac{{{p}}}{{{q}}}", f"{p} ÷ {q}", f"\\frac{{{-p}}}{{{-q}}}", f"{p}\\cdot\\frac{{1}}{{{q}}}"]
    wrong = [latex(x + 1), latex(-x), latex(x * 10), latex(Fraction(p + q, q * 2 + 1)), f"{p}{q}"]
    return latex(x), equal, [text for text in wrong if text != latex(x)]


@st.composite
def mixed_numbers(draw: st.DrawFn) -> Made:
    whole, q = draw(st.integers(1, 40)), draw(st.integers(2, 16))
    p = draw(st.integers(1, q - 1))
    value = Fraction(whole * q + p, q)
    equal = [f"{whole} {p}/{q}", f"{whole}\\dfrac{{{p}}}{{{q}}}", f"{whole}\\,\\frac{{{p}}}{{{q}}}", latex(value)]
    others = [Fraction(whole * p, q), Fraction(int(f"{whole}{p}"), q), value + 1, Fraction(p, q)]
    wrong = [latex(x) for x in others if x != value]
    return f"{whole}\\frac{{{p}}}{{{q}}}", equal, wrong


@st.composite
def decimals(draw: st.DrawFn) -> Made:
    block = draw(st.sampled_from(("3", "6", "27", "142857", "09")))
    fixed = draw(st.sampled_from(("0.", "1.", "0.1", "2.05")))
    scale = 10 ** (len(fixed) - 2)
    value = Fraction(fixed) + Fraction(int(block), (10 ** len(block) - 1) * scale)
    equal = [
        f"{fixed}\\overline{{{block}}}",
        f"{fixed}({block})",
        f"{fixed}{block * 3}...",
        f"{value.numerator}/{value.denominator}",
    ]
    wrong = [latex(value + Fraction(1, 1000)), f"{fixed}\\overline{{{block}1}}", latex(value * 10), f"{fixed}4"]
    return latex(value), equal, wrong


@st.composite
def surds(draw: st.DrawFn) -> Made:
    a, b, k = draw(st.integers(-9, 9)), draw(st.sampled_from((2, 3, 5, 6, 7, 10))), draw(st.integers(1, 9))
    gold = f"{a} + {k}\\sqrt{{{b}}}"
    equal = [f"\\sqrt{{{b * k * k}}} + {a}", f"{a} + {k}*sqrt({b})", f"{a} + {k}√{b}", f"{a}+{k} \\cdot {b}^{{1/2}}"]
    equal += [f"\\frac{{{2 * a}+{2 * k}\\sqrt{{{b}}}}}{{2}}", f"{a}+\\frac{{{k * b}}}{{\\sqrt{{{b}}}}}"]
    wrong = [f"{a} - {k}\\sqrt{{{b}}}", f"{a} + {k}\\sqrt{{{b + 1}}}", f"{a} + {k * b}", f"{a + 1} + {k}\\sqrt{{{b}}}"]
    return gold, equal, [*wrong, f"{a} \\pm {k}\\sqrt{{{b}}}", f"{a} + {k}\\sqrt[3]{{{b}}}"]


@st.composite
def polynomials(draw: st.DrawFn) -> Made:
    r, s, k = draw(st.integers(-9, 9)), draw(st.integers(-9, 9)), draw(st.integers(1, 6))
    gold = f"{k}x^2 {-k * (r + s):+d}x {k * r * s:+d}"
    equal = [
        f"{k}(x {-r:+d})(x {-s:+d})",
        f"{k * r * s} {-k * (r + s):+d}*x + {k}*x**2",
        f"f(x) = {gold}",
        f"{k}x² {-k * (r + s):+d}x {k * r * s:+d}",
    ]
    wrong = [
        f"{k}x^2 {-k * (r + s) + 1:+d}x {k * r * s:+d}",
        f"{gold} + 1",
        f"{k + 1}x^2 {-k * (r + s):+d}x {k * r * s:+d}",
        gold.replace("x^2", "x^3"),
        gold.replace("x", "y"),
    ]
    return gold, equal, wrong


@st.composite
def intervals(draw: st.DrawFn) -> Made:
    low, width = draw(st.integers(-30, 30)), draw(st.integers(1, 30))
    left, right = draw(st.sampled_from("([")), draw(st.sampled_from(")]"))
    high = low + width
    first, second = "<" if left == "(" else "\\le", "<" if right == ")" else "\\leq"
    body = f"{low}, {high}{right}"
    equal = [
        f"x \\in {left}{body}",
        f"{low} {first} x {second} {high}",
        f"\\left{left}{low};{high}\\right{right}",
        f"${left}{body}$",
    ]
    equal += [f"{low * 2} {first} 2t {second} {high * 2}", f"\\{{x \\mid {low} {first} x {second} {high}\\}}"]
    other = "[" if left == "(" else "("
    wrong = [
        f"{other}{body}",
        f"{left}{low}, {high + 1}{right}",
        f"{left}{low - 1}, {high}{right}",
        f"x {second} {high}",
        f"{low}, {high}" if left == "[" else f"\\{{{low},{high}\\}}",
    ]
    return left + body, equal, wrong


@st.composite
def unions(draw: st.DrawFn) -> Made:
    low, width = draw(st.integers(-30, 30)), draw(st.integers(1, 30))
    high = low + width
    gold = f"(-\\infty, {low}) \\cup ({high}, \\infty)"
    equal = [
        f"x < {low} \\text{{ or }} x > {high}",
        f"({high}, \\infty) \\cup (-\\infty, {low})",
        f"(-inf,{low}) U ({high},inf)",
        f"x<{low}, x>{high}",
    ]
    equal += [f"(-∞,{low})∪({high},∞)", f"\\mathbb{{R}} \\setminus [{low}, {high}]"]
    wrong = [
        f"(-\\infty, {low}] \\cup ({high}, \\infty)",
        f"({low}, {high})",
        f"(-\\infty, {low})",
        f"(-\\infty, {low}) \\cup ({high + 1}, \\infty)",
        "\\mathbb{R}",
    ]
    return gold, equal, wrong


@st.composite
def sets(draw: st.DrawFn) -> Made:
    items = draw(st.lists(RATIONALS, min_size=2, max_size=5, unique=True))
    mixed = draw(st.permutations(items))
    gold, other = ", ".join(map(latex, items)), [f"{x}" for x in mixed]
    equal = [
        ", ".join(other),
        f"\\{{{', '.join(other)}\\}}",
        " and ".join(other),
        "; ".join(other),
        f"x = {' or x = '.join(other)}",
    ]
    equal += [f"x \\in \\{{{', '.join(other)}\\}}", ", ".join(f"\\boxed{{{x}}}" for x in other)]
    wrong = [", ".join(other[1:]), ", ".join([*other, "101"]), ", ".join([*other[1:], "101"])]
    return gold, equal, wrong


@st.composite
def tuples(draw: st.DrawFn) -> Made:
    items = draw(st.lists(RATIONALS, min_size=2, max_size=4, unique=True))
    gold = f"({', '.join(map(latex, items))})"
    plain = ", ".join(map(str, items))
    names = ", ".join("xyzw"[: len(items)])
    equal = [
        f"({plain})",
        f"\\left({plain}\\right)",
        f"({names}) = ({plain})",
        f"\\langle {plain}\\rangle",
        f"P({plain})",
    ]
    equal.append(", ".join(f"{name} = {x}" for name, x in zip("xyzw", items, strict=False)))
    swapped = ", ".join(map(str, items[::-1]))
    return (
        gold,
        equal,
        [f"({swapped})", f"\\{{{plain}\\}}", f"({plain}, 0)", f"({', '.join(map(str, [items[0] + 1, *items[1:]]))})"],
    )


@st.composite
def matrices(draw: st.DrawFn) -> Made:
    cells = draw(st.lists(st.lists(st.integers(-20, 20), min_size=2, max_size=2), min_size=2, max_size=3))

    def matrix(rows: list[list[int]], name: str = "pmatrix") -> str:
        body = " \\\\ ".join(" & ".join(map(str, row)) for row in rows)
        return f"\\begin{{{name}}} {body} \\end{{{name}}}"

    equal = [
        matrix(cells, "bmatrix"),
        f"\\left({matrix(cells, 'array').replace('array}', 'array}{cc}', 1)}\\right)",
        str(cells),
        f"A = {matrix(cells)}",
    ]
    equal.append(f"\\frac{{1}}{{2}}{matrix([[2 * x for x in row] for row in cells])}")
    changed = [[cells[0][0] + 1, cells[0][1]], *cells[1:]]
    wrong = [matrix(changed), matrix([*cells, [0, 0]]), matrix([[x for row in cells for x in row]])]
    return matrix(cells), equal, wrong


@st.composite
def percentages(draw: st.DrawFn) -> Made:
    n = draw(st.integers(1, 400))
    equal = [f"{n}%", f"{n} \\%", f"{n}\\text{{ percent}}", f"{n} per cent", latex(Fraction(n, 100)), str(n)]
    return f"{n}\\%", equal, [f"{n + 1}\\%", f"{n}0\\%", latex(Fraction(n, 1000)), str(n * 100), f"-{n}\\%"]


@st.composite
def numerals(draw: st.DrawFn) -> Made:
    base = draw(st.integers(2, 9))
    digits = draw(st.lists(st.integers(0, base - 1), min_size=2, max_size=8).filter(lambda d: d[0] > 0))
    text = "".join(map(str, digits))
    equal = [f"{text}_{{{base}}}", f"({text})_{base}", f"\\text{{{text}}}_{{{base}}}", f"{text} (base {base})", text]
    return (
        f"{text}_{base}",
        equal,
        [
            f"{text}_{base + 1}",
            f"{text}{base}",
            f"{text}0_{base}",
            str(int(text, base)) if int(text, base) != int(text) else "x",
        ],
    )


@st.composite
def quantities(draw: st.DrawFn) -> Made:
    hours, minutes = draw(st.integers(1, 30)), draw(st.integers(1, 59))
    total = 60 * hours + minutes
    equal = [
        f"{total} minutes",
        f"{hours} h {minutes} min",
        f"{hours}\\text{{ hours }}{minutes}\\text{{ minutes}}",
        f"{total * 60} seconds",
    ]
    equal.append(f"{latex(Fraction(total, 60))} hours")
    wrong = [
        f"{total + 1} minutes",
        f"{total} hours",
        f"{hours} hours",
        f"{minutes} minutes",
        f"{hours + 1} hours {minutes} minutes",
    ]
    return f"{hours} hours and {minutes} minutes", equal, wrong


@st.composite
def lengths(draw: st.DrawFn) -> Made:
    n = draw(WHOLE)
    equal = [f"{n} cm", f"{n}cm", f"{n}\\,\\mathrm{{cm}}", f"{n} centimeters", str(n), f"{10 * n}\\text{{ mm}}"]
    return f"{n}\\text{{ cm}}", equal, [f"{n + 1} cm", f"{n} m", f"{n} cm^2", f"{n} mm", f"{n} kg", f"{n * 10}"]


@st.composite
def money(draw: st.DrawFn) -> Made:
    dollars, cents = draw(st.integers(0, 99_999)), draw(st.integers(1, 99))
    value = f"{dollars}.{cents:02d}"
    equal = [f"${value}", f"\\${dollars:,}.{cents:02d}", f"{value} dollars", f"USD {value}", f"The total is ${value}."]
    equal.append(f"{dollars} dollars and {cents} cents")
    return value, equal, [f"${dollars}", f"${dollars + 1}.{cents:02d}", f"{dollars}{cents:02d}"]


@st.composite
def complex_numbers(draw: st.DrawFn) -> Made:
    a, b = draw(st.integers(-20, 20).filter(bool)), draw(st.integers(2, 20))
    equal = [
        f"{b}i {a:+d}",
        f"{a} + {b}*i",
        f"{a} + {b}\\mathrm{{i}}",
        f"{a} - {b}/i",
        f"z = {a}+{b}i",
        f"({b} - {a}i)i",
    ]
    return (
        f"{a} + {b}i",
        equal,
        [f"{a} - {b}i", f"{-a} + {b}i", f"{a} + {b}", f"{b} + {a}i" if a != b else "i", f"{a} \\pm {b}i"],
    )


@st.composite
def plus_minus(draw: st.DrawFn) -> Made:
    a, b = draw(st.integers(-9, 9)), draw(st.integers(1, 9))
    equal = [
        f"{a + b}, {a - b}",
        f"\\{{{a - b}, {a + b}\\}}",
        f"x = {a} \\pm {b}",
        f"x = {a - b} or x = {a + b}",
        f"{a} ± {b}",
    ]
    return (
        f"{a} \\pm {b}",
        equal,
        [f"{a + b}", f"{a} + {b}", f"{a} \\pm {b + 1}", f"{a + 1} \\pm {b}", f"{a + b}, {a - b - 1}"],
    )


@st.composite
def equations(draw: st.DrawFn) -> Made:
    a, b, c = draw(st.integers(1, 9)), draw(st.integers(1, 9)), draw(st.integers(-20, 20))
    k = draw(st.integers(-5, 5).filter(bool))
    equal = [
        f"{k * a}x {k * b:+d}y = {k * c}",
        f"{b}y = {c} - {a}x",
        f"y = \\frac{{{c} - {a}x}}{{{b}}}",
        f"{c} = {b}y + {a}x",
    ]
    wrong = [f"{a}x + {b}y = {c + 1}", f"{a}x - {b}y = {c}", f"{a + 1}x + {b}y = {c}", f"{a}x + {b}z = {c}"]
    return f"{a}x + {b}y = {c}", equal, wrong


NAMES = st.sampled_from(("Alice", "Tuesday", "ellipse", "isosceles triangle", "even", "no triangle"))


@st.composite
def words(draw: st.DrawFn) -> Made:
    name = draw(NAMES)
    equal = [
        name.upper(),
        f"\\text{{{name}}}",
        f"**{name}**",
        f"The answer is {name}.",
        f"{name}.",
        f"$\\text{{{name}}}$",
    ]
    return f"\\text{{{name}}}", equal, [f"not {name}", name[:-1], "Bob", "5", f"{name} and Bob"]


@st.composite
def options(draw: st.DrawFn) -> Made:
    letter = draw(st.sampled_from("ABCDE"))
    other = "ABCDE"[("ABCDE".index(letter) + 1) % 5]
    forms = (
        "({})",
        "{}.",
        "\\text{{{}}}",
        "\\textbf{{({})}}",
        "The answer is {}.",
        "\\boxed{{\\textbf{{({}) }}12}}",
        "Option {}",
        "**{}**",
    )
    equal = [form.format(letter) for form in forms]
    return letter, [*equal, f"{other} is wrong, so the answer is {letter}"], [form.format(other) for form in forms]


@st.composite
def times(draw: st.DrawFn) -> Made:
    hour, minute, half = draw(st.integers(1, 11)), draw(st.integers(1, 59)), draw(st.sampled_from(("AM", "PM")))
    clock = f"{hour}:{minute:02d}"
    late = f"{hour + 12 * (half == 'PM')}:{minute:02d}"
    dotted = f"{half[0].lower()}.m."
    equal = [
        f"{clock}{half.lower()}",
        f"{clock} {dotted}",
        f"{clock}\\text{{ {half}}}",
        f"\\text{{{clock} {half}}}",
        late,
    ]
    wrong = [
        f"{clock} {'PM' if half == 'AM' else 'AM'}",
        f"{hour}:{(minute + 1) % 60:02d} {half}",
        f"{hour % 11 + 1}:{minute:02d} {half}",
    ]
    return f"{clock} {half}", equal, wrong


KINDS: dict[str, Callable[[], st.SearchStrategy[Made]]] = {
    kind.__name__: kind
    for kind in (
        numbers, fractions, mixed_numbers, decimals, surds, polynomials, intervals, unions, sets, tuples, matrices,
        percentages, numerals, quantities, lengths, money, complex_numbers, plus_minus, equations, words, options,
        times,
    )
}  # fmt: skip
ONE_WAY = frozenset(("numbers", "numerals", "money", "words", "options", "lengths"))
"""Kinds whose rewritings are sentences, or bare forms that mean more as a gold answer."""


def judge(kind: str, made: Made) -> None:
    gold, equal, wrong = made
    assert check(gold, gold).verdict is Verdict.CORRECT
    for text in equal:
        judgement = check(text, gold)
        assert judgement.verdict is Verdict.CORRECT, (text, gold, judgement)
        if kind not in ONE_WAY:
            assert check(gold, text).verdict is Verdict.CORRECT, (gold, text, check(gold, text))
    for text in wrong:
        judgement = check(text, gold)
        assert judgement.verdict is not Verdict.CORRECT, (text, gold, judgement)
        assert check(gold, text).verdict is not Verdict.CORRECT, (gold, text)


@pytest.mark.parametrize("kind", KINDS)
def test_rewritings_are_correct_and_near_misses_are_not(kind: str) -> None:
    @settings(max_examples=12, deadline=None)
    @given(KINDS[kind]())
    def run(made: Made) -> None:
        judge(kind, made)

    run()


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_many_rewritings_are_correct_and_near_misses_are_not(kind: str) -> None:
    @settings(max_examples=int(os.environ.get("TREEFORGE_EXAMPLES", "400")), deadline=None)
    @given(KINDS[kind]())
    def run(made: Made) -> None:
        judge(kind, made)

    run()
