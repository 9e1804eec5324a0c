"""Hostile texts for the answer checker, a million by default: no exception, nothing slow, memory bounded.

python benchmarks/answers_fuzz.py [--texts 1000000] [--seed 0] [--symbolic-share 0.01]

Texts are arbitrary characters, soups of LaTeX pieces, real answers with pieces changed, cut or doubled, whole solutions
around them, and bombs. The same seed gives the same texts. Of `--symbolic-share` of them sympy may be asked. Prints one
table, the slowest texts below it; exits 1 where a text raised or took longer than a second. Figures: docs/labels.md.
"""

from __future__ import annotations

import argparse
import json
import random
import resource
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from rich.console import Console
from rich.table import Table

from treeforge.label import check
from treeforge.verdict import Verdict

CASES = Path(__file__).resolve().parent.parent / "tests" / "label" / "cases.jsonl"
VOCABULARY = r"""
    \frac \sqrt \sqrt[3] { } ( ) [ ] \{ \} ^ _ + - * / = < > \le \ge \in \cup \cap x y z n i e \pi 0 1 2 3 10 0.5
    7.25 .5 1,000 \infty , ; and or E \text{and} \text{cm} % \% ! | \left \right \pm \sin \cos \tan \log \ln \log_2
    \cdot \times \begin{pmatrix} \end{pmatrix} \begin{cases} \end{cases} & \\ ^\circ $ $$ \( \) \[ \] \boxed{ #### :
    dx \sum_{k=1}^{5} \sum_{k=1}^{n} \prod_{k=1}^{4} \int \int_0^1 \lim_{x\to0} f(x) f^{-1} \binom \choose \over
    \lfloor \rfloor \lceil \rceil ... . ' " é 页 ½ √ π ² \mathrm{e} \overline{3} \gcd \max \approx \neq \mathbb{R}
    \setminus \emptyset \angle ! !! \dots \frac{d}{dx} feet inches hours minutes pm % half two hundred (A)
    \textbf{(B)} C base _8 _{16} U except ** ` _ <answer> </answer> </think> \root \of \pmod \bmod 10^ 99999 9^ e^
    \exp \factorial ∞ ∪ ≤ − × 1e9 E+5 \Omega
"""
PIECES = [*VOCABULARY.split(), " ", " ", "\n", "The answer is ", "Answer: ", "Therefore "]
BOMBS = (
    "10^{10^{10^{10}}}", "99999999!", "((9!)!)!", "\\binom{10^9}{10^8}", "\\sum_{k=1}^{10^{12}} k", "(x+1)^{1000000}",
    "e^{e^{e^{e^{e}}}}", "1e999999999", "\\sin(10^{10^{10}})", "\\prod_{k=1}^{10^9} k", "2^{2^{2^{2^{2^{2}}}}}",
    "\\int_0^{10^9} x^{x^x} dx", "\\gcd(10^{400}, 3^{900})", "0.(9)", "\\log_{1}{5}", "0^{-1}", "1/0",
    "\\tan 90^\\circ", "__import__('os').system('true')", "().__class__.__mro__", "x" * 3000, "(" * 300,
    "\\frac{" * 300, "1" * 5000, "1," * 900, "\\sqrt{" * 60 + "2" + "}" * 60, "{" * 41 + "1" + "}" * 41, "|" * 99,
    "-" * 99 + "1", "\\boxed{" * 99, "$" * 999,
)  # fmt: skip


def texts(seed: int, cases: list[str]) -> Iterator[str]:
    """Hostile texts, without end."""
    rng = random.Random(seed)
    kinds = (_characters, _soup, _soup, _mutated, _mutated, _cut, _solution, _bomb)
    while True:
        yield rng.choice(kinds)(rng, cases)


def _characters(rng: random.Random, _: list[str]) -> str:
    alphabets = ((32, 126), (32, 126), (0, 0x2FFF), (0x2000, 0x2BFF), (0, 0x10FFFF))
    low, high = rng.choice(alphabets)
    return "".join(chr(rng.randint(low, high)) for _ in range(rng.randint(0, 60)))


