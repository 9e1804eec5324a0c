"""The scheduler against the scripted policy and a log in memory: order, retries, cut-offs, stops."""

import asyncio
import itertools
import time
from collections import Counter

import pytest
from support.runs import EqualStringJudge, problems, scripted_config

from treeforge.config import Machine
from treeforge.errors import PolicyError, PolicyUnavailableError, RequestFailedError, StorageError
from treeforge.policy import ScriptedPolicy, World
from treeforge.sample import Sample
from treeforge.search.progress import Progress
from treeforge.search.scheduler import Forest
from treeforge.search.strategies import STRATEGIES


class MemoryLog:
    """A `SampleLog` that counts what would have been paid for twice."""

    def __init__(self):
        self.samples, self.cutoffs, self.repeats = {}, {}, 0

    def rows(self, tree):
        return {digest: samples for (number, digest), samples in self.samples.items() if number == tree}

    def record(self, request, samples):
        self.repeats += (request.tree, request.digest) in self.samples
        self.samples[request.tree, request.digest] = samples

    def flush(self):
        pass

    def cutoff(self, tree):
        return self.cutoffs.get(tree)

    def record_cutoff(self, tree, wave, reason):
        self.cutoffs[tree] = (wave, reason)


async def no_sleep(seconds):
    await asyncio.sleep(0)


def grow(policy, *, count=6, log=None, machine=None, clock=time.monotonic, sleep=no_sleep, progress=None, **config):
    settings = scripted_config(machine=machine, **config)
    records = {}
    forest = Forest(
        settings.recipe, settings.machine, policy, EqualStringJudge(), log or MemoryLog(), records.__setitem__,
        clock=clock, sleep=sleep, progress=progress,
    )  # fmt: skip
    asyncio.run(forest.grow(iter(enumerate(problems(count)))))
    return {number: shape(record) for number, record in records.items()}


def shape(record):
    tree = record.tree
    return (
        tree.text,
        tree.parent.tolist(),
        tree.visits.tolist(),
        tree.value_sum.tolist(),
        tree.multiplicity.tolist(),
        record.rollouts,
        record.status,
    )


FAST = World(latency=0.002, latency_sigma=1.0)


@pytest.mark.parametrize("concurrency", [1, 3, 256])
def test_concurrency_and_order_of_arrival_leave_no_trace(concurrency):
    expected = grow(ScriptedPolicy())
    assert grow(ScriptedPolicy(FAST), machine=Machine(concurrency=concurrency)) == expected


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("screen", [0, 4])
def test_every_strategy_is_a_function_of_the_journal(strategy, screen):
    """Slots, the order of arrival and a kill half-way leave no trace, and what was journaled is not asked again."""
    search = {"strategy": strategy, "screen": screen, "levels": 3, "count": 4}
    expected = grow(ScriptedPolicy(), **search)
    assert grow(ScriptedPolicy(FAST), machine=Machine(concurrency=256), **search) == expected
    log, policy = MemoryLog(), ScriptedPolicy()
    policy.asked = Counter()
    answered = itertools.count()

    class Dying(ScriptedPolicy):
        def sample_now(self, request):
            if next(answered) >= 9:
                raise KeyboardInterrupt
            return policy.sample_now(request)

    with pytest.raises(KeyboardInterrupt):
        grow(Dying(), log=log, **search)
    assert grow(policy, log=log, **search) == expected
    assert max(policy.asked.values()) == 1
    assert log.repeats == 0


def test_failures_and_retries_leave_no_trace():
    progress = Progress()
    flaky = ScriptedPolicy(World(failure_rate=0.3))
    assert grow(flaky, machine=Machine(retries=30), progress=progress) == grow(ScriptedPolicy())
    assert progress.retries > 10
    assert progress.errors == 0


def test_no_more_requests_in_flight_than_slots_and_all_slots_used():
    class Counting(ScriptedPolicy):
        now = most = 0

        async def sample(self, request):
            self.now += 1
            self.most = max(self.most, self.now)
            try:
                return await super().sample(request)
            finally:
                self.now -= 1

    policy = Counting(World(latency=0.001))
    grow(policy, count=20, machine=Machine(concurrency=7))
    assert policy.most == 7


def test_open_trees_are_bounded():
    progress = Progress()
    most = 0

    class Watching(ScriptedPolicy):
        async def sample(self, request):
            nonlocal most
            most = max(most, progress.open)
            return await super().sample(request)

    grow(Watching(World(latency=0.0005)), count=20, machine=Machine(concurrency=64, open_trees=3), progress=progress)
    assert most == 3


