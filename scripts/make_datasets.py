"""Make the problem sets in `datasets/`: `python scripts/make_datasets.py` writes both files again, byte for byte.

A template is a question with `{a}`, `{b}` … for numbers and one line a step, `name = left op right: what it is`.
Numbers are drawn until every step's result is a whole number from 2 to the size's cap, so that no text needs a
singular. Standard library only; nothing here is evaluated as code.
"""

from __future__ import annotations

import argparse
import json
import operator
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

SEED = 20250317
OPENING_CAP, SMALL_CAP, LARGE_CAP = 20, 60, 1000
"""The largest result of a step in the first 20 problems, with small numbers, and with large ones."""

Ranges = dict[str, tuple[int, int, int]]
"""Number -> (low, high, top): drawn from low..high in a problem with small numbers, else from high..top."""


@dataclass(frozen=True)
class Template:
    """A kind of problem."""

    question: str
    numbers: Ranges
    steps: tuple[str, ...]


class Person(NamedTuple):
    """A name with its pronouns, for `{A}`, `{A.he}`, `{A.his}`."""

    name: str
    he: str
    his: str

    def __str__(self) -> str:
        return self.name


def template(question: str, numbers: str, *steps: str) -> Template:
    """`numbers` is `a 2-9-30, b 3-5-5`: name, low, high, top."""
    ranges: Ranges = {}
    for item in numbers.split(", "):
        name, bounds = item.split()
        low, high, top = (int(bound) for bound in bounds.split("-"))
        ranges[name] = low, high, top
    return Template(question, ranges, steps)


PEOPLE = [
    *(
        Person(name, "she", "her")
        for name in ("Ana", "Chloe", "Emma", "Fatima", "Grace", "Ines", "Leila", "Mia", "Nora")
    ),
    *(Person(name, "he", "his") for name in ("Ben", "David", "Hugo", "Ivan", "Kofi", "Liam", "Omar", "Raj", "Tom")),
]
WORDS = {
    "fruit": ("apples", "pears", "plums", "oranges", "lemons", "peaches"),
    "baked": ("cookies", "muffins", "pancakes", "waffles", "buns"),
    "toy": ("marbles", "stickers", "stamps", "postcards", "beads", "buttons"),
    "box": ("boxes", "bags", "baskets", "jars"),
    "tool": ("pencils", "pens", "brushes", "crayons", "erasers"),
    "food": ("sandwiches", "pizzas", "burgers", "salads"),
    "flower": ("tulips", "roses", "daisies", "lilies"),
    "show": ("concert", "circus", "play", "museum"),
}

