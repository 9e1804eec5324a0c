import asyncio
import math

import pytest
from support.runs import problems

from treeforge.errors import ConfigError, RequestFailedError
from treeforge.policy import ScriptedPolicy, World
from treeforge.sample import Request


def ask(policy, problem, prefix="", *, n=4, seed=1, mode="rollout", digest=b"d" * 16):
    return policy.sample_now(Request(problem=problem, prefix=prefix, n=n, mode=mode, seed=seed, digest=digest, tree=0))


def test_a_seed_is_always_answered_alike_and_seeds_differ():
    problem = problems(1)[0]
    first, again, other = (ask(ScriptedPolicy(), problem, seed=s) for s in (1, 1, 2))
    assert first == again != other


@pytest.mark.parametrize("steps_before", [0, 1, 4, 7])
def test_true_value_is_the_share_of_right_completions(steps_before):
    policy = ScriptedPolicy(World(error_rate=0.2, recovery_rate=0.15))
    problem = problems(1)[0]
    text = ask(policy, problem, n=1, seed=11)[0].text
    prefix = "".join(text.splitlines(keepends=True)[:steps_before])
    value = policy.true_value(problem, prefix)
    n = 4000
    right = sum(
        s.text.endswith(f"is {problem.gold_answer}.")
        for i in range(n // 4)
        for s in ask(policy, problem, prefix, seed=i)
    )
    assert abs(right / n - value) < 4.5 * math.sqrt(max(value * (1 - value), 0.01) / n)


def test_off_track_prefix_is_worth_less():
    policy = ScriptedPolicy(World(error_rate=0.5))
    problem = problems(1)[0]
    values = {
        policy.true_value(problem, s.text.partition("\n")[0] + "\n")
        for i in range(20)
        for s in ask(policy, problem, seed=i)
    }
    assert len(values) == 2
    assert min(values) < policy.true_value(problem, "") < max(values)


def test_value_of_a_whole_solution_is_its_verdict():
    policy, problem = ScriptedPolicy(), problems(1)[0]
    for sample in ask(policy, problem, n=8):
        assert policy.true_value(problem, sample.text) == float(sample.text.endswith(f"is {problem.gold_answer}."))


@pytest.mark.parametrize("lines", [7, 8, 9, 40])
@pytest.mark.parametrize("mode", ["rollout", "step"])
def test_a_prefix_as_long_as_its_solutions_is_answered_at_once(lines, mode):
    """Solutions of another writer may have more lines than the world's own."""
    policy, (problem,) = ScriptedPolicy(World(depth=8)), problems(1)
    prefix = "Another writer's.\n" * lines
    samples = ask(policy, problem, prefix, mode=mode, n=64)
    assert len(samples) == 64
    assert all(sample.text.startswith("The answer is ") and sample.finish == "stop" for sample in samples)
    share = sum(problem.gold_answer in sample.text for sample in samples) / 64
    assert abs(share - policy.true_value(problem, prefix)) < 0.1


def test_single_steps_chain_to_a_whole_solution():
    policy, problem = ScriptedPolicy(World(depth=5)), problems(1)[0]
    prefix, steps = "", 0
    while True:
        sample = ask(policy, problem, prefix, n=1, mode="step", seed=steps)[0]
        steps += 1
        prefix += sample.text
        if sample.finish == "stop":
            break
        assert sample.finish == "delimiter"
        assert "\n" not in sample.text
        prefix += "\n"
    assert steps == 5
    assert "The answer is" in prefix


def test_token_and_logprob_sums_add_up():
    for sample in ask(ScriptedPolicy(), problems(1)[0], n=8):
        assert sample.tokens == sum(sample.step_tokens)
        assert sample.logprob == pytest.approx(sum(sample.step_logprobs))
        assert len(sample.step_tokens) == len(sample.text.splitlines())


def test_duplicate_rate_makes_identical_first_steps():
    problem = problems(1)[0]

    def distinct(rate):
        policy = ScriptedPolicy(World(duplicate_rate=rate, branching=50))
        return len({s.text.partition("\n")[0] for i in range(50) for s in ask(policy, problem, seed=i)})

    assert distinct(1.0) <= 2 < distinct(0.5) < distinct(0.0)


def test_failures_are_retryable_and_do_not_change_the_answer():
    problem = problems(1)[0]
    policy = ScriptedPolicy(World(failure_rate=0.5))
    requests = [
        Request(problem=problem, prefix="", n=2, mode="rollout", seed=3, digest=bytes([i]) * 16, tree=0)
        for i in range(30)
    ]
    assert policy.sample_now(requests[0]) is None
    failures, answers = 0, set()
    for request in requests:
        while True:
            try:
                answers.add(asyncio.run(policy.sample(request)))
                break
            except RequestFailedError as error:
                failures += error.retryable
    assert 5 < failures < 120
    assert answers == {ask(ScriptedPolicy(), problem, n=2, seed=3)}


@pytest.mark.parametrize(
    ("options", "word"), [({"depth": 0}, "depth"), ({"error_rate": 2}, "error_rate"), ({"deep": 3}, "deep")]
)
def test_a_bad_world_is_refused_by_name(options, word):
    with pytest.raises(ConfigError, match=word):
        ScriptedPolicy.from_options(options)