def _soup(rng: random.Random, _: list[str]) -> str:
    return rng.choice(("", "", " ")).join(rng.choice(PIECES) for _ in range(rng.randint(1, 18)))


def _mutated(rng: random.Random, cases: list[str]) -> str:
    text = rng.choice(cases)
    for _ in range(rng.randint(1, 4)):
        at = rng.randint(0, len(text))
        end = min(len(text), at + rng.randint(0, 6))
        text = text[:at] + rng.choice(("", rng.choice(PIECES), text[at:end] * 2, rng.choice(cases)[:20])) + text[end:]
    return text


def _cut(rng: random.Random, cases: list[str]) -> str:
    text = rng.choice(cases)
    start = rng.randint(0, len(text))
    return text[start : rng.randint(start, len(text))]


def _solution(rng: random.Random, cases: list[str]) -> str:
    end = rng.choice(("\\boxed{%s}", "The answer is $%s$.", "#### %s", "Answer: %s", "so it is %s", "**%s**", "%s"))
    return " ".join((_mutated(rng, cases), _soup(rng, cases), end % _mutated(rng, cases)))


def _bomb(rng: random.Random, cases: list[str]) -> str:
    bomb = rng.choice(BOMBS)
    return rng.choice((bomb, f"\\boxed{{{bomb}}}", f"{bomb}+{rng.choice(cases)}", f"\\sqrt{{{bomb}}}", bomb * 3))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--symbolic-share", type=float, default=0.01)
    options = parser.parse_args()
    rows = [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]
    cases = [text for row in rows for text in (row["prediction"], row["gold"]) if len(text) < 300]
    made, rng = texts(options.seed, cases), random.Random(options.seed + 1)
    check("\\sqrt{2}", "\\sqrt{3}")
    verdicts: Counter[str] = Counter()
    routes: Counter[str] = Counter()
    raised: list[str] = []
    slowest: list[tuple[float, str, str]] = []
    total = 0.0
    for done in range(1, options.texts + 1):
        prediction = next(made)
        gold = prediction if rng.random() < 0.05 else rng.choice(cases) if rng.random() < 0.5 else next(made)
        symbolic = rng.random() < options.symbolic_share
        start = time.process_time()
        try:
            judgement = check(prediction, gold, symbolic=symbolic)
        except Exception as error:  # noqa: BLE001 - what is counted here
            raised.append(f"{type(error).__name__}: {error}: {prediction!r} | {gold!r}")
            continue
        seconds = time.process_time() - start
        total += seconds
        verdicts[judgement.verdict.name.lower()] += 1
        routes[judgement.route] += 1
        if prediction == gold and judgement.verdict is Verdict.INCORRECT:
            raised.append(f"differs from itself: {prediction!r}")
        if len(slowest) < 3 or seconds > slowest[-1][0]:
            slowest = sorted([*slowest, (seconds, prediction, gold)], reverse=True)[:3]
        if done % 100_000 == 0:
            print(f"{done:,} texts, {len(raised)} exceptions", file=sys.stderr, flush=True)
    table = Table("texts", "exceptions", "checks/s", "slowest ms", "peak MiB", "verdicts", "routes")
    table.add_row(
        f"{options.texts:,}",
        str(len(raised)),
        f"{options.texts / total:,.0f}",
        f"{slowest[0][0] * 1e3:.0f}",
        f"{resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024:.0f}",
        "\n".join(f"{name} {count:,}" for name, count in verdicts.most_common()),
        "\n".join(f"{name} {count:,}" for name, count in routes.most_common()),
    )
    console = Console(highlight=False, markup=False, soft_wrap=True)
    console.print(table)
    for seconds, prediction, gold in slowest:
        console.print(f"{seconds * 1e3:.0f} ms  {prediction[:80]!r} | {gold[:80]!r}")
    for line in raised[:20]:
        console.print(line)
    sys.exit(1 if raised or slowest[0][0] > 1 else 0)


if __name__ == "__main__":
    main()