WORD_TEMPLATES = [
    # one step
    template(
        "{A} has {a} {fruit}. {A} buys {b} more {fruit}. How many {fruit} does {A} have now?",
        "a 3-20-300, b 2-15-200",
        "x = a + b: {fruit}",
    ),
    template(
        "{A} makes {a} {baked} and gives {b} of them to {B}. How many {baked} does {A} have left?",
        "a 6-24-90, b 2-12-60",
        "x = a - b: {baked}",
    ),
    template(
        "There are {a} {box} on a table. Each of them holds {b} {toy}. How many {toy} are there in total?",
        "a 2-8-25, b 2-7-30",
        "x = a * b: {toy}",
    ),
    template(
        "{A} shares {a} {toy} equally among {b} friends. How many {toy} does each friend get?",
        "a 6-40-300, b 2-6-12",
        "x = a / b: {toy} for each friend",
    ),
    template(
        "{A} reads {a} pages of a book every day. How many pages does {A} read in {b} days?",
        "a 4-10-45, b 2-6-20",
        "x = a * b: pages",
    ),
    template(
        "A bus has {a} seats. Passengers sit on {b} of them, and the other seats are free. How many seats are free?",
        "a 12-50-90, b 4-40-80",
        "x = a - b: free seats",
    ),
    template(
        "{A} is {a} years old. {B} is {b} years older than {A}. How old is {B}?",
        "a 5-12-40, b 2-9-45",
        "x = a + b: years",
    ),
    template(
        "{A} cuts a rope of {a} meters into pieces of {b} meters each, and no rope is left over. "
        "How many pieces are there?",
        "a 6-40-240, b 2-8-15",
        "x = a / b: pieces",
    ),
    template(
        "A ticket for the {show} costs ${a}. How many dollars do {b} tickets cost?",
        "a 3-10-40, b 2-6-20",
        "x = a * b: dollars",
    ),
    template(
        "There are {a} girls and {b} boys in a choir. How many children are in the choir?",
        "a 5-25-80, b 5-25-80",
        "x = a + b: children",
    ),
    # two steps
    template(
        "{A} has {a} {box} with {b} {tool} in each. {A} gives {c} {tool} to {B}. How many {tool} does {A} have left?",
        "a 2-6-15, b 3-9-24, c 2-12-90",
        "x = a * b: {tool} at first",
        "y = x - c: {tool} left",
    ),
    template(
        "{A} buys {a} {tool} for ${b} each and a bag for ${c}. How many dollars does {A} pay in total?",
        "a 2-6-20, b 2-5-12, c 4-15-60",
        "x = a * b: dollars for the {tool}",
        "y = x + c: dollars in total",
    ),
    template(
        "{A} has ${a} and buys {b} {food} for ${c} each. How many dollars does {A} have left?",
        "a 15-50-200, b 2-5-12, c 3-8-15",
        "x = b * c: dollars for the {food}",
        "y = a - x: dollars left",
    ),
    template(
        "{A} finds {a} shells in the morning and {b} shells in the afternoon. "
        "In the evening {A} gives {c} shells to {B}. How many shells does {A} have left?",
        "a 3-18-120, b 3-18-120, c 2-15-100",
        "x = a + b: shells found",
        "y = x - c: shells left",
    ),
    template(
        "{A} has {a} red {toy} and {b} blue {toy}. {A} puts all of them into {c} {box}, the same number in each. "
        "How many {toy} are in each of the {box}?",
        "a 4-25-150, b 4-25-150, c 2-6-12",
        "x = a + b: {toy}",
        "y = x / c: {toy} in each",
    ),
    template(
        "{A} has {a} {toy}. {B} has {b} times as many {toy} as {A}. How many {toy} do {A} and {B} have together?",
        "a 3-12-80, b 2-4-9",
        "x = a * b: {toy} of {B}",
        "y = a + x: {toy} together",
    ),
    template(
        "A farmer has {a} hens. Each hen lays {b} eggs a week. "
        "The farmer packs the eggs of one week into boxes of {c}, and no egg is left over. "
        "How many boxes does the farmer fill?",
        "a 3-10-60, b 3-6-6, c 3-10-12",
        "x = a * b: eggs",
        "y = x / c: boxes",
    ),
    template(
        "A bus starts with {a} passengers. At the first stop {b} passengers get off and {c} get on. "
        "How many passengers are on the bus now?",
        "a 8-30-80, b 2-12-50, c 2-12-40",
        "x = a - b: passengers after some get off",
        "y = x + c: passengers now",
    ),
    template(
        "A hall has {a} rows of {b} chairs. Of these chairs {c} are empty, and one person sits on each of the others. "
        "How many people sit in the hall?",
        "a 3-7-25, b 4-8-30, c 2-15-90",
        "x = a * b: chairs",
        "y = x - c: people",
    ),
    template(
        "{A} earns ${a} an hour. {A} works {b} hours on Saturday and {c} hours on Sunday. "
        "How many dollars does {A} earn on these two days?",
        "a 3-9-25, b 2-4-9, c 2-4-9",
        "x = b + c: hours",
        "y = a * x: dollars",
    ),
    template(
        "{A} has {a} beads and makes {b} bracelets. Each bracelet takes {c} beads. How many beads are left?",
        "a 20-60-400, b 2-5-15, c 4-9-24",
        "x = b * c: beads in the bracelets",
        "y = a - x: beads left",
    ),
    template(
        "A book has {a} pages. {A} has read {b} pages and from now on reads {c} pages a day. "
        "In how many days does {A} finish the book?",
        "a 25-60-400, b 5-30-200, c 3-10-30",
        "x = a - b: pages to read",
        "y = x / c: days",
    ),
    # three steps
    template(
        "{A} buys {a} notebooks for ${b} each and {c} {tool} for ${d} each. How many dollars does {A} pay in total?",
        "a 2-5-15, b 2-6-12, c 2-6-20, d 2-4-9",
        "x = a * b: dollars for the notebooks",
        "y = c * d: dollars for the {tool}",
        "z = x + y: dollars in total",
    ),
    template(
        "{A} has ${a}. {A} buys {b} tickets for ${c} each and a drink for ${d}. How many dollars does {A} have left?",
        "a 20-60-300, b 2-5-12, c 3-8-20, d 2-5-9",
        "x = b * c: dollars for the tickets",
        "y = x + d: dollars spent",
        "z = a - y: dollars left",
    ),
    template(
        "A baker bakes {a} trays of {b} rolls. The baker sells {c} rolls in the morning and {d} in the afternoon. "
        "How many rolls are left?",
        "a 3-6-15, b 6-10-24, c 5-20-120, d 3-15-90",
        "x = a * b: rolls",
        "y = x - c: rolls after the morning",
        "z = y - d: rolls left",
    ),
    template(
        "{A} picks {a} {fruit} a day for {b} days. {A} uses {c} of them for a cake and shares the others equally among "
        "{d} friends. How many {fruit} does each friend get?",
        "a 4-10-40, b 2-6-12, c 3-10-40, d 2-5-9",
        "x = a * b: {fruit}",
        "y = x - c: {fruit} to share",
        "z = y / d: {fruit} for each friend",
    ),
    template(
        "{A} has {a} cards. {B} has {b} more cards than {A}. {C} has {c} times as many cards as {B}. "
        "How many more cards does {C} have than {A}?",
        "a 3-9-60, b 2-8-50, c 2-3-6",
        "x = a + b: cards of {B}",
        "y = c * x: cards of {C}",
        "z = y - a: more cards",
    ),
    template(
        "An empty tank can hold {a} liters of water. {A} pours in {b} buckets of {c} liters each. "
        "Then {d} liters leak out. How many more liters can the tank take now?",
        "a 30-60-400, b 2-5-12, c 4-9-20, d 2-8-30",
        "x = b * c: liters poured in",
        "y = x - d: liters in the tank",
        "z = a - y: liters more",
    ),
    template(
        "{A} runs {a} kilometers a day for {b} days. {B} runs {c} kilometers a day for {d} days. "
        "How many more kilometers does {A} run than {B}?",
        "a 4-9-20, b 3-6-20, c 2-6-15, d 2-5-12",
        "x = a * b: kilometers of {A}",
        "y = c * d: kilometers of {B}",
        "z = x - y: kilometers more",
    ),
    template(
        "A sports club has {a} girls and {b} boys. They form teams of {c}, with every child in one team. "
        "Each team gets {d} balls. How many balls do the teams get in total?",
        "a 5-20-60, b 5-20-60, c 3-8-12, d 2-5-15",
        "x = a + b: children",
        "y = x / c: teams",
        "z = y * d: balls",
    ),
    template(
        "{A} saves ${a} a week for {b} weeks. Then {A} spends ${c}, and after that {A.his} aunt gives {A} ${d}. "
        "How many dollars does {A} have in the end, if {A.he} had none at first?",
        "a 3-9-30, b 3-6-20, c 3-15-90, d 3-15-60",
        "x = a * b: dollars saved",
        "y = x - c: dollars after spending",
        "z = y + d: dollars in the end",
    ),
    # four steps
    template(
        "{A} has ${e}. {A} buys {a} {food} for ${b} each and {c} drinks for ${d} each. "
        "How many dollars does {A} have left?",
        "a 2-4-12, b 4-7-12, c 2-5-12, d 2-4-6, e 30-60-300",
        "x = a * b: dollars for the {food}",
        "y = c * d: dollars for the drinks",
        "z = x + y: dollars spent",
        "w = e - z: dollars left",
    ),
    template(
        "A farmer has {a} hens. Each hen lays {b} eggs a week. In {c} weeks the family eats {d} eggs. "
        "The other eggs of these weeks are packed into boxes of {e}, and no egg is left over. "
        "How many boxes are filled?",
        "a 3-6-20, b 3-5-6, c 2-3-6, d 4-12-40, e 4-10-12",
        "x = a * b: eggs a week",
        "y = x * c: eggs in all these weeks",
        "z = y - d: eggs to pack",
        "w = z / e: boxes",
    ),
    template(
        "{A} has {a} {toy}. {B} has {b} times as many {toy} as {A}, and {C} has {c} fewer {toy} than {B}. "
        "How many {toy} do the three have together?",
        "a 3-8-50, b 2-3-6, c 2-8-60",
        "x = a * b: {toy} of {B}",
        "y = x - c: {toy} of {C}",
        "z = a + x: {toy} of {A} and {B}",
        "w = z + y: {toy} together",
    ),
    template(
        "A train starts with {a} passengers. At the first stop {b} passengers get off and {c} get on. "
        "At the second stop {d} passengers get off and {e} get on. How many passengers are on the train now?",
        "a 15-40-400, b 3-12-90, c 3-12-90, d 3-12-90, e 3-12-90",
        "x = a - b: passengers after some get off at the first stop",
        "y = x + c: passengers after the first stop",
        "z = y - d: passengers after some get off at the second stop",
        "w = z + e: passengers now",
    ),
    template(
        "{A} bakes {a} trays of {b} {baked}, and {B} bakes {c} trays of {d} {baked}. "
        "They pack all of them into bags of {e}, and none is left over. How many bags do they fill?",
        "a 2-4-10, b 4-8-15, c 2-4-10, d 4-8-15, e 3-8-12",
        "x = a * b: {baked} of {A}",
        "y = c * d: {baked} of {B}",
        "z = x + y: {baked} together",
        "w = z / e: bags",
    ),
    template(
        "{A} works {a} hours a day for {b} days and earns ${c} an hour. "
        "Out of this money {A} pays ${d} for the bus and ${e} for food. How many dollars does {A} have left?",
        "a 2-4-8, b 2-4-10, c 3-5-12, d 2-8-40, e 3-12-90",
        "x = a * b: hours",
        "y = x * c: dollars earned",
        "z = y - d: dollars after the bus",
        "w = z - e: dollars left",
    ),
    template(
        "A gardener plants {a} rows of {b} {flower}. Rabbits eat {c} of the {flower}. "
        "The gardener ties the others into bunches of {d} and sells each bunch for ${e}. "
        "How many dollars does the gardener get?",
        "a 3-6-15, b 5-9-20, c 3-10-60, d 3-9-12, e 2-5-12",
        "x = a * b: {flower}",
        "y = x - c: {flower} to sell",
        "z = y / d: bunches",
        "w = z * e: dollars",
    ),
]

