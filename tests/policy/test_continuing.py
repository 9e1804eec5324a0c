import asyncio

import pytest
from support.runs import problems

from treeforge.config import Machine, PolicyConfig, Recipe, SamplingConfig, StepsConfig
from treeforge.policy import SCRIPTED_STEPS, ScriptedPolicy, open_policy
from treeforge.policy.base import PromptCache
from treeforge.policy.continuing import Continuing, join
from treeforge.policy.steps import split_text
from treeforge.sample import Request, Sample

LINES = StepsConfig(preset="custom", delimiter="\n")
WHOLE = "".join(f"line {i}\n" for i in range(10)) + "The answer is 3."


class Cut(ScriptedPolicy):
    """Gives the same solution, at most `limit` characters of it a time; a token is a character."""

    def __init__(self, limit):
        super().__init__()
        self.limit, self.seeds, self.prefixes = limit, [], []

    async def sample(self, request):
        rest = WHOLE[len(request.prefix) :]
        text = rest[: self.limit]
        self.seeds.append(request.seed)
        self.prefixes.append(request.prefix)
        steps = tuple(len(step) for step in split_text(text, LINES))
        finish = "stop" if text == rest else "length"
        return (Sample(text, finish, len(text), -float(len(text)), steps, tuple(map(float, steps))),) * request.n


def request(n=1, mode="rollout", prefix=""):
    return Request(problem=problems(1)[0], prefix=prefix, n=n, mode=mode, seed=5, digest=b"", tree=0)


def sample(policy, asked):
    return asyncio.run(policy.sample(asked))


@pytest.mark.parametrize("limit", [1, 5, 7, 8, 30, 1000])
def test_the_parts_are_the_whole_solution(limit):
    (found,) = sample(Continuing(Cut(limit), LINES, 1000), request())
    assert (found.text, found.finish, found.tokens, found.logprob) == (WHOLE, "stop", len(WHOLE), -float(len(WHOLE)))
    assert (len(found.step_tokens), sum(found.step_tokens)) == (11, len(WHOLE))
    assert found.step_logprobs == tuple(map(float, found.step_tokens))
    if limit not in (
        5,
        8,
    ):  # there a part begins with the line end of the step before it, which counts with the next step
        assert found.step_tokens == tuple(len(step) for step in WHOLE.splitlines(keepends=True))


def test_it_goes_on_so_often_and_every_part_has_a_seed_of_its_own():
    policy = Cut(10)
    found = sample(Continuing(policy, LINES, 2), request(n=3))
    assert [(len(s.text), s.finish) for s in found] == [(30, "length")] * 3
    assert len(set(policy.seeds)) == len(policy.seeds) == 1 + 3 * 2
    assert policy.prefixes[-1] == WHOLE[:20]


def test_single_steps_are_left_alone():
    policy = Cut(5)
    (found,) = sample(Continuing(policy, LINES, 2), request(mode="step"))
    assert (found.text, len(policy.seeds)) == (WHOLE[:5], 1)


def test_unknown_stays_unknown():
    joined = join(Sample("a\nb", "length", 2), Sample("c\n", "stop", 1, -1.0, (1,), (-1.0,)), LINES)
    assert joined == Sample("a\nbc\n", "stop", 3)


def test_the_recipe_asks_for_it():
    recipe = Recipe(
        policy=PolicyConfig(backend="scripted"), steps=SCRIPTED_STEPS, sampling=SamplingConfig(continuations=2)
    )
    assert isinstance(open_policy(recipe, Machine()), Continuing)


def test_what_is_known_of_the_prefix_cache_is_passed_on():
    policy = Cut(5)
    assert Continuing(policy, LINES, 1).prompt_cache is None
    policy.prompt_cache = PromptCache(12, 8)
    assert Continuing(policy, LINES, 1).prompt_cache == PromptCache(12, 8)