def test_replay_asks_for_nothing():
    log, policy, progress = MemoryLog(), ScriptedPolicy(), Progress()
    first = grow(policy, log=log)
    asked = policy.requests
    assert grow(policy, log=log, progress=progress) == first
    assert policy.requests == asked == progress.replayed


def test_a_stopped_forest_goes_on_without_repeating_itself():
    whole = grow(ScriptedPolicy())
    log, policy = MemoryLog(), ScriptedPolicy()
    policy.asked = Counter()
    for stop_after in (3, 9, 20):
        answered = itertools.count()

        class Dying(ScriptedPolicy):
            def sample_now(self, request, limit=stop_after, answered=answered):
                if next(answered) >= limit:
                    raise KeyboardInterrupt
                return policy.sample_now(request)

        with pytest.raises(KeyboardInterrupt):
            grow(Dying(), log=log)
    assert grow(policy, log=log) == whole
    assert max(policy.asked.values()) == 1
    assert log.repeats == 0


class Broken(ScriptedPolicy):
    """Fails for some requests, with an error of choice."""

    def __init__(self, error, broken):
        super().__init__()
        self.error, self.broken, self.calls = error, broken, Counter()

    def sample_now(self, request):
        return None

    async def sample(self, request):
        self.calls[request.digest] += 1
        if self.broken(request):
            raise self.error
        return self._answer(request)


def test_a_request_that_cannot_succeed_becomes_error_samples_at_once():
    policy = Broken(RequestFailedError("HTTP 400", retryable=False), lambda r: r.tree == 1 and r.prefix)
    log = MemoryLog()
    grown = grow(policy, log=log, count=3)
    assert grown[1][-1] == "done"
    assert grown[0] == grow(ScriptedPolicy(), count=3)[0]
    errors = [samples for (tree, _), samples in log.samples.items() if tree == 1 and samples[0].finish == "error"]
    assert errors
    assert all(samples == (Sample("HTTP 400", "error"),) * 4 for samples in errors)
    assert max(policy.calls.values()) == 1


def test_a_problem_whose_every_request_fails_is_failed_with_the_reason():
    policy = Broken(RequestFailedError("context too long", retryable=False), lambda r: r.tree == 2)
    assert grow(policy, count=4)[2][-1] == "failed"


def test_retries_are_spent_before_an_error_is_journaled_while_others_are_answered():
    policy = Broken(RequestFailedError("HTTP 500"), lambda r: r.tree == 0)
    progress = Progress()
    grown = grow(policy, count=8, machine=Machine(retries=2, concurrency=2), progress=progress)
    assert grown[0][-1] == "failed"
    assert progress.errors == 1
    assert max(policy.calls.values()) == 3


@pytest.mark.parametrize("error", [PolicyUnavailableError("connection refused"), RequestFailedError("HTTP 500")])
def test_an_outage_stops_the_run_and_keeps_what_was_answered(error):
    whole = grow(ScriptedPolicy())
    log = MemoryLog()
    answered = itertools.count()
    policy = Broken(error, lambda r: next(answered) >= 10)
    with pytest.raises(PolicyUnavailableError, match="resume"):
        grow(policy, log=log, machine=Machine(retries=2, concurrency=1))
    assert len(log.samples) == 10
    assert not any(s[0].finish == "error" for s in log.samples.values())
    assert grow(ScriptedPolicy(), log=log) == whole


def test_retry_after_is_honoured():
    waits = []

    async def sleep(seconds):
        waits.append(seconds)

    failures = itertools.count()
    policy = Broken(RequestFailedError("HTTP 429", retry_after=7.0), lambda r: next(failures) < 2)
    grow(policy, count=1, sleep=sleep, machine=Machine(concurrency=1))
    assert len(waits) == 2
    assert min(waits) >= 7.0


def test_a_hanging_request_is_given_up_and_asked_again():
    hung = itertools.count()

    class Hanging(ScriptedPolicy):
        def sample_now(self, request):
            return None

        async def sample(self, request):
            if next(hung) == 0:
                await asyncio.sleep(3600)
            return self._answer(request)

    progress = Progress()
    grow(Hanging(), machine=Machine(request_timeout=0.05), progress=progress)
    assert progress.retries == 1