ARITHMETIC_TEMPLATES = [
    template("{ask} {a} + {b}{end}", "a 2-20-400, b 2-20-400", "x = a + b"),
    template("{ask} {a} - {b}{end}", "a 5-40-600, b 2-20-400", "x = a - b"),
    template("{ask} {a} * {b}{end}", "a 2-9-30, b 2-9-30", "x = a * b"),
    template("{ask} {a} / {b}{end}", "a 6-50-600, b 2-9-20", "x = a / b"),
    template("{ask} {a} + {b} - {c}{end}", "a 2-20-300, b 2-20-300, c 2-15-200", "x = a + b", "y = x - c"),
    template("{ask} {a} * {b} + {c}{end}", "a 2-7-25, b 2-7-25, c 2-15-200", "x = a * b", "y = x + c"),
    template("{ask} {a} * {b} - {c}{end}", "a 2-7-25, b 2-7-25, c 2-15-200", "x = a * b", "y = x - c"),
    template("{ask} ({a} + {b}) * {c}{end}", "a 2-9-40, b 2-9-40, c 2-5-12", "x = a + b", "y = x * c"),
    template("{ask} ({a} - {b}) * {c}{end}", "a 6-20-90, b 2-12-60, c 2-5-12", "x = a - b", "y = x * c"),
    template("{ask} ({a} + {b}) / {c}{end}", "a 4-25-300, b 4-25-300, c 2-6-15", "x = a + b", "y = x / c"),
    template(
        "{ask} {a} * {b} + {c} * {d}{end}",
        "a 2-6-20, b 2-6-20, c 2-6-20, d 2-6-20",
        "x = a * b",
        "y = c * d",
        "z = x + y",
    ),
    template(
        "{ask} ({a} + {b}) * {c} - {d}{end}",
        "a 2-8-40, b 2-8-40, c 2-4-9, d 2-15-90",
        "x = a + b",
        "y = x * c",
        "z = y - d",
    ),
    template(
        "{ask} ({a} + {b}) * ({c} - {d}){end}",
        "a 2-8-30, b 2-8-30, c 5-12-30, d 2-9-25",
        "x = a + b",
        "y = c - d",
        "z = x * y",
    ),
    template(
        "{ask} {a} + {b} - {c} + {d}{end}",
        "a 3-20-300, b 3-20-300, c 2-20-300, d 2-15-200",
        "x = a + b",
        "y = x - c",
        "z = y + d",
    ),
    template(
        "{ask} {a} * {b} + {c} * {d} - {e}{end}",
        "a 2-5-15, b 2-6-20, c 2-5-15, d 2-6-20, e 2-15-90",
        *("x = a * b", "y = c * d", "z = x + y", "w = z - e"),
    ),
    template(
        "{ask} (({a} + {b}) * {c} - {d}) / {e}{end}",
        "a 2-8-30, b 2-8-30, c 2-4-9, d 2-12-60, e 2-6-12",
        *("x = a + b", "y = x * c", "z = y - d", "w = z / e"),
    ),
    template(
        "{ask} ({a} + {b}) * ({c} - {d}) + {e}{end}",
        "a 2-7-25, b 2-7-25, c 5-10-25, d 2-8-20, e 2-15-90",
        *("x = a + b", "y = c - d", "z = x * y", "w = z + e"),
    ),
]
PHRASES = [("What is", "?"), ("Compute", "."), ("Calculate", "."), ("Find the value of", ".")]

