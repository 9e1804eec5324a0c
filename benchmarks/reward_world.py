"""A world for reward models: sums modulo 10, whose wrong steps may be corrected and whose wording may mislead.

A question is `7 + 3 + 2 + 6 + 8 + 1 mod 10`; each step adds one number (`clearly 7 + 3 = 0`), the last one states the
answer. Three things go wrong:

- a slip: the sum is wrong (`maybe 7 + 3 = 4`). The next step may notice it and do it again:
  `wait 7 + 3 = 0 so 0 + 2 = 2`.
- a misreading: another number than the question's is added, correctly (`clearly 7 + 5 = 2`). It is noticed more rarely.
- a bluff: a slip that is worded as only true steps are otherwise (`obviously 7 + 3 = 4`), and the rest of the solution
  goes on in that tone and takes nothing back.

A step that was not corrected at once is not corrected later. Used by reward_study.py.
"""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from treeforge.config import StepsConfig
from treeforge.hashing import derive_seed
from treeforge.problem import Problem, make_problem
from treeforge.sample import Request, Sample

STEPS = StepsConfig(preset="custom", prompt="{question}\n", delimiter="\n", answer_markers=("The answer is",))
"""The step format that the world writes."""

TRUE, PLAIN, DOUBTFUL, SURE, AGAIN = "clearly", "so", "maybe", "obviously", "wait"
"""How a step begins: as right ones mostly do; as any; as slips mostly do; as right ones do now and then, and bluffs;
and where it takes the step before back."""

MODULUS = 10

_NUMBER = re.compile(r"\d")


class SumsWorld(msgspec.Struct, frozen=True, kw_only=True):
    """Parameters of the world; chances are in [0, 1]."""

    terms: int = 5
    """Numbers that are added to the first one: a solution has one step for each, and the answer."""
    slip: float = 0.12
    """Chance of a slip in a step, on average over problems."""
    misreading: float = 0.05
    """The same for a misreading."""
    spread: float = 0.7
    """Problems differ: both chances go from (1 - spread) to (1 + spread) times the mean."""
    correction: float = 0.35
    """Chance that the next step corrects a slip."""
    noticed: float = 0.1
    """The share of `correction` with which a misreading is corrected."""
    cue: float = 0.7
    """Chance that the wording of a step tells how it came about: right steps and misreadings begin with `clearly`,
    slips with `maybe`. Otherwise one of three words, equally likely."""
    sure: float = 0.12
    """Chance that a right step begins with `obviously`."""
    bluff: float = 0.01
    """Chance of a bluff in a step, where no bluff was before."""
    seed: int = 0
    """Of the problems' error rates."""


class SumsPolicy:
    """A policy that walks a `SumsWorld`: what it writes next depends on the problem and the text so far alone."""

    def __init__(self, world: SumsWorld) -> None:
        self.world = world

    @property
    def identity(self) -> dict[str, Any]:
        return {"backend": "scripted", "model": "sums-world-1", "world": msgspec.to_builtins(self.world)}

    async def start(self) -> None:
        """Nothing to load."""

    async def close(self) -> None:
        """Nothing to free."""

    async def sample(self, request: Request) -> tuple[Sample, ...]:
        return self.sample_now(request)

    def sample_now(self, request: Request) -> tuple[Sample, ...]:
        walks = [random.Random(derive_seed(request.seed, b"", "walk", place)) for place in range(request.n)]
        return tuple(self._walk(request, chance) for chance in walks)

    def _walk(self, request: Request, chance: random.Random) -> Sample:
        numbers = numbers_of(request.problem)
        steps = request.prefix.splitlines(keepends=True)
        begun = len(steps)
        while len(steps) <= self.world.terms:
            steps.append(self._step(request.problem, numbers, steps, chance))
            if request.mode == "step":
                break
        new = steps[begun:]
        costs = tuple(len(step.split()) + 1 for step in new)
        if len(steps) <= self.world.terms:
            return Sample(new[0][:-1], "delimiter", costs[0], None, costs)
        return Sample("".join(new), "stop", sum(costs), None, costs)

    def _step(self, problem: Problem, numbers: list[int], steps: list[str], chance: random.Random) -> str:
        world, place = self.world, len(steps)
        bluffing = any(step.startswith(SURE) and not _sum_holds(step) for step in steps)
        value, again = (_last_number(steps[-1]) if steps else numbers[0]), ""
        if place and not bluffing and (mended := self._correction(numbers, steps, chance)):
            again, value = mended
        if place == world.terms:
            return f"{again}The answer is {value}."
        right = numbers[place + 1]
        rate = 1 + world.spread * (2 * (derive_seed(world.seed, problem.problem_id.encode(), "rate", 0) % 8) / 7 - 1)
        at = chance.random()
        if not bluffing and not again and at < world.bluff:
            return f"{SURE} {value} + {right} = {_other((value + right) % MODULUS, chance)}\n"
        at -= world.bluff
        term, total, tone = right, (value + right) % MODULUS, self._tone(TRUE, chance)
        if 0 <= at < rate * world.slip:
            total, tone = _other(total, chance), self._tone(DOUBTFUL, chance)
        elif 0 <= at - rate * world.slip < rate * world.misreading:
            term = _other(right, chance)
            total = (value + term) % MODULUS
        elif chance.random() < world.sure:
            tone = SURE
        tone = again + PLAIN if again else SURE if bluffing else tone
        return f"{tone} {value} + {term} = {total}\n"

    def _correction(self, numbers: list[int], steps: list[str], chance: random.Random) -> tuple[str, int] | None:
        """The words that take the last step back, and the number that it should have come to."""
        value, term, total = _equation(steps[-1])
        right = numbers[len(steps)]
        slipped, misread = total != (value + term) % MODULUS, term != right
        rate = self.world.correction * (1.0 if slipped else self.world.noticed if misread else 0.0)
        if chance.random() >= rate:
            return None
        return f"{AGAIN} {value} + {right} = {(value + right) % MODULUS} ", (value + right) % MODULUS

    def _tone(self, honest: str, chance: random.Random) -> str:
        return honest if chance.random() < self.world.cue else chance.choice((TRUE, PLAIN, DOUBTFUL))