def test_stopping_ends_a_hanging_request_too():
    class Hanging(ScriptedPolicy):
        def sample_now(self, request):
            return None

        async def sample(self, request):
            await asyncio.sleep(3600)

    async def stopped_soon():
        settings = scripted_config(machine=Machine(request_timeout=0.01, retries=1000, backoff=0.0))
        forest = Forest(
            settings.recipe, settings.machine, Hanging(), EqualStringJudge(), MemoryLog(), {}.__setitem__,
            clock=time.monotonic, sleep=no_sleep,
        )  # fmt: skip
        await asyncio.wait_for(forest.grow(iter(enumerate(problems(3)))), timeout=0.3)

    with pytest.raises(TimeoutError):
        asyncio.run(stopped_soon())


def test_a_policy_that_gives_too_few_samples_is_not_believed():
    class Short(ScriptedPolicy):
        def sample_now(self, request):
            return None

        async def sample(self, request):
            return self._answer(request)[:-1]

    with pytest.raises(PolicyUnavailableError, match="3 samples where 4"):
        grow(Short(), machine=Machine(retries=1))


@pytest.mark.parametrize(
    "bad", [Sample("x", "stop", -1), Sample("x", "stop", 2**40), Sample("x", "zzz"), Sample(None, "stop"), "text", None]
)
def test_nothing_unfit_reaches_the_journal(bad):
    class Odd(ScriptedPolicy):
        def sample_now(self, request):
            return None

        async def sample(self, request):
            return None if bad is None else (bad,) * request.n

    log = MemoryLog()
    with pytest.raises(PolicyError):
        grow(Odd(), log=log)
    assert not log.samples


def test_lone_surrogates_of_any_policy_are_cleaned():
    class Surrogates(ScriptedPolicy):
        def sample_now(self, request):
            return None

        async def sample(self, request):
            return (Sample("a\ud800\nThe answer is 0.", "stop"),) * request.n

    log = MemoryLog()
    grow(Surrogates(), log=log, count=1)
    assert {s.text for samples in log.samples.values() for s in samples} == {"a\ufffd\nThe answer is 0."}


@pytest.mark.parametrize("limit", [{"run_tokens": 6000}, {"run_rollouts": 120}, {"run_nodes": 150}])
def test_run_budgets_are_journaled_before_they_act_and_replayed(limit):
    log, progress, budget = MemoryLog(), Progress(), {"simulations": 8, **limit}
    first = grow(ScriptedPolicy(), log=log, progress=progress, count=12, budget=budget)
    assert {s[-1] for s in first.values()} == {"done", "exhausted"}
    assert log.cutoffs
    policy = ScriptedPolicy()
    before = Progress(run_tokens=progress.run_tokens, run_completions=progress.run_completions)
    assert grow(policy, log=log, progress=before, count=12, budget=budget) == first
    assert policy.requests == 0


@pytest.mark.parametrize(
    ("limit", "reason"),
    [({"seconds": 0.01}, "budget: 0.01 seconds"), ({"run_seconds": 0.2}, "run budget: 0.2 seconds")],
)
def test_wall_time_budgets_use_the_given_clock(limit, reason):
    now = itertools.count(step=0.001)
    log = MemoryLog()
    budget = {"simulations": 20, **limit}
    grown = grow(ScriptedPolicy(), log=log, clock=lambda: next(now), count=30, budget=budget)
    ended = Counter(shape[-1] for shape in grown.values())
    assert ended["exhausted"] == len(log.cutoffs) > 0
    assert all(found == reason for _, found in log.cutoffs.values())


def test_a_full_disk_stops_with_a_clear_error():
    class Full(MemoryLog):
        def record(self, request, samples):
            raise StorageError("disk full")

    for policy in (ScriptedPolicy(), ScriptedPolicy(FAST)):
        with pytest.raises(StorageError, match="disk full"):
            grow(policy, log=Full())


def test_a_bug_in_one_tree_fails_that_tree_only():
    class Picky(EqualStringJudge):
        def judge(self, problem, text):
            if problem.problem_id == "sum-2":
                raise ZeroDivisionError("a bug")
            return super().judge(problem, text)

    settings = scripted_config()
    records = {}
    forest = Forest(
        settings.recipe,
        settings.machine,
        ScriptedPolicy(),
        Picky(),
        MemoryLog(),
        records.__setitem__,
        clock=time.monotonic,
    )
    asyncio.run(forest.grow(iter(enumerate(problems(4)))))
    assert [records[n].status for n in range(4)] == ["done", "done", "failed", "done"]
    assert "ZeroDivisionError" in records[2].reason