COUNTS = {1: (40, 10), 2: (50, 20), 3: (30, 20), 4: (18, 12)}
"""Steps -> (problems with small numbers, with large ones), 200 in all. Level = steps, one more with large numbers."""
OPENING = (1, 2, 1, 1, 2, 1, 2, 1, 1, 2, 1, 1, 2, 1, 3, 1, 2, 1, 1, 2)
"""Steps of the first 20 problems, all with small numbers: a fair mix that a very small model gets right sometimes."""

_OPERATORS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def solve(steps: Sequence[str], numbers: dict[str, int], cap: int) -> list[str] | None:
    """Each step as `3 * 4 = 12`; None where a result is no whole number from 2 to `cap`."""
    known = dict(numbers)
    lines = []
    for step in steps:
        name, _, left, sign, right = step.partition(":")[0].split()
        first, second = known[left], known[right]
        if sign == "/":
            result, rest = divmod(first, second)
        else:
            result, rest = _OPERATORS[sign](first, second), 0
        if rest or not 2 <= result <= cap:
            return None
        known[name] = result
        lines.append(f"{first} {sign} {second} = {result}")
    return lines


def draw(chosen: Template, large: bool, cap: int, source: random.Random) -> tuple[dict[str, int], list[str]]:
    """Numbers that make whole steps up to `cap`, and the steps."""
    while True:
        numbers = {
            name: source.randint(high, top) if large else source.randint(low, high)
            for name, (low, high, top) in chosen.numbers.items()
        }
        equations = solve(chosen.steps, numbers, cap)
        if equations is not None:
            return numbers, equations