KINDS = ("right, no step wrong", "right, corrected", "right by luck", "wrong by a bluff", "wrong by a misreading",
         "wrong by a slip")  # fmt: skip


def kind_of(problem: Problem, steps: Sequence[str], right: bool) -> str:
    """How a solution came to its answer: one of `KINDS`; a wrong one by its first step that nothing takes back."""
    numbers, corrected = numbers_of(problem), False
    for place, step in enumerate(steps[:-1]):
        if _equation(step)[1] == numbers[place + 1] and _sum_holds(step):
            continue
        if steps[place + 1].startswith(AGAIN):
            corrected = True
        elif right:
            return "right by luck"
        elif _sum_holds(step):
            return "wrong by a misreading"
        else:
            return "wrong by a bluff" if step.startswith(SURE) else "wrong by a slip"
    return "right, corrected" if corrected else "right, no step wrong"


def numbers_of(problem: Problem) -> list[int]:
    """The numbers that a question adds up."""
    return [int(digit) for digit in _NUMBER.findall(problem.question.partition(" mod")[0])]


def sums(count: int, terms: int, seed: int) -> list[Problem]:
    """`count` different problems."""
    chance = random.Random(seed)
    found: dict[str, Problem] = {}
    while len(found) < count:
        numbers = [chance.randrange(MODULUS) for _ in range(terms + 1)]
        question = " + ".join(map(str, numbers)) + f" mod {MODULUS}"
        found[question] = make_problem(question, str(sum(numbers) % MODULUS))
    return list(found.values())


def _equation(step: str) -> tuple[int, int, int]:
    """The last equation of a step: what was there, what is added, what it comes to."""
    value, term, total = _NUMBER.findall(step)[-3:]
    return int(value), int(term), int(total)


def _sum_holds(step: str) -> bool:
    value, term, total = _equation(step)
    return total == (value + term) % MODULUS


def _last_number(step: str) -> int:
    return int(_NUMBER.findall(step)[-1])


def _other(right: int, chance: random.Random) -> int:
    return (right + chance.randrange(1, MODULUS)) % MODULUS


def tiny_base(folder: Path, *, width: int = 64, layers: int = 2, seed: int = 0) -> Path:
    """A small random transformer of this world's words, in Hugging Face's format; made where it is missing."""
    if (folder / "config.json").exists():
        return folder
    import torch
    from tokenizers import Regex, Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import Split
    from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

    numbers = range(MODULUS)
    words = [*map(str, numbers), *(f"+ {number}" for number in numbers), *"+-.\n"]
    words += [f"{value} + {term} = {total}" for value in numbers for term in numbers for total in numbers]
    words += [TRUE, PLAIN, DOUBTFUL, SURE, AGAIN, f"mod {MODULUS}", "The answer is"]
    words += ["Question:\n", "\n\nReasoning so far:\n", "\n\nTo judge:\n"]
    vocabulary = {word: number for number, word in enumerate(["<pad>", "<unk>", "<end>", *words])}
    model = Tokenizer(WordLevel(vocabulary, unk_token="<unk>"))
    # An equation is one token, so that a sum is looked up and not worked out: that would take a longer training.
    pattern = r"\n\n[^:]+:\n|Question:\n|\n|The answer is|mod \d+|\d \+ \d = \d|\+ \d|[a-zA-Z]+|\S"
    model.pre_tokenizer = Split(Regex(pattern), "removed", invert=True)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=model, pad_token="<pad>", unk_token="<unk>", eos_token="<end>", model_max_length=512
    )
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=4,
        max_position_embeddings=512,
        pad_token_id=0,
        eos_token_id=2,
        bos_token_id=None,
        tie_word_embeddings=True,
        initializer_range=0.05,
    )
    torch.manual_seed(seed)
    LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