def order(source: random.Random) -> list[tuple[int, bool]]:
    """(steps, large numbers) of each problem: the opening, then the others shuffled, so that every prefix is a mix."""
    rest = [(steps, large) for steps, counts in COUNTS.items() for large in (False, True) for _ in range(counts[large])]
    opening = [(steps, False) for steps in OPENING]
    for kind in opening:
        rest.remove(kind)
    source.shuffle(rest)
    return opening + rest


def shuffled_forever(templates: Sequence[Template], source: random.Random) -> Iterator[Template]:
    """All templates in random order, again and again, so that each is used about equally often."""
    while True:
        deck = list(templates)
        source.shuffle(deck)
        yield from deck


def make(templates: Sequence[Template], prefix: str, seed: int) -> list[dict[str, object]]:
    """200 rows, no two with the same question."""
    source = random.Random(seed)
    decks = {n: shuffled_forever([t for t in templates if len(t.steps) == n], source) for n in COUNTS}
    rows: list[dict[str, object]] = []
    asked: set[str] = set()
    for steps, large in order(source):
        chosen = next(decks[steps])
        cap = OPENING_CAP if len(rows) < len(OPENING) else LARGE_CAP if large else SMALL_CAP
        question = None
        while question is None or question in asked:
            people = list(PEOPLE)
            source.shuffle(people)
            words: dict[str, object] = {kind: source.choice(choices) for kind, choices in WORDS.items()}
            words |= dict(zip("ABC", people, strict=False))
            words |= dict(zip(("ask", "end"), source.choice(PHRASES), strict=True))
            numbers, equations = draw(chosen, large, cap, source)
            question = chosen.question.format(**words, **numbers)
        asked.add(question)
        answer = int(equations[-1].rpartition(" = ")[2])
        row: dict[str, object] = {"id": f"{prefix}-{len(rows) + 1:03}", "question": question, "answer": answer}
        labels = [step.partition(": ")[2].format(**words) for step in chosen.steps]
        if all(labels):
            lines = [f"{equation} {label}." for equation, label in zip(equations, labels, strict=True)]
            row["solution"] = "\n".join([*lines, f"#### {answer}"])
        rows.append(row | {"steps": steps, "level": steps + large})
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    default = Path(__file__).resolve().parents[1] / "datasets"
    parser.add_argument("--out", type=Path, default=default, help="folder to write to (datasets/ of this checkout)")
    folder = parser.parse_args().out
    files = {
        "arithmetic.jsonl": make(ARITHMETIC_TEMPLATES, "arithmetic", SEED),
        "word_problems.jsonl": make(WORD_TEMPLATES, "word", SEED + 1),
    }
    for name, rows in files.items():
        content = "".join(json.dumps(row) + "\n" for row in rows)
        (folder / name).write_text(content, encoding="utf-8", newline="\n")
        print(f"{folder / name}: {len(rows)} problems")


if __name__ == "__main__":
    main()
